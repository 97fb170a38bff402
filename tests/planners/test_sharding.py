"""The optimizer's state, or all weights, sharded over replicas in several domains: found where that is best, by brute
force too, and never below a bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from tests.planners.worlds import cluster, domain, gpt, problem

from hippo.errors import InfeasibleError
from hippo.plan.check import check
from hippo.planners.base import Stop
from hippo.planners.brute.brute import Brute
from hippo.planners.brute.space import Space
from hippo.planners.cuts import even_cuts
from hippo.planners.exact.layouts import COUNTED, LayerTables, all_layouts
from hippo.planners.exact.search import Exact
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import Recipe
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS, SHARDING
from hippo.registry import planner
from hippo.score.judge import evaluate, fits
from hippo.simulate.costs import costs

LONG = Stop(600.0)
PLAIN = Space(most_chunks=1)


def sites(number: int, gpus: int, memory_gb: float, *, blocks: int = 2, batch: int = 8, **given: object) -> Problem:
    """A GPT on domains of a node each, with links as quick as the network between nodes."""
    where = cluster(*(domain(name, 1, gpus) for name in "abcdefghij"[:number]), gbps=400.0, latency_s=1e-5)
    gpu = replace(where.gpu, memory_bytes=memory_gb * 1e9)
    return problem(replace(where, gpu=gpu), gpt(blocks), batch=batch, **{"runtime": "megatron", **given})


@pytest.mark.parametrize(
    ("number", "gpus", "memory_gb", "batch"),
    [
        (3, 1, 1.6, 12),
        pytest.param(3, 1, 1.8, 12, marks=pytest.mark.slow),
        pytest.param(2, 2, 1.3, 8, marks=pytest.mark.slow),
    ],
)
def test_state_shared_out_over_domains_is_best_and_without_it_is_worse(
    number: int, gpus: int, memory_gb: float, batch: int
):
    asked = sites(number, gpus, memory_gb, batch=batch)
    every, found = Brute(space=PLAIN).propose(asked, LONG), Exact().propose(asked, LONG)
    inside = tuple(kind for kind in SHARDING if kind != ACROSS)
    without = Brute(space=replace(PLAIN, sharding=inside)).propose(asked, LONG)
    assert every.gap == 0.0
    assert every.score is not None
    assert found.score is not None
    assert without.score is not None
    assert found.plan is not None
    assert found.plan.sharding == ACROSS
    assert found.score.step_time_s == pytest.approx(every.score.step_time_s, rel=1e-9)
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= every.score.step_time_s * (1 + 1e-9)
    assert without.score.step_time_s > 1.05 * every.score.step_time_s


@pytest.mark.parametrize("runtime", ["megatron", "deepspeed", "torch", "ideal"])
@pytest.mark.parametrize(("number", "gpus", "gbps"), [(2, 2, 400.0), (3, 2, 20.0), (COUNTED + 1, 1, 400.0)])
@pytest.mark.parametrize("gradient_bytes", [2.0, 4.0])
def test_no_layout_lies_below_the_bound(runtime: str, number: int, gpus: int, gbps: float, gradient_bytes: float):
    """Every uniform layout of replicas over all domains, sharded in each way; sums of 4 bytes gather weights of 2."""
    asked = sites(number, gpus, 1.6, batch=4 * number, runtime=runtime)
    links = tuple(replace(link, bandwidth_bytes_per_s=gbps * 1e9 / 8) for link in asked.cluster.links)
    workload = replace(asked.workload, gradient_bytes_per_parameter=gradient_bytes)
    asked = replace(asked, workload=workload, cluster=replace(asked.cluster, links=links))
    found, tried = Exact().propose(asked, LONG), 0
    assert found.lower_bound_s is not None
    for tp, pp, size, again, sharding in product(
        (1, 2), (1, 2), (1, 2, 4), ("none", "full"), ("none", "optimizer", ACROSS, "full")
    ):
        dp = gpus // (tp * pp)
        if not dp or 4 % (size * dp):
            continue
        cuts = even_cuts(asked.model.num_layers, pp)
        lines = [
            PipelineSketch(
                tuple(StageSketch(each.name, pair, tp, dp) for pair in zip(cuts[:-1], cuts[1:], strict=True)),
                4 // (size * dp),
            )
            for each in asked.cluster.domains
        ]
        try:
            plan = Recipe(size, again, sharding).plan(asked, place(asked.cluster, lines))
        except InfeasibleError:
            continue
        if not check(asked, plan) and fits(asked, plan):
            tried += 1
            assert evaluate(asked, plan).step_time_s >= found.lower_bound_s * (1 - 1e-9)
    assert tried >= 3


@pytest.mark.parametrize(("runtime", "several"), [("torch", True), ("deepspeed", False), ("ideal", False)])
def test_sharded_gradients_stand_in_pipelines_of_a_runtime_without_a_sharded_optimizer(runtime: str, several: bool):
    every = [each for each in all_layouts(LayerTables.of(sites(1, 4, 80.0, runtime=runtime)), 0) if each.dp > 1]
    assert max(each.stages for each in every) == 2
    assert max(each.stages for each in every if each.mode.sharding == "gradients") == (2 if several else 1)


def test_layouts_are_told_apart_by_the_number_of_groups():
    """One for each number that the batch divides by, the last for all that are more; none where one domain stands
    alone, or sums must go on two levels."""

    def groups(asked: Problem) -> list[int]:
        found = all_layouts(LayerTables.of(asked), 0)
        return sorted({each.mode.groups for each in found if each.mode.sharding == ACROSS})

    assert groups(sites(3, 1, 80.0, batch=12)) == [2, 3]
    assert groups(sites(3, 1, 80.0, batch=8)) == [2]
    assert groups(sites(3, 1, 80.0, batch=8, runtime="ideal")) == [2, 3]
    assert groups(sites(10, 1, 80.0, batch=12)) == [2, 3, 4, 6, 10]
    assert groups(sites(1, 2, 80.0)) == []
    assert groups(sites(3, 1, 80.0, all_reduce="two-level")) == []
    for runtime in ("hippo", "torch"):
        assert groups(sites(3, 1, 80.0, runtime=runtime)) == []


@pytest.mark.parametrize("sharding", [ACROSS, "full"])
def test_stages_of_one_width_may_have_unlike_numbers_of_replicas(sharding: str):
    """Beside two lanes and then one in the other domain, a stage shares its state with two ranks and then with one."""
    where = cluster(domain("a", 1, 2), domain("b", 1, 3))
    asked = problem(where, gpt(4), batch=6, runtime="ideal")
    lines = [
        PipelineSketch((StageSketch(name, (0, 3), 1, dp), StageSketch(name, (3, 6), 1, 1)), 2)
        for name, dp in (("a", 1), ("b", 2))
    ]
    plan = Recipe(1, sharding=sharding).plan(asked, place(where, lines))
    assert check(asked, plan) == ()
    (first, second), (_, other) = [
        [each.optimizer_bytes for each in costs(asked).memories(plan, line)] for line in plan.pipelines
    ]
    assert second == other  # the same layers, shared by as many
    assert second > 1.2 * first  # a third of three blocks and the embedding, half of as many and the head


@pytest.mark.parametrize(
    ("number", "gpus", "memory_gb", "batch", "runtime"),
    [
        (3, 1, 1.6, 12, "deepspeed"),
        pytest.param(3, 1, 1.6, 12, "torch", marks=pytest.mark.slow),
        pytest.param(2, 1, 1.6, 8, "ideal", marks=pytest.mark.slow),
    ],
)
def test_weights_shared_out_over_domains_are_best_and_without_them_is_worse(
    number: int, gpus: int, memory_gb: float, batch: int, runtime: str
):
    """As ZeRO-3 has it; ``zero`` answers with no better plan."""
    asked = sites(number, gpus, memory_gb, batch=batch, runtime=runtime)
    every, found = Brute(space=PLAIN).propose(asked, LONG), Exact().propose(asked, LONG)
    inside = tuple(kind for kind in SHARDING if kind != "full")
    without = Brute(space=replace(PLAIN, sharding=inside)).propose(asked, LONG)
    zero = planner("zero").propose(asked, LONG)
    assert every.gap == 0.0
    assert every.score is not None
    assert every.plan is not None
    assert every.plan.sharding == "full"
    assert len(every.plan.domains) > 1
    assert found.score is not None
    assert found.score.step_time_s == pytest.approx(every.score.step_time_s, rel=1e-9)
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= every.score.step_time_s * (1 + 1e-9)
    assert without.score is None or without.score.step_time_s > 1.05 * every.score.step_time_s
    assert zero.score is None or zero.score.step_time_s >= every.score.step_time_s * (1 - 1e-9)
