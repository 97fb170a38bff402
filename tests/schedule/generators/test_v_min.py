"""V-min by hand, against figures measured before, and on drawn problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.generators.v_min import most_live
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import live, peak_memory, replay
from hippo.schedule.text import schedule_text


def test_the_order_of_four_ranks() -> None:
    """The block of the paper: a pass spends one slot per rank, so that rank 3 repeats F F B B W W on its two chunks."""
    problem = ScheduleProblem.uniform(4, 6).placed("v")
    schedule = generate("v-min", problem)
    assert schedule_text(schedule) == (
        "v-min stages=4 micro_batches=6 chunks=2\n"
        "F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a W0a F3a F2b B2b B1a W1a F4a W2b F3b B3b B2a W2a F5a W3b F4b B4b"
        " B3a W3a W4b F5b B5b B4a W4a W5b B5a W5a\n"
        "F0a F1a F0b F1b B0b W0b F2a B1b W1b B0a W0a F2b F3a B1a B2b W1a W2b F3b F4a B2a B3b W2a W3b F4b F5a B3a"
        " B4b W3a W4b F5b B4a B5b W4a W5b B5a W5a\n"
        "F0a F1a F0b F1b B0b W0b B0a F2a B1b W0a F2b W1b B1a F3a W1a B2b F3b W2b B2a F4a W2a B3b F4b W3b B3a F5a"
        " W3a B4b F5b W4b B4a W4a B5b W5b B5a W5a\n"
        "F0a F0b F1a F1b B0b B0a W0b W0a F2a F2b B1b B1a W1b W1a F3a F3b B2b B2a W2b W2a F4a F4b B3b B3a W3b W3a"
        " F5a F5b B4b B4a W4b W4a B5b B5a W5b W5a\n"
    )
    assert replay(problem, schedule).makespan == 23.5
    assert live(problem, schedule).tolist() == [2] * 4


def test_a_third_of_the_memory_of_1f1b() -> None:
    assert [most_live(p) for p in (1, 2, 4, 7, 8, 16)] == [1, 2, 2, 3, 4, 6]


def test_below_the_bubble_of_the_authors_order() -> None:
    """p = 8, m = 24, F = B = W, no delays: .1579 with 4 micro-batches, where 1F1B has .2258 with 8."""
    problem = ScheduleProblem.uniform(8, 24).placed("v")
    schedule = generate("v-min", problem)
    assert replay(problem, schedule).bubble_rate < 0.1579
    assert live(problem, schedule).max() == 4


@pytest.mark.parametrize(("comm", "before"), [(0.0, 64.0), (0.1, 74.2), (1.0, 168.9), (5.0, 592.9)])
def test_no_longer_than_the_authors_order(comm: float, before: float) -> None:
    """p = 8, m = 16, 1 / 1.05 / 0.75, 4 micro-batches in memory; one digit was kept."""
    problem = ScheduleProblem.uniform(8, 16, (1, 1.05, 0.75), comm=comm).placed("v")
    schedule = generate("v-min", problem)
    assert replay(problem, schedule).makespan < before + 0.05
    assert live(problem, schedule).max() <= 4


def test_the_smallest_limit_is_named() -> None:
    problem = ScheduleProblem.uniform(5, 9, live_limit=2).placed("v")
    with pytest.raises(InfeasibleError, match=r"v-min keeps 3 on rank \d, the limit is 2.*--memory 3,"):
        generate("v-min", problem)
    assert max(generate("v-min", replace(problem, limit=(3.0,) * 5)).peak_live) == 3


def test_no_more_memory_than_micro_batches() -> None:
    problem = ScheduleProblem.uniform(8, 2).placed("v")
    assert live(problem, generate("v-min", problem)).max() <= 2


@given(problem=schedule_problems(limited=False))
def test_sound_for_any_problem(problem: ScheduleProblem) -> None:
    problem = problem.placed("v")
    schedule = generate("v-min", problem)
    assert not violations(problem, schedule)
    need = peak_memory(problem, schedule) / [each.at_forward for each in problem.memory]
    assert need.max() <= most_live(problem.ranks) * (1 + 1e-9)
