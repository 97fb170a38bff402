"""A trace as a table of fields, in chunks of columns: a file of millions of rows never lies in memory as rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from hippo.errors import InputError
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Ints
from hippo.jobs.traces.source import opened
from hippo.jobs.traces.values import Column

CHUNK = 16_384
SPACES = " "
"""Delimiter of files whose fields are parted by any blanks."""


@dataclass(frozen=True)
class Shape:
    """How a table is written: what parts fields, how many there are, names where the file has none.

    ``names``: of the columns, for files without a header; empty: the first line names them.
    """

    delimiter: str = ","
    names: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows of a table as columns."""

    line: Ints  # (n,)
    texts: dict[str, Sequence[str]]

    def column(self, name: str) -> Column:
        """A column that must be there."""
        return Column(name, self.texts[name], self.line)

    def has(self, name: str) -> bool:
        """Whether the table has the column."""
        return name in self.texts


def chunks(path: Path, shape: Shape, passed: Passed) -> Iterator[Chunk]:
    """The table in chunks; rows with another number of fields are refused with their line (a truncated last one too).

    Raises ``InputError`` for what is no CSV and for a file without rows.
    """
    found = False
    with opened(path) as text:
        parts = _split(text, shape) if shape.delimiter == SPACES else _parsed(text, shape, passed)
        names = shape.names
        for before, part in parts:
            rows = part
            if not names:
                blank = next((place for place, fields in enumerate(part) if fields), len(part) - 1)
                names, rows, before = _header(part[blank], passed), part[blank + 1 :], before + blank + 1
            chunk = _chunk(rows, before, names, passed)
            found = found or bool(len(chunk.line) or passed.lines)
            if len(chunk.line):
                yield chunk
    if not found:
        raise InputError("the trace holds no rows", source=passed.source, remedy="give a trace with at least one job")


def _header(fields: list[str], passed: Passed) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in fields)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        remedy = "name it once"
        raise InputError("two columns of one name", source=passed.source, key="line 1", value=twice, remedy=remedy)
    return names


def _split(text: TextIO, shape: Shape) -> Iterator[tuple[int, list[list[str]]]]:
    """Lines above a part and its fields, parted by blanks; a remark has none."""
    before = 0
    while lines := list(islice(text, CHUNK)):
        yield before, [[] if line.lstrip().startswith(shape.comment or "\0") else line.split() for line in lines]
        before += len(lines)


def _parsed(text: TextIO, shape: Shape, passed: Passed) -> Iterator[tuple[int, list[list[str]]]]:
    """Lines above a part and its fields; blank lines have none."""
    if shape.delimiter == "\t":
        reader = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(text, delimiter=shape.delimiter, strict=True)
    before = 0
    try:
        while rows := list(islice(reader, CHUNK)):
            if reader.line_num - before != len(rows):
                raise csv.Error("a field in quotes holds a line's end")
            yield before, rows
            before = reader.line_num
    except csv.Error as error:
        key, remedy = f"line {reader.line_num}", "write one row a line (the file may be cut off there)"
        raise InputError(f"not valid CSV: {error}", source=passed.source, key=key, remedy=remedy) from None


def _chunk(rows: list[list[str]], before: int, names: tuple[str, ...], passed: Passed) -> Chunk:
    """Rows as columns; ``before``: lines above the first of them."""
    width = len(names)
    lines = np.arange(before + 1, before + 1 + len(rows), dtype=np.int64)
    if set(map(len, rows)) - {width}:
        for place, fields in enumerate(rows):
            if fields and len(fields) != width:
                _refuse_width(before + 1 + place, fields, width, passed)
        lines = lines[np.fromiter((len(row) == width for row in rows), np.bool_, len(rows))]
        rows = [row for row in rows if len(row) == width]
    columns: list[Sequence[str]] = list(zip(*rows, strict=True)) or [()] * width
    return Chunk(lines, dict(zip(names, columns, strict=True)))


def _refuse_width(line: int, fields: Sequence[str], width: int, passed: Passed) -> None:
    problem = f"{len(fields)} fields where the table has {width}"
    remedy = "write the whole row (the file may be cut off there)"
    passed.refuse(line, problem, value=",".join(fields), remedy=remedy)
