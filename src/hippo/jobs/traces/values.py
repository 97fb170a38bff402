"""Texts of a column to numbers and times: as a whole where all is well, one by one where something is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from hippo.jobs.traces.passed import Passed
from hippo.jobs.traces.rows import Floats, Ints

MISSING = frozenset({"", "na", "n/a", "nan", "nat", "none", "null", "-", "\\n"})
"""What stands where a file says nothing, in small letters."""

EPOCH = datetime(1970, 1, 1)
FORM = "0000-00-00 00:00:00"
LARGEST = 1e15


class Column(NamedTuple):
    """A named column of a chunk and the lines it stands in."""

    name: str
    texts: Sequence[str]
    line: Ints  # (n,)


def numbers(column: Column, passed: Passed) -> Floats:
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


def times(column: Column, passed: Passed) -> Floats:
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


def _in_seconds(column: Column, passed: Passed) -> bool:
    """Whether a column of times holds seconds; its first chunk that says anything decides for all."""
    known = passed.in_seconds.get(column.name)
    if known is not None:
        return known
    if all(text.strip().lower() in MISSING for text in column.texts):
        return True
    return passed.in_seconds.setdefault(column.name, all(map(is_number, column.texts)))


def _of_one_clock(column: Column, found: Floats, passed: Passed) -> Floats:
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


def whole(column: Column, passed: Passed, *, least: float = 0.0, most: float = math.inf) -> Floats:
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


def amounts(column: Column, passed: Passed) -> Floats:
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


def _one_by_one(column: Column, passed: Passed, read: Callable[[str], float], problem: str, remedy: str) -> Floats:
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
