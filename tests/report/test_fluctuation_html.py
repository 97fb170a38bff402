"""Tables, charts and the page of a grid of pipelines; what ranks do in a play, by hand, and the picture of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

import numpy as np
import pytest
from markupsafe import Markup
from rich.console import Console

from hippo.dispatch.noise.fluctuation import Factors
from hippo.dispatch.noise.fluctuation_grid import Case, cases
from hippo.dispatch.noise.timed_play import TimedPlay, timed
from hippo.report.charts import Axis, Curve
from hippo.report.fluctuation_html import (
    PagePart,
    case_cells,
    habits,
    page,
    page_table,
    panels,
    plays_chart,
    terminal_table,
)
from hippo.schedule.problem import ScheduleProblem

ROWS = [
    ["uniform", "1 p", "0", "0%", "even"],
    ["uniform", "1 p", "0", "30%", "hint"],
    ["uniform", "1 p", "1", "0%", "<b>"],
]


@dataclass(frozen=True)
class Outcome:
    case: Case


def test_cells_of_a_case() -> None:
    assert case_cells(Case("mid-link", 2, 5.0, 0.3), 104.96) == ["mid-link", "2 p", "5", "30%", "105.0"]


def test_the_terminal_keeps_what_matters_and_names_the_rest() -> None:
    shown = StringIO()
    head = ("links", "memory", "a long name of a column", "noise", "verdict")
    Console(file=shown, width=40).print(terminal_table("Title", head, ROWS, kept=("links", "noise", "verdict")))
    told = shown.getvalue()
    assert all(row[index] in told for row in ROWS for index in (0, 3, 4))
    assert "left out for want of width: a long name of a column" in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 40


def test_the_table_of_a_page() -> None:
    shown = page_table("abcde", iter(ROWS), marked=True)
    assert shown.count('<tr class="new">') == 1
    assert '<td class="n hint">hint</td>' in shown
    assert "<b>" not in shown
    assert 'class="n hint"' not in page_table("abcde", ROWS)


def rising(here: Sequence[Outcome]) -> list[Curve]:
    return [Curve("<mine>", [(100 * each.case.level, 1.0 + each.case.level) for each in here], "var(--good)")]


def test_a_panel_for_each_pipeline() -> None:
    """A row for each layout and memory, a panel for each delay; mid-link without delay is none."""
    shown = panels([Outcome(case) for case in cases((0.0, 5.0), (0.0, 0.3))], rising, Axis(""))
    rows = shown.split("<h3>")[1:]
    assert [re.findall(r"<figcaption>(.*?)<", row) for row in rows] == [
        ["delay 0", "delay 5"], ["delay 0", "delay 5"], ["delay 5"], ["delay 5"]
    ]  # fmt: skip
    assert all(row.count("<circle") == 2 * row.count("<figure>") for row in rows)
    assert shown.count("&lt;mine&gt;</li>") == 1  # one legend for all
    assert "&lt;mine&gt;: 1.3 at 30 %" in shown
    assert "<mine>" not in shown


def test_a_page_escapes_names_and_needs_nothing_from_outside() -> None:
    section = PagePart("one", "The <first>", "First", "What it shows", Markup("<p>as it is</p>"))
    whole = page("A <title>", "A & B?", ["Yes."], [section])
    assert "<title>A &lt;title&gt;</title>" in whole
    assert "The &lt;first&gt;" in whole
    assert "<p>as it is</p>" in whole
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", whole)
    assert len(whole) < 40_000


PROBLEM = ScheduleProblem.uniform(2, 2, comm=1.0)
START = [[[0, 1], [2, 3.5]], [[6.5, 7.5], [4.5, 5.5]], [[8.5, 9.5], [6.5, 7.5]]]


def played(problem: ScheduleProblem = PROBLEM) -> TimedPlay:
    """As in the test of pauses: F = B = W = 1, delay 1 and 1.5 for F1, for which rank 1 waits half a unit by choice."""
    messages = np.array([[1, 1.5, 1, 1, 1, 1, 1, 1]], np.float32)
    factors = Factors(np.ones((1, 12), np.float32), messages, np.ones((1, 2), np.float32))
    return timed(problem, factors, 0, np.array(START, np.float64))


def test_habits_by_hand() -> None:
    found = habits(PROBLEM, played())
    assert found == pytest.approx(
        {
            "makespan": 10.5,
            "ranks starve, in all": 4.5 + 2.0,  # rank 0 until B0 is back, rank 1 until F0 is there
            "ranks wait by choice, in all": 0.5,
            "pauses by choice": 1,
            "W begins after its B, mean": 1.0,
            "B begins after its gradient came, mean": (1.5 + 1.0) / 4,  # of its own F on rank 1
            "F begins after its input came, ranks 1 on, mean": 0.0,
            "micro-batches live, mean of all ranks": (19 / 10.5 + 10.5 / 10.5) / 2,
        }
    )


def test_every_operation_and_pause_is_a_bar() -> None:
    shown = plays_chart(PROBLEM, [played(), played()], ["<one>", "other"], unit="F")
    first, second = shown.split("<svg")[1:]
    for drawn in (first, second):
        assert [drawn.count(f'<rect class="{look}"') for look in ("k0", "k1", "k2", "starved", "waits")] == [
            4,
            4,
            4,
            2,
            1,
        ]
    assert "starved: 2.00 to 6.50" in first
    assert "waits by choice: 3.00 to 3.50" in first
    assert "<one>" not in shown
    assert "time, in F" in second
    assert ">10</text>" in second  # the last round mark: the axis ends with the play, at 10.5
    assert ">12</text>" not in second
