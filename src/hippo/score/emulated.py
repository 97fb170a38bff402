"""Runs over emulated links beside what was printed before them: rows in the form of ``emulated_runs.csv``.

They are predicted by nothing here: the printed seconds are those of the day they ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hippo.files import read_text
from hippo.problem.runtimes import RUNTIMES
from hippo.score.pipelines import table_rows

COLUMNS = ("id", "runtime", "links", "measured_s", "printed_s")
BESIDE = "run_s"  # what the run itself said beforehand: intervals rest on it, no error is made of it


@dataclass(frozen=True)
class EmulatedRun:
    """A run: seconds of its step, printed and measured."""

    id: str
    runtime: str
    links: str  # over which it ran: one source of errors
    measured_s: float | None
    printed_s: float | None
    refusal: str | None = None
    unknown: tuple[str, ...] = ()  # columns that nothing reads

    @property
    def family(self) -> str:
        """Rows of one runtime."""
        return f"emulated-{self.runtime or 'unnamed'}"


def is_emulated(path: Path) -> bool:
    """Whether a table has this form."""
    head = read_text(path, what="table of runs").partition("\n")[0]
    return "printed_s" in head.split(",")


def cases(path: Path) -> tuple[EmulatedRun, ...]:
    """The rows of a file; what a row lacks is its refusal. ``InputError`` for a file that is no such table."""
    rows = table_rows(path, what="table of runs", needed=COLUMNS, told=COLUMNS)
    return tuple(_case(row, f"{path.name}[{index}]") for index, row in enumerate(rows))


def _case(row: Mapping[str, str], name: str) -> EmulatedRun:
    unknown = tuple(key for key in row if key not in (*COLUMNS, BESIDE))
    holes = [key for key in COLUMNS if not row.get(key)]
    refusal = f"the row does not give {', '.join(holes)}" if holes else None
    if refusal is None and row["runtime"] not in RUNTIMES:
        refusal = f"runtime {row['runtime'][:60]} is not one of {', '.join(RUNTIMES)}"
    seconds: dict[str, float] = {}
    for key in () if refusal else ("measured_s", "printed_s"):
        try:
            seconds[key] = float(row[key])
        except ValueError:
            refusal = f"{key} is not a number"
            continue
        if not 0 < seconds[key] < math.inf:
            refusal = f"{key} is not a positive number of seconds"
    known = seconds if refusal is None else {}
    return EmulatedRun(
        row.get("id") or name,
        row.get("runtime") or "",
        row.get("links") or "",
        known.get("measured_s"),
        known.get("printed_s"),
        refusal,
        unknown,
    )
