"""A moment of the world: who waits and runs, what each job could run under now, and the answers that may be given.

A *scheduler* looks at every moment (something came, ended, failed or moved) and begins, pauses and resizes jobs.
Letters: K domains, O offers, M parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import elastic
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.keys import attained, remaining
from hippo.jobs.engine.running import stop, try_start
from hippo.jobs.engine.survey import survey
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """An offer in its domains."""

    offer: int
    domains: tuple[int, ...]  # as many as the offer has parts, most GPUs first
    rate: float  # work per second, as links are shared now
    gpus: int


@dataclass(frozen=True, eq=False)
class Moment:
    """What a scheduler sees, and what it may do; every answer takes effect at once."""

    world: QueueWorld
    workload: JobWorkload
    site: JobSite
    offers: OfferTable

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

    def places(self, job: int, most_parts: int = MOST_PARTS) -> list[Place]:
        """Offers that have room for an elastic job now, each where it is quickest; the quickest first."""
        world, offers = self.world, self.offers
        free, chain = np.zeros(len(self.site.domains), np.int64), np.zeros(MOST_PARTS, np.int64)
        found, rate = np.zeros(len(offers), np.int64), np.zeros(len(offers))
        domains = np.zeros((len(offers), MOST_PARTS), np.int64)
        survey(world, job, most_parts, free, chain, found, domains, rate)
        rows = np.flatnonzero(found)
        places = [
            Place(int(row), tuple(domains[row, : offers.parts[row]].tolist()), float(rate[row]), int(offers.gpus[row].sum()))
            for row in rows[np.argsort(-rate[rows], kind="stable")]
        ]
        return places

    def running_at(self, job: int) -> Place:
        """Where an elastic job runs now."""
        offer = int(self.world.mark[job, c.OFFER])
        parts = tuple(self.world.part[job, : self.offers.parts[offer]].tolist())
        return Place(offer, parts, float(self.world.job[job, c.RATE]), int(self.world.mark[job, c.HOLDS]))

    def remaining_s(self, job: int) -> float:
        """Work left, at the reference rate."""
        return float(remaining(self.world, job, self.now_s))

    def attained_s(self, job: int) -> float:
        """Work done."""
        return float(attained(self.world, job, self.now_s))

    def begin(self, job: int, place: Place) -> bool:
        """Run an elastic job that waits; False: there is no room (any more)."""
        domains = np.full(MOST_PARTS, -1, np.int64)
        domains[: len(place.domains)] = place.domains
        return bool(_begin(self.world, job, place.offer, domains))

    def start(self, job: int) -> bool:
        """Start a gang where the engine's rules put it: where its data lie, then the fastest, then the fullest pool."""
        return bool(_start(self.world, job))

    def pause(self, job: int) -> None:
        """Stop a job that runs; it waits, and goes on from what it has done."""
        _pause(self.world, job)

    def weigh(self, job: int, weight: float) -> None:
        """From now on a job's flows get so many times the share of others (1: alike)."""
        self.world.job[job, c.WEIGHT] = weight
        share(self.world)


class Scheduler(Protocol):
    """Decides for all jobs together."""

    name: str

    def decide(self, moment: Moment) -> None:
        """Begin, pause and resize jobs at a moment."""


@kernel(lean=True)
def _begin(w, job, offer, domains):  # type: ignore[no-untyped-def]
    began = elastic.begin(w, job, offer, domains)
    share(w)
    return began


@kernel(lean=True)
def _start(w, job):  # type: ignore[no-untyped-def]
    began = try_start(w, job)
    share(w)
    return began


@kernel(lean=True)
def _pause(w, job):  # type: ignore[no-untyped-def]
    stop(w, job, False)
    share(w)
