"""Pipelines whose domains lie differently: no play is better than the family's bounds; mixing where it pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product
from random import Random

import numpy as np
import pytest
from tests.planners.least_play import field_of, random_world
from tests.planners.tiny import both, domain, model, problem

from hippo.plan.plan import Relay
from hippo.planners.base import Stop
from hippo.planners.effort import Effort
from hippo.planners.exact import mixed as exact_mixed
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.families import FamilyOnWay, LayoutFamily, families
from hippo.planners.exact.lineups import Steps
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
        joined = {(link.source, link.destination) for link in field.problem.cluster.links}
        relays = tuple(
            Relay(*pair, via)
            for one, two in pairwise(names[at] for at in order)
            for pair in ((one, two), (two, one))
            for via in {*names} - {one, two}
            if field.rules.relays and random.random() < 0.5 and {(pair[0], via), (via, pair[1])} <= joined
        )
        for inner in combinations(range(1, layers), len(where) - 1):
            cuts = (0, *inner, layers)
            stages = tuple(
                StageSketch(names[order[at]], (cuts[i], cuts[i + 1]), options[at].tp, options[at].dp)
                for i, at in enumerate(where)
            )
            for ahead in ((), *((w,) * len(where) for w in {family.waves, min(2, family.waves)})):
                line, mode = PipelineSketch(stages, family.waves, ahead), options[0].mode
                micro_batch = family.wave // stages[0].dp
                yield field.tried.play(Candidate((line,), micro_batch, mode.recompute, mode.sharding, relays))


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


def drawn(seed: int) -> Problem:
    """Two or three domains of unlike shapes, links of which some are missing and some have a cap per node alone: each
    is quick in something else, some in latency, some in bandwidth."""
    random = Random(seed)
    names = tuple("abc"[: random.choice((2, 3, 3))])
    of = model(random.choice((3, 4)), hidden=random.choice((1024, 4096)), tied=random.random() < 0.5)
    links = []
    for pair in permutations(names, 2):
        node_cap = 10 ** random.uniform(7, 9.5) if random.random() < 0.7 else None
        rate = None if node_cap and random.random() < 0.6 else 10 ** random.uniform(7, 10)
        if random.random() < 0.85:
            links.append(Link(*pair, rate, 10 ** random.uniform(-4, -1), 0.02, node_cap))
    shapes = ((1, 1), (2, 1), (2, 2), (4, 1), (1, 2))
    domains = tuple(
        replace(domain(name), nodes=n, gpus_per_node=g) for name in names for n, g in [random.choice(shapes)]
    )
    runtime = random.choice(("hippo", "hippo", "megatron", "torch", "ideal"))
    return problem(domains, tuple(links), of=of, batch=random.choice((2, 4)), runtime=runtime)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 150))])
def test_no_pipeline_is_better_than_the_bounds_along_paths(seed: int) -> None:
    """Over all domains of a drawn world, which is what both are asked about."""
    asked, random = drawn(seed), Random(seed)
    field = replace(field_of(asked), only=Only(frozenset(range(len(asked.cluster.domains))), 1))
    known = [family for family in families(field) if family.waves > 0]
    some = random.sample(known, min(5, len(known)))
    least = min((least for family in some for least in played(field, family, random)), default=np.inf)
    if np.isfinite(least):
        ideal = exact_mixed.search_mixed(field, least * 1.1)
        assert ideal <= exact_mixed.least_along(field, ideal, least * 1.1) <= least * (1 + 1e-9)


@pytest.mark.parametrize(("on", "back", "sends", "least"), [(0, 0, 0, 3), (5, 0, 0, 8), (5, 3, 0, 11), (5, 3, 4, 14)])
def test_what_a_border_takes_is_counted_once(on: float, back: float, sends: float, least: float) -> None:
    """Two layers of 1 s, one in each of two domains, two waves: one goes round in 2 s and what its ways on and back
    take; beside it a stage has the other wave's second of work, and the border what carrying that one takes."""
    tables = np.zeros((1, 12, 3))
    tables[:, [0, 1, 8]] = (0.0, 1.0, 2.0)
    tables[:, 0] *= 0.5
    one = np.ones(1, np.int64)
    family = LayoutFamily(1, 2, (), tables, 1.0 * one, 0 * one, one, 0.0 * one, one, np.array([2.0, 1.0, 0.0]), 0.0)
    nothing, late = np.zeros(2), np.zeros((2, 2, 1))
    late[1, 0], late[0, 1] = on, back
    paces = np.full((2, 1), sends)
    course = FamilyOnWay(
        family, nothing, nothing, nothing, 0.0, 0.0, 1e9, paces, late, Steps.along([0, 0]), 0 * one, Effort()
    )
    low, high = exact_mixed.between(course.fits, 0.0, 100.0)
    assert low - 0.02 <= least <= high + 0.02


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
