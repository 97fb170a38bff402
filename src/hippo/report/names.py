"""Tables of names with their figures: what the catalogue and the registry offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hippo.report.fitted import FittedTable, column

SENTENCES = ("source", "about")
"""Keys whose values are read as sentences: they wrap, and the source is given up first."""


def names_view(title: str, rows: Sequence[Mapping[str, object]]) -> FittedTable:
    """A row a name; columns are the keys of the first row, the name first; further columns give way from the right."""
    keys = tuple(rows[0]) if rows else ()
    columns = [
        column(
            key.replace("_", " "),
            (_told(row[key]) for row in rows),
            rank=0 if key in ("name", "about") else len(keys) if key == "source" else index,
            right=bool(rows) and isinstance(rows[0][key], int | float),
            wraps=key in SENTENCES,
        )
        for index, key in enumerate(keys)
    ]
    return FittedTable(tuple(columns), title=title)


def _told(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value).replace("``", "")
