"""ZB-H2 by hand, and against published and measured figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import live, replay
from hippo.schedule.text import schedule_text


def test_the_order_of_four_ranks() -> None:
    """2 (p - i) - 1 forwards before the first backward; rank i lets 2 i weight gradients fall behind."""
    assert schedule_text(generate("zb-h2", ScheduleProblem.uniform(4, 8))) == (
        "zb-h2 stages=4 micro_batches=8\n"
        "F0 F1 F2 F3 F4 F5 F6 B0 W0 F7 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 B6 W6 B7 W7\n"
        "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 W0 F7 B3 W1 B4 W2 B5 W3 B6 W4 B7 W5 W6 W7\n"
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 W0 F7 B5 W1 B6 W2 B7 W3 W4 W5 W6 W7\n"
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 W0 F7 B7 W1 W2 W3 W4 W5 W6 W7\n"
    )


def test_two_ranks_solved_by_hand() -> None:
    """F = B = W = 1, no delay: no rank waits once it has begun.

    rank 0: F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3
    rank 1: .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
    """
    problem = ScheduleProblem.uniform(2, 4)
    played = replay(problem, generate("zb-h2", problem))
    assert played.start.tolist() == [*range(12), *range(1, 13)]
    assert (played.makespan, played.longest_stage, played.bubble_rate) == (13, 12, 0)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (4, 8), (8, 24)])
def test_no_bubble_in_twice_the_memory(p: int, m: int) -> None:
    """F = B = W without delay, m >= 2 p - 1; what is left of bubble_full is the stairs at both ends."""
    problem = ScheduleProblem.uniform(p, m)
    schedule = generate("zb-h2", problem)
    played = replay(problem, schedule)
    assert played.bubble_rate == pytest.approx(0, abs=1e-12)
    assert played.bubble_full == pytest.approx((p - 1) / (3 * m + p - 1), abs=1e-12)
    assert live(problem, schedule).tolist() == [2 * p - 1] * p


@pytest.mark.parametrize(("comm", "makespan"), [(0.0, 51.8), (0.1, 52.5), (1.0, 62.65), (5.0, 174.3)])
def test_makespans_measured_before(comm: float, makespan: float) -> None:
    problem = ScheduleProblem.uniform(8, 16, (1, 1.05, 0.75), comm=comm, live_limit=15)
    assert replay(problem, generate("zb-h2", problem)).makespan == pytest.approx(makespan, abs=1e-9)


def test_a_slow_link_in_the_middle() -> None:
    problem = ScheduleProblem.uniform(8, 64, (1, 1.05, 0.75), comm=[0.05] * 3 + [5.0] + [0.05] * 3)
    assert replay(problem, generate("zb-h2", problem)).makespan == pytest.approx(320.4, abs=0.051)


def test_needs_nearly_twice_the_ranks_in_micro_batches() -> None:
    with pytest.raises(InfeasibleError, match="keeps 7 on rank 0, the limit is 6.*--memory 7"):
        generate("zb-h2", ScheduleProblem.uniform(4, 8, live_limit=6))


@given(problem=schedule_problems(limited=False))
def test_sound_for_any_problem(problem: ScheduleProblem) -> None:
    schedule = generate("zb-h2", problem)
    assert not violations(problem, schedule)
    assert max(schedule.peak_live) <= 2 * problem.ranks - 1
