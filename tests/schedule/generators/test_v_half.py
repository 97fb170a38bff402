"""V-half by hand, against figures measured before, and on drawn problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.generators.v_half import most_live
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import live, peak_memory, replay
from hippo.schedule.text import schedule_text


def test_the_order_of_two_ranks() -> None:
    """Rank 1 starts half an F late and then works without a pause: 0.5 + 4 * 3 is the least that a V can take."""
    problem = ScheduleProblem.uniform(2, 4).placed("v")
    schedule = generate("v-half", problem)
    assert schedule_text(schedule) == (
        "v-half stages=2 micro_batches=4 chunks=2\n"
        "F0a F1a F2a F0b B0b W0b F1b B1b W1b F3a B0a W0a B1a W1a F2b B2b W2b F3b B3b B2a W2a B3a W3b W3a\n"
        "F0a F0b F1a F1b B0b B0a W0b F2a B1b W0a B1a W1b F2b F3a W1a F3b B2b B2a B3b B3a W2b W2a W3b W3a\n"
    )
    assert replay(problem, schedule).makespan == 12.5


def test_half_of_the_memory_of_1f1b() -> None:
    assert [most_live(p) for p in (1, 2, 4, 7, 8, 16)] == [1, 2, 3, 4, 5, 9]


def test_the_bubble_of_the_authors_order() -> None:
    """p = 8, m = 24, F = B = W, no delays: .1056 with 5 micro-batches, where 1F1B has .2258 with 8."""
    problem = ScheduleProblem.uniform(8, 24).placed("v")
    schedule = generate("v-half", problem)
    assert replay(problem, schedule).bubble_rate < 0.10565
    assert live(problem, schedule).max() == 5


@pytest.mark.parametrize(("comm", "before"), [(0.0, 55.0), (0.1, 59.5), (1.0, 126.6), (5.0, 438.6)])
def test_no_longer_than_the_authors_order(comm: float, before: float) -> None:
    """p = 8, m = 16, 1 / 1.05 / 0.75, 5 micro-batches in memory; one digit was kept."""
    problem = ScheduleProblem.uniform(8, 16, (1, 1.05, 0.75), comm=comm).placed("v")
    schedule = generate("v-half", problem)
    assert replay(problem, schedule).makespan < before + 0.05
    assert live(problem, schedule).max() <= 5


def test_the_smallest_limit_is_named() -> None:
    problem = ScheduleProblem.uniform(6, 9, live_limit=3).placed("v")
    with pytest.raises(InfeasibleError, match=r"v-half keeps 4 on rank \d, the limit is 3.*--memory 4,"):
        generate("v-half", problem)
    assert generate("v-half", replace(problem, limit=(4.0,) * 6)).peak_live == pytest.approx((4.0,) * 6)


def test_no_more_memory_than_micro_batches() -> None:
    problem = ScheduleProblem.uniform(8, 2).placed("v")
    assert live(problem, generate("v-half", problem)).max() <= 2


@given(problem=schedule_problems(limited=False))
def test_sound_for_any_problem(problem: ScheduleProblem) -> None:
    problem = problem.placed("v")
    schedule = generate("v-half", problem)
    assert not violations(problem, schedule)
    need = peak_memory(problem, schedule) / [each.at_forward for each in problem.memory]
    assert need.max() <= most_live(problem.ranks) * (1 + 1e-9)
