"""The example of the online loop, in a small form: it serves, logs and goes on where it ended."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tests.scripts import script

from hippo.errors import InputError
from hippo.jobs.online.log import Log


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return script("examples/jobs_online.py")


def test_two_runs_in_one_folder_are_one_log(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--jobs", "240", "--review", "100", "--out", str(tmp_path)]
    first = example.main(words)
    said = capsys.readouterr().out
    assert "version 1: the first policy" in said
    assert set(first) == {"loop", "guard", "first policy"}
    assert all(seconds > 0 for seconds in first.values())
    decisions = int(said.split(" decisions in ")[0].split()[-1])
    example.main(words)
    more = int(capsys.readouterr().out.split(" decisions in ")[0].split()[-1])
    assert more > decisions >= 240
    seen = example.Replayed(
        example.loaded(example.drawn(20, 0)), example.SITE, example.ReplayRules(), candidates=12
    ).look()
    with Log(tmp_path / "log.sqlite", shape=seen.observation.shape, actions=len(seen.mask)) as log:
        assert len(log.jobs()) == 2 * 240
        times = [each.time_s for each in log.transitions()]
    assert times == sorted(times)


def test_a_trace_shorter_than_asked_is_served_whole(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "short.csv"
    trace.write_text("arrival_s,duration_s\n" + "".join(f"{10 * job},{30 + job}\n" for job in range(30)))
    found = example.main(["--trace", str(trace), "--jobs", "500", "--out", str(tmp_path / "log")])
    assert found["loop"] > 0
    assert "1 to 5 " in capsys.readouterr().out  # 30 jobs in six windows


@pytest.mark.parametrize("words", [("--jobs", "-5"), ("--jobs", "0"), ("--seed", "-1")])
def test_numbers_that_cannot_be_are_refused(example: ModuleType, words: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{words[0]}: must be"):
        example.main([*words, "--out", str(tmp_path)])
