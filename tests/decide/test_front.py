"""Three plans of which one is beaten: quick and dear, slow and free, and slow and dear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.decide.decision import Baseline
from hippo.decide.front import front_of, pareto_front
from hippo.planners.base import Proposal, Status, Stop
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.evaluate import evaluate

WAVES = 64


class Says:
    """Proposes one plan, with others as runners-up."""

    def __init__(self, *plans, name="says"):
        self.plans, self.name = plans, name

    def propose(self, problem, stop, *, seed=0, progress=None):
        others = tuple((plan, evaluate(problem, plan)) for plan in self.plans[1:])
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
    score = evaluate(problem, quick)
    figures = replace(score, step_time_s=5.0, egress_usd_per_step=1.0, utilization=0.8)
    usual = Baseline("even", quick, replace(score, step_time_s=10.0, egress_usd_per_step=4.0))
    front = front_of(problem, [(quick, figures)], usual)
    assert front.hypervolume == pytest.approx((1 - 5 / 10) * (1 - 1 / 4) * 0.8)


def test_a_better_plan_makes_the_volume_larger(problem, worlds):
    problem = replace(problem, cluster=worlds.cluster(bandwidth=1e9, price=1e-3))  # egress below the baseline's price
    free, quick = worlds.alone_plan(WAVES), worlds.across_plan(WAVES)
    one = pareto_front(problem, [Says(free)], Stop(1.0), baseline=[Says(free, name="even")])
    both = pareto_front(problem, [Says(free, quick)], Stop(1.0), baseline=[Says(free, name="even")])
    assert 0 <= one.hypervolume < both.hypervolume < 1


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
