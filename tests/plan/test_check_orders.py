"""A plan that says the order of its operations: read and written, checked, and played as it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.errors import InputError
from hippo.plan.check import check
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.schedule.schedule import given, letters_of, order, split
from hippo.score.judge import memory
from hippo.simulate import fast, reference
from hippo.simulate.lower import lower


@pytest.fixture(scope="module")
def world() -> tuple[Problem, Plan]:
    problem = load_problem(model="gpt2", cluster="toy", global_batch=64)
    plan = CrossPipe().propose(problem, Stop(5.0)).plan
    assert plan is not None
    lines = tuple(replace(pipeline, order=(), warm_up=()) for pipeline in plan.pipelines)
    return problem, replace(plan, pipelines=lines, schedule=ScheduleChoice("1f1b"))


def ordered(plan: Plan, name: str = "1f1b") -> Plan:
    """The plan with the order of that schedule written out, its backwards split."""
    lines = []
    for pipeline in plan.pipelines:
        schedule = order(name, stages=len(pipeline.stages), micro_batches=pipeline.num_micro_batches)
        lines.append(replace(pipeline, warm_up=(), order=letters_of(split(schedule))))
    return replace(plan, pipelines=tuple(lines), schedule=ScheduleChoice("best"))


def test_letters_by_hand() -> None:
    schedule = order("1f1b", stages=2, micro_batches=3)
    assert letters_of(schedule) == ("FFBFBB", "FBFBFB")
    assert letters_of(split(schedule)) == ("FFBWFBWBW", "FBWFBWFBW")
    assert (given(("FFBFBB", "FBFBFB")).order == schedule.order).all()
    assert given(("FFBWFBWBW", "FBWFBWFBW")).peak_live == (2, 1)


def test_written_and_read_again(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    own = ordered(plan)
    assert plan_from_document(plan_to_document(problem, own), "x")[1] == own
    assert not check(problem, own)


def test_both_simulators_agree_on_it(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    program = lower(problem, ordered(plan))
    assert not program.fused
    assert fast.play(program).step_time_s == pytest.approx(reference.play(program).step_time_s, rel=1e-9)


def test_split_in_place_is_never_slower_than_fused(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    fused = replace(plan, schedule=ScheduleChoice("1f1b"), interleave=1)
    assert fast.step_time(lower(problem, ordered(plan))) <= fast.step_time(lower(problem, fused)) + 1e-12


def test_memory_counts_until_the_weight_gradient(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    late = tuple(
        replace(
            pipeline,
            order=tuple(
                "F" * pipeline.num_micro_batches + "B" * pipeline.num_micro_batches + "W" * pipeline.num_micro_batches
                for _ in pipeline.stages
            ),
        )
        for pipeline in ordered(plan).pipelines
    )
    waves = [pipeline.num_micro_batches for pipeline in plan.pipelines for _ in pipeline.stages]
    kept = memory(problem, replace(ordered(plan), pipelines=late))
    assert [stage.live_micro_batches for stage in kept] == waves


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-1], " W for "),
        (lambda text: "B" + text.replace("B", "", 1), "a B before its F"),
        (lambda text: text.replace("BW", "WB", 1), "a W before its B"),
    ],
)
def test_an_order_that_is_none_is_told(world: tuple[Problem, Plan], change, said: str) -> None:
    problem, plan = world
    own = ordered(plan)
    first = own.pipelines[0]
    wrong = replace(first, order=(change(first.order[0]), *first.order[1:]))
    told = check(problem, replace(own, pipelines=(wrong, *own.pipelines[1:])))
    assert any(violation.rule == "order" and said in violation.message for violation in told)


def test_an_order_needs_the_schedule_best_and_the_other_way_round(world: tuple[Problem, Plan]) -> None:
    problem, plan = world
    own = ordered(plan)
    assert [each.rule for each in check(problem, replace(own, schedule=ScheduleChoice("gpipe")))] == ["order"] * len(
        own.pipelines
    )
    bare = replace(own, pipelines=tuple(replace(pipeline, order=()) for pipeline in own.pipelines))
    assert check(problem, bare)[0].rule == "order"
    with pytest.raises(InputError, match="the plan says no order"):
        lower(problem, bare)


def test_stages_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="wait for each other"):
        given(("FBWFBW", "FFBBWW"))


@pytest.mark.parametrize("value", ["FFBB", [1], ["FXB"], [""]])
def test_an_order_of_the_wrong_type_is_refused(world: tuple[Problem, Plan], value: object) -> None:
    problem, plan = world
    document = plan_to_document(problem, ordered(plan))
    document["pipelines"][0]["order"] = value
    with pytest.raises(InputError, match="order"):
        plan_from_document(document, "plan.json")
