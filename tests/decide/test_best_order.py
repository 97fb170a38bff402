"""Every planner's plan in the best order: better or untouched, told, and never for what it does not hold for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.decide.best_order import in_best_order, with_best_order
from hippo.decide.choose import Panel, choose, compare
from hippo.plan.plan import ScheduleChoice
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.even import Even
from hippo.problem.load import load_problem
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, flaw, judge


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem(model="llama-3-8b", cluster="toy", global_batch=64)


@pytest.fixture(scope="module")
def plain(problem: Problem) -> Proposal:
    """A pipeline over two domains with 1F1B, and a gap of a half to a bound that someone proved."""
    plan = CrossPipe().propose(problem, Stop(10.0)).plan
    assert plan is not None
    lines = tuple(replace(line, order=(), warm_up=()) for line in plan.pipelines)
    best = judge(problem, replace(plan, pipelines=lines, schedule=ScheduleChoice("1f1b")))
    return Proposal("someone", Status.FEASIBLE, best, gap=0.5, lower_bound_s=0.5 * best.step_time_s)


def test_a_better_order_is_taken_and_told(problem: Problem, plain: Proposal) -> None:
    found = with_best_order(plain, 0.2)
    assert isinstance(plain.best, Judged)
    assert isinstance(found.best, Judged)
    assert found.best.plan.schedule.name == "best"
    assert flaw(problem, found.best) is None
    assert found.best.step_time_s < plain.best.step_time_s
    assert found.gap == pytest.approx(1 - 0.5 * plain.best.step_time_s / found.best.step_time_s)
    assert found.notes[0].startswith("Its operations were ordered by ")


def test_a_bound_that_does_not_hold_is_dropped_and_said_to_be(plain: Proposal) -> None:
    assert plain.score is not None
    tight = replace(plain, gap=0.0, lower_bound_s=plain.score.step_time_s)
    found = with_best_order(tight, 0.2)
    assert found.gap is None
    assert found.lower_bound_s is None
    assert found.notes[-1].startswith("The bound that someone proved")


def test_no_time_no_change(plain: Proposal) -> None:
    assert with_best_order(plain, 0.0) is plain


@pytest.mark.parametrize("runtime", ["megatron", "deepspeed"])
def test_runtimes_with_their_own_schedules_keep_theirs(problem: Problem, plain: Proposal, runtime: str) -> None:
    assert plain.plan is not None
    best = judge(replace(problem, runtime=runtime), plain.plan)
    assert in_best_order(best, 0.2)[0] is best


def test_an_order_at_its_bound_stays(plain: Proposal) -> None:
    once = with_best_order(plain, 0.3)
    again = with_best_order(once, 0.3)
    assert again.score is not None
    assert once.score is not None
    assert again.score.step_time_s <= once.score.step_time_s


def test_every_row_and_the_plan_rewards_are_measured_against_are_ordered_alike(problem: Problem) -> None:
    """No row gains by the search that its neighbour was not given: asked again, none finds anything."""
    found = compare(problem, (Even(), CrossPipe()), Stop(5.0), baseline=(Even(),), order=with_best_order, why=False)
    alone = choose(problem, Panel((CrossPipe(),), (Even(),), order=with_best_order), Stop(5.0))
    assert found.baseline is not None
    assert alone.baseline is not None
    assert found.baseline.plan == found.rows[0].plan == alone.baseline.plan
    published = Even().propose(problem, Stop(5.0)).plan
    assert published is not None
    assert found.baseline.score.step_time_s < judge(problem, published).step_time_s
    for row in found.rows:
        assert row.best is not None
        assert in_best_order(row.best, 0.5)[0].step_time_s >= row.best.step_time_s * (1 - 1e-3)


def test_where_more_than_time_is_weighed_nobody_is_ordered(problem: Problem) -> None:
    weighed = replace(problem, objective=Objective("weighted"))
    ordered, plain = (
        choose(weighed, Panel((CrossPipe(),), (Even(),), order=order), Stop(5.0)) for order in (with_best_order, None)
    )
    assert ordered.baseline is not None
    assert ordered.baseline == plain.baseline
    assert ordered.plan == plain.plan
