"""Rows that are not taken: wrong ones are refused with their line or, when asked for, passed over and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError

WRONG = "wrong row"
TWICE = "an id that stands twice"
STILL = "still running when the trace ends"


class Passed:
    """What a reader leaves out of one trace. A row is known by its line; in JSON, where several jobs may stand in one
    line, by its number in the list (``entry`` then knows the lines).

    ``leave``: jobs that say nothing to a scheduler (they never ran); always passed over. ``refuse``: rows that are
    wrong; an ``InputError`` with the line, unless ``skip_bad``.
    """

    def __init__(self, source: str, *, skip_bad: bool = False) -> None:
        self.source, self.skip_bad = source, skip_bad
        self.counts: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        self.lines: set[int] = set()
        self.offsets: bool | None = None  # whether times are written with an offset from UTC; None: none was read yet
        self.in_seconds: dict[str, bool] = {}  # columns of times: whether they hold seconds; else dates
        self._line_of: list[int] = []

    def entry(self, line: int) -> int:
        """The number of the next job of a JSON list, which stands in this line."""
        self._line_of.append(line)
        return len(self._line_of)

    def where(self, row: int) -> str:
        """The place of a row in words."""
        if not self._line_of:
            return f"line {row}"
        line = self._line_of[row - 1]
        alone = self._line_of[row - 2 : row - 1] != [line] and self._line_of[row : row + 1] != [line]
        return f"line {line}" if alone else f"line {line}, job {row}"

    def refuse(
        self, line: int, problem: str, *, key: str = "", value: object = None, remedy: str, counted: str = ""
    ) -> None:
        """Raises ``InputError`` for a wrong row, or takes note of it.

        ``counted``: what such rows are counted under, where the problem tells what one row has alone.
        """
        place = f"{self.where(line)}, {key}" if key else self.where(line)
        if not self.skip_bad:
            ways = f"{remedy}, or pass over such rows with --skip-bad"
            raise InputError(problem, source=self.source, key=place, value=value, remedy=ways)
        self._note(f"{WRONG}: {counted or problem}", line)

    def leave(self, lines: Sequence[int] | NDArray[np.int64], reason: str) -> None:
        """Takes note of jobs that are passed over, by their lines."""
        for line in lines:
            self._note(reason, int(line))

    def kept(self, lines: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether each row is still taken."""
        if not self.lines:
            return np.ones(len(lines), np.bool_)
        return ~np.isin(lines, np.fromiter(self.lines, np.int64, len(self.lines)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """A sentence for each reason, the most frequent first."""
        return tuple(
            f"passed over {_counted(number)}: {reason} (first in {self.where(self.first[reason])})"
            for reason, number in self.counts.most_common()
        )

    def _note(self, reason: str, line: int) -> None:
        if line in self.lines:
            return
        self.lines.add(line)
        self.counts[reason] += 1
        self.first.setdefault(reason, line)


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"
