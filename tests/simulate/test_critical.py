"""What a step time hangs on is what it grows by, and its planes say what step times are."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.step_times import approximate_step_times
from hippo.network.worlds.generator import make_world
from hippo.network.worlds.world import World
from hippo.simulate.critical import planes


@pytest.fixture(scope="module")
def world() -> World:
    return make_world("ou3", 2)


@pytest.fixture(scope="module")
def cache(world: World) -> PlanCache:
    found = PlanCache(world.problem)
    fill(found)
    return found


def test_planes_touch_the_step_time_and_its_slope(world: World, cache: PlanCache) -> None:
    some = np.array([0, 17, 60])
    state = [each[some] for each in (world.bandwidth_bytes_per_s, world.latency_s, world.compute)]
    for index in range(0, len(cache), 4):
        found = planes(cache.program(index), *state)
        seconds = cache.step_time_s(index, *state)
        assert found.seconds == pytest.approx(seconds, rel=1e-12)
        slopes = [-found.bytes / state[0] ** 2, found.latencies, found.compute]
        for which, slope in enumerate(slopes):
            for column in range(slope.shape[1]):
                moved = [each.copy() for each in state]
                step = 1e-7 * moved[which][:, column]
                moved[which][:, column] += step
                grown = cache.step_time_s(index, *moved) - seconds
                assert grown == pytest.approx(slope[:, column] * step, abs=1e-9 * seconds.max(), rel=0.02)


def test_nothing_but_waiting_for_the_optimizer_is_left_over(world: World, cache: PlanCache) -> None:
    state = world.bandwidth_bytes_per_s[:20], world.latency_s[:20], world.compute[:20]
    for index in range(len(cache)):
        found = planes(cache.program(index), *state)
        told = (found.bytes / state[0] + found.latencies * state[1]).sum(axis=1) + (found.compute * state[2]).sum(
            axis=1
        )
        assert (told <= found.seconds * (1 + 1e-9)).all()
        assert (told >= 0.9 * found.seconds).all()


def test_nearly_is_near_and_never_much_higher(world: World, cache: PlanCache) -> None:
    state = world.bandwidth_bytes_per_s, world.latency_s, world.compute
    told = approximate_step_times(cache, *state)
    for index in range(len(cache)):
        off = told[:, index] / cache.step_time_s(index, *state) - 1.0
        assert off.max() < 0.01
        assert np.abs(off).mean() < 0.01
        assert off.min() > -0.1


def test_what_needs_a_link_that_is_down_never_ends(world: World, cache: PlanCache) -> None:
    down = world.bandwidth_bytes_per_s[:1].copy()
    down[0, 0] = 0.0
    told = approximate_step_times(cache, down, world.latency_s[:1], world.compute[:1])[0]
    assert np.array_equal(np.isinf(told), [cache.bytes_per_step(each)[0] > 0 for each in range(len(cache))])
    lost = np.where(np.arange(world.compute.shape[1]) == 1, np.inf, 1.0)[None]
    told = approximate_step_times(cache, world.bandwidth_bytes_per_s[:1], world.latency_s[:1], lost)[0]
    assert np.array_equal(np.isinf(told), [bool(cache.domains_used(each)[1]) for each in range(len(cache))])


def test_a_book_that_grows_is_looked_at_again(world: World, cache: PlanCache) -> None:
    state = world.bandwidth_bytes_per_s[:3], world.latency_s[:3], world.compute[:3]
    shorter = PlanCache(world.problem)
    shorter.adopt(cache, 0)
    assert approximate_step_times(shorter, *state).shape == (3, 1)
    shorter.adopt(cache, 1)
    assert np.array_equal(approximate_step_times(shorter, *state), approximate_step_times(cache, *state)[:, :2])
