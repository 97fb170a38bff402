"""ZB-V by hand, against figures measured before, and on drawn problems."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import MicroBatchMemory, ScheduleProblem
from hippo.schedule.replay import live, peak_memory, replay
from hippo.schedule.text import schedule_text


def test_four_ranks_work_without_a_pause() -> None:
    """Rank 3 starts after three halves of an F and is busy from there: 1.5 + 6 * 3 is the least that a V can take."""
    problem = ScheduleProblem.uniform(4, 6).placed("v")
    schedule = generate("zb-v", problem)
    assert schedule_text(schedule) == (
        "zb-v stages=4 micro_batches=6 chunks=2\n"
        "F0a F1a F2a F3a F4a F5a F0b B0b F1b B1b W0b F2b B2b W1b F3b B3b W2b B0a W0a B1a W1a W3b B2a W2a F4b B4b"
        " F5b B5b B3a W3a W4b W5b B4a W4a B5a W5a\n"
        "F0a F1a F2a F3a F4a F0b F1b B0b F2b B1b W0b F3b B2b B0a W0a F5a B1a W1b B3b W1a B2a W2b F4b W2a F5b B4b"
        " B3a B5b W3b W3a B4a W4b B5a W4a W5b W5a\n"
        "F0a F1a F2a F0b F3a F1b F4a F2b B0b W0b F3b B1b B0a B2b B1a W0a F5a B2a W1b F4b B3b W1a W2b F5b W2a B3a"
        " B4b W3b B5b B4a W3a B5a W4b W4a W5b W5a\n"
        "F0a F0b F1a F1b F2a F2b F3a F3b B0b B0a W0b B1b B1a B2b B2a W0a F4a F4b W1b W1a F5a F5b B3b B3a W2b W2a"
        " B4b B4a B5b B5a W3b W3a W4b W4a W5b W5a\n"
    )
    assert replay(problem, schedule).makespan == 19.5


def test_two_ranks_solved_by_hand() -> None:
    """One micro-batch, halves of F = B = W = 1: down and up 2, back 2; the last W of rank 0 is left, 4.5 in all.

    rank 0: F0a .       F0b B0b W0b . B0a W0a
    rank 1: .   F0a F0b .   .   B0b B0a W0b W0a
    """
    problem = ScheduleProblem.uniform(2, 1).placed("v")
    played = replay(problem, generate("zb-v", problem))
    assert played.start.tolist() == [0, 1.5, 2, 2.5, 3.5, 4, 0.5, 1, 2.5, 3, 3.5, 4]
    assert played.makespan == 4.5


def test_one_rank_has_nothing_to_wait_for() -> None:
    problem = ScheduleProblem.uniform(1, 3).placed("v")
    assert replay(problem, generate("zb-v", problem)).makespan == 9


def test_no_bubble_in_the_memory_of_1f1b() -> None:
    """p = 8, m = 24, F = B = W, no delays: measured before with the authors' order, 0 and 8 micro-batches."""
    problem = ScheduleProblem.uniform(8, 24).placed("v")
    schedule = generate("zb-v", problem)
    assert replay(problem, schedule).bubble_rate == pytest.approx(0, abs=1e-12)
    assert live(problem, schedule).max() == 8


@pytest.mark.parametrize(("comm", "before"), [(0.0, 48.5), (0.1, 52.1), (1.0, 89.9), (5.0, 305.9)])
def test_no_longer_than_the_authors_order(comm: float, before: float) -> None:
    """p = 8, m = 16, 1 / 1.05 / 0.75, 8 micro-batches in memory; one digit was kept."""
    problem = ScheduleProblem.uniform(8, 16, (1, 1.05, 0.75), comm=comm).placed("v")
    schedule = generate("zb-v", problem)
    assert replay(problem, schedule).makespan < before + 0.05
    assert live(problem, schedule).max() <= 8


def test_a_limit_is_used_and_kept() -> None:
    """Over slow links more memory shortens the step, less lengthens it; one micro-batch is enough for an order."""
    problem = ScheduleProblem.uniform(4, 12, comm=5).placed("v")
    spans = []
    for limit in (1.0, 2.0, 4.0, 12.0):
        schedule = generate("zb-v", replace(problem, limit=(limit,) * 4))
        assert live(problem, schedule).max() <= limit
        spans.append(replay(problem, schedule).makespan)
    assert spans == sorted(spans, reverse=True)
    assert spans[2] == replay(problem, generate("zb-v", problem)).makespan


def test_what_is_given_back_at_b_makes_room() -> None:
    """Four ranks with room for two micro-batches; half of the memory comes back at B instead of at W."""
    problem = replace(ScheduleProblem.uniform(4, 12, live_limit=2), memory=(MicroBatchMemory(1.0, 0.5),) * 4).placed(
        "v"
    )
    late = replace(problem, memory=())
    schedule = generate("zb-v", problem)
    assert peak_memory(problem, schedule).max() == 2
    assert replay(problem, schedule).makespan <= replay(late, generate("zb-v", late)).makespan


def test_less_than_one_micro_batch_is_refused() -> None:
    problem = replace(
        ScheduleProblem.uniform(2, 4), memory=(MicroBatchMemory(3.0), MicroBatchMemory(5.0)), limit=(inf, 4.5)
    ).placed("v")
    with pytest.raises(InfeasibleError, match=r"keeps 5 on rank 1, the limit is 4.5.*--memory 5\."):
        generate("zb-v", problem)
    assert generate("zb-v", replace(problem, limit=(5.0, 5.0)))


def test_again_the_same() -> None:
    problem = ScheduleProblem.uniform(5, 9, comm=0.3).placed("v")
    assert (generate("zb-v", problem).order == generate("zb-v", problem).order).all()


@given(problem=schedule_problems())
def test_sound_for_any_problem(problem: ScheduleProblem) -> None:
    problem = problem.placed("v")
    schedule = generate("zb-v", problem)
    assert not violations(problem, schedule)
    assert (peak_memory(problem, schedule) <= np.array(problem.limit) * (1 + 1e-9)).all()
