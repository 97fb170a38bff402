"""The search with hindsight: the same from the same seed, never worse than who it starts from, never below the bound;
and it finds what only who knows what comes can find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.evaluate.hindsight import HindsightPlayer, search
from hippo.jobs.joint.evaluate.relaxation import bound
from hippo.jobs.joint.evaluate.suite import priced_s, stays_s
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import GOODPUT
from hippo.jobs.joint.settings import MAST as MASTS
from hippo.jobs.joint.settings import SEPARATE as SEPARATES
from hippo.jobs.joint.settings import SRPT as SRPTS
from hippo.jobs.settings import ReplayRules

from ..test_against_twin import drawn
from .test_relaxation import scene, train
from .test_suite import DRAW, GROUND

MAST, SEPARATE, SRPT = MASTS.stopped, SEPARATES.stopped, SRPTS.stopped


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 4), jobs=st.integers(2, 8))
def test_it_lies_between_the_bound_and_whoever_it_starts_from(seed: int, domains: int, jobs: int):
    made = drawn(seed, domains, jobs)
    world = WorldScene(made.workload, made.site, made.offers, made.rules, made.tenants)
    price = prices(world)
    found = search(world, price, (SRPT, SEPARATE), seed=seed, most=30)
    least = min(priced_s(world, rule) for rule in (SRPT, SEPARATE))
    assert bound(world, price).priced_s * (1 - 1e-9) <= found.cost / jobs <= least * (1 + 1e-9)
    assert found.cost == pytest.approx(float(price @ (found.ends_s - made.workload.arrival_s)))


def test_a_rule_that_is_told_what_is_so_does_what_it_does():
    world = GROUND.scene(DRAW)
    price = prices(world)
    player = HindsightPlayer.of(world, price)
    for rule in (SRPT, MAST, SEPARATE):
        cost, _ = player.played(player.plain(rule))
        assert cost / len(price) == pytest.approx(priced_s(world, rule))


def test_equal_seeds_find_the_same_in_as_many_plays():
    world = GROUND.scene(DRAW)
    first, again = (search(world, prices(world), (SRPT,), seed=4, most=40) for _ in range(2))
    assert (first.cost, first.plays, first.curve) == (again.cost, again.plays, again.curve)


def test_it_goes_on_until_twice_the_plays_gain_less_than_half_a_per_cent():
    world = GROUND.scene(DRAW)
    told: list[int] = []
    found = search(world, prices(world), (SRPT,), watch=lambda plays, cost: told.append(plays))
    (half, before), (plays, after) = found.curve[-2:]
    assert (plays, told[-1]) == (2 * half, plays) == (found.plays, found.plays)
    assert before - after < 0.005 * before
    for (_, one), (_, other) in zip(found.curve[1:-2], found.curve[2:-1], strict=True):
        assert one - other >= 0.005 * one


def test_who_knows_that_a_short_job_comes_lets_a_long_one_wait():
    """Begun at 0, the long job would be stopped at 1 s and pay a restart of 400 s: 1,401 and 100 s, or the short one
    would wait. Kept back until the short one has ended it takes 1,101 s."""
    world = scene([train("long", 1000.0), train("short", 100.0, 1.0)], settings=ReplayRules(restart_s=400.0))
    price = np.array([1.0, 10.0])
    usual = search(world, price, (SRPT,), most=1)
    found = search(world, price, (SRPT,), seed=1, most=200)
    assert found.cost == pytest.approx(1101.0 + 10.0 * 100.0)
    assert usual.cost > found.cost + 200.0


def test_it_knows_when_jobs_end_whatever_was_told():
    """The first was told to take 500 s and ends after 10, the second takes 50: 10 and 60 s in place of 60 and 50."""
    first = replace(train("long", 10.0), estimate_s=500.0)
    world = scene([first, train("short", 50.0)])
    price = np.ones(2)
    player = HindsightPlayer.of(world, price)
    assert player.played(player.plain(SRPT))[0] == pytest.approx(50.0 + 60.0)
    assert search(world, price, (SRPT,), most=1).cost == pytest.approx(10.0 + 60.0)


def test_nobody_is_stopped_where_that_is_not_allowed():
    """A job of 1,000 s has begun when one of 10 comes that is worth ten times as much."""
    jobs = [train("long", 1000.0), train("short", 10.0, 1.0)]
    costs = [
        search(scene(jobs, settings=ReplayRules(restart_s=0.0, stops=stops)), np.array([1.0, 10.0]), (SRPT,), most=1)
        for stops in (True, False)
    ]
    assert [each.cost for each in costs] == pytest.approx([1010.0 + 100.0, 1000.0 + 10.0 * 1009.0])


def test_a_schedule_that_no_rule_makes_counts_as_found():
    world = GROUND.scene(replace(DRAW, network="still"))
    ledger = play_jointly(world.workload, world.site, GOODPUT, world.settings, offers=world.offers)
    price, ends_s = prices(world), world.workload.arrival_s + stays_s(ledger, world.workload.arrival_s)
    found = search(world, price, (MAST,), [("goodput", ends_s)], most=10)
    assert found.cost <= float(price @ (ends_s - world.workload.arrival_s)) * (1 + 1e-12)
