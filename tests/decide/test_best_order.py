"""The chosen plan's order, made anew: better or untouched, told, and never for what it does not hold for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.decide.best_order import with_best_order
from hippo.decide.choose import Panel, choose
from hippo.decide.decision import Decision
from hippo.plan.plan import ScheduleChoice
from hippo.planners.base import Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.problem.load import load_problem
from hippo.score.judge import flaw, judge


@pytest.fixture(scope="module")
def plain() -> Decision:
    """A pipeline over two domains with 1F1B, and a gap of a half to a bound that someone proved."""
    problem = load_problem(model="llama-3-8b", cluster="toy", global_batch=64)
    found = choose(problem, Panel((CrossPipe(),)), Stop(10.0))
    assert found.plan is not None
    lines = tuple(replace(line, order=(), warm_up=()) for line in found.plan.pipelines)
    plan = replace(found.plan, pipelines=lines, schedule=ScheduleChoice("1f1b"))
    best = judge(problem, plan)
    rows = tuple(replace(row, best=best, notes=()) for row in found.rows)
    return replace(found, best=best, gap=0.5, lower_bound_s=0.5 * best.step_time_s, rows=rows)


def test_a_better_order_is_taken_and_told(plain: Decision) -> None:
    found = with_best_order(plain, 0.2)
    assert found.plan is not None
    assert found.score is not None
    assert plain.score is not None
    assert found.plan.schedule.name == "best"
    assert flaw(found.problem, found.plan) is None
    assert found.score.step_time_s < plain.score.step_time_s
    assert found.gap == pytest.approx(1 - 0.5 * plain.score.step_time_s / found.score.step_time_s)
    assert found.rows[0].plan == found.plan
    assert found.rows[0].notes[0].startswith("Its operations were ordered by ")


def test_a_bound_that_does_not_hold_is_dropped(plain: Decision) -> None:
    assert plain.score is not None
    tight = replace(plain, gap=0.0, lower_bound_s=plain.score.step_time_s)
    found = with_best_order(tight, 0.2)
    assert found.gap is None
    assert found.lower_bound_s is None


def test_no_time_no_change(plain: Decision) -> None:
    assert with_best_order(plain, 0.0) is plain


def test_runtimes_with_their_own_schedules_keep_theirs(plain: Decision) -> None:
    asked = replace(plain, problem=replace(plain.problem, runtime="megatron"))
    assert with_best_order(asked, 0.2) is asked


def test_an_order_at_its_bound_stays(plain: Decision) -> None:
    once = with_best_order(plain, 0.3)
    again = with_best_order(once, 0.3)
    assert again.score is not None
    assert once.score is not None
    assert again.score.step_time_s <= once.score.step_time_s
