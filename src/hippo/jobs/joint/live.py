"""A queue that lives, under a scheduler that decides for all jobs together: jobs, links and tenants are told as they
come, and time passes as it is told to.

It is the world of a replay, opened anew (``engine.carry``) for who is there whenever somebody comes, so a day that was
recorded and is told again leads to the decisions of its replay, one for one (``tests/jobs/joint/test_live.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.carry import carry
from hippo.jobs.job import Job
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import opened, step
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]

SOME_DAY_S = 1e15
"""When links that live will move next, for rules that give up where they never will."""


@dataclass(frozen=True, eq=False)
class LinksNow:
    """What the links between K domains carry from a moment on."""

    time_s: float
    bandwidth_bytes_per_s: Floats  # (K, K) from, to; 0: nothing; inf on the diagonal
    latency_s: Floats  # (K, K) one way


@dataclass(frozen=True)
class TenantNow:
    """Others take devices of a node from a moment on (negative: give them back)."""

    time_s: float
    node: int  # counted through all pools
    devices: int


@dataclass(eq=False)
class LiveWorld:
    """See the top of the file. Times are seconds on one clock, of which the caller says what it counts from."""

    site: JobSite
    scheduler: Scheduler
    offers: OfferTable
    rules: ReplayRules = field(default_factory=ReplayRules)
    slowdown: Slowdown | None = None
    jobs: list[Job] = field(default_factory=list)  # who is there or is to come, by arrival; some may have ended
    moment: Moment | None = None  # of the world as it stands; None: nobody has come
    _links: list[LinksNow] = field(default_factory=list)  # the state that holds, and those to come
    _tenants: list[TenantNow] = field(default_factory=list)  # to come

    def submit(self, jobs: Iterable[Job]) -> None:
        """Jobs come, each at its arrival, which is now or later.

        Raises
        ------
        InputError
            A job comes before what has been decided, has a name that is there, or trains what no offer is for.
        """
        come = sorted(jobs, key=lambda each: each.arrival_s)
        names = {each.name for each in self.jobs}
        for each in come:
            if each.arrival_s < self.now_s:
                problem, remedy = f"comes before {self.now_s:g} s, which is past", "let it come now"
                source = f"job {each.name!r:.60}"
                raise InputError(problem, source=source, key="arrival_s", value=each.arrival_s, remedy=remedy)
            if each.name in names:
                remedy = "give it another name"
                raise InputError("is there already", source="jobs", key="name", value=each.name, remedy=remedy)
        self._reopen([*(self.jobs[row] for row in self._there()), *come])

    def tell(self, *, links: Sequence[LinksNow] = (), tenants: Sequence[TenantNow] = ()) -> None:
        """Links move, others take devices: now or later."""
        self._links += links
        self._tenants += tenants
        self._reopen([self.jobs[row] for row in self._there()])

    @property
    def now_s(self) -> float:
        """The last moment that was decided; before the first: no time yet."""
        return -np.inf if self.moment is None or not self.moment.world.tally[c.ARRIVED] else self.moment.now_s

    @property
    def next_s(self) -> float:
        """When something happens next by itself, if nothing is told; inf: never."""
        if self.moment is None:
            return np.inf
        world = self.moment.world
        arrived = int(world.tally[c.ARRIVED])
        comes = float(world.job[arrived, c.ARRIVAL]) if arrived < len(world.job) else np.inf
        due = float(world.due[world.heap[0]]) if world.tally[c.HEAP] > 0 else np.inf
        found = min(comes, due)
        return np.inf if found >= SOME_DAY_S else found

    def until(self, now_s: float) -> Iterator[Moment]:
        """Let time pass until now: each moment in which something happens, as the scheduler has decided it."""
        while self.moment is not None and self.next_s <= now_s and step(self.moment.world):
            self.scheduler.decide(self.moment)
            yield self.moment

    def _there(self) -> list[int]:
        """Jobs that have not ended, by their number."""
        if self.moment is None:
            return list(range(len(self.jobs)))
        return np.flatnonzero(self.moment.world.mark[:, c.STATUS] < c.DONE).tolist()

    def _reopen(self, jobs: list[Job]) -> None:
        """Open a world for these jobs, which begin with those of the present one that are there."""
        before, kept = self.moment, self._there()
        if before is not None:
            self._links = self._links[int(before.world.links.tally[c.STATE_NOW]) :]
            self._tenants = self._tenants[int(before.world.tally[c.TENANT]) :]
        if not jobs and before is None:
            return
        workload = JobWorkload.of(jobs)
        opening = opened(
            workload, self._site(), self.rules, offers=self.offers, slowdown=self.slowdown, tenants=self._taken()
        )
        moment = Moment.of(opening.world, workload, self.site, self.offers, stops=self.rules.stops)
        if before is not None:
            of = np.full(len(workload), -1, np.int64)
            of[: len(kept)] = kept
            users = {name: row for row, name in enumerate(before.workload.users)}
            carry(before.world, opening.world, of, np.array([users.get(name, -1) for name in workload.users]))
            opening.world.links.tally[c.STATE_NOW] = 0
            for mine, old in zip(moment.sight.past, before.sight.past, strict=True):
                mine[:] = old
            moment = replace(moment, rounds=before.rounds, counts=before.counts)
        self.jobs, self.moment = jobs, moment

    def _site(self) -> JobSite:
        """The site with its links as they are, as they were told to become, and as they will be some day."""
        if not self._links:
            return self.site
        states = [*self._links, replace(self._links[-1], time_s=SOME_DAY_S)]
        times = np.array([each.time_s for each in states])
        carries = np.array([each.bandwidth_bytes_per_s for each in states])
        late = np.array([each.latency_s for each in states])
        return replace(self.site, history=LinkHistory(times, carries, "telemetry", late))

    def _taken(self) -> Tenants | None:
        if not self._tenants:
            return None
        rows = self._tenants
        return Tenants(
            np.array([each.time_s for each in rows]),
            np.array([each.node for each in rows]),
            np.array([each.devices for each in rows]),
        )
