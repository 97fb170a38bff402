"""Schedules made longer by repeating a stretch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.schedule.bound.lower_bound import lower_bound
from hippo.schedule.check import violations
from hippo.schedule.methods import checked, generate
from hippo.schedule.optimal import one_by_one
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan
from hippo.schedule.search.unroll import unrolled


def test_one_after_the_other_by_hand() -> None:
    problem = ScheduleProblem.uniform(2, 5, live_limit=1)
    few = replace(problem, micro_batches=2)
    long = unrolled(problem, few, checked("serial", few, one_by_one(few)))
    assert long is not None
    assert long.order.tolist() == one_by_one(problem)[0].tolist()


@pytest.mark.parametrize("wanted", [13, 16, 24, 41])
def test_zero_bubble_stays_at_the_bound(wanted: int) -> None:
    """ZB-H1 without delay is optimal for 12 micro-batches and, repeated, for any number more."""
    few = ScheduleProblem.uniform(4, 12, live_limit=4)
    small, problem = generate("zb-h1", few), replace(few, micro_batches=wanted)
    long = unrolled(problem, few, small)
    assert long is not None
    assert violations(problem, long) == ()
    assert makespan(few, small) == lower_bound(few)
    assert makespan(problem, long) == lower_bound(problem)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 9), st.sampled_from(["plain", "looped", "v"]))
def test_always_a_schedule_within_memory(p: int, m: int, more: int, placement: str) -> None:
    few = replace(ScheduleProblem.uniform(p, m, comm=0.5).placed(placement), limit=(1.0,) * p)
    small = checked("serial", few, one_by_one(few))
    problem = replace(few, micro_batches=m + more)
    long = unrolled(problem, few, small)
    assert long is not None
    assert violations(problem, long) == ()
