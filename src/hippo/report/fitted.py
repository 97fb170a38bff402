"""A table that gives up its least important columns, in a stated order, until it fits the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from hippo.report.trimmed import Trimmed

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
