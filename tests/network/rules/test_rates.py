"""Free levers: what the cache says of each, as played, decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.network.rules.rates import best_lever, net_now
from hippo.network.rules.trigger import standing
from hippo.network.worlds.asking import view_of
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.judge import scenario_of
from hippo.network.worlds.play import foresee, stands_of, telemetry_of, until


@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_the_best_of_the_place_is_found_among_those_that_stand_close(seed: int) -> None:
    setting = scenario_of(make_world("regimes", seed))
    told, ahead, world = telemetry_of(setting.world), foresee(setting.world), setting.world
    known, pulled = (setting.cache, setting.terms, world.epoch_s), 0
    for epoch in range(0, world.epochs, 48):
        for index in range(len(setting.cache)):
            state = np.array([index, -1, 0])
            view = view_of(*known, until(told, epoch), ahead.at(epoch), stands_of(state, 0.0, world.epochs - epoch))
            rates = net_now(view)
            here = view.cache.of_place(view.cache.configurations[index].place)
            lever, more = best_lever(view, standing(view).levers, index)
            most = max(rates[each] for each in here)
            assert rates[lever] >= 0.995 * most  # planes of step times told which to play
            assert lever in here
            if lever == index:
                assert more == 0.0
            elif rates[index] > 0.0:
                assert more == pytest.approx(rates[lever] / rates[index] - 1.0)
                pulled += 1
    assert pulled > 0


def test_what_stands_still_gives_way_to_what_runs() -> None:
    setting = scenario_of(make_world("transient", 1))
    world, cache = setting.world, setting.cache
    relayed = next(each for each, one in enumerate(cache.configurations) if one.lever == "relay")
    others = [each for each in cache.of_place(cache.configurations[relayed].place) if each != relayed]
    used = [cache.bytes_per_step(each) > 0 for each in (others[0], relayed)]
    down = used[0] & ~used[1]
    assert down.any()
    state = np.array([others[0], -1, 0])
    told, ahead = telemetry_of(world), foresee(world)
    stands = stands_of(state, 0.0, world.epochs)
    view = view_of(cache, setting.terms, world.epoch_s, until(told, 0), ahead.at(0), stands)
    bandwidth = np.where(down, 0.0, view.forecast.bandwidth_bytes_per_s)
    view = replace(view, forecast=replace(view.forecast, bandwidth_bytes_per_s=bandwidth))
    lever, more = best_lever(view, standing(view).levers, others[0])
    assert net_now(view)[others[0]] == 0.0
    assert lever != others[0]
    assert more == np.inf
