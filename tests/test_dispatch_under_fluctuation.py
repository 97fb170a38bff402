"""The example of learned dispatch, in a small form: page and table agree, the picture shows what was played."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hippo.errors import InputError

from .chromium import CHROMIUM, opened
from .conftest import ROOT
from .scripts import script

SCRIPT = "examples/dispatch_under_fluctuation.py"
SMALL = ["--ranks", "3", "--micro-batches", "6", "--samples", "70"]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    module = script(SCRIPT)
    module.__dict__.update(DELAYS=(0.0, 5.0), LEVELS=(0.0, 0.3))
    return module


@pytest.fixture(scope="module")
def outcomes(example: ModuleType, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    return example.main([*SMALL, "--out", str(tmp_path_factory.mktemp("out"))])


def test_the_command_prints_a_table_and_writes_one_page(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    found = example.main([*SMALL, "--out", str(tmp_path)])
    said, page = capsys.readouterr().out, (tmp_path / "dispatch.html").read_text()
    assert len(found) == 2 * 2 * 2 + 2 * 2  # mid-link without delay is uniform without delay
    body = page.split('<section class="panel" id="figures"')[1]
    assert body.count("<tr") == len(found) + 1
    for cells in example.rows(found):
        assert all(f">{cell}</t" in body for cell in cells)
        assert not any("-0.0" in cell for cell in cells)
        assert all(cell in said for cell in cells)
    for sentence in (example.verdict(found), example.claim(found)):
        assert sentence in page
        assert sentence in " ".join(said.split())


@pytest.mark.parametrize(
    "words", [("--ranks", "1"), ("--micro-batches", "0"), ("--samples", "0"), ("--samples", "1"), ("--seed", "-1")]
)
def test_numbers_that_no_case_is_played_with(example: ModuleType, tmp_path: Path, words: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=f"{words[0][2:].replace('-', '_')}: must be from") as told:
        example.main([*words, "--out", str(tmp_path / "out")])
    assert f"got {words[1]}" in str(told.value)
    assert not (tmp_path / "out").exists()


def test_a_mistake_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = [sys.executable, str(ROOT / SCRIPT), "--out", str(tmp_path / "file")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: --out: ")
    assert "is a file, not a folder" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_page_asks_for_nothing_from_outside(example: ModuleType, outcomes) -> None:  # type: ignore[no-untyped-def]
    page = example.page(outcomes, example.pair(outcomes[-1], size(example)), size(example))
    assert len(page) < 400_000
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
def test_a_browser_draws_every_operation(example: ModuleType, outcomes, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = tmp_path / "dispatch.html"
    page.write_text(example.page(outcomes, example.pair(outcomes[-1], size(example)), size(example)))
    dom = opened(page, "--dump-dom", "--window-size=1280,900")
    assert 'data-ready="yes"' in dom
    assert "data-fault" not in dom
    plays = dom.split('id="play"')[1].split("</section>")[0]
    assert plays.count("<rect") >= 2 * 3 * 3 * 6  # bars: two plays of F, B and W, and pauses beside them
    for section in ("makespan", "gaps"):
        charts = dom.split(f'id="{section}"')[1].split("</section>")[0]
        assert charts.count("<polyline") >= 6 * 4  # panels, lines


def size(example: ModuleType):  # type: ignore[no-untyped-def]
    return example.Size(ranks=3, micro_batches=6, samples=70)


def test_the_picture_shows_the_play_with_the_median_saving(example: ModuleType, outcomes) -> None:  # type: ignore[no-untyped-def]
    """Its makespans are among those of the table, on the same play, also beyond the first draws (64 at once)."""
    for outcome in outcomes:
        shown = example.pair(outcome, size(example))
        hint, learned = outcome.trial.best("hint", "patient").spread.makespans, outcome.trial.learned.makespans
        at = int(abs(learned - shown.plays[1].makespan).argmin())
        assert shown.plays[1].makespan == pytest.approx(learned[at])
        assert shown.plays[0].makespan == pytest.approx(hint[at])
        assert shown.saved == pytest.approx(float(sorted(1 - learned / hint)[len(hint) // 2]))


def test_nobody_is_below_the_floor(outcomes) -> None:  # type: ignore[no-untyped-def]
    for each in outcomes:
        assert all(each.above_floor(line) >= -1e-9 for line in ("fixed", "hint", "patient", "learned"))
