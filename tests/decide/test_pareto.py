"""Three plans of which one is beaten: quick and dear, slow and free, and slow and dear. Then the front of all plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.decide.decision import Baseline
from hippo.decide.pareto import front_of, hypervolume, non_dominated, pareto_front
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.brute.brute import every_plan
from hippo.planners.exact.front import MARGIN, FoundPlans, front_candidates
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.judge import judge

WAVES = 64


class Says:
    """Proposes one plan, with others as runners-up."""

    def __init__(self, *plans, name="says"):
        self.plans, self.name = plans, name

    def propose(self, problem, stop, *, seed=0, progress=None):
        others = tuple(judge(problem, plan) for plan in self.plans[1:])
        return Proposal(self.name, Status.FEASIBLE, self.plans[0], runners_up=others)


@pytest.fixture
def problem(worlds):
    return Problem(worlds.model(), worlds.cluster(bandwidth=1e9), Workload(global_batch=WAVES, seq=1024))


def test_beaten_plans_are_left_out_and_the_quickest_comes_first(problem, worlds):
    quick, free = worlds.across_plan(WAVES), worlds.alone_plan(WAVES)
    beaten = replace(quick, recompute="full")
    front = pareto_front(problem, [Says(free, quick, beaten)], Stop(1.0))
    assert [plan for plan, _ in front.points] == [quick, free]
    assert front.points[0][1].step_time_s < front.points[1][1].step_time_s
    assert front.points[0][1].egress_usd_per_step > front.points[1][1].egress_usd_per_step == 0


def test_volume_against_the_baseline_worked_out_by_hand(problem, worlds):
    quick = worlds.across_plan(WAVES)
    found = judge(problem, quick)
    figures = replace(found.score, step_time_s=5.0, egress_usd_per_step=1.0, utilization=0.8)
    usual = Baseline("even", replace(found, score=replace(found.score, step_time_s=10.0, egress_usd_per_step=4.0)))
    front = front_of(problem, [(quick, figures)], usual)
    assert front.hypervolume == pytest.approx((1 - 5 / 10) * (1 - 1 / 4) * 0.8)


def test_a_better_plan_makes_the_volume_larger(problem, worlds):
    problem = replace(problem, cluster=worlds.cluster(bandwidth=1e9, price=1e-3))  # egress below the baseline's price
    free, quick = worlds.alone_plan(WAVES), worlds.across_plan(WAVES)
    one = pareto_front(problem, [Says(free)], Stop(1.0), baseline=[Says(free, name="even")])
    both = pareto_front(problem, [Says(free, quick)], Stop(1.0), baseline=[Says(free, name="even")])
    assert 0 <= one.hypervolume < both.hypervolume < 1


def test_a_front_that_its_limit_cut_short_says_so(problem, worlds):
    free = Says(worlds.alone_plan(WAVES))
    for closed, told in ((True, ""), (False, "Cut short by its time limit")):
        front = pareto_front(problem, [free], Stop(1.0), search=lambda _, known, *rest, end=closed: (known, end))
        assert front.cut_short[: len(told) or None] == told


def test_no_plan_no_front(problem):
    front = pareto_front(problem, [Silent()], Stop(1.0))
    assert (front.points, front.hypervolume) == ((), 0.0)
    assert front.summary().startswith("0 plans")


class Silent:
    name = "silent"

    def propose(self, problem, stop, *, seed=0, progress=None):
        return Proposal(self.name, Status.INFEASIBLE)


def test_the_summary_has_a_line_per_plan(problem, worlds):
    front = pareto_front(problem, [Says(worlds.alone_plan(WAVES), worlds.across_plan(WAVES))], Stop(1.0))
    assert len(front.summary().splitlines()) == 1 + len(front.points)


# ----------------------------------------------------------------------------------------------- the front of all plans
@pytest.mark.parametrize(("bandwidth", "price"), [(1e10, 0.02), (1e11, 1.0)])
def test_every_plan_that_none_beats_is_met(worlds, bandwidth, price):
    """The judge is enumeration: each plan of its front is met in time, egress and utilisation by one of ours. Plans
    that compute whole blocks again although they fit without are busier for nothing, and are none of either."""
    cluster = worlds.cluster(bandwidth=bandwidth, latency_s=1e-5, price=price)
    problem = Problem(worlds.model(3), cluster, Workload(global_batch=4, seq=2048))
    every = [each for each in every_plan(problem) if not each.plan.recompute.startswith("full")]  # memory is ample
    true_front = front_of(problem, scored(every), None)
    found, closed = front_candidates(problem, [], Stop(60.0))
    ours = front_of(problem, scored(found), None)
    assert closed
    assert len(true_front.points) > len(ours.points) > 3
    true_values, values = columns(true_front), columns(ours)
    reach = true_values[:, None, :] * [1 + 2 * MARGIN, 1 + 2 * MARGIN, 1] + [0, 0, 2 * MARGIN]
    assert np.all(values[None, :, :] <= reach, axis=2).any(axis=1).all()
    corner = np.maximum(true_values.max(axis=0), values.max(axis=0)) * 1.01 + 1e-9
    volumes = [hypervolume(each / corner, np.ones(3)) for each in (values, true_values)]
    assert 0.99 * volumes[1] < volumes[0] <= volumes[1] * (1 + 1e-9)


def scored(plans) -> list:
    return [(found.plan, found.score) for found in plans]


def columns(front) -> np.ndarray:
    """Seconds, egress and idle share of every point, (P, 3)."""
    return np.array([[s.step_time_s, s.egress_usd_per_step, 1 - s.utilization] for _, s in front.points])


def test_a_shape_is_beaten_where_a_plan_is_as_quick_as_busy_and_as_cheap(problem, worlds):
    """A plan of 10 s, busy 80 %, for 1 USD: work of 6 s is beaten from 10 s on, of 9 s only from 9 / 0.8 s on."""
    found, plan = FoundPlans(), judge(problem, worlds.across_plan(WAVES))
    found.add(replace(plan, score=replace(plan.score, step_time_s=10.0, utilization=0.8, egress_usd_per_step=1.0)))
    work_s, egress_usd = np.array([6.0, 9.0, 6.0]), np.array([1.0, 2.0, 0.5])
    ceilings = found.ceilings(work_s, egress_usd)
    assert ceilings == pytest.approx([10 / (1 + MARGIN), 9 / (0.8 + MARGIN), np.inf])


POINTS = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.lists(st.integers(0, 5), min_size=d, max_size=d), min_size=1, max_size=12)
)


def test_a_front_drawn_by_hand() -> None:
    points = [[1, 5], [2, 3], [4, 1], [3, 3], [2, 3], [5, 5]]
    assert non_dominated(points).tolist() == [True, True, True, False, False, False]
    # strips below y = 6, left of x = 6: 5 x 1 (y 5..6), 4 x 2 (y 3..5), 2 x 2 (y 1..3)
    assert hypervolume(points, [6, 6]) == pytest.approx(5 + 8 + 4)


def test_three_objectives_by_hand() -> None:
    assert hypervolume([[0, 0, 0]], [2, 3, 4]) == pytest.approx(24)
    # two boxes of volume 1 x 2 x 2 that share 1 x 1 x 2
    assert hypervolume([[1, 0, 0], [0, 1, 0]], [2, 2, 2]) == pytest.approx(4 + 4 - 2)
    assert hypervolume([[2, 0, 0]], [2, 2, 2]) == 0.0


@given(POINTS)
def test_kept_points_are_those_that_nothing_dominates(points: list[list[int]]) -> None:
    values = np.array(points)
    kept = non_dominated(points)
    for index, value in enumerate(values):
        beaten = [bool(np.all(other <= value) and np.any(other < value)) for other in values]
        earlier_twin = any(np.array_equal(values[j], value) for j in range(index))
        assert kept[index] == (not any(beaten) and not earlier_twin)


@given(POINTS)
def test_hypervolume_counts_the_dominated_cells_of_a_grid(points: list[list[int]]) -> None:
    values = np.array(points)
    cells = np.indices((6,) * values.shape[1]).reshape(values.shape[1], -1).T
    dominated = np.any(np.all(values[:, None, :] <= cells[None], axis=2), axis=0)
    assert hypervolume(points, [6] * values.shape[1]) == pytest.approx(float(dominated.sum()))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        non_dominated([[1.0, float("nan")]])
    with pytest.raises(ValueError, match="reference"):
        hypervolume([[1.0, 2.0]], [3.0])
