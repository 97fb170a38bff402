"""The places of the clear replay: what jobs hold, where they fit, how their data get there."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from hippo.jobs.job import Job
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import MOST_TIMES_LONGER, ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload


class Spot:
    """Devices of one pool that a job takes; ``node`` is filled in when it does."""

    def __init__(self, pool: int, devices: int, node: int = -1) -> None:
        self.pool, self.devices, self.node = pool, devices, node


class Entry:
    """What becomes of a job."""

    def __init__(self, job: Job, index: int) -> None:
        self.job, self.index = job, index
        self.left_s, self.held_s, self.served = job.duration_s, 0.0, 0.0
        self.first_s = self.finish_s = math.nan
        self.since_s = self.began_s = self.ready_s = self.end_s = math.nan
        self.rate, self.level, self.resumed, self.entitled = 1.0, 0, False, 0.0
        self.spots: list[Spot] = []
        self.sent: dict[int, tuple[float, float]] = {}  # domain -> GB there or on their way, and when they came

    def joins(self, now: float, level: int) -> None:
        """Comes to a queue, behind all that are there."""
        self.level, self.joined_s, self.turn = level, now, (2, now)

    def crossing_s(self, policy: QueuePolicy) -> float:
        """When the run crosses the next level."""
        if self.level >= len(policy.levels):
            return math.inf
        per_s = self.job.devices if policy.per_device else 1
        return self.ready_s + max(0.0, policy.levels[self.level] / per_s - self.held_s)

    def remaining_s(self, now: float) -> float:
        """Work left."""
        if not self.spots or now <= self.ready_s:
            return self.left_s
        return max(0.0, self.left_s - (now - self.ready_s) * self.rate)


class _Node:
    def __init__(self, pool: int, size: int) -> None:
        self.pool, self.free, self.up = pool, size, True


class Places:
    """Nodes, pools and links of a replay, and where jobs fit."""

    def __init__(
        self,
        site: JobSite,
        policy: QueuePolicy,
        *,
        settings: ReplayRules,
        slowdown: Slowdown | None,
        workload: JobWorkload,
    ) -> None:
        self.site, self.policy, self.settings = site, policy, settings
        self.slowdown = slowdown or Slowdown.none(len(site.domains))
        self.rows = self.slowdown.rows(workload)
        self.nodes = [_Node(p, pool.per_node) for p, pool in enumerate(site.pools) for _ in range(pool.nodes)]
        self.domain = [site.domains.index(pool.domain) for pool in site.pools]
        self.to_send: list[tuple[Entry, int, int, float]] = []  # whose data, from, to, bytes

    def take(self, entry: Entry, spots: Sequence[Spot]) -> None:
        """Devices for a job: in the fullest node that has room for all, else from the emptiest."""
        for spot in spots:
            rest = spot.devices
            while rest > 0:
                nodes = [n for n, node in enumerate(self.nodes) if node.pool == spot.pool and node.up and node.free]
                roomy = [n for n in nodes if self.nodes[n].free >= rest]
                if roomy:
                    node = min(roomy, key=lambda n: (self.nodes[n].free, n))
                else:
                    node = min(nodes, key=lambda n: (-self.nodes[n].free, n))
                taken = min(rest, self.nodes[node].free)
                self.nodes[node].free -= taken
                entry.spots.append(Spot(spot.pool, taken, node))
                rest -= taken

    def give_back(self, entry: Entry) -> None:
        """All that a job holds."""
        for spot in entry.spots:
            self.nodes[spot.node].free += spot.devices
        entry.spots = []

    def fetch(self, entry: Entry, domains: Sequence[int], now: float) -> None:
        """Let the data of a job be sent to where it starts, an equal part to each domain."""
        home = self.home(entry)
        for domain in domains:
            gb, (sent_gb, _) = entry.job.data_gb / len(domains), entry.sent.get(domain, (0.0, now))
            if home < 0 or domain == home or gb <= sent_gb:
                continue
            at_once = math.isinf(self.site.bandwidth_bytes_per_s[home][domain])
            at_once = at_once and self.site.latency_s[home][domain] == 0
            entry.sent[domain] = gb, now if at_once else math.inf
            if not at_once:
                self.to_send.append((entry, home, domain, (gb - sent_gb) * 1e9))

    def data_there_s(self, entry: Entry) -> float:
        """When the last of the data came to where a job runs; inf: some are on their way."""
        domains = {self.domain[spot.pool] for spot in entry.spots}
        return max((entry.sent[domain][1] for domain in domains if domain in entry.sent), default=-math.inf)

    def usable(self, entry: Entry) -> list[int]:
        """Pools that could run a part of a job."""
        found = list[int]()
        if entry.job.data_gb > 0 and entry.job.data_at not in ("", *self.site.domains):
            return found
        for index, pool in enumerate(self.site.pools):
            home = self.home(entry)
            linked = home < 0 or self.site.bandwidth_bytes_per_s[home][self.domain[index]] > 0
            right_kind = not entry.job.runs_on or pool.kind in entry.job.runs_on
            if right_kind and pool.memory_gb >= entry.job.memory_gb and linked:
                found.append(index)
        return found

    def home(self, entry: Entry) -> int:
        """Domain of the data, -1: everywhere."""
        job = entry.job
        return self.site.domains.index(job.data_at) if job.data_at and job.data_gb > 0 else -1

    def whole(self, entry: Entry) -> list[int]:
        """Pools that could run all of a job."""
        return [pool for pool in self.usable(entry) if self.site.pools[pool].devices >= entry.job.devices]

    def reaches(self, entry: Entry) -> frozenset[int]:
        """The pools that a job may use, whole if it can."""
        return frozenset(self.whole(entry) or self.usable(entry))

    def sets(self, entry: Entry) -> Iterator[tuple[list[int], int]]:
        """Sets of domains that a job may span, quickest first, and its part in each."""
        span = self.settings.span
        if span == "never" or (span == "must" and self.whole(entry)) or self.rows[entry.index] == 0:
            return
        factor = self.slowdown.factor[self.rows[entry.index]]
        largest: defaultdict[int, int] = defaultdict(int)
        for pool in self.usable(entry):
            largest[self.domain[pool]] = max(largest[self.domain[pool]], self.site.pools[pool].devices)
        listed = []
        for count in range(2, len(largest) + 1):
            for members in combinations(sorted(largest), count):
                part, rest = divmod(entry.job.devices, count)
                number = sum(1 << domain for domain in members)
                fits = rest == 0 and all(largest[domain] >= part for domain in members)
                if fits and number < len(factor) and np.isfinite(factor[number]):
                    listed.append((float(factor[number]), number, list(members), part))
        for _, _, domains, part in sorted(listed):
            yield domains, part

    def can_ever_run(self, entry: Entry) -> bool:
        """Whether the empty site could run it, and it would not lose its work for ever."""
        failures, usable = self.settings.failures, self.usable(entry)
        if failures and usable:
            widest = max(self.site.pools[pool].per_node for pool in usable)
            nodes = math.ceil(entry.job.devices / widest)
            longer = failures.times_longer(entry.job.duration_s, nodes, self.settings.restart_s)
            if longer > MOST_TIMES_LONGER * self._share_up(entry, nodes):
                return False
        return bool(self.whole(entry)) or any(True for _ in self.sets(entry))

    def _share_up(self, entry: Entry, nodes: int) -> float:
        """Share of the time in which a job finds enough nodes up."""
        failures, pools = self.settings.failures, self.site.pools
        assert failures is not None
        shares = [0.0]
        for pool in self.whole(entry):
            shares.append(failures.share_up(math.ceil(entry.job.devices / pools[pool].per_node), pools[pool].nodes))
        if any(True for _ in self.sets(entry)):
            shares.append(failures.share_up(nodes, sum(pools[pool].nodes for pool in self.usable(entry))))
        return max(shares)

    def free(self, pool: int) -> int:
        """Free devices of a pool."""
        return sum(node.free for node in self.nodes if node.pool == pool and node.up)

    def room(self, entry: Entry) -> list[Spot]:
        """Where a job could start now; empty: nowhere."""
        fits = [pool for pool in self.whole(entry) if self.free(pool) >= entry.job.devices]
        if fits:
            best = min(fits, key=lambda p: (self.is_far(entry, p), -self.site.pools[p].speed, self.free(p), p))
            return [Spot(best, entry.job.devices)]
        for domains, part in self.sets(entry):
            spots = [self._part(entry, domain, part) for domain in domains]
            if all(spots):
                return [spot for spot in spots if spot]
        return []

    def _part(self, entry: Entry, domain: int, part: int) -> Spot | None:
        pools = [pool for pool in self.usable(entry) if self.domain[pool] == domain and self.free(pool) >= part]
        return Spot(pools[0], part) if pools else None

    def is_far(self, entry: Entry, pool: int) -> bool:
        """Whether data would have to move."""
        home, domain = self.home(entry), self.domain[pool]
        return home >= 0 and home != domain and entry.sent.get(domain, (0.0, 0.0))[0] < entry.job.data_gb
