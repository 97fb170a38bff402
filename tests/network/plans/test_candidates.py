"""Which configurations a cache is filled with, and what is planned on the way."""

from __future__ import annotations

import numpy as np
import pytest
from tests.network.online_world import base

from hippo.network.plans.candidates import MOST_LOCATIONS, best_under, fill, net_rates, plan_under, renew, usd_per_token
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net


@pytest.mark.slow  # test_discovery fills one twice, and follows a world besides
def test_a_book_is_filled_the_same_way_twice(filled: PlanCache) -> None:
    again = PlanCache(filled.problem)
    fill(again)
    assert again.configurations == filled.configurations


def test_a_book_starts_with_the_best_plain_plan(filled: PlanCache) -> None:
    plain = [index for index, each in enumerate(filled.configurations) if not each.lever]
    assert best_under(filled, *base(filled), among=plain) == 0
    assert 5 <= len({filled.location(index) for index in range(len(filled))}) <= MOST_LOCATIONS
    assert len(plain) < len(filled)  # some levers are worth knowing


def test_whoever_loses_a_domain_has_somewhere_to_go(filled: PlanCache) -> None:
    state, cluster = base(filled), filled.problem.cluster
    for lost in filled.configurations[0].plan.domains:
        bandwidth = state.bandwidth_bytes_per_s.copy()
        bandwidth[[lost in (link.source, link.destination) for link in cluster.links]] = 0.0
        best = best_under(filled, bandwidth, state.latency_s)
        assert best >= 0
        plan = filled.configurations[best].plan
        assert lost not in plan.domains or plan.domains == (lost,)


def test_nothing_runs_without_links_but_a_domain_alone(filled: PlanCache) -> None:
    state = base(filled)
    best = best_under(filled, np.zeros_like(state.latency_s), state.latency_s)
    assert len(filled.configurations[best].plan.domains) == 1
    crossing = [i for i, each in enumerate(filled.configurations) if len(each.plan.domains) > 1]
    assert best_under(filled, np.zeros_like(state.latency_s), state.latency_s, among=crossing) == -1


def test_net_rates_are_tokens_less_egress(filled: PlanCache) -> None:
    state = base(filled)
    price = usd_per_token(filled, state)
    (rates,) = net_rates(filled, [state], price)
    seconds = filled.step_time_s(0, state.bandwidth_bytes_per_s[None], state.latency_s[None])[0]
    tokens = filled.tokens_per_step - filled.egress_usd_per_step(0) / price
    assert rates[0] == np.float64(tokens / seconds)
    best = best_under(filled, *state)
    seconds = filled.step_time_s(best, state.bandwidth_bytes_per_s[None], state.latency_s[None])[0]
    assert filled.rent_usd_per_s * seconds / filled.tokens_per_step == price


def test_a_plan_made_anew_is_for_the_state(filled: PlanCache) -> None:
    cache, state = filled.copy(), base(filled)
    used = cache.bytes_per_step(0) > 0
    bandwidth = np.where(used, 0.1, 1.0) * state.bandwidth_bytes_per_s
    found = plan_under(cache, bandwidth, state.latency_s)
    assert found is not None
    seconds = [cache.step_time_s(index, bandwidth[None], state.latency_s[None])[0] for index in (0, found)]
    assert seconds[1] < seconds[0]
    without = plan_under(cache, *state, without=frozenset({0}))
    assert without is not None
    assert cache.problem.cluster.domains[0].name not in cache.configurations[without].plan.domains


def test_only_what_does_more_is_added_on_the_way(filled: PlanCache) -> None:
    cache, state = filled.copy(), base(filled)
    rng = np.random.default_rng(1)
    moved = Net(state.bandwidth_bytes_per_s * np.exp(rng.normal(0.0, 1.0, len(state.latency_s))), state.latency_s)
    price = usd_per_token(cache, state)
    before = net_rates(cache, [moved], price)[0]
    added = renew(cache, moved, running=0, price=price)
    after = net_rates(cache, [moved], price)[0]
    place = [cache.location(index) for index in range(len(cache))]
    for index in added:
        assert index >= len(filled)
        same = [before[other] for other in range(len(before)) if place[other] == place[index]]
        assert after[index] > min(before.max(), max(same, default=np.inf))
