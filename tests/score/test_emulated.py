"""Runs over emulated links beside what was printed, made here in the form of ``emulated_runs.csv``."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.score.published import load, predict, validate

HEAD = "id,runtime,links,measured_s,printed_s"


def read(folder: Path, *rows: str, head: str = HEAD):  # type: ignore[no-untyped-def]
    path = folder / "runs.csv"
    path.write_text("\n".join((head, *rows)) + "\n")
    return load(path)


def test_a_run_stands_beside_what_was_printed(tmp_path: Path) -> None:
    (case,) = read(tmp_path, "one,torch,A,2.0,1.9")
    row = predict(case)
    assert row.error == pytest.approx(-0.05)
    assert (row.family, row.group) == ("emulated-torch", "emulated links, torch")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("one,torch,A,,1.9", "the row does not give measured_s"),
        ("one,horovod,A,2.0,1.9", "runtime horovod is not one of"),
        ("one,torch,A,two,1.9", "measured_s is not a number"),
        ("one,torch,A,2.0,-1", "printed_s is not a positive number"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_its_reason(tmp_path: Path, row: str, told: str) -> None:
    (case,) = read(tmp_path, row)
    assert told in (predict(case).refused or "")
    assert predict(case).error is None


def test_other_columns(tmp_path: Path) -> None:
    assert validate(read(tmp_path, "one,torch,A,2.0,1.9,7", head=f"{HEAD},load")).unknown == {"load": 1}
    with pytest.raises(InputError, match="measured_s"):
        read(tmp_path, "one,torch,A,2.0,1.9", head="id,runtime,links,measured_ms,printed_s")
    with pytest.raises(InputError, match="no rows"):
        read(tmp_path)
