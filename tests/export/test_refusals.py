"""What runtimes cannot express, and the nearest plan that they can."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given

from hippo.errors import InexpressibleError, InputError
from hippo.export import deepspeed, maxtext, megatron, torchtitan
from hippo.export.program import cannot_express, instead, left_out
from hippo.plan.check import check
from hippo.plan.plan import Compression, Pipeline, Plan, Relay, ScheduleChoice, Sync
from hippo.problem.problem import Problem

from ..strategies import planned
from .examples import cluster, example, replicas

RUNTIMES = ("megatron", "deepspeed", "torch")
UNSAID = {"megatron": megatron.unsaid, "deepspeed": deepspeed.unsaid, "torch": torchtitan.unsaid}
MADE = {"megatron": megatron.program, "deepspeed": deepspeed.program, "torch": torchtitan.program}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_examples_can_be_expressed(runtime: str):
    for problem, plan in (example(), replicas()):
        assert cannot_express(problem, plan, runtime) == []
        assert UNSAID[runtime](problem, plan) == []


def wrong(**changes: object) -> tuple[Problem, Plan]:
    problem, plan = replicas()
    problem = replace(problem, cluster=cluster(domains=("dc-a", "dc-b", "dc-c")), allow_local_sgd=True)
    return problem, replace(plan, **changes)


def unequal_shares() -> tuple[Pipeline, ...]:
    one, two = replicas()[1].pipelines
    return replace(one, num_micro_batches=5), replace(two, num_micro_batches=3)


def unlike_cuts() -> tuple[Pipeline, ...]:
    one, two = replicas()[1].pipelines
    stages = (replace(two.stages[0], layers=(0, 15)), replace(two.stages[1], layers=(15, 34)))
    return one, replace(two, stages=stages)


def unlike_widths() -> tuple[Pipeline, ...]:
    one, two = replicas()[1].pipelines
    return one, replace(two, stages=tuple(replace(stage, tp=1, dp=4) for stage in two.stages), num_micro_batches=2)


def test_only_megatron_names_what_brings_tokens_to_experts():
    problem, plan = example()
    software = replace(problem.workload.software, dispatcher="deepep")
    problem = replace(problem, workload=replace(problem.workload, software=software))
    assert megatron.unsaid(problem, plan) == []
    assert torchtitan.unsaid(problem, plan) == ["the recipe names no dispatcher deepep, only alltoall"]
    assert ("dispatcher deepep is not written here", "plan with alltoall") in maxtext.unsaid(problem, plan)


@pytest.mark.parametrize(
    ("changes", "runtimes", "said"),
    [
        ({"pipelines": unlike_widths()}, RUNTIMES, "has one tp and dp for all stages, not tp 1 dp 4, tp 2 dp 2"),
        ({"pipelines": unequal_shares()}, RUNTIMES, "deals every replica equally many micro-batches"),
        ({"pipelines": unlike_cuts()}, RUNTIMES, "cuts every replica at the same layers"),
        ({"relays": (Relay("dc-a", "dc-b", "dc-c"),)}, RUNTIMES, "cannot relay 'dc-a' to 'dc-b' through 'dc-c'"),
        ({"compression": (Compression("dc-a", "dc-b", "fp8"),)}, RUNTIMES, "cannot compress activations"),
        ({"schedule": ScheduleChoice("gpipe")}, ("megatron", "deepspeed"), "cannot express schedule 'gpipe'"),
        ({"schedule": ScheduleChoice("1f1b", 2)}, ("megatron", "deepspeed"), "cannot express live limit 2"),
        ({"sync": Sync("local_sgd", 8)}, ("megatron", "deepspeed"), "cannot express sync 'local_sgd'"),
        ({"sync": Sync("local_sgd", 8)}, ("torch",), "cannot average parameters every 8 steps"),
        ({"sharding": "optimizer"}, ("torch",), "cannot express sharding 'optimizer'"),
        ({"sharding": "full"}, ("megatron", "deepspeed"), "cannot express sharding 'full'"),
        ({"recompute": "selective"}, ("deepspeed",), "cannot express recompute 'selective'"),
        ({"recompute": "full:2"}, ("torch", "deepspeed"), "cannot express recompute 'full:2'"),
    ],
)
def test_each_thing_is_named(changes: dict[str, object], runtimes: tuple[str, ...], said: str):
    problem, plan = wrong(**changes)
    for runtime in RUNTIMES:
        told = " ".join(cannot_express(problem, plan, runtime))
        assert (said in told) == (runtime in runtimes), (runtime, told)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_leaving_things_out_gives_a_plan_that_the_runtime_can_run(runtime: str):
    problem, plan = wrong(
        pipelines=unequal_shares(),
        relays=(Relay("dc-a", "dc-b", "dc-c"),),
        compression=(Compression("dc-a", "dc-b", "fp8"),),
        schedule=ScheduleChoice("gpipe", 3),
        sync=Sync("local_sgd", 8),
        sharding="gradients",
        recompute="full",
    )
    found = left_out(problem, plan, runtime, UNSAID[runtime])
    assert found is not None
    assert [line.num_micro_batches for line in found.plan.pipelines] == [4, 4]
    assert check(replace(problem, runtime=runtime), found.plan) == ()
    assert found.step_time_s > 0
    MADE[runtime](problem, found.plan)


def test_unlike_widths_need_a_plan_made_anew():
    problem, plan = wrong(pipelines=unlike_widths())
    assert left_out(problem, plan, "megatron", megatron.unsaid) is None
    with pytest.raises(InexpressibleError) as refusal:
        megatron.program(problem, plan)
    assert re.search(
        r"Planned anew for it: .* s a step instead of .* s under no runtime \(ideal\), "
        r"by `hippo plan --runtime megatron`, or in passing",
        str(refusal.value),
    )


def test_instead_says_what_it_costs():
    problem, plan = wrong(schedule=ScheduleChoice("gpipe"))
    same, told = instead(problem, plan, "torchtitan", "auto")
    assert (same, told) == (plan, ())
    other, (note,) = instead(problem, plan, "slurm", "deepspeed")
    assert other == replace(plan, schedule=ScheduleChoice("1f1b"))
    lacks = "DeepSpeed cannot express schedule 'gpipe', only 1f1b"
    assert f"DeepSpeed cannot run the plan as it is: {lacks}. Exported instead" in note


@given(drawn=planned())
def test_any_plan_is_written_or_refused_by_name(drawn: tuple[Problem, Plan]):
    """What passes the rules is written; layers and ranks add up; what does not is named."""
    problem, plan = drawn
    for runtime in RUNTIMES:
        if cannot_express(problem, plan, runtime) or UNSAID[runtime](problem, plan):
            continue
        try:
            made = MADE[runtime](problem, plan)
        except InputError:  # the simulator's own limits: a link of no use, a schedule too long to play
            continue
        assert len(made.placed.ranks) == plan.gpus
        text = "\n".join(made.words)
        if runtime == "megatron":
            assert f"--num-layers {problem.model.num_blocks}" in text
            assert f"--global-batch-size {plan.global_batch}" in text
