"""What is expected of an answer, against the run itself on a network that does what was forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.dynamics.forecast import Forecast, Telemetry
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STILL, STOPPED, STREAMING
from hippo.network.rules.outlook import outlook
from hippo.network.rules.trigger import Thresholds, due, runs, seen
from hippo.network.rules.view import Action, How, View
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload

EPOCH_S, EPOCHS = 10.0, 6
KEEP = Action()


@pytest.fixture
def cache(worlds: type) -> PlanCache:
    """0: across a and b, 1: in a alone, 2: as 0 with another micro-batch schedule."""
    made = PlanCache(Problem(worlds.model(), worlds.cluster(bandwidth=1e6), Workload(global_batch=4, seq=100)))
    across = worlds.across_plan()
    assert made.add(across, origin="hand") == 0
    assert made.add(worlds.alone_plan(), origin="hand") == 1
    gpipe = replace(across, schedule=replace(across.schedule, name="gpipe"))
    assert made.add(gpipe, origin="hand", lever="schedule") == 2
    return made


def view(cache: PlanCache, bandwidth: list[float] | None = None, **changes: object) -> View:
    """Horizons 0, 2 and 4; ``bandwidth`` at each of them, on both links."""
    states = np.repeat(np.array(bandwidth or [1e6, 1e6, 1e6])[:, None], 2, axis=1)
    forecast = Forecast(np.array([0, 2, 4]), states, np.zeros((3, 2)), np.ones((3, 2)), np.full((3, 2), 0.5))
    told = Telemetry(states[:1], np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 2), dtype=bool))
    plain = View(cache, 0, EPOCH_S, EPOCHS, told, forecast, running=0, restart_s=5.0, usd_per_token=1e-6)
    return replace(plain, **changes)


def rate(cache: PlanCache, index: int, bandwidth: float) -> float:
    state = np.full((1, 2), bandwidth)
    return cache.tokens_per_step / float(cache.step_time_s(index, state, np.zeros((1, 2)))[0])


def test_keeping_on_a_still_network_trains_at_one_pace(cache: PlanCache) -> None:
    found = outlook(view(cache), []).play(KEEP)
    assert found.tokens == pytest.approx(rate(cache, 0, 1e6) * EPOCH_S * EPOCHS)
    steps = found.tokens / cache.tokens_per_step
    assert found.egress_usd == pytest.approx(steps * cache.egress_usd_per_step(0))
    assert found.net_tokens == pytest.approx(found.tokens - found.egress_usd / 1e-6)
    assert (found.downtime_s, found.moved_bytes, found.move_s) == (0.0, 0.0, 0.0)


def test_rates_between_horizons_lie_on_a_line_and_stay_after_the_last(cache: PlanCache) -> None:
    rates = outlook(view(cache, [1e6, 2e6, 4e6]), [1]).rates(0)
    at = [rate(cache, 0, bandwidth) for bandwidth in (1e6, 2e6, 4e6)]
    expected = [at[0], (at[0] + at[1]) / 2, at[1], (at[1] + at[2]) / 2, at[2], at[2]]
    assert rates == pytest.approx(expected)


def test_a_move_stands_still_for_its_bytes_and_then_runs_the_target(cache: PlanCache) -> None:
    seconds = cache.move_bytes(0, 1).max() / 1e6
    found = outlook(view(cache), [1]).play(Action(How.STOP, 1))
    downtime = max(seconds, 5.0)
    assert downtime < EPOCH_S * EPOCHS
    assert found.downtime_s == pytest.approx(downtime)
    assert found.moved_bytes == pytest.approx(cache.move_bytes(0, 1).sum())
    assert found.tokens == pytest.approx(rate(cache, 1, 1e6) * (EPOCH_S * EPOCHS - downtime))
    assert found.move_s == pytest.approx(np.ceil(downtime / EPOCH_S) * EPOCH_S)


def test_a_lever_is_free(cache: PlanCache) -> None:
    found = outlook(view(cache), [2]).play(Action(How.SWITCH, 2))
    assert found.tokens == pytest.approx(rate(cache, 2, 1e6) * EPOCH_S * EPOCHS)
    assert found.downtime_s == 0.0


def test_a_move_that_never_arrives_says_so(cache: PlanCache) -> None:
    found = outlook(view(cache, [0.0, 0.0, 0.0], running=1), [0]).play(Action(How.BACKGROUND, 0))
    assert found.move_s == np.inf
    assert found.tokens == pytest.approx(rate(cache, 1, 1e6) * EPOCH_S * EPOCHS)


def test_a_move_under_way_goes_on_from_where_it_is(cache: PlanCache) -> None:
    late = view(cache, running=1, target=0, phase=STOPPED, arrived=0.9)
    early = replace(late, arrived=0.1)
    total = cache.move_bytes(1, 0).sum()
    assert outlook(late, []).play(KEEP).moved_bytes == pytest.approx(0.1 * total)
    assert outlook(early, []).play(KEEP).moved_bytes == pytest.approx(0.9 * total)
    given_up = outlook(early, []).play(Action(How.CANCEL))
    assert given_up.moved_bytes == 0.0
    assert given_up.tokens == pytest.approx(rate(cache, 1, 1e6) * EPOCH_S * EPOCHS)


def test_a_tilted_network_is_quicker_by_its_doubt(cache: PlanCache) -> None:
    better = outlook(view(cache), [], tilt=np.ones(2)).rates(0)
    assert better[0] == pytest.approx(rate(cache, 0, 1e6 * np.exp(0.5)))


def test_a_run_that_has_not_begun_begins_with_the_answer(cache: PlanCache) -> None:
    found = outlook(view(cache, running=-1), [1]).play(Action(How.SWITCH, 1))
    assert found.tokens == pytest.approx(rate(cache, 1, 1e6) * EPOCH_S * EPOCHS)


# ------------------------------------------------------------------------------------------------------------ triggers
def changed(view: View, **what: float) -> View:
    """The view with a value of the first link or domain multiplied."""
    forecast = view.forecast
    arrays = {name: getattr(forecast, name).copy() for name in what}
    for name, factor in what.items():
        arrays[name][0, 0] *= factor
    return replace(view, forecast=replace(forecast, **arrays))


def test_the_first_decision_is_due(cache: PlanCache) -> None:
    assert due(view(cache), None, Thresholds()).started


def test_nothing_moved_nothing_due(cache: PlanCache) -> None:
    now = view(cache)
    assert not due(replace(now, epoch=3), seen(now), Thresholds(every=4))
    assert due(replace(now, epoch=4), seen(now), Thresholds(every=4)).long


@pytest.mark.parametrize(
    ("what", "factor", "crossed"),
    [
        ("bandwidth_bytes_per_s", 0.91, ""),
        ("bandwidth_bytes_per_s", 0.89, "links"),
        ("bandwidth_bytes_per_s", 1.11, "links"),
        ("bandwidth_bytes_per_s", 0.0, "lost"),
        ("compute", 1.04, ""),
        ("compute", 1.06, "loads"),
    ],
)
def test_thresholds(cache: PlanCache, what: str, factor: float, crossed: str) -> None:
    now = view(cache)
    why = due(changed(now, **{what: factor}), seen(now), Thresholds())
    told = {name for name in ("links", "loads", "lost", "back") if getattr(why, name)}
    assert told == ({crossed} if crossed else set())


def test_a_link_comes_back(cache: PlanCache) -> None:
    now = view(cache)
    down = changed(now, bandwidth_bytes_per_s=0.0)
    assert due(now, seen(down), Thresholds()).back == (0,)
    assert due(down, seen(now), Thresholds()).stands


def test_what_needs_a_lost_link_or_domain_does_not_run(cache: PlanCache) -> None:
    now = view(cache)
    assert runs(now, 0)
    assert not runs(now, -1)
    down = changed(now, bandwidth_bytes_per_s=0.0)
    assert not runs(down, 0)
    assert runs(down, 1)
    assert not runs(changed(now, compute=np.inf), 1)


def test_arrived_and_other_preferences_are_noticed(cache: PlanCache) -> None:
    now = view(cache)
    elsewhere = replace(now, running=1)
    assert due(now, seen(elsewhere), Thresholds()).arrived
    assert not due(replace(now, phase=STREAMING, target=1), seen(elsewhere), Thresholds()).arrived
    assert not due(replace(now, running=2), seen(now), Thresholds()).arrived  # a lever
    assert due(replace(now, weights=(0.5, 0.0, 0.5)), seen(now), Thresholds()).asked
    assert now.phase == STILL
