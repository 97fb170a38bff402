"""The rules of the clear replay: how jobs rank, who has to go, what a run does. Written to be read, not to be quick."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from hippo.jobs.engine.keys import MOST_POOLS
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import MOST_GROUPS, ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

from .queue_places import Entry, Places, Spot

Rank = tuple[tuple[float, ...], int]


class Rules(Places):
    """State of a replay and its rules."""

    def __init__(
        self,
        entries: Sequence[Entry],
        site: JobSite,
        policy: QueuePolicy,
        *,
        settings: ReplayRules,
        slowdown: Slowdown | None,
        workload: JobWorkload,
    ) -> None:
        super().__init__(site, policy, settings=settings, slowdown=slowdown, workload=workload)
        self.present: list[Entry] = []  # that wait or run
        self.user_served: defaultdict[str, float] = defaultdict(float)
        self.user_since: defaultdict[str, float] = defaultdict(float)
        self.user_devices: defaultdict[str, int] = defaultdict(int)
        reaches = sorted(
            {Places.reaches(self, entry) for entry in entries}, key=lambda pools: sum(1 << p for p in pools)
        )
        self.alike: frozenset[int] | None = None  # the pools that all share, where jobs differ too much
        if len(site.pools) > MOST_POOLS:
            self.alike = frozenset(range(len(site.pools)))
        elif len(reaches) > MOST_GROUPS:
            self.alike = frozenset[int]().union(*reaches)
        reaches = [self.alike] if self.alike is not None else reaches
        self.share, self.entitled = dict.fromkeys(reaches, 0.0), dict.fromkeys(reaches, 0.0)
        self.time_s = entries[0].job.arrival_s if entries else 0.0

    # ---------------------------------------------------------------------------------------------------- who is there
    def waiting(self) -> list[Entry]:
        """Jobs that wait."""
        return [entry for entry in self.present if not entry.spots]

    def running(self) -> list[Entry]:
        """Jobs that run."""
        return [entry for entry in self.present if entry.spots]

    def arrives(self, entry: Entry) -> None:
        """A job waits from now on."""
        entry.since_s = entry.job.arrival_s
        entry.joins(entry.job.arrival_s, 0)
        entry.entitled = self.entitled[self.reaches(entry)]
        self.present.append(entry)

    # ------------------------------------------------------------------------------------------------------------ ranks
    def rank(self, entry: Entry, now: float) -> Rank:
        """Smallest first."""
        return self._key(entry, now), entry.index

    def _key(self, entry: Entry, now: float) -> tuple[float, ...]:
        job, name = entry.job, self.policy.name
        if name == "sjf":
            return (job.duration_s,)
        if name == "srtf":
            return (entry.remaining_s(now),)
        if name == "two_queue":
            if entry.spots and entry.joined_s < now:
                return (entry.level, 0, max(entry.began_s, entry.joined_s))
            return (entry.level, *entry.turn)
        if name == "fair":
            return (self.served(job.user, now),)
        if name == "max_min":
            running = (now - entry.began_s) * entry.rate if entry.spots else 0.0
            return (entry.served + running + entry.entitled - self.entitled[self.reaches(entry)],)
        if name == "deadline":
            return (-job.priority, math.inf if job.deadline_s is None else job.deadline_s)
        if name == "least_slack":
            if job.deadline_s is None:
                return (math.inf,)
            expected_s = job.estimate_s or job.duration_s
            return (job.deadline_s - max(0.0, expected_s - (job.duration_s - entry.remaining_s(now))),)
        assert name in ("fifo", "backfill"), name
        return (0.0,)

    # ------------------------------------------------------------------------------------------------------- accounts
    def reaches(self, entry: Entry) -> frozenset[int]:
        """The pools whose capacity a job shares: those that it may use, or one set for all if they differ too much."""
        return super().reaches(entry) if self.alike is None else self.alike

    def served(self, user: str, now: float) -> float:
        """Device-seconds of a user."""
        return self.user_served[user] + self.user_devices[user] * (now - self.user_since[user])

    def comes_back(self, user: str, others: Sequence[str]) -> None:
        """A user without jobs has one again: as much served as the one who is there and has had least."""
        if others:
            least = min(self.served(other, self.time_s) for other in others)
            self.user_served[user] = max(self.user_served[user], least)
            self.user_since[user] = self.time_s

    def _count(self, entry: Entry, now: float, devices: int) -> None:
        user = entry.job.user
        self.user_served[user], self.user_since[user] = self.served(user, now), now
        self.user_devices[user] += devices

    def pass_time(self, now: float) -> None:
        """Entitlements grow until an instant."""
        for reach, share in self.share.items():
            self.entitled[reach] += share * (now - self.time_s)
        self.time_s = now

    def share_out(self) -> None:
        """Equal shares by water-filling: whoever can use the scarcest pools only, first."""
        demand: defaultdict[frozenset[int], int] = defaultdict(int)
        for entry in self.present:
            demand[self.reaches(entry)] += entry.job.devices
        self.share = {reach: self._most(reach, demand.get(reach, 1)) for reach in self.entitled}
        used: set[int] = set()
        while demand:
            left = [reach for reach in self.share if reach in demand]
            sets = [
                [reach for bit, reach in enumerate(left) if chosen >> bit & 1] for chosen in range(1, 1 << len(left))
            ]
            share, group = min(((self._share(each, demand, used), each) for each in sets), key=lambda found: found[0])
            for reach in group:
                self.share[reach] = min(share, self.share[reach])
                used |= reach
                del demand[reach]

    def _most(self, reach: frozenset[int], devices: int) -> float:
        """Mean speed of so many devices on the fastest places of a set of pools (without a place: 0)."""
        pools = (self.site.pools[pool] for pool in reach)
        speeds = sorted((speed for pool in pools for speed in [pool.speed] * pool.devices), reverse=True)
        return sum(speeds[:devices]) / devices

    def _share(self, chosen: Sequence[frozenset[int]], demand: dict[frozenset[int], int], used: set[int]) -> float:
        pools = frozenset[int]().union(*chosen) - used
        capacity = sum(self.site.pools[pool].devices * self.site.pools[pool].speed for pool in sorted(pools))
        return capacity / sum(demand[reach] for reach in chosen)

    # ------------------------------------------------------------------------------------------------------------ runs
    def starts(self, entry: Entry, spots: Sequence[Spot], now: float) -> None:
        """A run begins."""
        self.take(entry, spots)
        self._count(entry, now, entry.job.devices)
        domains = sorted({self.domain[spot.pool] for spot in spots})
        entry.rate = min(self.site.pools[spot.pool].speed for spot in spots)
        if len(domains) > 1:
            entry.rate /= float(self.slowdown.factor[self.rows[entry.index], sum(1 << each for each in domains)])
        self.fetch(entry, domains, now)
        entry.began_s = now
        self.find_ends(entry)
        entry.first_s = now if math.isnan(entry.first_s) else entry.first_s

    def find_ends(self, entry: Entry) -> None:
        """When a run computes and ends, by what is known of its data."""
        there_s = self.data_there_s(entry)
        entry.ready_s = entry.began_s + (self.settings.restart_s if entry.resumed else 0.0)
        if self.settings.data == "before":
            entry.ready_s = max(entry.ready_s, there_s)
        entry.end_s = max(entry.ready_s + entry.left_s / entry.rate, there_s)

    def ends_run(self, entry: Entry, now: float) -> None:
        """A run ends, whatever the reason."""
        entry.held_s += max(0.0, now - entry.ready_s)
        entry.served += (now - entry.began_s) * entry.rate
        self._count(entry, now, -entry.job.devices)
        self.give_back(entry)

    def stops(self, entry: Entry, now: float, *, failed: bool) -> None:
        """A run is stopped; the job waits again."""
        computed_s = max(0.0, now - entry.ready_s)
        if failed and self.settings.failures:
            every_s = self.settings.failures.checkpoint_every_s
            computed_s = math.floor(computed_s / every_s) * every_s
        entry.left_s = max(0.0, entry.left_s - computed_s * entry.rate)
        self.ends_run(entry, now)
        entry.since_s, entry.resumed = now, True
        if entry.joined_s < now:
            entry.turn = (1, max(entry.began_s, entry.joined_s))

    # -------------------------------------------------------------------------------------------------------- backfill
    def reserve(self, head: Entry, now: float) -> tuple[float, dict[int, int]]:
        """When the head has room first by the estimates, and what it then leaves of each pool kept; {}: never."""
        best: tuple[float, dict[int, int]] = math.inf, {}
        options = [[([pool], head.job.devices)] for pool in self.whole(head)]
        for domains, part in self.sets(head):
            usable = self.usable(head)
            options.append([([p for p in usable if self.domain[p] == domain], part) for domain in domains])
        for option in options:
            found = [min((self._room_s(pool, part, now), pool) for pool in pools) for pools, part in option]
            when_s = max(each_s for each_s, _ in found)
            if when_s < best[0]:
                best = when_s, {p: self._free_by(p, when_s, now) - option[0][1] for _, p in found}
        return best

    def _room_s(self, pool: int, devices: int, now: float) -> float:
        """When a pool has so many devices by the estimates; inf: never."""
        ends = {self._expected_end_s(each, now) for each in self.running() if self._held(each, pool)}
        times = (-math.inf, *sorted(ends - {math.inf}))
        return next((time for time in times if self._free_by(pool, time, now) >= devices), math.inf)

    def _free_by(self, pool: int, time_s: float, now: float) -> int:
        """Devices of a pool that are free by then."""
        ending = (each for each in self.running() if self._expected_end_s(each, now) <= time_s)
        return self.free(pool) + sum(self._held(each, pool) for each in ending)

    def _expected_end_s(self, entry: Entry, now: float) -> float:
        if entry.job.estimate_s is None:
            return math.inf
        return max(now, entry.ready_s + entry.job.estimate_s / entry.rate)

    def ends_within(self, entry: Entry, pool: int, within_s: float) -> bool:
        """Whether a job that starts now ends in time by its estimate."""
        estimate_s = entry.job.estimate_s
        return estimate_s is not None and estimate_s <= within_s * self.site.pools[pool].speed

    def pool_beside(self, entry: Entry, spare: dict[int, int], *, within_s: float) -> int:
        """Where a job may pass the head, -1: nowhere."""
        fits = [pool for pool in self.whole(entry) if self.free(pool) >= entry.job.devices]
        free = [pool for pool in fits if pool not in spare or entry.job.devices <= spare[pool]]
        fits = [pool for pool in fits if pool in free or self.ends_within(entry, pool, within_s)]
        return min(fits, key=lambda pool: (-self.site.pools[pool].speed, self.free(pool), pool), default=-1)

    # -------------------------------------------------------------------------------------------------------- eviction
    def room_by_force(self, entry: Entry, now: float) -> tuple[list[Entry], list[Spot]]:
        """Whom to stop so that a job can start, and where; empty: nobody's going would do."""
        best: tuple[Rank, list[Entry], int] | None = None
        for pool in self.whole(entry):
            victims = self._victims(entry, pool, entry.job.devices, now)
            if victims is None:
                continue
            if not victims:
                return [], [Spot(pool, entry.job.devices)]
            mildest = self.rank(victims[-1], now)
            if best is None or mildest > best[0]:
                best = mildest, victims, pool
        if best:
            return self._needed(best[1], best[2], entry.job.devices), [Spot(best[2], entry.job.devices)]
        return self._span_by_force(entry, now) if not self.whole(entry) else ([], [])

    def _span_by_force(self, entry: Entry, now: float) -> tuple[list[Entry], list[Spot]]:
        for domains, part in self.sets(entry):
            spots, gone = [], list[Entry]()
            for domain in domains:
                found = self._part_by_force(entry, domain, part, now=now, gone=gone)
                if found is not None:
                    spots.append(found[0])
                    gone += found[1]
            if len(spots) == len(domains):
                return gone, spots
        return [], []

    def settled(self, entry: Entry, spots: list[Spot]) -> list[Spot]:
        """The same domains once the victims are gone: the first pool of each that has room."""
        if len(spots) < 2:
            return spots
        parts = [self._part(entry, self.domain[spot.pool], spot.devices) for spot in spots]
        return [part for part in parts if part]

    def _part_by_force(
        self, entry: Entry, domain: int, part: int, *, now: float, gone: list[Entry]
    ) -> tuple[Spot, list[Entry]] | None:
        pools = [pool for pool in self.usable(entry) if self.domain[pool] == domain]
        for pool in pools:
            if self._free_without(pool, gone) >= part:
                return Spot(pool, part), []
        for pool in pools:
            victims = self._victims(entry, pool, part, now, gone)
            if victims is not None:
                return Spot(pool, part), self._needed(victims, pool, part, gone)
        return None

    def gains(self, entry: Entry) -> list[int]:
        """Pools where a running job does more in a round, restart included, than where it is; its data are there."""
        pools, round_s, here = self.site.pools, self.settings.round_s, {spot.pool for spot in entry.spots}
        if len(here) > 1:
            return []
        least = pools[min(here)].speed * round_s
        quick = [p for p in self.whole(entry) if pools[p].speed * (round_s - self.settings.restart_s) > least]
        return [pool for pool in quick if not self.is_far(entry, pool)]

    def faster_place(self, entry: Entry, now: float) -> tuple[int, list[Entry]] | None:
        """The fastest pool that a running job gains by and has room for it, by force if need be, and who has to go."""
        found = []
        for pool in self.gains(entry):
            victims = self._victims(entry, pool, entry.job.devices, now)
            if victims is not None:
                found.append((-self.site.pools[pool].speed, bool(victims), pool, victims))
        if not found:
            return None
        _, _, pool, victims = min(found, key=lambda each: each[:3])
        return pool, self._needed(victims, pool, entry.job.devices)

    def _victims(
        self, entry: Entry, pool: int, devices: int, now: float, gone: Sequence[Entry] = ()
    ) -> list[Entry] | None:
        """Those behind a job, last first, until there is room; None: there is none even then."""
        behind = [each for each in self.running() if each not in gone and self._held(each, pool)]
        behind = [each for each in behind if self.rank(each, now) > self.rank(entry, now)]
        room, victims = self._free_without(pool, gone), list[Entry]()
        for each in sorted(behind, key=lambda other: self.rank(other, now), reverse=True):
            if room >= devices:
                break
            room += self._held(each, pool)
            victims.append(each)
        return victims if room >= devices else None

    def _needed(self, victims: list[Entry], pool: int, devices: int, gone: Sequence[Entry] = ()) -> list[Entry]:
        """Victims without those that can be spared, best ranked spared first."""
        surplus = self._free_without(pool, gone) + sum(self._held(each, pool) for each in victims) - devices
        needed = []
        for each in reversed(victims):
            if self._held(each, pool) <= surplus:
                surplus -= self._held(each, pool)
            else:
                needed.append(each)
        return needed

    def _held(self, entry: Entry, pool: int) -> int:
        return sum(spot.devices for spot in entry.spots if spot.pool == pool)

    def _free_without(self, pool: int, gone: Sequence[Entry]) -> int:
        return self.free(pool) + sum(self._held(each, pool) for each in gone)
