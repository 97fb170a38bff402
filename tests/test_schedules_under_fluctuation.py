"""The example of schedules under fluctuation, in a small form: its page and its table say the same, and it is fair."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hippo.errors import InputError

from .conftest import ROOT
from .scripts import script

SCRIPT = "examples/schedules_under_fluctuation.py"
SMALL = ["--ranks", "3", "--micro-batches", "6", "--samples", "200", "--search-s", "0.02"]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    module = script(SCRIPT)
    module.__dict__.update(DELAYS=(0.0, 1.0, 5.0), LEVELS=(0.0, 0.3))
    return module


@pytest.fixture(scope="module")
def outcomes(example: ModuleType, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    return example.main([*SMALL, "--out", str(tmp_path_factory.mktemp("out"))])


def test_the_command_prints_a_table_and_writes_one_page(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setattr(example, "DELAYS", (0.0, 5.0))
    found = example.main([*SMALL, "--out", str(tmp_path)])
    said, page = capsys.readouterr().out, (tmp_path / "schedules_under_fluctuation.html").read_text()
    assert len(found) == 2 * 2 * 2 + 2 * 2  # mid-link without delay is uniform without delay
    body = page.split("<tbody>")[-1]
    assert body.count("<tr") == len(found)
    for cells in example.rows(found):
        assert all(f">{cell}</t" in body for cell in cells)
        assert all(cell in said for cell in cells)
    for sentence in (example.where_it_gains(found), example.where_fixed_is_as_good(found)):
        assert sentence in page
        assert sentence in " ".join(said.split())


def test_the_page_asks_for_nothing_from_outside(example: ModuleType, outcomes) -> None:  # type: ignore[no-untyped-def]
    page = example.page(outcomes, example.Size())
    assert len(page) < 600_000
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)


def test_nobody_is_below_the_floor_and_the_recommended_order_is_hardly_ever_above_a_baseline(outcomes) -> None:  # type: ignore[no-untyped-def]
    """It was chosen on other plays: it may lose by the sampling error, not by more."""
    for each in outcomes:
        assert each.winner.mean >= each.floor * (1 - 1e-6)
        for (name, way), other in each.baselines.items():
            assert each.gain(name, way) == pytest.approx(1 - each.winner.mean / other.mean)
            lost = each.winner.minus(other)
            assert lost.mean <= 2 * lost.error + 0.005 * other.mean, (each.case, name, way)


def test_memory_for_p_micro_batches_has_no_place_for_zb_h2(outcomes) -> None:  # type: ignore[no-untyped-def]
    for each in outcomes:
        assert (("zb-h2", "fixed") in each.baselines) is (each.case.memory == 2)


def test_without_fluctuation_the_gain_over_1f1b_grows_with_the_delay(outcomes) -> None:  # type: ignore[no-untyped-def]
    still = [each for each in outcomes if (each.case.layout, each.case.memory, each.case.level) == ("uniform", 2, 0.0)]
    gains = [each.gain("1f1b", "fixed") for each in still]
    assert gains == sorted(gains)
    assert gains[-1] > 0.25


@pytest.mark.parametrize(("name", "value"), [("ranks", "1"), ("samples", "0"), ("search-s", "0")])
def test_what_cannot_be_is_refused(example: ModuleType, tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"^{name.replace('-', '_')}: must be "):
        example.main([*SMALL, f"--{name}", value, "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_line_and_exit_2(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / SCRIPT), *SMALL, "--ranks", "1", "--out", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: ranks: must be ")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
