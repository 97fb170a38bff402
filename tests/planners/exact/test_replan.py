"""Planning the same domains anew under other links, against the exact search on each of those problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.decide.rivals import Knob, Rivalry, switches
from hippo.decide.what_if import changed_links, scaled_link
from hippo.plan.plan import Pipeline, Plan, Sync
from hippo.planners.base import Stop
from hippo.planners.exact.replan import DomainReplanner, joining_of, orders
from hippo.planners.exact.search import Exact
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.score.judge import judge

STOP = Stop(time_limit_s=30.0)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem(model="llama-3-8b", cluster="toy", global_batch=64, seq=4096)


def under(problem: Problem, factor: float) -> Problem:
    return changed_links(problem, lambda link: scaled_link(link, bandwidth=factor))


def test_orders_of_a_path_count_once_with_their_reverse():
    assert orders(((0, 1),)) == [((0, 1),)]
    assert orders(((2, 0, 1),)) == [((0, 1, 2),), ((0, 2, 1),), ((1, 0, 2),)]
    assert orders(((0,), (1,))) == [((0,), (1,))]
    assert orders((tuple(range(9)),)) == [(tuple(range(9)),)]


def test_the_joining_of_a_plan(problem):
    plan = Exact().propose(problem, STOP).plan
    stage = plan.pipelines[0].stages[0]
    east, west = (replace(stage, domain=domain.name) for domain in problem.cluster.domains)
    assert joining_of(problem, Plan((Pipeline((east, west), 1),), 1)) == ((0, 1),)
    assert joining_of(problem, Plan((Pipeline((west,), 1),), 1)) == ((1,),)
    assert joining_of(problem, Plan((Pipeline((east, west, east), 1),), 1)) is None
    assert joining_of(problem, Plan((Pipeline((east,), 1), Pipeline((west,), 1)), 1, sync=Sync())) is None


@pytest.mark.parametrize("factor", [0.5, 1.0, 8.0])
def test_planned_anew_as_the_exact_search_does(problem, factor):
    changed = under(problem, factor)
    exact = Exact().propose(changed, STOP)
    replanner = DomainReplanner.of(problem)
    both, alone = (replanner.step_time_s(changed, joining) for joining in (((0, 1),), ((0,),)))
    assert min(both, alone) == pytest.approx(exact.score.step_time_s, rel=0.02)
    assert replanner.bound_s(changed, ((0, 1),)) <= both * (1 + 1e-9)
    assert joining_of(changed, replanner.plan(changed, ((0,),))) == ((0,),)


def test_the_limit_is_where_the_exact_search_changes_its_mind(problem):
    """On one side of the limit the best plan stays in one domain, on the other it uses both."""
    replanner = DomainReplanner.of(problem)
    both, alone = (replanner.plan(problem, joining) for joining in (((0, 1),), ((0,),)))
    times = [replanner.step_time_s(problem, joining) for joining in (((0, 1),), ((0,),))]
    winner, rival = (both, alone) if times[0] < times[1] else (alone, both)
    (limit,) = switches(Rivalry(judge(problem, winner), judge(problem, rival), None, replanner))
    assert limit.planned_anew
    assert limit.verified
    for factor, domains in ((limit.factor * 1.1, 2), (limit.factor / 1.1, 1)):
        changed = Knob("bandwidth").changed(problem, factor)
        assert len(Exact().propose(changed, STOP).plan.domains) == domains
