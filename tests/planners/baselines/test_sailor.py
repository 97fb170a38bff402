"""Sailor's search against every configuration of its own space, by the estimate of its paper (section 4.2.2), with
messages that go beside computing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, product

import numpy as np
import pytest

from hippo.planners.baselines.sailor import (
    SCALES,
    SHARDINGS,
    RegionChain,
    RegionLinks,
    Sailor,
    SailorCandidate,
    SailorSearch,
    best_chain,
    placed,
)
from hippo.planners.cuts import even_cuts
from hippo.planners.effort import Effort
from hippo.planners.orders import ordered
from hippo.planners.recipe import Recipe, micro_batches, recomputations, shardings
from hippo.planners.shortlist import ShortList
from hippo.problem.cluster import Cluster
from hippo.problem.problem import Problem
from hippo.score.judge import judge
from hippo.simulate.costs import cost_model

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

TOYS = {
    "two equal regions": cluster(domain("a", 1, 2), domain("b", 1, 2)),
    "three regions, one slow pair": cluster(
        domain("a", 1, 2), domain("b", 1, 2), domain("c", 1, 1), others={("a", "b"): 0.5}
    ),
    "unequal regions, fast links": cluster(domain("a", 1, 4), domain("b", 1, 2), gbps=400.0, latency_s=1e-4),
    "no link": cluster(domain("a", 1, 2), domain("b", 1, 2), others={("a", "b"): 0.0}),
}


def with_memory(where: Cluster, memory_gb: float) -> Problem:
    rates = {(link.source, link.destination): link.bandwidth_bytes_per_s * 8e-9 for link in where.links}  # type: ignore[operator]
    others = {
        (a.name, b.name): rates.get((a.name, b.name), 0.0) for a in where.domains for b in where.domains if a != b
    }
    latency_s = where.links[0].latency_s if where.links else 0.0
    return problem(
        cluster(*where.domains, memory_gb=memory_gb, others=others, latency_s=latency_s),
        gpt(4, 1024, vocab=8192),
        batch=8,
    )


def stage_widths(asked: Problem, cuts: tuple[int, ...], recipe: Recipe, dp: int, waves: int) -> list[tuple[int, ...]]:
    """H2: the narrowest width of each stage that fits; and each raised while a doubling pays."""
    costs, narrow, wide, stages = cost_model(asked), [], [], len(cuts) - 1
    widths = [1, 2, 4][: min(one.gpus_per_node for one in asked.cluster.domains).bit_length()]

    def seconds(span: tuple[int, int], tp: int) -> float:
        table = costs.layer_seconds("a", recipe.layout(asked, tp=tp, dp=dp))
        return float(table[span[0] : span[1]].sum())

    for stage, span in enumerate(zip(cuts, cuts[1:], strict=False)):
        live = min(waves, stages - stage)
        layouts = {tp: recipe.layout(asked, tp=tp, dp=dp, stages=stages) for tp in widths}
        fitting = [
            tp
            for tp in widths
            if costs.memory("a", *span, layouts[tp], live=live).peak_bytes <= costs.usable_memory_bytes()
        ]
        if not fitting:
            return []
        narrow.append(fitting[0])
        tp = fitting[0]
        while 2 * tp in widths and seconds(span, tp) >= SCALES * seconds(span, 2 * tp):
            tp *= 2
        wide.append(tp)
    return [tuple(narrow), tuple(wide)]


def estimate(asked: Problem, one: SailorCandidate) -> float:
    """max t_i * N_b + max sync_i + sum t_i, half of a round trip in the first t_i; infinite where a region is too
    small, visited twice or not linked."""
    costs, cluster_ = cost_model(asked), asked.cluster
    visits = [name for name, _ in groupby(one.regions)]
    used = {
        name: sum(one.dp * tp for tp, region in zip(one.tps, one.regions, strict=True) if region == name)
        for name in visits
    }
    if len(set(visits)) < len(visits) or any(used[name] > cluster_.domain(name).gpus for name in visits):
        return float("inf")
    paces, times, syncs = [], [], []
    for stage, (tp, region) in enumerate(zip(one.tps, one.regions, strict=True)):
        layout = one.recipe.layout(asked, tp=tp, dp=one.dp, stages=len(one.tps))
        cost = costs.stage(region, one.cuts[stage], one.cuts[stage + 1], layout)
        seconds, crossing = cost.forward_s + cost.backward_s + cost.weight_gradient_s, 0.0
        following = one.regions[stage + 1] if stage + 1 < len(one.regions) else region
        if following != region:
            links = (cluster_.link(region, following), cluster_.link(following, region))
            if None in links:
                return float("inf")
            nodes = -(-one.dp * min(one.tps) // cluster_.domain(region).gpus_per_node)  # which share the link
            sent = one.dp * cost.output_bytes
            crossing = sum(link.delay_s + sent / link.rate_bytes_per_s(nodes) for link in links if link)
        paces.append(seconds + crossing / 2)
        times.append(seconds + crossing)
        syncs.append(cost.sync_s + cost.optimizer_s + cost.fixed_s)
    return max(paces) * one.waves + max(syncs) + sum(times)


def every_configuration(asked: Problem) -> Iterator[SailorCandidate]:
    """Stages, micro-batches, settings of the job, data widths, the two choices of tensor widths, regions of stages."""
    costs, names = cost_model(asked), [one.name for one in asked.cluster.domains]
    for pp in range(1, asked.model.num_blocks + 1):
        cuts = even_cuts(asked.model.num_layers, pp)
        for size, recompute in product(micro_batches(costs, 1, most=8), recomputations(costs)):
            for sharding in shardings(asked, SHARDINGS, pipeline=pp > 1):
                for dp in (width for width in (1, 2, 4, 8) if width * size <= 8):
                    recipe, waves = Recipe(size, recompute, sharding), 8 // size // dp
                    for tps in dict.fromkeys(stage_widths(asked, cuts, recipe, dp, waves)):
                        for regions in product(names, repeat=pp):
                            yield SailorCandidate(0.0, cuts, regions, tps, dp, waves, recipe)


@pytest.mark.parametrize("memory_gb", [80.0, 2.0])
@pytest.mark.parametrize("world", TOYS)
def test_no_configuration_of_its_space_has_a_better_estimate(world: str, memory_gb: float) -> None:
    asked = with_memory(TOYS[world], memory_gb)
    least = min(estimate(asked, one) for one in every_configuration(asked))
    found = list(SailorSearch(cost_model(asked), lambda missing: None, Effort()).candidates())
    assert all(one.value == pytest.approx(estimate(asked, one)) for one in found)
    assert min(one.value for one in found) == pytest.approx(least)


@pytest.mark.parametrize("world", TOYS)
def test_the_judge_picks_among_the_best_estimates_of_each_number_of_regions(world: str) -> None:
    asked = with_memory(TOYS[world], 80.0)
    answer = Sailor().propose(asked, STOP)
    assert_sound(asked, answer)
    search = SailorSearch(cost_model(asked), lambda missing: None, Effort())
    best: dict[int, SailorCandidate] = {}
    for one in sorted(search.candidates(), key=lambda one: one.value):
        best.setdefault(len(set(one.regions)), one)
    played = {one.plan(asked): judge(asked, one.plan(asked)).score.step_time_s for one in best.values()}
    quickest = min(played, key=played.__getitem__)
    assert answer.plan in (quickest, ordered(asked, quickest))
    assert answer.score is not None
    assert answer.score.step_time_s <= played[quickest]


def test_where_a_rank_waits_for_its_messages_the_whole_round_trip_slows_a_stage() -> None:
    where = TOYS["two equal regions"]
    free, coupled = (
        SailorSearch(cost_model(problem(where, runtime=name)), lambda missing: None, Effort())
        for name in ("hippo", "megatron")
    )
    assert (free._open_share, coupled._open_share) == (0.5, 1.0)


@pytest.mark.parametrize("runtime", ["megatron", "torch", "deepspeed"])
def test_one_width_for_all_stages_where_the_runtime_has_only_one(runtime: str) -> None:
    where = cluster(domain("a", 1, 4), domain("b", 1, 4), memory_gb=3.0)
    asked = problem(where, gpt(6, 1536, vocab=65536), batch=16, runtime=runtime)
    answer = Sailor().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert len({stage.tp for stage in answer.plan.pipelines[0].stages}) == 1


def test_too_little_memory_is_told() -> None:
    asked = with_memory(TOYS["two equal regions"], 0.5)
    answer = Sailor().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is None


def random_chain(seed: int) -> RegionChain:
    rng = np.random.default_rng(seed)
    names = "abcd"[: int(rng.integers(2, 5))]
    pairs = [(a, b) for a in names for b in names if a < b]
    rates = {pair: float(rng.choice([0.0, 0.5, 1.0, 5.0])) for pair in pairs}
    where = cluster(*(domain(name, 1, int(rng.integers(1, 9))) for name in names), others=rates)
    stages = int(rng.integers(1, 6))
    gpus = tuple(int(count) for count in rng.integers(1, 4, stages))
    seconds = tuple(float(one) for one in rng.uniform(0.1, 1.0, stages))
    return RegionChain(
        RegionLinks(where), gpus, seconds, int(rng.integers(1, 9)), float(rng.uniform(1e6, 1e9)), (0.5, 1.0)[seed % 2]
    )


def allowed(where: Cluster, chain: RegionChain, regions: tuple[str, ...]) -> bool:
    visits = [name for name, _ in groupby(regions)]
    used = {
        name: sum(gpus for gpus, region in zip(chain.gpus, regions, strict=True) if region == name) for name in visits
    }
    return len(set(visits)) == len(visits) and all(used[name] <= where.domain(name).gpus for name in visits)


@pytest.mark.parametrize("seed", range(60))
def test_no_assignment_of_stages_to_regions_is_faster(seed: int) -> None:
    chain = random_chain(seed)
    where = chain.links.cluster
    names = [one.name for one in where.domains]
    choices = [one for one in product(names, repeat=len(chain.gpus)) if allowed(where, chain, one)]
    least = min((chain.seconds(one) for one in choices), default=float("inf"))
    found = best_chain(chain, limit=float("inf"), effort=Effort())
    assert (float("inf") if found is None else chain.seconds(found)) == pytest.approx(least)
    assert found is None or allowed(where, chain, found)


def test_the_estimate_is_the_papers() -> None:
    # Two stages, one border: 1 GB at 8 Gbit/s and 20 ms, there and back, is 2.04 s on top of the first stage's 3 s.
    where = cluster(domain("a", 1, 1), domain("b", 1, 1), gbps=8.0)
    chain = RegionChain(RegionLinks(where), (1, 1), (3.0, 4.0), 10, 1e9)
    assert chain.pair_s[0, 1] == pytest.approx(2.04)
    assert chain.seconds(("a", "b")) == pytest.approx(5.04 * 10 + 5.04 + 4.0)
    beside = replace(chain, open_share=0.5)  # messages go beside computing
    assert beside.seconds(("a", "b")) == pytest.approx(4.02 * 10 + 5.04 + 4.0)


def test_nothing_below_the_limit_is_nothing() -> None:
    chain = random_chain(1)
    assert best_chain(chain, limit=0.0, effort=Effort()) is None


def test_groups_that_the_nodes_of_a_domain_have_no_room_for_are_rejected() -> None:
    """Three nodes of six GPUs hold three groups of four, not the four that their number of GPUs suggests."""
    asked = problem(cluster(domain("a", 1, 4), domain("b", 3, 6)), gpt(8), batch=16)
    found = SailorCandidate(1.0, (0, 10), ("b",), (4,), 4, 4, Recipe(1, "none"))
    other = replace(found, value=2.0, dp=2, waves=8)
    shortlist = ShortList.of(asked, STOP)
    assert [each.gpus for each in placed(asked, [found, other], shortlist)] == [8]
    assert shortlist.rejected == {"devices": 1}
