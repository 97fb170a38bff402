"""Columns that grow chunk by chunk until they are the rows of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.traces.rows import Coded, Ints, Rows, Words


class Tally:
    """Collects chunks: ``lines`` and every other column once per chunk, then ``rows``."""

    def __init__(self) -> None:
        self._line: list[Ints] = []
        self._columns: dict[str, list[NDArray[Any]]] = {}
        self._words: dict[str, Words] = {}
        self._names: list[Sequence[str]] = []

    def lines(self, line: Ints) -> None:
        """The lines of a chunk."""
        self._line.append(line)

    def add(self, column: str, values: NDArray[Any]) -> None:
        """A chunk of a column of numbers."""
        self._columns.setdefault(column, []).append(values)

    def say(self, column: str, texts: Sequence[str]) -> None:
        """A chunk of a column of words."""
        self.add(column, self._words.setdefault(column, Words()).of(texts))

    def name(self, texts: Sequence[str]) -> None:
        """A chunk of the jobs' ids."""
        self._names.append(texts)

    def column(self, name: str) -> NDArray[Any]:
        """A whole column."""
        parts = self._columns.get(name, [])
        return np.concatenate(parts) if parts else np.zeros(0)

    def take(self, name: str) -> NDArray[Any]:
        """A whole column that is no column of the rows, taken out."""
        found = self.column(name)
        self._columns.pop(name, None)
        return found

    def coded(self, name: str) -> Coded:
        """A whole column of words."""
        return self._words.get(name, Words()).coded(self.column(name))

    @property
    def line(self) -> Ints:
        """(n,) lines of all rows."""
        return np.concatenate(self._line) if self._line else np.zeros(0, np.int64)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Ids of all rows; None where the format has none."""
        return tuple(chain.from_iterable(self._names)) if self._names else None

    def rows(self, **more: Any) -> Rows:
        """What was collected; ``more`` are further fields of ``Rows``, ready made."""
        found: dict[str, Any] = {
            name: self.coded(name) if name in self._words else self.column(name) for name in self._columns
        }
        for name in ("arrival_s", "duration_s", "devices"):
            found.setdefault(name, np.zeros(0))
        found.setdefault("user", Coded.same("", len(self.line)))
        return Rows(**{"line": self.line, "names": self.names, **found, **more})
