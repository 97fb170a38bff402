"""Interleaved 1F1B for a problem: by hand, against figures measured before, and on drawn problems.

Its orders as text: schedules.txt, read by test_schedule.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.errors import InfeasibleError
from hippo.schedule.check import violations
from hippo.schedule.methods import generate
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.schedule.replay import live, replay


@pytest.mark.parametrize(("comm", "makespan"), [(0.0, 54.6), (0.1, 57.6), (1.0, 92.8), (5.0, 300.8)])
def test_makespans_measured_before(comm: float, makespan: float) -> None:
    """p = 8, m = 16, two chunks, 1 / 1.05 / 0.75 with the backward in one piece: 11.5 micro-batches in memory."""
    problem = ScheduleProblem.uniform(8, 16, (1, 1.05, 0.75), comm=comm).placed("looped")
    schedule = generate("interleaved", problem)
    assert replay(problem, schedule).makespan == pytest.approx(makespan, abs=0.051)
    assert live(problem, schedule).max() == 11.5


def test_the_hop_from_the_last_rank_to_the_first_is_as_slow_as_the_slowest_link() -> None:
    """One micro-batch, chunks of F 1 and B + W 2: 6 * 1 + 6 * 2 and the hops 1, 3, then 3 home, 1, 3; back alike."""
    problem = ScheduleProblem.uniform(3, 1, (2, 2, 2), comm=[1, 3]).placed("looped")
    schedule = generate("interleaved", problem)
    assert schedule.fused
    assert replay(problem, schedule).makespan == 18 + 2 * (1 + 3 + 3 + 1 + 3)


def test_each_way_has_its_own_links() -> None:
    """The forward goes home over the slower ``up``, the backward over the slower ``down``."""
    there, back = (RankLink(1.0), RankLink(1.0)), (RankLink(4.0), RankLink(2.0))
    even = ScheduleProblem.uniform(3, 1, (2, 2, 2)).placed("looped")
    problem = ScheduleProblem(1, even.forward, even.backward, even.weight, there, back, even.limit, (), "looped", 2)
    forward, backward = 1 + 1 + 4 + 1 + 1, 2 + 4 + 1 + 2 + 4
    assert replay(problem, generate("interleaved", problem)).makespan == 18 + forward + backward


def test_the_smallest_limit_is_named() -> None:
    problem = ScheduleProblem.uniform(8, 16, live_limit=8).placed("looped")
    with pytest.raises(InfeasibleError, match=r"interleaved keeps 11.5 on rank 0, the limit is 8.*--memory 11.5,"):
        generate("interleaved", problem)


@given(problem=schedule_problems(limited=False), chunks=st.integers(2, 4))
def test_sound_for_any_problem(problem: ScheduleProblem, chunks: int) -> None:
    problem = problem.placed("looped", chunks)
    assert not violations(problem, generate("interleaved", problem))
