"""Schedules as text that a person can read and write: a header, then one line per rank.

    zb-h1 stages=2 micro_batches=3
    F0 F1 B0 W0 F2 B1 W1 B2 W2
    F0 B0 F1 B1 W0 F2 B2 W1 W2

Where a rank has several chunks a letter names the chunk, ``F3a B0b`` (``aa`` follows ``z``). A header that ends in
``fused`` says that B is the backward of inputs and weights at once; such a schedule has no W.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hippo.engine.program import WEIGHT
from hippo.errors import InputError
from hippo.schedule.schedule import Schedule, Shape

LETTERS = "FBW"

_HEADER = re.compile(r"(\S{1,60}) stages=([0-9]{1,6}) micro_batches=([0-9]{1,9})(?: chunks=([0-9]{1,4}))?( fused)?")
_TOKEN = re.compile(r"([FBW])([0-9]{1,9})([a-z]{0,2})")


def operation_name(kind: int, chunk: int, micro_batch: int, *, chunks: int = 0) -> str:
    """``F3``, or ``F3a`` for chunk 0 where there are several."""
    return f"{LETTERS[kind]}{micro_batch}" + (_letter(chunk) if chunks > 1 or chunk else "")


def rank_text(schedule: Schedule, rank: int) -> str:
    """The line of one rank."""
    chunks = schedule.shape.chunks
    return " ".join(operation_name(*row, chunks=chunks) for row in schedule.rank(rank).tolist())


def schedule_text(schedule: Schedule) -> str:
    """Header and one line per rank, each ended."""
    shape = schedule.shape
    head = f"{schedule.name} stages={shape.stages} micro_batches={shape.micro_batches}"
    head += (f" chunks={shape.chunks}" if shape.chunks > 1 else "") + (" fused" if schedule.fused else "")
    return "\n".join([head, *(rank_text(schedule, rank) for rank in range(shape.stages)), ""])


def parse_schedule(text: str, *, source: str) -> Schedule:
    """The schedule of a text; whether it is a sound one is for the checker to say.

    Lines that are empty or begin with ``#`` are passed over. ``InputError`` names line and token.
    """
    lines = [(f"line {number}", line.split()) for number, line in enumerate(text.splitlines(), 1)]
    (key, head), *ranks = [(key, words) for key, words in lines if words and words[0][0] != "#"] or [("line 1", [])]
    name, shape, fused = _header(" ".join(head), source=source, key=key)
    if len(ranks) != shape.stages:
        remedy = f"write {shape.stages} lines, one per rank, or correct the header"
        raise InputError(
            f"says {shape.stages} stages, {len(ranks)} lines follow", source=source, key=key, remedy=remedy
        )
    rows = [[_operation(word, shape, fused, source=source, key=key) for word in words] for key, words in ranks]
    return schedule_of_rows(name, shape, rows, fused=fused)


def schedule_of_rows(name: str, shape: Shape, ranks: Sequence[Sequence[Sequence[int]]], *, fused: bool) -> Schedule:
    """A schedule of one list of (kind, chunk, micro-batch) per rank."""
    order = np.array([row for rows in ranks for row in rows], dtype=np.int64).reshape(-1, 3)
    start = np.cumsum([0, *(len(rows) for rows in ranks)], dtype=np.int64)
    for array in (order, start):
        array.setflags(write=False)
    return Schedule(name, shape, fused, order, start)


def _header(line: str, *, source: str, key: str) -> tuple[str, Shape, bool]:
    """Name, shape, and whether backwards are fused."""
    match = _HEADER.fullmatch(line)
    if match is None:
        remedy = "begin with a header, for instance 'mine stages=4 micro_batches=8', with 'chunks=2' and 'fused' after"
        raise InputError("is no header of a schedule", source=source, key=key, value=line, remedy=remedy)
    shape = Shape(int(match[2]), int(match[3]), int(match[4] or 1))
    if not (shape.stages and shape.micro_batches and shape.chunks):
        raise InputError("has a 0", source=source, key=key, value=line, remedy="give numbers from 1 on")
    return match[1], shape, match[5] is not None


def _operation(word: str, shape: Shape, fused: bool, *, source: str, key: str) -> tuple[int, int, int]:
    """Kind, chunk and micro-batch of ``F3a``."""
    match = _TOKEN.fullmatch(word)
    example = "F0a" if shape.chunks > 1 else "F0"
    if match is None or bool(match[3]) != (shape.chunks > 1):
        remedy = f"write {'F or B' if fused else 'F, B or W'} and the micro-batch, for instance {example}"
        remedy += ", the letter for the chunk" if shape.chunks > 1 else ""
        raise InputError("is no operation", source=source, key=key, value=word, remedy=remedy)
    kind, micro_batch, chunk = LETTERS.index(match[1]), int(match[2]), _chunk(match[3])
    if micro_batch >= shape.micro_batches or chunk >= shape.chunks:
        remedy = f"the header says micro_batches={shape.micro_batches} chunks={shape.chunks}; both count from 0"
        raise InputError("is beyond the header", source=source, key=key, value=word, remedy=remedy)
    if fused and kind == WEIGHT:
        remedy = "a fused B holds W: leave out W here, or 'fused' in the header"
        raise InputError("does not go with a fused backward", source=source, key=key, value=word, remedy=remedy)
    return kind, chunk, micro_batch


def _letter(chunk: int) -> str:
    """a .. z, aa .. zz, as spreadsheets count columns."""
    first, last = divmod(chunk, 26)
    return (chr(ord("a") + first - 1) if first else "") + chr(ord("a") + last)


def _chunk(letters: str) -> int:
    """The chunk of its letters; 0 for none."""
    found = 0
    for letter in letters:
        found = 26 * found + ord(letter) - ord("a") + 1
    return max(0, found - 1)
