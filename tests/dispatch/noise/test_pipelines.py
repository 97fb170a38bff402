"""Pipelines of a plan by each dispatcher: the plays are those of the schedule problem, equal pipelines are one row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.dispatch.noise.fluctuation import Fluctuation, spread
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.noise.pipelines import DISPATCHERS, dispatched
from hippo.errors import InputError, UnknownNameError
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.schedule.schedule import order_of
from hippo.simulate.ordering import ordering

NOISE = Fluctuation(0.3)


@pytest.fixture(scope="module")
def world() -> tuple[Problem, Plan]:
    problem = load_problem(model="llama-3-8b", cluster="toy", global_batch=64)
    plan = CrossPipe().propose(problem, Stop(10.0)).plan
    assert plan is not None
    return problem, plan


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_a_dispatcher_plays_the_pipeline_of_the_plan(world: tuple[Problem, Plan], dispatcher: str) -> None:
    problem, plan = world
    found = dispatched(problem, plan, dispatcher, NOISE, samples=10, seed=4)
    asked, order = ordering(problem, plan), order_of(plan, plan.pipelines[0])
    alone = {
        "fixed": spread(asked, order, NOISE, samples=10, seed=4),
        "hint": spread(asked, order, NOISE, samples=10, seed=4, by_hint=True),
        "learned": spread_learned(asked, NOISE, samples=10, seed=4),
    }
    np.testing.assert_array_equal(found[0].played.makespans, alone[dispatcher].makespans)
    np.testing.assert_array_equal(found[0].planned.makespans, alone["fixed"].makespans)
    assert found[0].floor_s <= found[0].played.mean


def test_every_pipeline_is_in_one_row(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    found = dispatched(problem, plan, "fixed", NOISE, samples=2, seed=1)
    assert sorted(index for each in found for index in each.pipelines) == list(range(len(plan.pipelines)))


def test_what_no_dispatcher_knows(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    with pytest.raises(UnknownNameError, match="learned"):
        dispatched(problem, plan, "learnt", NOISE, samples=2, seed=1)
    several = replace(plan, interleave=2, schedule=ScheduleChoice("interleaved"))
    with pytest.raises(InputError, match="leave out --dispatch"):
        dispatched(problem, several, "learned", NOISE, samples=2, seed=1)
