"""Of a pool so many devices can be used: on which nodes others have the rest, and who stops for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.engine import world as c
from hippo.jobs.job import Job
from hippo.jobs.joint.live import LiveWorld
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.registry import JOB_SCHEDULERS, load

from .test_against_twin import Restless, drawn
from .test_play import TWO, offers, timed, train

FOUR = site([DevicePool("d0", "gpu", 4, 8)])


def gangs(*devices: int) -> LiveWorld:
    """Who come at 0 and run, in order, in a domain of four nodes of eight."""
    live = LiveWorld(FOUR, load(JOB_SCHEDULERS, "policy", "srpt"), OfferTable.none())
    live.submit([Job(f"j{at}", 0.0, 1e4 + at, each) for at, each in enumerate(devices)])
    list(live.until(0.0))
    return live


def taken(live: LiveWorld) -> list[int]:
    assert live.moment is not None
    return live.moment.world.bin[:, c.BIN_TENANTS].tolist()


def running(live: LiveWorld) -> list[str]:
    assert live.moment is not None
    return [live.moment.workload.name(job) for job in live.moment.running.tolist()]


def free(live: LiveWorld) -> list[int]:
    assert live.moment is not None
    return live.moment.world.bin[:, c.BIN_FREE].tolist()


def test_what_is_free_is_taken_whole_nodes_first_and_given_back_whole():
    live = gangs(8, 4)
    assert sorted(free(live)) == [0, 4, 8, 8]
    assert live.let_use({0: 32 - 8}, 1.0, stops=True)
    list(live.until(1.0))
    assert (sorted(free(live)), sorted(taken(live))) == ([0, 0, 4, 8], [0, 0, 0, 8])
    assert live.let_use({0: 32 - 12}, 2.0, stops=True)
    list(live.until(2.0))
    assert (sorted(free(live)), sorted(taken(live))) == ([0, 0, 0, 8], [0, 0, 4, 8])  # a node of eight is left whole
    assert not live.let_use({0: 32 - 12}, 3.0, stops=True)
    assert live.let_use({0: 32 - 4}, 3.0, stops=True)
    list(live.until(3.0))
    assert sorted(taken(live)) == [0, 0, 0, 4]
    assert live.let_use({0: 32}, 4.0, stops=True)
    list(live.until(4.0))
    assert (taken(live), len(running(live))) == ([0] * 4, 2)


def test_who_holds_more_than_can_be_used_stops_and_comes_back_with_the_devices():
    live = gangs(8, 8, 8, 2)
    assert live.let_use({0: 26}, 1.0, stops=False) == [0]
    list(live.until(1.0))
    assert (sum(taken(live)), len(running(live))) == (6, 4)
    assert not live.let_use({0: 20}, 2.0, stops=False)  # nothing is free
    assert live.let_use({0: 20}, 2.0, stops=True)
    list(live.until(2.0))
    assert taken(live) == [8, 4, 0, 0]  # the node of "j3", which begins beside, and half of that of "j0"
    assert running(live) == ["j0", "j1", "j3"]  # for which "j2", which is longer, gives way
    assert live.let_use({0: 32}, 3.0, stops=True)
    list(live.until(3.0))
    assert (sum(taken(live)), len(running(live))) == (0, 4)


@pytest.mark.parametrize(
    ("devices", "usable", "stop"),
    [
        ((8, 8, 8, 2), 20, {"j0"}),  # and "j3", which begins again
        ((8, 8, 8, 5, 2), 28, {"j3"}),
        ((8, 8, 8, 2, 5), 28, {"j4"}),
        ((8, 8, 8, 4, 3), 30, {"j3"}),
        ((4, 4, 8, 8, 8), 24, {"j0", "j1"}),  # where one of eight would do: the node is the first of those alike
    ],
)
def test_who_holds_most_of_the_node_on_which_jobs_hold_least_stops(
    devices: tuple[int, ...], usable: int, stop: set[str]
):
    live = gangs(*devices)
    live.let_stop(False)  # nobody gives way to who was stopped
    before = set(running(live))
    live.let_use({0: usable}, 1.0, stops=True)
    list(live.until(1.0))
    assert before - set(running(live)) == stop


def test_what_is_held_is_taken_as_it_comes_free_before_anybody_begins_there():
    live = gangs(8, 8, 8, 8)
    live.submit([Job(f"late{at}", 1.0, 10.0, 8) for at in range(3)])
    assert not live.let_use({0: 8}, 1.0, stops=False)
    live.let_stop(False)
    list(live.until(1e4 - 1.0))
    assert (sum(taken(live)), len(running(live))) == (0, 4)
    for at_s, left in ((1e4 + 0.5, 3), (1e4 + 1.5, 2), (1e4 + 2.5, 1)):
        list(live.until(at_s))
        assert (sum(taken(live)), len(running(live))) == (32 - 8 * left, left)
    list(live.until(1e4 + 3.5))
    assert (sum(taken(live)), running(live)) == (24, ["late0"])
    assert live.let_use({0: 32}, 1e4 + 4.0, stops=False)
    list(live.until(1e4 + 4.0))
    assert (sum(taken(live)), len(running(live))) == (0, 3)


@pytest.mark.parametrize("come", [False, True])
def test_counts_that_go_and_come_where_nobody_is_leave_nothing(come: bool):
    live = gangs(8)
    list(live.until(2e4))
    for at in range(60):
        assert live.let_use({0: 32 * (at % 2)}, 2e4 + at, stops=True) == [0]
        assert len(list(live.until(2e4 + at))) == 1
        assert sum(taken(live)) == 32 * (1 - at % 2)
    assert len(live._tenants) <= 4  # a row a node
    if come:
        live.submit([Job("late", 3e4, 100.0, 32)])
        list(live.until(3e4))
        assert running(live) == ["late"]


def test_a_domain_of_which_nothing_can_be_used_is_not_begun_in():
    live = LiveWorld(TWO, load(JOB_SCHEDULERS, "policy", "srpt"), timed(offers(), 1.0))
    assert not live.let_use({0: 0}, 0.0, stops=True)  # nobody has come, so nothing is to be decided
    live.submit([train("one", 100.0), train("two", 100.0, arrival_s=1.0)])
    assert live.let_use({0: 0}, 0.0, stops=True)
    list(live.until(1.0))
    assert live.moment is not None
    places = {live.moment.workload.name(job): live.moment.running_at(job).domains for job in live.moment.running}
    assert set(places.values()) == {(1,)}
    assert live.let_use({0: 4}, 2.0, stops=True)
    list(live.until(2.0))
    assert len(live.moment.running) == 2


def test_where_all_have_ended_nothing_is_due_and_who_comes_finds_what_was_told():
    live = gangs(8)
    list(live.until(2e4))
    assert live.let_use({0: 4}, 2e4, stops=True)
    assert live.next_s == 2e4
    assert (len(list(live.until(2.1e4))), live.next_s) == (1, np.inf)
    assert not live.let_use({0: 4}, 2.1e4, stops=True)
    live.submit([Job("late", 3e4, 100.0, 8), Job("small", 3e4, 100.0, 4)])
    list(live.until(3e4))
    assert (running(live), sum(taken(live))) == (["small"], 28)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_jobs_do_no_more_is_taken_or_left_than_was_told(seed: int):
    """Queues by chance: gangs, training, moves; numbers by chance; half of them packed and restored on the way."""
    world = drawn(seed, 3, 12)
    rules: ReplayRules = replace(world.rules, failures=None)
    still = replace(world.site, history=None)
    live = LiveWorld(still, Restless(seed), world.offers, rules)
    rng, at_s = np.random.default_rng(seed), 0.0
    jobs = [replace(world.workload.job(row), name=world.workload.name(row)) for row in range(len(world.workload))]
    for each in jobs:
        at_s = max(at_s, each.arrival_s)
        list(live.until(np.nextafter(at_s, -np.inf)))
        live.submit([replace(each, arrival_s=at_s)])
        list(live.until(at_s))
        for stops in (False, True):
            at_s += 0.25
            wanted = [int(rng.integers(0, pool.devices + 1)) for pool in still.pools]
            live.let_use(dict(enumerate(wanted)), at_s, stops=stops)
            list(live.until(at_s))
            assert live.moment is not None
            bins = live.moment.world.bin
            for row, pool in enumerate(still.pools):
                mine = bins[:, c.BIN_POOL] == row
                left = pool.devices - int(bins[mine, c.BIN_TENANTS].sum())
                assert left == wanted[row] or (not stops and left > wanted[row])
                assert int(bins[mine, c.BIN_FREE].min()) >= 0
        if seed % 2:
            content, there = live.packed(), {each.name: each for each in live.jobs}
            live = LiveWorld(still, live.scheduler, world.offers, rules)
            live.restore(content, [there[name] for name in LiveWorld.names_in(content)])
