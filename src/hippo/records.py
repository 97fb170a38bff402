"""Rows of plain values: what makes a data frame, and how a notebook shows them without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

Record = Mapping[str, object]
"""Column to value: text, a number, or None where there is none."""

MOST_ROWS = 50
"""Rows that a notebook shows."""


def html_table(records: Sequence[Record], *, title: str = "") -> str:
    """A table with a column per key of the first record, escaped, without style or script; the first 50 rows."""
    if not records:
        return f"<p>{escape(title)}</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in records[0])
    rows = ["".join(f"<td>{escape(_text(value))}</td>" for value in each.values()) for each in records[:MOST_ROWS]]
    more = f"<p>and {len(records) - MOST_ROWS:,} rows more</p>" if len(records) > MOST_ROWS else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>{more}"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
