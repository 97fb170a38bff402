"""What a format's reader hands over: columns of a trace as they stand in the file, nothing sorted or judged yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CPU = "cpu"
"""Kind of device that jobs without a GPU run on."""


class Words:
    """Words to numbers in the order in which they are first met."""

    def __init__(self, *words: str) -> None:
        self.numbers: dict[str, int] = {word: place for place, word in enumerate(words)}

    def of(self, texts: Sequence[str]) -> Ints:
        """(n,) the number of every word."""
        numbers = self.numbers
        return np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts))

    def one(self, text: str) -> int:
        """The number of one word."""
        return self.numbers.setdefault(text, len(self.numbers))

    @property
    def words(self) -> tuple[str, ...]:
        """The words by their numbers."""
        return tuple(self.numbers)

    def coded(self, numbers: Sequence[int] | Ints) -> Coded:
        """A column of these words."""
        return Coded(np.array(numbers, np.int64), self.words or ("",))


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of words: ``words[code[i]]``."""

    code: Ints  # (n,)
    words: tuple[str, ...]

    def taken(self, rows: Ints) -> Coded:
        """These rows of the column."""
        return Coded(self.code[rows], self.words)

    @classmethod
    def same(cls, word: str, number: int) -> Coded:
        """One word for all rows."""
        return cls(np.zeros(number, np.int64), (word,))


@dataclass(frozen=True, eq=False)
class TraceRows:
    """n jobs in the order of the file. NaN: the file does not say.

    Times count from any origin; ``origin_s`` is that origin in Unix seconds where the format tells dates.
    """

    line: Ints  # (n,) line of the file; in JSON the number of the job in the list, from 1
    arrival_s: Floats  # (n,)
    duration_s: Floats  # (n,) NaN: never ran
    devices: Floats  # (n,) whole numbers
    user: Coded
    names: Sequence[str] | None = None  # (n,) None: the format has no ids
    kind: Coded | None = None
    runs_on: Coded | None = None  # words joined by "|"; "" any
    memory_gb: Floats | None = None
    priority: Ints | None = None
    deadline_s: Floats | None = None  # from the same origin as arrival_s
    estimate_s: Floats | None = None
    data_gb: Floats | None = None
    data_at: Coded | None = None
    clients_at: Coded | None = None
    latency_bound_s: Floats | None = None
    model: Coded | None = None
    batch: Floats | None = None  # these five as in ``Job``: of elastic jobs, 0 for others
    seq: Floats | None = None
    tokens: Floats | None = None
    least: Floats | None = None
    most: Floats | None = None
    ends_after: Floats | None = None
    origin_s: float | None = None
    never_ran: str = "never ran"  # reason told for jobs without a duration

    @property
    def lasts(self) -> NDArray[np.bool_]:
        """(n,) jobs that ran for some time, or are elastic and will."""
        return self.duration_s > 0 if self.tokens is None else (self.duration_s > 0) | (self.tokens > 0)

    def taken(self, rows: Ints) -> TraceRows:
        """These rows, in this order."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Coded):
                found[each.name] = value.taken(rows)
            elif isinstance(value, np.ndarray):
                found[each.name] = value[rows]
        if self.names is not None:
            found["names"] = tuple(self.names[row] for row in rows)
        return replace(self, **found)


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

    def rows(self, **more: Any) -> TraceRows:
        """What was collected; ``more`` are further fields of ``TraceRows``, ready made."""
        found: dict[str, Any] = {
            name: self.coded(name) if name in self._words else self.column(name) for name in self._columns
        }
        for name in ("arrival_s", "duration_s", "devices"):
            found.setdefault(name, np.zeros(0))
        found.setdefault("user", Coded.same("", len(self.line)))
        return TraceRows(**{"line": self.line, "names": self.names, **found, **more})
