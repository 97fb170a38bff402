"""Chunks in the exact search: found where they pay, and no plan with chunks below the bound that holds for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from tests.planners.tiny import both, domain, model, problem

from hippo.errors import InfeasibleError
from hippo.export import megatron
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Stop
from hippo.planners.brute.brute import PLAIN, Brute
from hippo.planners.exact.candidates import Tried
from hippo.planners.exact.interleaved import InterleavedShapes, balanced_cuts, least_of, shapes_of
from hippo.planners.exact.layouts import Mode
from hippo.planners.exact.space import Field
from hippo.planners.exact.uniform import candidate, shape_of
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import FITTED, Recipe, fits_blocks
from hippo.problem.model import gpt_model
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS
from hippo.registry import planner
from hippo.score.judge import flaw, judge
from hippo.score.score import objective_value

STOP = Stop(600.0)


def short_of_waves() -> Problem:
    """Two GPUs without a network inside, four micro-batches: the bubble is a fifth of a step in 1F1B."""
    return problem((domain("a"), domain("b")), both("a", "b", 1e11, 1e-5), of=model(6), runtime="megatron")


def test_an_optimum_that_needs_chunks() -> None:
    asked = short_of_waves()
    best, plain = Brute().propose(asked, STOP), Brute(space=PLAIN).propose(asked, STOP)
    found = planner("exact").propose(asked, STOP)
    assert best.plan is not None
    assert found.plan is not None
    assert best.plan.interleave == found.plan.interleave == 4
    assert found.score is not None
    assert best.score is not None
    assert plain.score is not None
    assert found.score.step_time_s == pytest.approx(best.score.step_time_s, rel=1e-9)
    assert plain.score.step_time_s > 1.05 * best.score.step_time_s
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= best.score.step_time_s
    more = 100 * (plain.score.step_time_s / best.score.step_time_s - 1)
    assert found.notes[0].startswith("Each stage holds 4 chunks of layers, interleaved")
    assert f"{more:.2g} % more" in found.notes[0]


def test_a_head_that_takes_as_long_as_blocks_leaves_the_last_rank_fewer() -> None:
    """Of eight blocks the first rank gets five; the last chunk is a block and the head. No cut has a busiest rank with
    less to do."""
    wide = gpt_model("wide head", layers=8, hidden=1024, heads=4, vocab=65536, seq=1024)
    asked = problem((domain("a"), domain("b")), both("a", "b", 1e11, 1e-5), of=wide, runtime="megatron")
    field = Field.of(asked, Tried(asked))
    (layout,) = (each for each in field.layouts[0] if each.mode == Mode(1, FITTED, "none"))
    (way,) = (each for each in field.ideal_ways(0) if each.span == 2)
    (real, *_) = field.real_ways(0, way)
    shape = shape_of(field, layout, real, 1)
    cuts = balanced_cuts(field, shape, 2)
    total = field.table(layout).total_s
    assert cuts == [0, 6, 10]
    assert min(range(2, 9), key=lambda cut: max(total[cut], total[-1] - total[cut])) == 6
    plan = candidate(field, shape, cuts, (), chunks=2).plan(asked)
    assert flaw(asked, plan) is None
    assert megatron.layout(wide, plan) == "Et*2|t*2|t*3|tL"


def drawn(random: Random) -> Problem:
    """One or two domains of two to eight GPUs, four to fourteen blocks, every runtime that has chunks."""
    shapes = random.choice([((1, 2),), ((2, 1),), ((1, 4),), ((2, 4),), ((1, 1), (1, 1)), ((1, 4), (1, 4))])
    domains = tuple(domain(name, *shape) for name, shape in zip("ab", shapes, strict=False))
    links = both("a", "b", 10 ** random.uniform(8.5, 11), 10 ** random.uniform(-5, -2)) if len(domains) > 1 else ()
    return problem(
        domains,
        links,
        of=model(random.randint(4, 14), tied=random.random() < 0.3),
        batch=random.choice([2, 4, 8, 16]),
        memory_bytes=random.choice([None, None, random.uniform(12e9, 30e9)]),
        runtime=random.choice(["megatron", "torch", "hippo", "ideal"]),
        objective=random.choice([Objective(), Objective(), Objective("cost", 0.0, 0.0, 1.0)]),
    )


def with_heavy_blocks(random: Random, asked: Problem) -> Problem:
    """One or two blocks have networks so wide that they may hold most of the gradients: fewer than there are ranks."""
    layers, wider = list(asked.model.layers), random.choice([6, 12, 30])
    network = layers[1].feed_forward
    assert network is not None
    for at in random.sample(range(1, len(layers) - 1), random.choice([1, 1, 2])):
        layers[at] = replace(layers[at], feed_forward=replace(network, width=wider * network.width))
    return replace(asked, model=replace(asked.model, layers=tuple(layers)))


def plans(random: Random, asked: Problem) -> Iterator[Plan]:
    """Plans with chunks whose stages lie alike, their layers dealt at random; those that are none are passed over."""
    domains, layers = asked.cluster.domains, asked.model.num_layers
    for _ in range(60):
        tp, dp, size = random.choice([1, 2]), random.choice([1, 1, 2]), random.choice([1, 2])
        span = random.randint(1, len(domains))
        ranks, chunks = span * random.randint(1, 4), random.randint(2, 5)
        waves, left = divmod(asked.workload.global_batch, size * dp * (len(domains) // span))
        if left or waves == 0 or not 1 < ranks <= layers // chunks:
            continue
        cuts = [0, *sorted(random.sample(range(1, layers), ranks - 1)), layers]
        if random.random() < 0.8:  # about even, as all plans that are any good
            cuts = [round(each * layers / ranks) for each in range(ranks + 1)]
        lines = [
            PipelineSketch(
                tuple(
                    StageSketch(domains[first + at * span // ranks].name, (cuts[at], cuts[at + 1]), tp, dp)
                    for at in range(ranks)
                ),
                waves,
            )
            for first in range(0, len(domains) - span + 1, span)
        ]
        recipe = Recipe(
            size,
            random.choice(["none", "full", "full:1", "full:2"]),
            random.choice(["none", "optimizer"]),
            schedule=ScheduleChoice("interleaved"),
            interleave=chunks,
        )
        try:
            plan = recipe.plan(asked, place(asked.cluster, lines))
        except InfeasibleError:
            continue
        if flaw(asked, plan) is None:
            yield plan


def bound_of(field: Field, plan: Plan, ceiling: float) -> float | None:
    """The bound of the plan's own shape, the ceiling where it is above that; None: its layout is beaten by another."""
    line = plan.pipelines[0]
    blocks = plan.recompute.startswith("full") or plan.recompute == "none"
    modes = [FITTED] if blocks and fits_blocks(field.problem) else []
    asked = [Mode(plan.micro_batch, again, plan.sharding) for again in (*modes, plan.recompute)]
    layouts = [(each.tp, each.dp, each.mode) for each in field.layouts[0]]
    known = [key for mode in asked if (key := (line.stages[0].tp, line.stages[0].dp, mode)) in layouts]
    if not known:
        return None
    wanted, groups = known[0], len(plan.pipelines)
    if groups > field.layouts[0][layouts.index(wanted)].between(field.problem)[1]:  # another is there in its place
        wanted = *wanted[:2], replace(wanted[2], sharding=ACROSS, groups=groups)
    span = len(line.domains)
    (way,) = (each for each in field.ideal_ways(0) if (each.groups, each.span) == (len(plan.pipelines), span))
    found, _ = shapes_of(field, 0, way, ceiling)
    mine = (found.layout == layouts.index(wanted)) & (found.ranks == len(line.stages))
    mine &= found.chunks == plan.interleave
    return least_of(field, 0, way, InterleavedShapes(*(column[mine] for column in found)), ceiling)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_no_plan_with_chunks_lies_below_the_bound_of_its_shape(count: int, alike: bool) -> None:
    """How near bounds come is asked of plans without recomputation: others may compute more again than they need."""
    shares, plain = [], []
    for seed in range(count):
        random = Random(seed)
        asked = drawn(random) if alike else with_heavy_blocks(random, drawn(random))
        field = Field.of(asked, Tried(asked))
        for plan in plans(random, asked):
            value = objective_value(asked.objective, judge(asked, plan).score)
            bound = bound_of(field, plan, value * (1 + 1e-6))
            if bound is not None:
                assert bound <= value, f"seed {seed}: {plan}"
                shares.append(bound / value)
                plain += shares[-1:] if plan.recompute == "none" else []
    assert len(shares) > count
    assert sum(share > 0.8 for share in plain) > 0.2 * len(plain) > 1, "a bound of nothing would pass, too"
