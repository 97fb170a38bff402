"""Entries of a JSON list one after the other: each with its line, and never the whole list as objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hippo.errors import InputError
from hippo.jobs.traces.passed import Passed

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
