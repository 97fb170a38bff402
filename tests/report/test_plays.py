"""What ranks do in a play, by hand, and the picture of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.dispatch.noise.fluctuation import Factors
from hippo.dispatch.noise.timed_play import TimedPlay, timed
from hippo.report.plays import habits, plays_figure
from hippo.schedule.problem import Link, ScheduleProblem

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
    figure = plays_figure(PROBLEM, [played(), played()], ["one", "other"], unit="F")
    first, second = figure.data[:5], figure.data[5:]
    assert [(each.name, len(each.x)) for each in first] == [
        *((letter, 4) for letter in "FBW"), ("starved", 2), ("waits by choice", 1)
    ]  # fmt: skip
    assert [(bar.base[0], bar.x[0], bar.y[0]) for bar in first[3:]] == [(2.0, 4.5, 0), (3.0, 0.5, 1)]
    assert [each.showlegend for each in (*first, *second)] == [True] * 5 + [False] * 5
    assert [each.text for each in figure.layout.annotations] == ["one", "other"]
    assert figure.layout.xaxis2.title.text == "time, in F"


def test_a_slow_link_is_marked_where_others_are_quick() -> None:
    assert len(plays_figure(PROBLEM, [played()], ["one"], unit="F").layout.shapes) == 0
    three = ScheduleProblem.uniform(3, 1, comm=[0.1, 5.0])
    play = TimedPlay(*(np.zeros((3, 3, 1)) + each for each in (0, 1, 0)), 1.0)
    (line,) = plays_figure(three, [play], ["one"], unit="F").layout.shapes
    assert (line.y0, line.y1) == (1.5, 1.5)
    alike = replace(three, down=(Link(5.0),) * 2)
    assert len(plays_figure(alike, [play], ["one"], unit="F").layout.shapes) == 0
