"""A moment of the world: who waits and runs, what each job could run under now, and the answers that may be given.

A *scheduler* looks at every moment (something came, ended, failed or moved) and begins, pauses and resizes jobs.
Letters: K domains, O offers, M parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import elastic
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.keys import attained, told_left
from hippo.jobs.engine.observe import Sight, sight, survey
from hippo.jobs.engine.running import give_up_move, part_pool, start, start_over, stop, try_start
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


MOST_PLACES = 512


@dataclass(frozen=True)
class JobPlace:
    """An offer in its domains."""

    offer: int
    domains: tuple[int, ...]  # as many as the offer has parts, most GPUs first
    rate: float  # work per second, as links are shared now
    gpus: int
    free: int = 0  # GPUs of its domains that it could take


@dataclass(frozen=True, eq=False)
class Moment:
    """What a scheduler sees, and what it may do; every answer takes effect at once."""

    world: QueueWorld
    workload: JobWorkload
    site: JobSite
    offers: OfferTable
    sight: Sight = field(repr=False)
    rounds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What a scheduler counts of its decisions: of how many a play ahead made sure (``verified``), which of these it
    ``changed``, and where a base rule decided because effort or time was spent (``degraded``)."""

    @classmethod
    def of(
        cls, world: QueueWorld, workload: JobWorkload, site: JobSite, offers: OfferTable, *, stops: bool = True
    ) -> Self:
        """The moments of a world; ``stops``: see ``ReplayRules``."""
        return cls(
            world, workload, site, offers, sight(workload, site, offers, jobs=1, places=MOST_PLACES, stops=stops)
        )

    @property
    def now_s(self) -> float:
        """Now, on the workload's clock."""
        return float(self.world.clock[c.NOW])

    @property
    def waiting(self) -> Ints:
        """Jobs that wait, by arrival."""
        return self._of(c.WAITING)

    @property
    def running(self) -> Ints:
        """Jobs that run, by arrival."""
        return self._of(c.RUNNING)

    def _of(self, status: int) -> Ints:
        return np.flatnonzero(self.world.mark[: self.world.tally[c.ARRIVED], c.STATUS] == status)

    @property
    def free_gpus(self) -> int:
        """Free devices of the site."""
        return int(self.world.pool[:, c.POOL_FREE].sum())

    def jobs_gpus(self, domain: int) -> int:
        """Devices of a domain that are free, or held by elastic jobs that may be stopped."""
        world, of_domain = self.world, self.world.pool[:, c.POOL_DOMAIN] == domain
        free = int(world.pool[of_domain, c.POOL_FREE].sum())
        held = 0
        for job in self.running if self.sight.stops else ():
            if world.mark[job, c.ELASTIC]:
                offer = int(world.mark[job, c.OFFER])
                held += int(self.offers.gpus[offer][world.part[job] == domain].sum())
        return free + held

    def round_is_over(self, round_s: float) -> bool:
        """Whether a multiple of ``round_s`` has come since this was last asked; at the first moment, too."""
        number = self.now_s // round_s
        if self.rounds and self.rounds[-1] == number:
            return False
        self.rounds.append(number)
        return True

    def places(self, job: int, most_parts: int = MOST_PARTS) -> list[JobPlace]:
        """Where an elastic job could run now, the quickest first, of equal ones the fullest: for each size, parts and
        first domain the quickest offer that has room. What a job that runs holds itself counts as free."""
        seen, offers = self.sight, self.offers
        found = []
        for row in range(int(survey(self.world, seen, job))):
            offer = int(seen.offer[row])
            if offer >= 0 and offers.parts[offer] <= most_parts:
                domains = tuple(seen.where[row, : offers.parts[offer]].tolist())
                free = int(seen.mine[list(domains), 0].sum() * seen.size[0])
                found.append(JobPlace(offer, domains, float(seen.rate[row]), int(offers.gpus[offer].sum()), free))
        return sorted(found, key=lambda each: (-round(each.rate, 9), each.free))

    def running_at(self, job: int) -> JobPlace:
        """Where an elastic job runs now."""
        offer = int(self.world.mark[job, c.OFFER])
        parts = tuple(self.world.part[job, : self.offers.parts[offer]].tolist())
        return JobPlace(offer, parts, float(self.world.job[job, c.RATE]), int(self.world.mark[job, c.HOLDS]))

    def remaining_s(self, job: int) -> float:
        """Work left by what was told, at the reference rate."""
        return float(told_left(self.world, job, self.now_s))

    def attained_s(self, job: int) -> float:
        """Work done."""
        return float(attained(self.world, job, self.now_s))

    def begin(self, job: int, place: JobPlace) -> bool:
        """Run an elastic job that waits; False: there is no room (any more)."""
        domains = np.full(MOST_PARTS, -1, np.int64)
        domains[: len(place.domains)] = place.domains
        return bool(_begin(self.world, job, place.offer, domains))

    def start(self, job: int) -> bool:
        """Start a gang where the engine's rules put it: where its data lie, then the fastest, then the fullest pool;
        else over the quickest set of domains that it may span."""
        return bool(_start(self.world, job))

    def start_in(self, job: int, domains: Sequence[int]) -> bool:
        """Start a gang in a domain, or over these domains; False: there is no room there, or it may not span them."""
        together = sum(1 << each for each in domains) if len(domains) > 1 else 0
        return bool(_start_in(self.world, job, together, domains[0], len(domains)))

    def pause(self, job: int) -> None:
        """Stop a job that runs; it waits, and goes on from what it has done."""
        _pause(self.world, job)

    def resize(self, job: int, place: JobPlace) -> bool:
        """Let a running job go on elsewhere or otherwise: it stops, its state moves, its processes start anew."""
        self.pause(job)
        return self.begin(job, place)

    def move(self, job: int, place: JobPlace) -> bool:
        """Let a running job go over in the background: it computes here while its state streams there, over what others
        leave of the links, and stops for the last gradients. It holds devices at both places; False: there is no room
        beside what it holds, it does not compute now, or moves already."""
        domains = np.full(MOST_PARTS, -1, np.int64)
        domains[: len(place.domains)] = place.domains
        return bool(_move(self.world, job, place.offer, domains))

    def moves(self, job: int) -> bool:
        """Whether a job is on its way in the background."""
        return bool(self.world.going[job, c.GOING_OFFER] >= 0)

    def stay(self, job: int) -> None:
        """Give a move in the background up; what it sent is lost."""
        _stay(self.world, job)

    def stop_s(self, job: int, place: JobPlace) -> float:
        """Seconds that going over to a place costs a job: a restart, and its state over the links meanwhile."""
        world, at = self.world, int(self.world.mark[job, c.STATE_AT])
        if self.world.mark[job, c.STATUS] == c.RUNNING:
            at = int(world.part[job, 0])
        if at < 0:
            return 0.0
        state = float(self.offers.state_bytes[self.offers.kind[place.offer]])
        over = [
            state * float(share) / max(1.0, float(world.links.capacity[at, domain]))
            for share, domain in zip(self.offers.state_share[place.offer], place.domains, strict=False)
            if domain != at
        ]
        return max([world.restart_s, *over])

    def weigh(self, job: int, weight: float) -> None:
        """From now on a job's flows get so many times the share of others (1: alike)."""
        self.world.job[job, c.WEIGHT] = weight
        share(self.world)


class Scheduler(Protocol):
    """Decides for all jobs together."""

    @property
    def name(self) -> str:
        """By which it is asked for."""

    @property
    def summary(self) -> str:
        """One sentence."""

    @property
    def source(self) -> str:
        """Paper."""

    @property
    def knows(self) -> str:
        """Either "nothing" or "durations": who tells its tokens tells those."""

    @property
    def preempts(self) -> bool:
        """Whether it stops jobs."""

    @property
    def learns(self) -> bool:
        """Whether it was trained."""

    def decide(self, moment: Moment) -> None:
        """Begin, pause and resize jobs at a moment."""


@kernel(lean=True)
def _begin(w, job, offer, domains):  # type: ignore[no-untyped-def]
    began = elastic.begin(w, job, offer, domains)
    share(w)
    return began


@kernel(lean=True)
def _move(w, job, offer, domains):  # type: ignore[no-untyped-def]
    began = elastic.move(w, job, offer, domains)
    share(w)
    return began


@kernel(lean=True)
def _stay(w, job):  # type: ignore[no-untyped-def]
    give_up_move(w, job)
    share(w)


@kernel(lean=True)
def _start(w, job):  # type: ignore[no-untyped-def]
    began = try_start(w, job)
    share(w)
    return began


@kernel(lean=True)
def _start_in(w, job, domains, domain, parts):  # type: ignore[no-untyped-def]
    shape, devices = w.mark[job, c.SHAPE], w.mark[job, c.DEVICES]
    if parts == 1:
        for pool in range(len(w.pool)):
            free = w.pool[pool, c.POOL_DOMAIN] == domain and w.pool[pool, c.POOL_FREE] >= devices
            if free and w.allowed[shape, pool]:
                start(w, job, pool)
                share(w)
                return True
        return False
    known = False
    for at in range(w.sets.shape[1]):
        known = known or w.sets[shape, at] == domains
    for at in range(len(w.pool)):
        known = known and (domains >> at & 1 == 0 or part_pool(w, shape, at, devices // parts) >= 0)
    if known:
        start_over(w, job, domains, parts)
        share(w)
    return known


@kernel(lean=True)
def _pause(w, job):  # type: ignore[no-untyped-def]
    stop(w, job, False)
    share(w)
