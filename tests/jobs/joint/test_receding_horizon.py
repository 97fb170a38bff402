"""Joint decisions tried ahead: they lead to no worse than the base rule where all is known, and see no future."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.jobs.engine import world as c
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.receding_horizon import JointHorizon
from hippo.jobs.joint.rules import SRPT
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import LinkHistory

from .noted import World
from .test_against_twin import drawn

SMALL = JointHorizon(changes=4)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 3), jobs=st.integers(3, 8))
def test_where_all_is_known_it_leads_to_no_more_than_its_base(seed: int, domains: int, jobs: int):
    """Everybody is there, and nothing moves or fails."""
    made = drawn(seed, domains, jobs)
    workload = replace(made.workload, arrival_s=np.zeros(jobs))
    site = replace(made.site, history=None)
    scene = WorldScene(workload, site, made.offers, replace(made.rules, failures=None))

    def priced(scheduler: Scheduler) -> float:
        ledger = play_jointly(workload, site, scheduler, scene.settings, offers=scene.offers)
        return float(np.nan_to_num(ledger.finish_s) @ prices(scene))  # who is refused is so at once

    assert priced(SMALL) <= priced(SRPT) * (1.0 + 1e-9)


@dataclass
class Diary:
    """Writes down what stands after each decision before a time."""

    inner: Scheduler
    until_s: float
    name: str = "diary"

    def __post_init__(self) -> None:
        self.pages: list[tuple[object, ...]] = []

    def decide(self, moment: Moment) -> None:
        self.inner.decide(moment)
        world = moment.world
        if moment.now_s < self.until_s:
            jobs = [job for job in range(len(world.job)) if world.job[job, c.ARRIVAL] < self.until_s]
            marks = world.mark[jobs][:, [c.STATUS, c.OFFER, c.HOLDS, c.POOL, c.STOPS]]
            self.pages.append(
                (moment.now_s, marks.tolist(), world.part[jobs].tolist(), world.job[jobs, c.RATE].tolist())
            )


def _without_bounds(made: World) -> World:
    """Who waits for clients to be near is refused once links move no more, which is to come."""
    free = {"clients_at": np.full(len(made.workload), -1), "latency_bound_s": np.full(len(made.workload), np.inf)}
    return replace(made, workload=replace(made.workload, **free))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), other=st.integers(0, 2**32 - 1))
def test_it_decides_alike_whatever_is_to_come(seed: int, other: int):
    """From the middle of the arrivals on there are other jobs, links, tenants, and more of them."""
    made, rng = _without_bounds(drawn(seed, 3, 10)), np.random.default_rng(other)
    middle_s = float(made.workload.arrival_s[5])
    later = made.workload.arrival_s >= middle_s
    workload = replace(
        made.workload,
        duration_s=np.where(later, made.workload.duration_s * rng.uniform(0.1, 9.0, 10), made.workload.duration_s),
        priority=np.where(later, rng.integers(0, 3, 10), made.workload.priority),
        arrival_s=np.where(later, made.workload.arrival_s + rng.uniform(0.0, 99.0), made.workload.arrival_s),
    )
    still = np.array([made.site.bandwidth_bytes_per_s]), np.array([made.site.latency_s])
    history = made.site.history or LinkHistory(np.zeros(1), still[0])
    time_s = np.append(history.time_s[history.time_s < middle_s], middle_s)
    known = history.bandwidth_bytes_per_s[: len(time_s) - 1]
    links = np.concatenate([known, history.bandwidth_bytes_per_s[-1:] * rng.uniform(0.2, 2.0)])
    late = np.repeat(still[1], len(history.time_s), axis=0) if history.latency_s is None else history.latency_s
    late = np.concatenate([late[: len(time_s) - 1], late[-1:] * rng.uniform(0.2, 2.0)])
    site = replace(made.site, history=LinkHistory(time_s, links, latency_s=late))
    tenants = made.tenants or Tenants(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    before = tenants.time_s < middle_s
    tenants = Tenants(*(each[before] for each in (tenants.time_s, tenants.node, tenants.devices)))
    rules = ReplayRules(restart_s=made.rules.restart_s, data=made.rules.data)
    one = World(made.workload, replace(made.site, history=history), made.offers, rules, made.tenants)
    two = World(workload, site, made.offers, rules, tenants)
    diaries = []
    for world in (one, two):
        diary = Diary(SMALL, middle_s)
        play_jointly(world.workload, world.site, diary, world.rules, offers=world.offers, tenants=world.tenants)
        diaries.append(diary.pages)
    assert diaries[0]
    assert diaries[0] == diaries[1]


def test_where_no_play_ends_within_the_effort_the_base_decides():
    made = drawn(11, 3, 10)
    rest = {"offers": made.offers, "tenants": made.tenants}
    one, two = (
        play_jointly(made.workload, made.site, each, made.rules, **rest) for each in (replace(SMALL, effort=1.0), SRPT)
    )
    np.testing.assert_array_equal(one.finish_s, two.finish_s)
