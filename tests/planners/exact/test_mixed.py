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
from hippo.planners.exact.families import LayoutFamily, families
from hippo.planners.exact.search import Exact
from hippo.planners.exact.space import Field, Only
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.problem.cluster import Link
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
    """Step times of pipelines of a family over all domains: some options, all cuts, some warm-ups."""
    layers, names = field.problem.model.num_layers, [each.name for each in field.problem.cluster.domains]
    n = len(names)
    chains = [
        (order, options, depths)
        for order in permutations(range(n))
        for options in product(family.options, repeat=n)
        if all(options[at].kind == field.tables.kinds[order[at]] for at in range(n))
        for depths in product((1, 2), repeat=n)
        if all(depth <= option.stages for depth, option in zip(depths, options, strict=True)) and sum(depths) < n + 2
    ]
    for order, options, depths in random.sample(chains, min(4, len(chains))):
        where = [at for at in range(n) for _ in range(depths[at])]
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


def capped(asked: Problem, seed: int) -> Problem:
    """The same where links carry so much for each node that sends, so that tp and dp set what borders take."""
    random, shapes = Random(seed), ((2, 1), (2, 2), (4, 1), (1, 2))
    links = tuple(
        replace(
            each, bandwidth_bytes_per_s=random.choice((None, 1e10)), per_node_bytes_per_s=10 ** random.uniform(7.5, 9)
        )
        for each in asked.cluster.links
    )
    domains = tuple(
        replace(each, nodes=nodes, gpus_per_node=gpus)
        for each, (nodes, gpus) in zip(asked.cluster.domains, random.choices(shapes, k=3), strict=False)
    )
    return replace(asked, cluster=replace(asked.cluster, domains=domains, links=links))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))])
def test_no_pipeline_over_three_domains_is_better_than_the_bound_along_paths(seed: int) -> None:
    """Each link is quick in something else: some have little latency, some a high rate, most a cap per node."""
    random = Random(seed)
    names, size = ("a", "b", "c"), model(random.choice((3, 4)), hidden=random.choice((2048, 4096)))
    links = tuple(
        Link(*pair, 10 ** random.uniform(7.5, 10), 10 ** random.uniform(-4, -1), 0.02)
        for pair in permutations(names, 2)
    )
    asked = capped(problem(tuple(map(domain, names)), links, of=size, batch=random.choice((2, 4))), seed)
    field = replace(field_of(asked), only=Only(frozenset(range(3)), 1))
    least = min((least for family in families(field) for least in played(field, family, random)), default=np.inf)
    if np.isfinite(least):
        ideal = exact_mixed.search_mixed(field, least * 1.1)
        assert ideal <= exact_mixed.least_along(field, ideal, least * 1.1) <= least * (1 + 1e-9)


@pytest.mark.parametrize("node_caps", [False, True])
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 40))])
def test_no_pipeline_is_better_than_its_familys_bounds(seed: int, node_caps: bool) -> None:
    field, random = field_of(capped(unlike(seed), seed) if node_caps else unlike(seed)), Random(seed)
    known = [family for family in families(field) if family.waves > 0]
    for family in random.sample(known, min(4, len(known))):
        least = min(played(field, family, random), default=np.inf)
        if np.isfinite(least):
            rough = exact_mixed.Lineups.of(field).bounds(family)[2]  # inf: it cannot beat the best plan
            assert min(rough, field.tried.value) <= least * (1 + 1e-9)
            ideal = exact_mixed.search_mixed(field, least * 1.1)
            assert ideal <= least * (1 + 1e-9)
            assert ideal <= exact_mixed.least_along(field, ideal, least * 1.1) <= least * (1 + 1e-9)


def test_one_domain_has_nothing_to_mix() -> None:
    asked = problem((domain("a", 1, 2),))
    assert exact_mixed.search_mixed(field_of(asked), 7.0) == 7.0


def test_runtimes_with_one_mesh_keep_one_tp_and_dp() -> None:
    for runtime in ("megatron", "torch", "deepspeed"):
        for family in families(field_of(replace(unlike(1), runtime=runtime))):
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
