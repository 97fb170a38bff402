"""Pipelines whose domains lie differently: no play is better than the family's bounds; mixing where it pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product
from random import Random

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world
from tests.planners.tiny import both, domain, model, problem

from hippo.planners.base import Stop
from hippo.planners.exact import mixed as exact_mixed
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.mixed import LayoutFamily
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import Field
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.problem.model import gpt_model
from hippo.problem.problem import Problem


def unlike(seed: int) -> Problem:
    """Two domains of different sizes, links that differ by direction."""
    asked = next(
        world for world in map(random_world, range(50 * seed, 50 * seed + 50)) if len(world.cluster.domains) == 2
    )
    one, two = asked.cluster.domains
    sizes = ((1, 1), (1, 2), (2, 1), (1, 4))
    shapes = Random(seed).sample(sizes, 2)
    domains = tuple(
        replace(each, nodes=nodes, gpus_per_node=gpus) for each, (nodes, gpus) in zip((one, two), shapes, strict=True)
    )
    return replace(asked, cluster=replace(asked.cluster, domains=domains))


def played(field: Field, family: LayoutFamily, random: Random) -> Iterator[float]:
    """Step times of pipelines of a family over both domains: some options, all cuts, some warm-ups."""
    layers, names = field.problem.model.num_layers, [each.name for each in field.problem.cluster.domains]
    pairs = [
        (order, options, depths)
        for order in permutations(range(2))
        for options in product(family.options, repeat=2)
        if all(options[at].kind == field.tables.kinds[order[at]] for at in range(2))
        for depths in product((1, 2), repeat=2)
        if all(depth <= option.stages for depth, option in zip(depths, options, strict=True)) and sum(depths) < 4
    ]
    for order, options, depths in random.sample(pairs, min(4, len(pairs))):
        where = [at for at in range(2) for _ in range(depths[at])]
        for inner in combinations(range(1, layers), len(where) - 1):
            cuts = (0, *inner, layers)
            stages = tuple(
                StageSketch(names[order[at]], (cuts[i], cuts[i + 1]), options[at].tp, options[at].dp)
                for i, at in enumerate(where)
            )
            for ahead in ((), *((w,) * len(where) for w in {family.waves, min(2, family.waves)})):
                line, mode = PipelineSketch(stages, family.waves, ahead), options[0].mode
                micro_batch = family.wave // stages[0].dp
                yield field.tried.play(Candidate((line,), micro_batch, mode.recompute, mode.sharding))


@pytest.mark.parametrize("seed", range(6))
def test_no_pipeline_is_better_than_its_familys_bounds(seed: int) -> None:
    field, random = field_of(unlike(seed)), Random(seed)
    families = [family for family in exact_mixed.families(field) if family.waves > 0]
    for family in random.sample(families, min(4, len(families))):
        least = min(played(field, family, random), default=np.inf)
        if np.isfinite(least):
            assert exact_mixed.Lineups.of(field).bounds(family)[2] <= least * (1 + 1e-9)
            assert exact_mixed.search_mixed(field, least * 1.1) <= least * (1 + 1e-9)


def test_one_domain_has_nothing_to_mix() -> None:
    asked = problem((domain("a", 1, 2),))
    assert exact_mixed.search_mixed(field_of(asked), 7.0) == 7.0


def test_runtimes_with_one_mesh_keep_one_tp_and_dp() -> None:
    for runtime in ("megatron", "torch", "deepspeed"):
        for family in exact_mixed.families(field_of(replace(unlike(1), runtime=runtime))):
            assert len({(each.tp, each.dp) for each in family.options}) == 1


def test_domains_of_unlike_size_lie_differently() -> None:
    """Two GPUs here, one there, a fast link, and no domain with memory for the model alone."""
    asked = problem(
        (domain("a", 1, 2), domain("b", 1, 1)),
        both("a", "b", 5e10),
        of=model(6, hidden=4096),
        batch=8,
        memory_bytes=10e9,
    )
    assert all(
        Exact().propose(replace(asked, cluster=replace(asked.cluster, domains=(each,), links=())), Stop(200.0)).plan
        is None
        for each in asked.cluster.domains
    )
    found = Exact().propose(asked, Stop(200.0))
    assert found.plan is not None
    (pipeline,) = found.plan.pipelines
    assert set(found.plan.domains) == {"a", "b"}
    assert len({(stage.domain, stage.tp, stage.dp) for stage in pipeline.stages}) > 1


def test_a_single_lane_may_stand_before_lanes_that_share_their_optimizer():
    """One lane has nothing to share, so it belongs to plans of every sharding: alone, a takes 1 % longer."""
    of = gpt_model("small", layers=6, hidden=4096, heads=4, vocab=2048, seq=2048, ffn=8192, gated=True)
    where = domain("a", 1, 4), replace(domain("b", 4, 1), inter_node_bytes_per_s=2.5e9)
    asked = problem(where, both("a", "b", 4e10, 1e-5), of=of, batch=8, memory_bytes=24e9, runtime="ideal")
    asked = replace(asked, workload=replace(asked.workload, seq=2048))
    found = Exact().propose(asked, Stop(600.0))
    assert found.plan is not None
    assert found.score is not None
    assert found.score.step_time_s < 0.1465
    assert found.plan.sharding != "none"
    assert {stage.dp for stage in found.plan.pipelines[0].stages} == {1, 2}
