"""Views that fit the terminal: lines without blanks at their ends, tables that give up columns in a stated order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Trimmed:
    """Shows ``view`` as it is, each line up to its last mark: what is piped into a file or a chat stays clean."""

    view: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the view, blanks at their ends taken off."""
        for line in console.render_lines(self.view, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                last = line[-1]
                yield from line[:-1]
                yield Segment(last.text.rstrip(), last.style, last.control)
            yield Segment.line()


PADDING = 3
"""Blank cells between two columns."""

LEAST_TO_READ = 32
"""Cells that a column of sentences needs at least."""


@dataclass(frozen=True)
class Column:
    """One column: ``rank`` 0 is never given up; of the others the highest rank goes first."""

    header: str
    cells: tuple[Text, ...]
    rank: int = 0
    right: bool = True
    wraps: bool = False

    @property
    def width(self) -> int:
        """Cells of the widest line of header and texts; of texts that wrap, as few as can still be read."""
        texts = (Text(self.header), *self.cells)
        widest = max(line.cell_len for text in texts for line in text.split())
        return min(widest, LEAST_TO_READ) if self.wraps else widest


def column(
    header: str, cells: Iterable[str | Text], *, rank: int = 0, right: bool = True, wraps: bool = False
) -> Column:
    """A column from plain strings or styled texts; nothing in them is read as markup."""
    texts = tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells)
    return Column(header, texts, rank, right, wraps)


@dataclass(frozen=True)
class FittedTable:
    """Columns of equal length; ``highlight`` is the row printed bold. A rich renderable."""

    columns: tuple[Column, ...]
    title: str | None = None
    highlight: int | None = None
    apart: bool = True  # a blank line above; the first words of a command need none

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A blank line, the table at the width at hand, and a line that names the columns left out."""
        kept = fit(self.columns, options.max_width)
        dropped = [item.header for item in self.columns if item not in kept]
        left_out = Text(f"left out for want of width: {', '.join(dropped)}", style="dim")
        above = [Text()] if self.apart else []
        yield Trimmed(Group(*above, self._table(kept, options.max_width), *([left_out] if dropped else [])))

    def _table(self, kept: Sequence[Column], width: int) -> Table:
        room = sum(item.width + PADDING for item in kept) - PADDING <= width  # else names may break
        title = Text(self.title, style="bold") if self.title else None
        table = Table(
            box=box.SIMPLE_HEAD,
            title=title,
            title_justify="left",
            show_edge=False,
            pad_edge=False,
            header_style="dim",
        )
        for item in kept:
            justify: JustifyMethod = "right" if item.right else "left"
            table.add_column(Text(item.header), justify=justify, overflow="fold", no_wrap=not item.wraps and room)
        for index, row in enumerate(zip(*(item.cells for item in kept), strict=True)):
            table.add_row(*row, style="bold" if index == self.highlight else "")
        return table


def fit(columns: Sequence[Column], width: int) -> tuple[Column, ...]:
    """The columns that stay at ``width`` cells: those of rank 0, and of the others as many as there is room for."""
    kept = list(columns)
    while sum(item.width + PADDING for item in kept) - PADDING > width and any(item.rank for item in kept):
        kept.remove(max(reversed(kept), key=lambda item: item.rank))
    return tuple(kept)


SENTENCES = ("source", "about")
"""Keys whose values are read as sentences: they wrap, and the source is given up first."""


def names_view(title: str, rows: Sequence[Mapping[str, object]]) -> FittedTable:
    """What the catalogue or the registry offers, a row a name.

    Columns are the keys of the first row, the name first; further columns give way from the right.
    """
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
