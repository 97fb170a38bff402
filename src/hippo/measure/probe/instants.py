"""Instants as people write them: ``now``, ``-6h`` (that long ago), seconds since 1970, or a date of ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from hippo.errors import InputError

_AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
LATEST_S = 1e11


def instant(text: str, now_s: float, *, option: str) -> float:
    """Seconds since 1970; a date without a zone is UTC. ``InputError`` for anything else."""
    found = _AGO.fullmatch(text)
    if text == "now":
        return now_s
    if found:
        return max(now_s - float(found[1]) * _SECONDS[found[2]], 0.0)
    try:
        value = float(text)
    except ValueError:
        value = _date_s(text)
    if not 0 <= value <= LATEST_S:
        remedy = "give -6h, now, seconds since 1970, or a date such as 2026-11-21T08:00:00"
        raise InputError("is no instant", source=option, value=text, remedy=remedy)
    return value


def _date_s(text: str) -> float:
    """NaN where it is no date."""
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return float("nan")
