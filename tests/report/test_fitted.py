"""Columns go in the order of their rank until the table fits."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from tests.report.test_terminal import printed as shown

from hippo.report.fitted import PADDING, FittedTable, column, fit, names_view

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


ROWS = [
    {"name": "toy", "domains": 2, "usd_per_hour": 1.5, "source": "made by hand for ``tests``, so that it fits a page"},
    {"name": "four-hubs", "domains": 4, "usd_per_hour": 1.8, "source": "a report"},
]

WIDE = """\
clusters
name        domains   usd per hour   source
────────────────────────────────────────────────────────────────────────────
toy               2            1.5   made by hand for tests, so that it fits
                                     a page
four-hubs         4            1.8   a report
"""


def test_sentences_wrap_where_there_is_room() -> None:
    assert shown(names_view("clusters", ROWS), 76) == WIDE


def test_the_source_goes_first_the_name_never() -> None:
    assert "left out for want of width: source\n" in shown(names_view("clusters", ROWS), 60)
    narrow = shown(names_view("clusters", ROWS), 12)
    assert narrow.splitlines()[1].strip() == "name"
    assert "four-hubs" in narrow


def test_what_a_name_is_about_stays() -> None:
    rows = [{"name": "exact", "about": "The exact search."}]
    assert "The exact search." in shown(names_view("planners", rows), 40)
