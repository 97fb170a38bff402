"""The schedule problem of a plan's pipeline: what it says is what the simulator plays."""

from __future__ import annotations

import pytest

from hippo.plan.plan import Plan
from hippo.planners.base import Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.orders import ordered, orders
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.schedule.replay import replay
from hippo.schedule.schedule import order_of
from hippo.score.judge import fits
from hippo.simulate import fast
from hippo.simulate.costs import cost_model, costs
from hippo.simulate.lower import lower
from hippo.simulate.ordering import ordering, ordering_key


@pytest.fixture(scope="module", params=["toy", "three-aws-regions"])
def world(request: pytest.FixtureRequest) -> tuple[Problem, Plan]:
    problem = load_problem(model="llama-3-8b", cluster=request.param, global_batch=64)
    plan = CrossPipe().propose(problem, Stop(10.0)).plan
    assert plan is not None
    return problem, plan


def test_the_replay_is_what_the_simulator_plays(world: tuple[Problem, Plan]) -> None:
    """One pipeline alone: every operation starts when the simulator starts it."""
    problem, plan = world
    asked, program = ordering(problem, plan), lower(problem, plan)
    played = replay(asked, order_of(plan, plan.pipelines[0]))
    timeline = fast.play(program)
    assert timeline.op_end_s[timeline.op_kind <= 2] == pytest.approx(played.end)
    assert played.makespan <= timeline.step_time_s
    agreed = float(timeline.step_time_s - program.finish_s.min())
    assert played.makespan <= agreed + 1e-9
    assert timeline.step_time_s <= played.makespan + float(program.finish_s.max()) + 1e-9
    assert asked.reduction == tuple(program.sync_s.tolist())


def test_the_limit_is_the_room_that_memory_leaves(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    usable = cost_model(problem).usable_memory_bytes()
    kept = costs(problem).memories(plan, plan.pipelines[0])
    for room, stage in zip(ordering(problem, plan).limit, kept, strict=True):
        assert stage.peak_bytes + room * stage.activation_bytes == pytest.approx(usable)


def test_an_order_made_for_the_plan_fits_and_is_never_slower(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    own = ordered(problem, plan)
    assert own is not None
    assert fits(problem, own)
    assert own.schedule.name == "best"
    assert fast.step_time(lower(problem, own)) <= fast.step_time(lower(problem, plan)) * (1 + 1e-9)
    assert orders(problem, own) == tuple(line.order for line in own.pipelines)


def test_like_pipelines_have_one_key(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    assert ordering_key(ordering(problem, plan)) == ordering_key(ordering(problem, plan))
