"""Methods without learning: what each of them does where it is clear what it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.network.online_world import base, view, weak

from hippo.network.methods.greedy import Greedy
from hippo.network.methods.hysteresis import Dwell, Hysteresis
from hippo.network.methods.receding_horizon import Horizon, RecedingHorizon
from hippo.network.methods.robust_static import RobustStatic, expected
from hippo.network.methods.static import Static
from hippo.network.plans.candidates import net_rates
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules import renewal
from hippo.network.rules.move import STOPPED, STREAMING
from hippo.network.rules.view import Action, How, Method
from hippo.plan.diff import diff

KEPT = Action()


def alone(cache: PlanCache) -> int:
    """A plan in one domain, which no link matters to."""
    return next(i for i, each in enumerate(cache.configurations) if len(each.plan.domains) == 1)


def test_static_begins_with_the_best_plain_plan_and_keeps_it(filled: PlanCache) -> None:
    cache = filled.copy()
    assert Static().begin(view(cache)) == 0
    assert Static().decide(view(cache, weak(cache, 0, 0.01))) == KEPT
    down = Static().begin(view(cache, np.zeros((5, len(cache.problem.cluster.links))), running=-1))
    assert len(cache.configurations[down].plan.domains) == 1


def test_a_robust_plan_is_best_over_what_is_expected(filled: PlanCache) -> None:
    cache = filled.copy()
    share = weak(cache, 0, 0.02)
    share[0] = 1.0  # well now, weak from the next epoch on
    seen = view(cache, share, running=-1)
    chosen = RobustStatic().begin(seen)
    assert Static().begin(seen) == 0
    assert not cache.configurations[chosen].lever
    states, weights = expected(seen)
    rates = weights @ np.maximum(net_rates(cache, states, seen.usd_per_token), 0.0)
    assert rates[chosen] > rates[0]
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", [Greedy(), Hysteresis(), RecedingHorizon()])
def test_nobody_moves_on_a_still_network(filled: PlanCache, method: Method) -> None:
    cache = filled.copy()
    first = method.begin(view(cache, running=-1))
    for _ in range(3):
        assert method.decide(view(cache, running=first)) == KEPT


@pytest.mark.parametrize("method", [Greedy(), Hysteresis(), RecedingHorizon()])
def test_all_who_go_on_looking_do_so_alike(filled: PlanCache, method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and levers are made anew at the start, and when the network has moved far: for every method the same."""
    asked: list[int] = []
    monkeypatch.setattr(renewal, "renew", lambda cache, state, *, running, **_: asked.append(running))
    cache = filled.copy()
    start = Static().begin(view(cache, running=-1))
    method.begin(view(cache, running=-1))
    links = len(cache.problem.cluster.links)
    for epoch, share in ((5, 0.3), (20, 0.9), (21, 0.3), (22, 0.3)):
        method.decide(replace(view(cache, np.full((5, links), share), running=1), epoch=epoch))
    assert asked == [start, 1]


@pytest.mark.parametrize("method", [Greedy(), Hysteresis()])
def test_a_move_under_way_is_kept(filled: PlanCache, method: Method) -> None:
    cache = filled.copy()
    method.begin(view(cache, running=-1))
    for phase in (STOPPED, STREAMING):
        assert method.decide(view(cache, running=0, target=alone(cache), phase=phase, arrived=0.5)) == KEPT


def test_greedy_moves_for_one_bad_epoch(filled: PlanCache) -> None:
    cache, method = filled.copy(), Greedy()
    method.begin(view(cache, running=-1))
    dead = np.ones((5, len(cache.problem.cluster.links)))
    dead[0] = 0.0
    answer = method.decide(view(cache, dead, running=0))
    assert answer.how is How.STOP
    assert len(cache.configurations[answer.target].plan.domains) == 1


def test_hysteresis_waits(filled: PlanCache) -> None:
    cache, method = filled.copy(), Hysteresis(Dwell(margin=0.1, epochs=3))
    method.begin(view(cache, running=-1))
    dead = np.zeros((5, len(cache.problem.cluster.links)))
    hows = [method.decide(view(cache, dead, running=0)).how for _ in range(3)]
    assert hows == [How.KEEP, How.KEEP, How.STOP]


def test_receding_horizon_waits_for_an_outage_that_ends(filled: PlanCache) -> None:
    cache, method = filled.copy(), RecedingHorizon(Horizon(fresh=False))
    method.begin(view(cache, running=-1))
    dead = np.zeros((5, len(cache.problem.cluster.links)))
    # links that are down carry nothing: who is cut off can neither train nor move
    assert method.decide(view(cache, dead, running=0)) == KEPT


def _moves_layers(cache: PlanCache, target: int) -> bool:
    """From the plan that runs; a lever leaves them where they are."""
    return bool(diff(cache.problem, cache.configurations[0].plan, cache.configurations[target].plan).moves)


def test_receding_horizon_moves_for_what_lasts_and_pulls_levers_first(filled: PlanCache) -> None:
    cache, method = filled.copy(), RecedingHorizon()
    method.begin(view(cache, running=-1))
    short = method.decide(view(cache, weak(cache, 0, 0.1, until=2), running=0, epoch_s=60.0))
    assert short.how is How.KEEP or not _moves_layers(cache, short.target)
    everything = np.full((5, len(cache.problem.cluster.links)), 0.05)
    long = method.decide(view(cache, everything, running=0, left=500, epoch_s=1800.0))
    assert long.how in (How.STOP, How.BACKGROUND)
    assert _moves_layers(cache, long.target)
    state = base(cache)
    share = 0.05 * state.bandwidth_bytes_per_s[None]
    assert cache.step_time_s(long.target, share, state.latency_s[None]) < cache.step_time_s(
        0, share, state.latency_s[None]
    )


def test_receding_horizon_gives_up_a_move_that_no_longer_pays(filled: PlanCache) -> None:
    cache, method = filled.copy(), RecedingHorizon(Horizon(fresh=False))
    target = alone(cache)
    links = len(cache.problem.cluster.links)
    begun = view(cache, np.full((5, links), 2.0), running=0, target=target, phase=STOPPED, arrived=0.0, left=60)
    assert method.decide(begun).how is How.CANCEL
    nearly = view(cache, np.full((5, links), 0.01), running=0, target=target, phase=STREAMING, arrived=0.999, left=60)
    assert method.decide(nearly) == KEPT
