"""Schedules as text that a person can read: one line per rank, ``F3 B0 W0``; chunks as letters, ``F3a B0b``."""

from __future__ import annotations

LETTERS = "FBW"


def operation_name(kind: int, chunk: int, micro_batch: int, *, chunks: int = 0) -> str:
    """``F3``, or ``F3a`` for chunk 0 where there are several."""
    return f"{LETTERS[kind]}{micro_batch}" + (chr(ord("a") + chunk) if chunks > 1 or chunk else "")
