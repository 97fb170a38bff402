"""Columns go in the order of their rank until the table fits."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from hippo.report.fitted import PADDING, FittedTable, column, fit

NAME = column("name", ["exact", "even"], right=False)
TIME = column("time", ["11.0 s", "14.5 s"])
COST = column("cost", ["$1.00", "$2.00"], rank=1)
NOTE = column("note", ["a long remark", "another"], rank=2)


def printed(table: FittedTable, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def test_everything_stays_where_there_is_room() -> None:
    assert fit((NAME, TIME, COST, NOTE), 80) == (NAME, TIME, COST, NOTE)


def test_the_highest_rank_goes_first() -> None:
    assert fit((NAME, NOTE, TIME, COST), 22) == (NAME, TIME, COST)
    assert fit((NAME, NOTE, TIME, COST), 21) == (NAME, TIME)


def test_rank_zero_stays_however_narrow() -> None:
    assert fit((NAME, NOTE, TIME, COST), 1) == (NAME, TIME)


@given(st.integers(1, 60))
def test_what_stays_fits_or_cannot_be_given_up(width: int) -> None:
    kept = fit((NAME, NOTE, TIME, COST), width)
    assert sum(item.width + PADDING for item in kept) - PADDING <= width or all(item.rank == 0 for item in kept)


def test_the_table_says_what_it_left_out() -> None:
    assert "left out for want of width: note" in printed(FittedTable((NAME, TIME, COST, NOTE)), 33)
    assert "left out" not in printed(FittedTable((NAME, TIME)), 80)


def test_cells_are_never_markup() -> None:
    told = printed(FittedTable((column("name", ["[red]north[/red]", Text("[bold]")], right=False),)), 80)
    assert "[red]north[/red]" in told
    assert "[bold]" in told
