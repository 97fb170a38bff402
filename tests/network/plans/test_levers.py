"""Levers: what they change, what they leave, and that they are physical."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.network.online_world import base

from hippo.network.plans.levers import Bench, better, compressed, dealt, either, pull, routed, split, timed
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net
from hippo.plan.plan import Plan
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.problem.load import load_problem
from hippo.score.judge import fits


@pytest.fixture(scope="module")
def relaying(filled: PlanCache) -> PlanCache:
    """The same world where something relays and compresses."""
    allowed = replace(filled.problem, runtime="ideal", allow_compression=True, compression_worth=0.98)
    cache = PlanCache(allowed)
    cache.add(filled.configurations[0].plan, origin="exact")
    return cache


def weakened(cache: PlanCache, share: float) -> Net:
    state = base(cache)
    used = cache.bytes_per_step(0) > 0
    return Net(np.where(used, share, 1.0) * state.bandwidth_bytes_per_s, state.latency_s)


def test_a_slow_pair_is_relayed_over_links_that_exist(relaying: PlanCache) -> None:
    bench = Bench(PlanCache(relaying.problem), weakened(relaying, 0.1))
    plan = relaying.configurations[0].plan
    links = relaying.problem.cluster.link_index
    (relayed,) = routed(bench, plan)
    assert relayed.relays
    for relay in relayed.relays:
        assert (relay.source, relay.via) in links
        assert (relay.via, relay.destination) in links
    assert bench.value(relayed) > 2 * bench.value(plan)


def test_a_relay_that_is_no_longer_needed_goes(relaying: PlanCache) -> None:
    plan = relaying.configurations[0].plan
    (relayed,) = routed(Bench(PlanCache(relaying.problem), weakened(relaying, 0.1)), plan)
    back = list(routed(Bench(PlanCache(relaying.problem), base(relaying)), relayed))
    assert [each.relays for each in back] == [()]


def test_nothing_is_relayed_over_a_link_that_is_down(relaying: PlanCache) -> None:
    state = weakened(relaying, 0.0)
    plan = relaying.configurations[0].plan
    bench = Bench(PlanCache(relaying.problem), state)
    assert bench.value(plan) == -np.inf
    (relayed,) = routed(bench, plan)
    at = relaying.problem.cluster.link_index
    hops = [hop for each in relayed.relays for hop in ((each.source, each.via), (each.via, each.destination))]
    assert hops
    assert all(state.bandwidth_bytes_per_s[at[hop]] > 0 for hop in hops)


@pytest.mark.parametrize("variants", [timed, compressed, split, routed])
def test_levers_leave_every_weight_in_its_place(relaying: PlanCache, variants: object) -> None:
    bench, plan = Bench(PlanCache(relaying.problem), weakened(relaying, 0.3)), relaying.configurations[0].plan
    found = list(variants(bench, plan))  # type: ignore[operator]
    bench.value(plan)
    assert found
    for each in found:
        bench.value(each)
        assert [one.stages for one in each.pipelines] == [one.stages for one in plan.pipelines]
        assert each.global_batch == plan.global_batch
    assert bench.cache.places == 1


def test_run_ahead_fits_memory(filled: PlanCache) -> None:
    bench = Bench(PlanCache(filled.problem), weakened(filled, 0.5))
    for index in range(min(4, filled.places)):
        plan = filled.configurations[filled.of_place(index)[0]].plan
        for each in timed(bench, plan):
            if each.schedule.name == "cross-domain":
                assert fits(filled.problem, each)


def test_a_token_trained_with_compression_counts_what_the_user_says(relaying: PlanCache) -> None:
    cache = PlanCache(relaying.problem)
    plan = relaying.configurations[0].plan
    bench = Bench(cache, base(relaying))
    squeezed = next(iter(compressed(bench, plan)))
    bench.value(squeezed)
    assert cache.configurations[bench.index(squeezed)].worth == 0.98
    assert either(relaying.problem, squeezed) == (squeezed, plan)


def test_where_it_is_not_allowed_nothing_is_compressed(filled: PlanCache) -> None:
    plan, state = filled.configurations[0].plan, weakened(filled, 0.2)
    assert not filled.problem.allow_compression
    assert either(filled.problem, plan) == (plan,)
    assert not any(each.plan.compression for each in filled.configurations)
    assert not any(each.compression for each, _ in better(Bench(PlanCache(filled.problem), state), plan))
    allowed = replace(filled.problem, allow_compression=True, compression_worth=0.98)
    pressed = either(allowed, plan)[1]
    assert pressed.compression
    assert filled.copy().add(pressed, origin="test") is None


def test_what_is_pulled_does_more_and_stays_in_place(filled: PlanCache) -> None:
    cache, state = filled.copy(), weakened(filled, 0.2)
    found = pull(cache, 0, *state)
    assert found
    rates = [
        cache.configurations[i].worth / cache.step_time_s(i, state[0][None], state[1][None])[0] for i in (*found, 0)
    ]
    assert rates == sorted(rates, reverse=True)
    assert {cache.location(index) for index in found} == {cache.location(0)}


def test_shares_follow_the_load_of_the_domains() -> None:
    problem = load_problem(model="llama-3-8b", cluster="four-hubs", global_batch=512)
    found = Exact().propose(problem, Stop(5.0))
    several = [each.plan for each in found.runners_up if len(each.plan.pipelines) == 2]
    plan: Plan = several[0]
    line = plan.pipelines[0]
    plan = replace(plan, pipelines=(line, replace(plan.pipelines[1], num_micro_batches=line.num_micro_batches)))
    if plan.global_batch != 512:
        pytest.skip("waves of this plan are not alike")
    cache = PlanCache(problem)
    slow = np.ones(len(problem.cluster.domains))
    slow[problem.cluster.domain_index[line.stages[0].domain]] = 2.0
    shares = list(dealt(Bench(cache, base(cache), compute=slow), plan))
    assert len(shares) == 1
    first, second = shares[0].pipelines
    assert first.num_micro_batches < second.num_micro_batches
    assert shares[0].global_batch == 512
