"""The world as an environment: whatever is answered, rewards add up to priced completion times, and places hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.jobs.engine import world as c
from hippo.jobs.joint.env import WorldEnv, WorldScene, prices

from .test_against_twin import drawn


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 4), jobs=st.integers(3, 12))
def test_rewards_add_up_to_what_the_time_in_the_system_costs(seed: int, domains: int, jobs: int):
    world = drawn(seed, domains, jobs)
    scene = WorldScene(world.workload, world.site, world.offers, world.rules, world.tenants)
    env, rng = WorldEnv(scene, prices(scene)), np.random.default_rng(seed)
    earned = -float(env.state[1])  # from the first instant to the first answer
    for _ in range(3000):
        if env.done:
            break
        earned += _answered(env, rng)
    row, mark = env.world.job, env.world.mark
    came, now = np.arange(len(row)) < env.world.tally[c.ARRIVED], env.world.clock[c.NOW]
    left = np.where(mark[:, c.STATUS] == c.DONE, row[:, c.FINISH], now)
    counted = came & (mark[:, c.STATUS] != c.REFUSED)
    stayed_s = np.where(counted, left - row[:, c.ARRIVAL], 0.0)
    assert earned == pytest.approx(-float(stayed_s @ env.price), rel=1e-6, abs=1e-6)


def _answered(env: WorldEnv, rng: np.random.Generator) -> float:
    """The reward of a random answer that is possible; where a job begins, it gets the rate that its place promised."""
    shown = np.flatnonzero(env.sight.job >= 0)
    slot = int(rng.choice(shown))
    places = env.places(slot)
    if not places or rng.random() < 0.3:
        return env.answer(-1, 0)
    place, job = int(rng.integers(places)), int(env.sight.job[slot])
    offer = int(env.sight.offer[place])
    now_s = env.world.clock[c.NOW]
    earned = env.answer(slot, place)
    if offer >= 0 and env.world.clock[c.NOW] == now_s:
        assert env.world.mark[job, c.STATUS] == c.RUNNING
        assert env.world.mark[job, c.OFFER] == offer
    return earned


def test_what_is_seen_is_finite_and_small():
    world = drawn(7, 3, 8)
    scene = WorldScene(world.workload, world.site, world.offers, world.rules, world.tenants)
    env, rng = WorldEnv(scene, prices(scene)), np.random.default_rng(7)
    for _ in range(500):
        if env.done:
            break
        for seen in (env.sight.domains, env.sight.links, env.sight.jobs):
            assert np.isfinite(seen).all()
            assert np.abs(seen).max() < 20
        _answered(env, rng)
