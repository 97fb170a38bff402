"""Plans built choice by choice: by hand, against the planners' judges, and what is masked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.network.construction.draft import CLAIMS, PLAIN, Draft, Site, build, lower_rewards, played, site
from hippo.network.construction.estimate import join, shared_layers, weighed
from hippo.network.construction.layout_table import LinkPaces, layout_table, links_under, stranded_share
from hippo.network.construction.observe import (
    CANDIDATE_FEATURES,
    ConstructionState,
    allowed,
    observe_domains,
    observe_layouts,
    observe_recipes,
)
from hippo.network.hi_ppo.constructor import ClosedForm, construct, draft_all, finished
from hippo.network.worlds.generator import make_world
from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate, fits


def problem_of(family: str = "ou3", seed: int = 1) -> Problem:
    return make_world(family, seed).problem


def base_site(problem: Problem) -> Site:
    return site(problem, base_bandwidth(problem.cluster), base_latency(problem.cluster))


def drafted(where: Site, count: int = 6, seed: int = 0) -> list[Draft]:
    sure = np.arange(count) == 0
    return list(draft_all(ClosedForm(), [where] * count, np.random.default_rng(seed), greedy=sure).drafts)


# ------------------------------------------------------------------------------------------------------------- by hand
@pytest.mark.parametrize(
    ("tp", "groups", "share"),
    [
        (8, 2, 0.0),  # whole nodes
        (4, 3, 4 / 32),  # a node and a half: half a node idles in use
        (4, 4, 0.0),
        (2, 1, 6 / 32),
        (3, 4, (2 * 2) / 32),  # two groups of three in each of two nodes of eight
        (16, 1, 0.0),
    ],
)
def test_fragments_are_idle_gpus_of_nodes_in_use(tp: int, groups: int, share: float) -> None:
    assert stranded_share(4, 8, tp=tp, groups=groups) == share


def links_of(pace: list[list[float]]) -> LinkPaces:
    """Directly only, one millisecond everywhere."""
    size = len(pace)
    return LinkPaces(np.array(pace), np.full((size, size), 1e-3), np.full((size, size), -1, np.int64))


def test_a_border_is_as_slow_as_its_slower_direction() -> None:
    links, relayed = links_of([[np.inf, 2.0, 1.0], [3.0, np.inf, 1.0], [1.0, 1.0, np.inf]]), np.zeros((1, 2), bool)
    load = np.zeros((3, 3))
    assert join(links, np.array([0, 1]), 2, relayed, load) == 3.0
    assert not relayed.any()


def test_a_slow_pair_is_relayed_unless_that_loads_a_link_of_another_border() -> None:
    pace = [[np.inf, 9.0, 1.0], [9.0, np.inf, 1.0], [1.0, 1.0, np.inf]]
    via = np.full((3, 3), -1, np.int64)
    via[0, 1] = via[1, 0] = 2
    links, relayed, load = links_of(pace)._replace(via=via), np.zeros((2, 2), bool), np.zeros((3, 3))
    assert join(links, np.array([0, 1]), 2, relayed, load) == 1.0
    assert relayed[0].all()
    assert join(links, np.array([0, 1, 2]), 3, relayed, load) == 2.0  # 1 -> 2 carries its own border and the relay
    pace[0][1] = pace[1][0] = 1.5
    assert join(links_of(pace)._replace(via=via), np.array([0, 1, 2]), 3, relayed, load) == 1.5
    assert not relayed.any()


def test_links_below_the_floor_and_outages_join_nothing() -> None:
    problem = problem_of()
    rates = base_bandwidth(problem.cluster).copy()
    known = layout_table(problem)
    rates[0] = 0.0
    found = links_under(known, rates, base_latency(problem.cluster))
    at = problem.cluster.domain_index
    link = problem.cluster.links[0]
    assert np.isinf(found.pace[at[link.source], at[link.destination]])
    barred = replace(problem, objective=replace(problem.objective, bandwidth_floor_bytes_per_s=1e18))
    assert np.isinf(links_under(layout_table(barred), rates, base_latency(problem.cluster)).pace).all()


def test_layers_follow_gpus_and_claims() -> None:
    arrays = base_site(problem_of()).table.arrays
    cuts = np.zeros(3, np.int64)
    assert shared_layers(arrays, np.array([0, 1]), np.ones(2), 2, cuts)
    layers, mine = len(arrays.work) - 1, arrays.gpus[0] / (arrays.gpus[0] + arrays.gpus[1])
    assert cuts[0] == 0
    assert cuts[2] == layers
    assert abs(arrays.work[cuts[1]] - mine) <= 1.0 / (layers - 2)
    before = int(cuts[1])
    shared_layers(arrays, np.array([0, 1]), np.array([1.3, 1.0]), 2, cuts)
    assert cuts[1] > before


# --------------------------------------------------------------------------------------------------------------- judges
@pytest.mark.parametrize(
    ("family", "runtime"),
    [
        *((family, "hippo") for family in ("ou3", "regimes", "compute_bound", "large")),
        *(("ou3", runtime) for runtime in ("megatron", "deepspeed", "torch", "ideal")),
    ],
)
def test_every_plan_built_keeps_the_rules_and_fits(family: str, runtime: str) -> None:
    problem = replace(problem_of(family, 2), runtime=runtime)
    where, count = base_site(problem), 0
    for draft in drafted(where):
        plans = build(where, draft)
        for plan in plans:
            assert not check(problem, plan)
            assert fits(problem, plan)
            count += 1
        assert not plans or played(where, plans) is not None
    assert count > 0


@pytest.mark.parametrize("runtime", ["megatron", "deepspeed"])
def test_a_runtime_that_orders_waves_itself_gets_its_own_order(runtime: str) -> None:
    problem = replace(problem_of(), runtime=runtime)
    state = base_bandwidth(problem.cluster), base_latency(problem.cluster)
    found = construct(ClosedForm(), problem, *state, tries=8, orders=True)
    assert found
    assert {plan.schedule.name for plan in found} == {"1f1b"}
    assert any(len(plan.domains) > 1 for plan in found)


def test_the_step_time_is_that_of_the_score() -> None:
    problem = problem_of()
    where = base_site(problem)
    made = played(where, build(where, drafted(where)[0]))
    assert made is not None
    assert made.step_time_s == pytest.approx(evaluate(problem, made.plan).step_time_s, rel=1e-12)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_the_closed_form_is_near_what_is_played(seed: int) -> None:
    where = base_site(problem_of("compute_bound", seed))
    draft = drafted(where, 1)[0]
    arrays, made = where.table.arrays, played(where, build(where, draft))
    expected = weighed(arrays, where.links, where.slower, draft.chain, draft.claims)[0][draft.recipe]
    assert made is not None
    assert made.step_time_s == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        pytest.param("ou3", 3, marks=pytest.mark.slow),
        pytest.param("halving", 1, marks=pytest.mark.slow),
        ("link_bound", 2),
    ],
)
def test_sixteen_tries_come_near_the_exact_plan(family: str, seed: int) -> None:
    problem = problem_of(family, seed)
    score = Exact().propose(problem, Stop(time_limit_s=60.0)).score
    assert score is not None
    where = base_site(problem)
    steps = [made.step_time_s for each in drafted(where, 16) if (made := finished(where, each, orders=True))]
    assert min(steps) <= 1.1 * score.step_time_s


def test_slower_domains_make_slower_plans_and_get_fewer_layers() -> None:
    problem = problem_of("compute_bound", 1)
    where = base_site(problem)
    draft = drafted(where, 1)[0]
    assert len(draft.chain) > 1
    slower = np.ones(len(problem.cluster.domains))
    slower[draft.chain[0]] = 2.0
    slow = site(problem, where.bandwidth_bytes_per_s, where.latency_s, slower)
    usual, held_up = played(where, build(where, draft)), played(slow, build(slow, draft))
    assert usual is not None
    assert held_up is not None
    assert held_up.step_time_s > usual.step_time_s
    domain = problem.cluster.domains[draft.chain[0]].name
    assert layers_in(held_up.plan, domain) < layers_in(usual.plan, domain)


def layers_in(plan: Plan, domain: str) -> int:
    return sum(stage.num_layers for stage in plan.pipelines[0].stages if stage.domain == domain)


# ---------------------------------------------------------------------------------------------------------------- masks
def test_a_domain_without_links_is_never_joined() -> None:
    problem = problem_of("regimes", 2)
    rates = base_bandwidth(problem.cluster).copy()
    lost = problem.cluster.domains[0].name
    for at, link in enumerate(problem.cluster.links):
        if lost in (link.source, link.destination):
            rates[at] = 0.0
    where = site(problem, rates, base_latency(problem.cluster))
    draft = ConstructionState(where)
    draft.add(2 * len(CLAIMS) + PLAIN)  # the second domain, behind nothing
    mask = allowed(draft, len(problem.cluster.domains))
    assert not mask[: 2 * len(CLAIMS)].any()
    for plan in construct(ClosedForm(), problem, rates, base_latency(problem.cluster), tries=8):
        assert plan.domains == (lost,) or lost not in plan.domains


def test_a_lost_domain_is_never_used() -> None:
    problem = problem_of("compute_bound", 1)
    base = base_site(problem)
    compute = np.ones(len(problem.cluster.domains))
    compute[1] = np.inf
    plans = construct(ClosedForm(), problem, base.bandwidth_bytes_per_s, base.latency_s, tries=4, compute=compute)
    assert plans
    assert all(problem.cluster.domains[1].name not in plan.domains for plan in plans)


def test_stopping_waits_until_the_chain_fits() -> None:
    where = base_site(problem_of("ou3", 2))
    draft = ConstructionState(where)
    size = where.table.domains
    assert not allowed(draft, size)[-1]
    while not np.isfinite(draft.step_s):
        assert not allowed(draft, size)[-1]
        draft.add(int(np.flatnonzero(allowed(draft, size))[0]))
    assert allowed(draft, size)[-1]
    used = set(draft.chain.tolist())
    mask = allowed(draft, size)[:-1].reshape(size, 2, len(CLAIMS))
    assert not mask[list(used)].any()


def test_padding_changes_nothing() -> None:
    draft = ConstructionState(base_site(problem_of()))
    tight, wide = observe_domains([draft]), observe_domains([draft], size=9)
    known = tight.nodes.shape[1]
    np.testing.assert_array_equal(tight.nodes, wide.nodes[:, :known])
    np.testing.assert_array_equal(tight.candidates[:, :-1], wide.candidates[:, : 2 * known])
    np.testing.assert_array_equal(tight.candidates[:, -1], wide.candidates[:, -1])
    assert not wide.mask[0, 2 * known * len(CLAIMS) : -1].any()


def test_features_are_finite_and_small() -> None:
    for family in ("large", "stragglers"):
        world = make_world(family, 1)
        where = site(world.problem, world.bandwidth_bytes_per_s[7], world.latency_s[7], world.compute[7])
        draft = ConstructionState(where)
        while True:
            seen = observe_domains([draft])
            for part in seen:
                assert np.isfinite(part).all()
            assert np.abs(seen.candidates).max() <= 4.0
            assert seen.candidates[0, :, CANDIDATE_FEATURES.index("best")].max() == pytest.approx(0.0, abs=1e-6)
            if seen.mask[0, -1]:
                break
            draft.add(int(np.flatnonzero(seen.mask[0])[0]))
        observe_recipes([draft])
        draft.choose_recipe(0)
        rows, told = observe_layouts(draft)
        assert np.isfinite(rows.rows).all()
        assert rows.mask.any(axis=1).all()
        assert told.shape == rows.mask.shape


def test_the_lower_reward_minds_fragments_communication_and_holding_up() -> None:
    where = base_site(problem_of("compute_bound", 1))
    draft = drafted(where)[0]
    step = 1e3
    base = lower_rewards(where, draft, step)
    assert base.shape == draft.chain.shape
    assert (base <= 0).all()
    assert (lower_rewards(where, draft, step / 100) <= base).all()  # communication is a larger share of a short step


def test_drafts_repeat_themselves() -> None:
    where = base_site(problem_of("large", 1))
    once, again = drafted(where, 4, seed=3), drafted(where, 4, seed=3)
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one.chain, other.chain)
        np.testing.assert_array_equal(one.rows, other.rows)
