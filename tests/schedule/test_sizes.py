"""The same samples in micro-batches of another size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.sizes import Sized
from hippo.schedule.solve import Answer, compare_sizes

from .orders import problems


def test_by_hand():
    """One rank of two, eight samples: F = 0.5 + 0.5 n, B = n, W = n; a message takes 0.25 n after 3."""
    link = RankLink(3.0, 0.25)
    problem = ScheduleProblem(8, (1.0,) * 2, (1.0,) * 2, (1.0,) * 2, (link,), (link,), (4.0,) * 2)
    larger = Sized(problem, fixed=((0.5,) * 2, (0.0,) * 2, (0.0,) * 2)).at(4)
    assert larger.micro_batches == 2
    assert (larger.forward, larger.backward, larger.weight) == ((2.5,) * 2, (4.0,) * 2, (4.0,) * 2)
    assert larger.down == larger.up == (RankLink(3.0, 1.0),)
    assert larger.memory == (MicroBatchMemory(4.0, 0.0),) * 2
    assert larger.limit == problem.limit  # so one micro-batch is all that fits


@settings(deadline=None)
@given(problems(), st.sampled_from([1, 2, 3, 6]), st.sampled_from([1, 2, 3, 6]))
def test_there_and_back(problem: ScheduleProblem, size: int, other: int):
    sized = Sized(problem, size * 6)
    there = Sized(sized.at(other), other)
    assert there.samples == sized.samples
    again = there.at(size * 6)
    for name in ("forward", "backward", "weight"):
        assert getattr(again, name) == pytest.approx(getattr(problem, name))
    assert [each.transfer for each in again.down] == pytest.approx([each.transfer for each in problem.down])


@settings(deadline=None)
@given(problems(), st.sampled_from([1, 2, 3]))
def test_without_fixed_parts_the_work_stays(problem: ScheduleProblem, size: int):
    smaller = Sized(problem, 6).at(size)
    assert smaller.work == pytest.approx(problem.work)


def test_a_size_that_does_not_divide():
    with pytest.raises(InputError, match=r"does not divide the 12 samples.*got 5.*use 1, 2, 3, 4, 6, 12"):
        Sized(ScheduleProblem.uniform(2, 12)).at(5)
    with pytest.raises(InputError):
        Sized(ScheduleProblem.uniform(2, 12)).at(0)


def test_the_best_size_weighs_fixed_costs_against_filling():
    """Four ranks, 16 samples, GPipe: m + 3 passes of F = B + W = 3 f. A pass that costs nothing but its samples is
    best cut finely; one with a fixed cost of 2 a pass is not."""
    fixed = ((2.0,) * 4, (0.0,) * 4, (0.0,) * 4)
    fine, coarse = Sized(ScheduleProblem.uniform(4, 16)), Sized(ScheduleProblem.uniform(4, 16, (3, 1, 1)), fixed=fixed)
    for sized, best in ((fine, 1), (coarse, 2)):
        rows = compare_sizes(sized, (1, 2, 4, 8, 16), "gpipe")
        spans = {size: answer.makespan for size, answer in rows if isinstance(answer, Answer)}
        assert min(spans, key=spans.__getitem__) == best
    # 16 / n + 3 passes of (2 + n) + 2 n
    assert spans == {n: pytest.approx((16 / n + 3) * (2 + 3 * n)) for n in (1, 2, 4, 8, 16)}
