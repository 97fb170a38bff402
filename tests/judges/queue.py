"""The clear replay (SimPy): it judges ``engine.play`` and is not quick.

One process per run of a job, per node, and for arrivals, rounds and promotions. At the end of every instant stands one
decision, in which all jobs that wait are tried in order of rank. Both engines keep the rules of docs/jobs.md to the
letter, ties included. How jobs rank and where they go: ``queue_rules``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator
from heapq import heappush
from typing import Any

import numpy as np
import simpy
from simpy.events import Event, EventPriority, Process

from hippo.jobs.engine.running import time_to_failure
from hippo.jobs.ledger import Floats
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

from .queue_places import Entry, Spot
from .queue_rules import Rules

Steps = Generator[Event, Any, None]

_RUNS, _BREAKS, _ROUNDS, _CARRIES, _ARRIVES, _DECIDES = (EventPriority(place) for place in range(2, 8))
"""Places within an instant."""


def play(
    workload: JobWorkload,
    site: JobSite,
    policy: QueuePolicy,
    settings: ReplayRules | None = None,
    *,
    slowdown: Slowdown | None = None,
) -> tuple[Floats, Floats]:
    """First start and finish of every job (n,), nan where it is refused; see ``engine.play``. Learned policies only
    the engine knows."""
    world = _World(workload, site, policy, settings=settings or ReplayRules(), slowdown=slowdown)
    world.run()
    return np.array([entry.first_s for entry in world.entries]), np.array([entry.finish_s for entry in world.entries])


class _Clock(simpy.Environment):
    """Events at exact times: SimPy adds delays to the present, which rounds."""

    def at(self, time_s: float, priority: EventPriority) -> Event:
        """An event that happens at ``time_s``, in its place within the instant."""
        event = Event(self)
        event._ok, event._value = True, None
        heappush(self._queue, (time_s, priority, next(self._eid), event))
        return event


class _Transfer:
    """Data on their way."""

    def __init__(self, entry: Entry, source: int, destination: int, left: float) -> None:
        self.entry, self.link, self.left, self.rate, self.as_of = entry, (source, destination), left, 0.0, 0.0
        self.process: Process | None = None


class _World:
    """One replay."""

    def __init__(
        self,
        workload: JobWorkload,
        site: JobSite,
        policy: QueuePolicy,
        *,
        settings: ReplayRules,
        slowdown: Slowdown | None,
    ) -> None:
        self.clock = _Clock()
        self.policy, self.settings = policy, settings
        self.entries = [Entry(workload.job(index), index) for index in range(len(workload))]
        self.rules = Rules(self.entries, site, policy, settings=settings, slowdown=slowdown, workload=workload)
        self.left = len(self.entries)
        self.all_done = self.clock.event()
        self.processes: dict[int, Process] = {}  # of jobs that run, or wait to be promoted
        self.transfers: list[_Transfer] = []
        self.flying: list[tuple[Entry, int]] = []  # whose data, to where: sent, and not there yet
        self.jobs_of: defaultdict[str, int] = defaultdict(int)  # user -> jobs that wait or run
        self.deciding_s = self.round_s = -math.inf
        self.round_over = False

    def run(self) -> None:
        """Play to the end."""
        self.clock.process(self._arrivals())
        if self.settings.failures:
            for node in range(len(self.rules.nodes)):
                self.clock.process(self._node(node))
        if self.entries:
            self.clock.run(until=self.all_done)

    def _touch(self) -> None:
        """Something happens in this instant, so a decision follows at its end."""
        now = self.clock.now
        self.rules.pass_time(now)
        if self.deciding_s < now:
            self.deciding_s = now
            callbacks = self.clock.at(now, _DECIDES).callbacks
            assert callbacks is not None
            callbacks.append(self._decide)

    # ------------------------------------------------------------------------------------------------- what happens
    def _arrivals(self) -> Steps:
        for entry in self.entries:
            yield self.clock.at(entry.job.arrival_s, _ARRIVES)
            self._touch()
            if self.rules.can_ever_run(entry):
                if not self.jobs_of[entry.job.user]:
                    self.rules.comes_back(entry.job.user, [user for user, jobs in self.jobs_of.items() if jobs])
                self.jobs_of[entry.job.user] += 1
                self.rules.arrives(entry)
            else:
                self._one_less()

    def _run(self, entry: Entry) -> Steps:
        """One run of a job, levels and end."""
        try:
            while True:
                crossing_s = entry.crossing_s(self.policy)
                yield self.clock.at(min(entry.end_s, crossing_s), _RUNS)
                self._touch()
                if entry.end_s <= self.clock.now:
                    break
                entry.joins(self.clock.now, entry.level + 1)
        except simpy.Interrupt:
            return
        self.rules.ends_run(entry, self.clock.now)
        entry.finish_s, entry.left_s = self.clock.now, 0.0
        self.rules.present.remove(entry)
        self.jobs_of[entry.job.user] -= 1
        self._one_less()

    def _promotion(self, entry: Entry, time_s: float) -> Steps:
        try:
            yield self.clock.at(time_s, _RUNS)
        except simpy.Interrupt:
            return
        self._touch()
        entry.held_s = 0.0
        entry.joins(self.clock.now, 0)
        del self.processes[entry.index]

    def _node(self, node: int) -> Steps:
        failures, number = self.settings.failures, 0
        assert failures is not None
        due_s = self.entries[0].job.arrival_s if self.entries else 0.0
        while True:
            due_s += time_to_failure(self.settings.seed, node, number, failures.mtbf_s)
            yield self.clock.at(due_s, _BREAKS)
            self._touch()
            for entry in [each for each in self.rules.running() if any(spot.node == node for spot in each.spots)]:
                self._stop(entry, failed=True)
            self.rules.nodes[node].up, number = False, number + 1
            due_s = self.clock.now + failures.repair_s
            yield self.clock.at(due_s, _BREAKS)
            self._touch()
            self.rules.nodes[node].up = True

    def _round(self, time_s: float) -> Steps:
        yield self.clock.at(time_s, _ROUNDS)
        self._touch()
        self.round_over = True

    def _share(self) -> None:
        """Transfers share their links equally from now on."""
        now = float(self.clock.now)
        for entry, source, destination, left in self.rules.to_send:
            self.transfers.append(_Transfer(entry, source, destination, left))
        self.rules.to_send.clear()
        for each in self.transfers:
            beside = sum(other.link == each.link for other in self.transfers)
            rate = self.rules.site.bandwidth_bytes_per_s[each.link[0]][each.link[1]] / beside
            if rate != each.rate:
                if now > each.as_of:
                    each.left = max(0.0, each.left - each.rate * (now - each.as_of))
                each.rate, each.as_of = rate, now
                if each.process is not None:
                    each.process.interrupt()
                each.process = self.clock.process(self._carry(each))

    def _carry(self, transfer: _Transfer) -> Steps:
        try:
            yield self.clock.at(transfer.as_of + transfer.left / transfer.rate, _CARRIES)
        except simpy.Interrupt:
            return
        self._touch()
        self.transfers.remove(transfer)
        (source, destination), entry = transfer.link, transfer.entry
        latency_s = self.rules.site.latency_s[source][destination]
        if latency_s > 0:
            self.flying.append((entry, destination))
            yield self.clock.at(self.clock.now + latency_s, _CARRIES)
            self._touch()
            self.flying.remove((entry, destination))
        if (entry, destination) in self.flying:
            return
        if any(other.entry is entry and other.link[1] == destination for other in self.transfers):
            return
        entry.sent[destination] = entry.sent[destination][0], float(self.clock.now)
        if entry.spots:
            self.processes.pop(entry.index).interrupt()
            self.rules.find_ends(entry)
            self.processes[entry.index] = self.clock.process(self._run(entry))

    def _one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self.all_done.succeed()

    # ---------------------------------------------------------------------------------------------------- decisions
    def _decide(self, _: Event) -> None:
        rules, now = self.rules, float(self.clock.now)
        self.deciding_s = -math.inf  # a job that has nothing left to do may start and end in this very instant
        rules.share_out()
        by_force = self.policy.preempts and (not self.policy.rounds or self.round_over)
        if self.policy.name == "backfill":
            self._backfill(now)
        else:
            self._by_rank(now, by_force=by_force)
        if self.policy.rounds and self.round_over and self._climb(now):
            self._by_rank(now, by_force=True)
        self.round_over = False
        self._share()
        in_turns = bool(rules.waiting()) or any(rules.gains(entry) for entry in rules.running())
        if self.policy.rounds and in_turns and self.round_s <= now:
            self.round_s = self.settings.round_s * (math.floor(now / self.settings.round_s) + 1)
            self.clock.process(self._round(self.round_s))

    def _climb(self, now: float) -> bool:
        """Running jobs, best ranked first, take faster devices from those behind them; whether any did."""
        moved = False
        for entry in sorted(self.rules.running(), key=lambda each: self.rules.rank(each, now)):
            if not entry.spots or entry.began_s == now:
                continue
            found = self.rules.faster_place(entry, now)
            if found is not None:
                pool, victims = found
                for each in (entry, *victims):
                    self._stop(each, failed=False)
                self._start(entry, [Spot(pool, entry.job.devices)])
                moved = True
        return moved

    def _by_rank(self, now: float, *, by_force: bool) -> None:
        """Everyone who waits in order of rank."""
        rules, tried = self.rules, set[int]()
        while True:
            waiting = [entry for entry in rules.waiting() if entry.index not in tried]
            if not waiting:
                break
            first = min(waiting, key=lambda entry: rules.rank(entry, now))
            spots = rules.room(first)
            if not spots and by_force:
                victims, spots = rules.room_by_force(first, now)
                for victim in victims:
                    self._stop(victim, failed=False)
                spots = rules.settled(first, spots)
            if spots:
                self._start(first, spots)
            elif self.policy.strict:
                break
            else:
                tried.add(first.index)

    def _backfill(self, now: float) -> None:
        """EASY: the first in line gets a time, others may go by if they do not delay it."""
        while self.rules.waiting():
            head = min(self.rules.waiting(), key=lambda entry: entry.index)
            spots = self.rules.room(head)
            if not spots:
                break
            self._start(head, spots)
        else:
            return
        when_s, spare = self.rules.reserve(head, now)
        if not spare and now - head.since_s >= self.policy.patience_s:
            return
        for entry in sorted(self.rules.waiting(), key=lambda each: each.index):
            if entry is head:
                continue
            pool = self.rules.pool_beside(entry, spare, within_s=when_s - now)
            if pool >= 0:
                if pool in spare and not self.rules.ends_within(entry, pool, when_s - now):
                    spare[pool] -= entry.job.devices
                self._start(entry, [Spot(pool, entry.job.devices)])

    def _start(self, entry: Entry, spots: list[Spot]) -> None:
        self.rules.starts(entry, spots, float(self.clock.now))
        waiting = self.processes.pop(entry.index, None)
        if waiting is not None:
            waiting.interrupt()
        self.processes[entry.index] = self.clock.process(self._run(entry))

    def _stop(self, entry: Entry, *, failed: bool) -> None:
        now = float(self.clock.now)
        self.processes.pop(entry.index).interrupt()
        self.rules.stops(entry, now, failed=failed)
        if self.policy.name == "two_queue" and entry.level > 0:
            due_s = now + self.policy.promotes_after * entry.held_s
            self.processes[entry.index] = self.clock.process(self._promotion(entry, due_s))
