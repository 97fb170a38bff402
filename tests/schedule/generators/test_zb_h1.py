"""ZB-H1 by hand, and against published and measured figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.methods import checked, generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import live, replay
from hippo.schedule.text import schedule_text


def test_the_order_of_four_ranks() -> None:
    """Warm-up of 1F1B; rank i lets i weight gradients fall behind until the forwards are over."""
    assert schedule_text(generate("zb-h1", ScheduleProblem.uniform(4, 6))) == (
        "zb-h1 stages=4 micro_batches=6\n"
        "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 B3 W3 B4 W4 B5 W5\n"
        "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 B4 W3 B5 W4 W5\n"
        "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 B5 W3 W4 W5\n"
        "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 W3 W4 W5\n"
    )


def test_two_ranks_solved_by_hand() -> None:
    """F = B = W = 1, no delay; 13 is the optimum with two micro-batches in memory, 1F1B takes 15.

    rank 0: F0 F1 .  B0 W0 F2 B1 W1 F3 B2 W2 B3 W3
    rank 1: .  F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3
    """
    problem = ScheduleProblem.uniform(2, 4, live_limit=2)
    played = replay(problem, generate("zb-h1", problem))
    assert played.start.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert played.makespan == 13
    assert replay(problem, generate("1f1b", problem)).makespan == 15


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 12), (8, 24), (5, 7)])
def test_a_third_of_the_bubble_of_1f1b_in_its_memory(p: int, m: int) -> None:
    """F = B = W without delay: (p - 1) / (3 m + p - 1), and p micro-batches from F to W on every rank."""
    problem = ScheduleProblem.uniform(p, m)
    schedule = generate("zb-h1", problem)
    assert replay(problem, schedule).bubble_rate == pytest.approx((p - 1) / (3 * m + p - 1), abs=1e-12)
    assert live(problem, schedule).tolist() == [p] * p


@pytest.mark.parametrize(("comm", "makespan"), [(0.0, 53.9), (0.1, 56.7), (1.0, 89.4), (5.0, 249.4)])
def test_makespans_measured_before(comm: float, makespan: float) -> None:
    problem = ScheduleProblem.uniform(8, 16, (1, 1.05, 0.75), comm=comm, live_limit=8)
    assert replay(problem, generate("zb-h1", problem)).makespan == pytest.approx(makespan, abs=0.051)


def test_a_slow_link_in_the_middle() -> None:
    problem = ScheduleProblem.uniform(8, 64, (1, 1.05, 0.75), comm=[0.05] * 3 + [5.0] + [0.05] * 3)
    assert replay(problem, generate("zb-h1", problem)).makespan == pytest.approx(478.2, abs=0.051)


def test_needs_p_micro_batches() -> None:
    problem = ScheduleProblem.uniform(4, 6, live_limit=3)
    with pytest.raises(InfeasibleError, match="keeps 4 on rank 0, the limit is 3.*--memory 4"):
        generate("zb-h1", problem)
    assert generate("zb-h1", replace(problem, limit=(4.0,) * 4)).peak_live == (4, 4, 4, 4)


@given(problem=schedule_problems(limited=False))
def test_sound_for_any_problem(problem: ScheduleProblem) -> None:
    schedule = generate("zb-h1", problem)
    assert not violations(problem, schedule)
    assert checked("zb-h1", problem, (schedule.order, schedule.order_start)).peak_live == schedule.peak_live
    assert max(schedule.peak_live) <= problem.ranks
