"""A recorded day told to a queue that lives, moment by moment, leads to the decisions of its replay, one for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from hippo.jobs.engine import world as c
from hippo.jobs.joint.live import LinksNow, LiveWorld, TenantNow
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.registry import JOB_SCHEDULERS, load

from .noted import World
from .test_against_twin import Restless, drawn
from .test_play import TWO, offers, timed, train

Stands = tuple[float, tuple[tuple[str, int, int, tuple[int, ...], float], ...]]


@dataclass
class Diary:
    """Writes down how all jobs stand after every decision, by name."""

    inner: Scheduler
    name: str = "diary"
    rows: list[Stands] = field(default_factory=list)

    def decide(self, moment: Moment) -> None:
        self.inner.decide(moment)
        world, found = moment.world, []
        for job in (*moment.waiting.tolist(), *moment.running.tolist()):
            mark = world.mark[job]
            parts = tuple(world.part[job].tolist()) if mark[c.STATUS] == c.RUNNING else ()
            row = (moment.workload.name(job), int(mark[c.STATUS]), int(mark[c.OFFER]), parts)
            found.append((*row, float(world.job[job, c.FINISH])))
        self.rows.append((moment.now_s, tuple(sorted(found))))


def told(world: World, scheduler: Scheduler, *, packs: bool = False) -> Sequence[Stands]:
    """What a live queue makes of a day that is told job by job, state by state."""
    diary = Diary(scheduler)
    still = replace(world.site, history=None)
    live = LiveWorld(still, diary, world.offers, world.rules, world.slowdown)  # type: ignore[arg-type]
    news: list[tuple[float, int, object]] = []
    jobs = [replace(world.workload.job(row), name=world.workload.name(row)) for row in range(len(world.workload))]
    if world.site.history is not None:
        moves, late = world.site.history, world.site.moving_latency_s
        for row, time_s in enumerate(moves.time_s.tolist()):
            time_s = time_s if row else -1e6  # before the first instant its values hold
            state = LinksNow(time_s, moves.bandwidth_bytes_per_s[row], late[min(row, len(late) - 1)])
            news.append((time_s, 0, state))
    if world.tenants is not None:
        rows = zip(
            world.tenants.time_s.tolist(), world.tenants.node.tolist(), world.tenants.devices.tolist(), strict=True
        )
        news += [(each[0], 1, TenantNow(*each)) for each in rows]
    news += [(each.arrival_s, 2, each) for each in jobs]
    news.sort(key=lambda each: each[:2])
    at = 0
    while at < len(news):
        now_s = news[at][0]
        for _ in live.until(np.nextafter(now_s, -np.inf)):
            pass
        here = [each for each in news[at:] if each[0] == now_s]
        at += len(here)
        live.tell(
            links=[each for _, _, each in here if isinstance(each, LinksNow)],
            tenants=[each for _, _, each in here if isinstance(each, TenantNow)],
        )
        live.submit([each for _, kind, each in here if kind == 2])  # type: ignore[misc]
        for _ in live.until(now_s):
            pass
        if packs and live.moment is not None:
            content = live.packed()
            there = {each.name: each for each in live.jobs}
            live = LiveWorld(still, diary, world.offers, world.rules, world.slowdown)  # type: ignore[arg-type]
            live.restore(content, [there[name] for name in LiveWorld.names_in(content)])
    for _ in live.until(1e14):
        pass
    return diary.rows


def alike(world: World, scheduler: Callable[[], Scheduler], *, packs: bool = False) -> int:
    """Decisions of both, which must be equal."""
    diary = Diary(scheduler())
    play_jointly(
        world.workload,
        world.site,
        diary,
        world.rules,  # type: ignore[arg-type]
        offers=world.offers,
        slowdown=world.slowdown,
        tenants=world.tenants,
    )
    again = told(world, scheduler(), packs=packs)
    first, second = dict(diary.rows), dict(again)
    assert list(first) == list(second)[: len(first)]  # links go on to move when the last job has ended
    for time_s, rows in first.items():
        assert rows == second[time_s], time_s
    assert not any(rows for _, rows in again[len(first) :])
    return len(first)


@pytest.mark.parametrize("name", ["srpt", "separate", "crosspipe", "hyperion", "receding_horizon", "hi_ppo"])
@pytest.mark.parametrize("seed", range(3))
def test_a_day_that_is_told_leads_to_the_decisions_of_its_replay(name: str, seed: int):
    world = drawn(seed + 7, 3, 12)
    world = replace(world, slowdown=None, rules=replace(world.rules, failures=None))
    assert alike(world, lambda: load(JOB_SCHEDULERS, "policy", name)) > 10


@pytest.mark.parametrize("seed", range(6))
def test_so_do_decisions_by_chance_about_gangs_moves_and_weights(seed: int):
    world = drawn(seed, 3, 12)
    assert alike(replace(world, rules=replace(world.rules, failures=None)), lambda: Restless(seed)) > 10


@pytest.mark.parametrize("come", [False, True])
def test_links_move_where_nobody_is_and_what_they_carried_is_forgotten(come: bool):
    live = LiveWorld(TWO, load(JOB_SCHEDULERS, "policy", "srpt"), timed(offers(), 1.0))
    if come:  # and has ended
        live.submit([train("one", 1.0)])
        list(live.until(50.0))
    bought, late = np.array(TWO.bandwidth_bytes_per_s), np.array(TWO.latency_s)
    for at in range(100, 200):
        live.tell(links=[LinksNow(float(at), bought / at, late)])
        list(live.until(float(at)))
    assert live.told_links is not None
    assert np.array_equal(live.told_links.bandwidth_bytes_per_s, bought / 199)
    if live.moment is not None:
        assert np.array_equal(live.moment.world.links.capacity, bought / 199)
    assert len(live._links) <= 3  # what held before, what holds, and some day
    live.submit([train("two", 100.0, arrival_s=200.0)])
    list(live.until(200.0))
    assert live.moment is not None
    assert np.array_equal(live.moment.world.links.capacity, bought / 199)


@pytest.mark.parametrize("name", ["srpt", "hi_ppo", "goodput"])
def test_a_world_that_was_packed_goes_on_as_if_it_had_not_been(name: str):
    world = drawn(11, 3, 12)
    world = replace(world, slowdown=None, rules=replace(world.rules, failures=None))
    assert alike(world, lambda: load(JOB_SCHEDULERS, "policy", name), packs=True) > 10


def test_what_is_reported_of_the_site_takes_the_place_of_what_was_thought():
    jobs = [train(name, 100.0) for name in ("one", "two", "three")]
    live = LiveWorld(TWO, load(JOB_SCHEDULERS, "policy", "srpt"), timed(offers(), 1.0))
    live.submit(jobs)
    assert [moment.now_s for moment in live.until(0.0)] == [0.0]
    moment = live.moment
    assert moment is not None
    assert (len(moment.running), len(moment.waiting)) == (2, 1)
    first = live.jobs[int(moment.running[0])].name
    at_s = live.next_s
    live.progress(first, 0.5, 10.0)  # half of 100 s, where a tenth was thought
    assert live.next_s == pytest.approx(60.0)
    assert at_s == pytest.approx(100.0)
    live.progress(first, 0.0, 20.0)  # it has ended
    assert live.next_s == pytest.approx(20.0)
    assert [each.now_s for each in live.until(20.0)] == [20.0]
    moment = live.moment
    assert (len(moment.running), len(moment.waiting)) == (2, 0)
    second = live.jobs[int(moment.running[0])].name
    live.cancel(second, 30.0)
    assert live.place_of(next(each.name for each in live.jobs if each.name not in (first, second))) is not None
    live.fail(next(each.name for each in live.jobs if each.name not in (first, second)), 40.0)
    assert live.decide(40.0) is moment
    assert len(moment.running) == 1


@pytest.mark.parametrize("policy", ["srpt", "shortest"])
def test_who_has_begun_gives_way_to_nobody_who_is_as_short(policy: str):
    """Nobody knows whether the first has begun, so it is let run on for longer than all that it was told."""
    live = LiveWorld(TWO, load(JOB_SCHEDULERS, "policy", policy), timed(offers(), 1.0))
    live.submit([train(name, 5.0) for name in ("one", "two")])
    assert [moment.now_s for moment in live.until(0.0)] == [0.0]
    for name in ("one", "two"):
        live.outlast(name, 10.5, 0.5)
    live.submit([train("three", 5.0, arrival_s=0.5)])
    list(live.until(0.5))
    assert live.place_of("one") is not None
    assert live.place_of("two") is not None
    assert live.place_of("three") is None
