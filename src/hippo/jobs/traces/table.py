"""A trace as a table of columns, in chunks: a file of millions of rows never lies in memory as rows.

Texts of a column become numbers and times as a whole where all is well, one by one where something is not. Entries of
a JSON list are read one after the other.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from hippo.errors import InputError
from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Floats, Ints
from hippo.jobs.traces.source import opened

MISSING = frozenset({"", "na", "n/a", "nan", "nat", "none", "null", "-", "\\n"})
"""What stands where a file says nothing, in small letters."""

EPOCH = datetime(1970, 1, 1)
FORM = "0000-00-00 00:00:00"
LARGEST = 1e15


class TextColumn(NamedTuple):
    """A named column of a chunk and the lines it stands in."""

    name: str
    texts: Sequence[str]
    line: Ints  # (n,)


def numbers(column: TextColumn, passed: Passed) -> Floats:
    """(n,) floats; NaN where nothing is said; what is no finite number is refused with its line."""
    try:
        found = np.array(column.texts, np.float64)
        if "_" in "".join(column.texts):  # 1_000 is a number to Python alone
            raise ValueError
    except ValueError:
        return _one_by_one(column, passed, _number, "must be a number", "write a finite number")
    if (np.abs(found) > LARGEST).any():
        return _one_by_one(column, passed, _number, "must be a finite number", f"write a number up to {LARGEST:g}")
    return found


def times(column: TextColumn, passed: Passed) -> Floats:
    """(n,) Unix seconds of ``YYYY-MM-DD HH:MM:SS``; NaN where nothing is said.

    Without an offset times are taken as they stand; with one (``Z``, ``+08:00``) they are converted to UTC. A trace
    writes all of its times with an offset or none: the others are refused with their line. A column that begins with a
    chunk of nothing but numbers holds seconds.
    """
    if _in_seconds(column, passed):
        return numbers(column, passed)
    if _are_plain(column.texts) and not passed.offsets:
        passed.offsets = False
        try:
            return _seconds(np.array(column.texts, "datetime64[s]"))
        except ValueError:
            pass
    remedy = "write YYYY-MM-DD HH:MM:SS"
    found = _one_by_one(column, passed, _time, "must be a date and time", remedy)
    return _of_one_clock(column, found, passed)


def _in_seconds(column: TextColumn, passed: Passed) -> bool:
    """Whether a column of times holds seconds; its first chunk that says anything decides for all."""
    known = passed.in_seconds.get(column.name)
    if known is not None:
        return known
    if all(text.strip().lower() in MISSING for text in column.texts):
        return True
    return passed.in_seconds.setdefault(column.name, all(map(is_number, column.texts)))


def _of_one_clock(column: TextColumn, found: Floats, passed: Passed) -> Floats:
    """Refuses times with an offset in a trace whose first time has none, and the other way round."""
    for row in np.flatnonzero(~np.isnan(found)).tolist():
        text = column.texts[row].strip()
        offset = text[-1] in "Zz" or any(sign in text[len("2017-10-09") :] for sign in "+-")
        if passed.offsets is None:
            passed.offsets = offset
        if offset != passed.offsets:
            problem = "a time with an offset among times without one" if offset else "a time without an offset"
            remedy = "write all times of the trace with an offset from UTC, or none"
            passed.refuse(int(column.line[row]), problem, key=column.name, value=text, remedy=remedy)
            found[row] = np.nan
    return found


def counts(column: TextColumn, passed: Passed, *, least: float = 0.0, most: float = math.inf) -> Floats:
    """(n,) whole numbers as floats; NaN where nothing is said; others, smaller and larger ones are refused with their
    line."""
    found = numbers(column, passed)
    wrong = (found != np.floor(found)) & ~np.isnan(found) | (found < least) | (found > most)
    for row in np.flatnonzero(wrong).tolist():
        text, line = column.texts[row], int(column.line[row])
        remedy = f"write a whole number, at least {least:,.0f}" + (
            f" and at most {most:,.0f}" if most < math.inf else ""
        )
        passed.refuse(line, "must be a whole number", key=column.name, value=text, remedy=remedy)
        found[row] = np.nan
    return found


def amounts(column: TextColumn, passed: Passed) -> Floats:
    """(n,) numbers of 0 or more; NaN where nothing is said; negative ones are refused with their line."""
    found = numbers(column, passed)
    for row in np.flatnonzero(found < 0).tolist():
        text, line = column.texts[row], int(column.line[row])
        passed.refuse(line, "must not be negative", key=column.name, value=text, remedy="write 0 or more")
        found[row] = np.nan
    return found


def _are_plain(texts: Sequence[str]) -> bool:
    """Whether every text is written as ``FORM``, digit for digit."""
    if not all(len(text) == len(FORM) for text in texts):
        return False
    try:
        letters = np.array(texts, f"S{len(FORM)}").view(np.uint8).reshape(-1, len(FORM))
    except UnicodeEncodeError:
        return False
    form = np.frombuffer(FORM.encode(), np.uint8)
    digits = form == ord("0")
    plain = (letters[:, digits] >= ord("0")) & (letters[:, digits] <= ord("9"))
    return bool(plain.all() and (letters[:, ~digits] == form[~digits]).all())


def is_number(text: str) -> bool:
    """Whether a field is a number or says nothing."""
    if text.strip().lower() in MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _seconds(found: np.ndarray[tuple[int], np.dtype[np.datetime64]]) -> Floats:
    seconds = found.astype(np.int64).astype(np.float64)
    seconds[np.isnat(found)] = np.nan
    return seconds


def _one_by_one(column: TextColumn, passed: Passed, read: Callable[[str], float], problem: str, remedy: str) -> Floats:
    """The slow way: every text by itself, so that the line of a wrong one is known."""
    found = np.full(len(column.texts), np.nan)
    for row, text in enumerate(column.texts):
        if text.strip().lower() in MISSING:
            continue
        try:
            found[row] = read(text.strip())
        except ValueError:
            passed.refuse(int(column.line[row]), problem, key=column.name, value=text, remedy=remedy)
    return found


def _number(text: str) -> float:
    if "_" in text:
        raise ValueError
    value = float(text)
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError
    return value


def _time(text: str) -> float:
    """Unix seconds: of UTC where an offset is written, else of the time as it stands."""
    if len(text) < len("2017-10-09"):
        raise ValueError
    value = datetime.fromisoformat(text)
    return (value - (EPOCH if value.tzinfo is None else EPOCH.replace(tzinfo=UTC))).total_seconds()


CHUNK = 16_384
SPACES = " "
"""Delimiter of files whose fields are parted by any blanks."""


@dataclass(frozen=True)
class TableShape:
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

    def column(self, name: str) -> TextColumn:
        """A column that must be there."""
        return TextColumn(name, self.texts[name], self.line)

    def has(self, name: str) -> bool:
        """Whether the table has the column."""
        return name in self.texts


def chunks(path: Path, shape: TableShape, passed: Passed) -> Iterator[Chunk]:
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


def _split(text: TextIO, shape: TableShape) -> Iterator[tuple[int, list[list[str]]]]:
    """Lines above a part and its fields, parted by blanks; a remark has none."""
    before = 0
    while lines := list(islice(text, CHUNK)):
        yield before, [[] if line.lstrip().startswith(shape.comment or "\0") else line.split() for line in lines]
        before += len(lines)


def _parsed(text: TextIO, shape: TableShape, passed: Passed) -> Iterator[tuple[int, list[list[str]]]]:
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


_BLANK = " \t\r\n"


def entries(text: str, passed: Passed, *, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1; ``passed`` knows the lines) and content of every object of the list that begins at ``start``.

    A list that is cut off, or an entry that is no object, is refused with its line; where wrong rows are passed over,
    what stands before it is taken.
    """
    decoder = json.JSONDecoder()
    place = _skip(text, start)
    if text[place : place + 1] != "[":
        remedy = "write a list of jobs"
        raise InputError("is no JSON list", source=passed.source, key="line 1", remedy=remedy)
    line, counted, place = 1, 0, _skip(text, place + 1)
    while text[place : place + 1] != "]":
        line, counted = line + text.count("\n", counted, place), place
        try:
            entry, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            told = getattr(error, "msg", "nested too deep").lower()
            passed.refuse(
                passed.entry(line), f"not valid JSON: {told}", remedy="give the whole file (it may be cut off there)"
            )
            return
        number = passed.entry(line)
        if isinstance(entry, dict):
            yield number, entry
        else:
            passed.refuse(number, "is no job", value=entry, remedy="write an object per job")
        place = _skip(text, place)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "]":
            line += text.count("\n", counted, place)
            passed.refuse(
                passed.entry(line), "the list does not end", remedy="give the whole file (it may be cut off there)"
            )
            return


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BLANK:
        place += 1
    return place
