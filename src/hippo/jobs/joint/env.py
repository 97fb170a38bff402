"""The world as an environment: at a moment the upper agent chooses a job and a place for it, again and again, until it
lets time go on.

One answer is three choices: which of the J jobs that are shown (J: nobody, time goes on), which of its P places, both
by the upper agent; and in which of its V shapes, by the lower agent of that domain.
The reward is minus the price of the jobs in the system, integrated over time: summed over an episode in which every job
ends, that is minus the sum of priced completion times (Little 1961).

Letters: K domains, J jobs, P places, V shapes, n jobs of a workload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import elastic, observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.flows import share
from hippo.jobs.engine.keys import remaining
from hippo.jobs.engine.observe import Sight, sight
from hippo.jobs.engine.running import stop, try_start
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.joint.play import opened, step
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]

JOBS, PLACES = 24, 32
MOST_ANSWERS = 64
"""At one moment; then time goes on, whatever else could be answered."""


@dataclass(frozen=True, eq=False)
class WorldScene:
    """What is played: a workload on a site, by its rules."""

    workload: JobWorkload
    site: JobSite
    offers: OfferTable
    settings: ReplayRules = field(default_factory=ReplayRules)
    tenants: Tenants | None = None


class Priced(Protocol):
    """Whatever has jobs, and offers for them."""

    @property
    def workload(self) -> JobWorkload:
        """Its jobs."""
        ...

    @property
    def offers(self) -> OfferTable:
        """Sizes and shapes for the elastic ones."""
        ...


def prices(scene: Priced) -> Floats:
    """(n,) what a second of each job in the system costs: ``OfferTable.prices``."""
    return scene.offers.prices(scene.workload)


@dataclass(eq=False)
class WorldEnv:
    """One world."""

    scene: WorldScene
    price: Floats
    world: QueueWorld = field(init=False)
    sight: Sight = field(init=False)
    state: Floats = field(init=False)  # (3,): ENDED, PAID, ANSWERS

    def __post_init__(self) -> None:
        each = self.scene
        self.world = opened(each.workload, each.site, each.settings, offers=each.offers, tenants=each.tenants).world
        self.sight = sight(
            each.workload, each.site, each.offers, jobs=JOBS, places=PLACES, price=self.price, stops=each.settings.stops
        )
        self.state = np.zeros(3)
        go_on(self.world, self.sight, self.price, self.state)

    @property
    def done(self) -> bool:
        """Whether nothing is to come."""
        return bool(self.state[ENDED])

    @property
    def paid_s(self) -> float:
        """Priced seconds since the last answer."""
        return float(self.state[PAID])

    def standing(self) -> Floats:
        """(STANDING,) how it stands, with hindsight: see the kernel."""
        found = np.zeros(STANDING)
        standing(self.world, self.sight, self.price, found)
        return found

    def places(self, slot: int) -> int:
        """How many places a job that is shown has; they stand in ``sight``."""
        return int(observe.places(self.world, self.sight, slot))

    def shapes(self, slot: int, place: int) -> int:
        """In how many shapes a place can be taken, 0: it takes no devices, or is a gang's; they stand in ``sight``."""
        return int(observe.shapes(self.world, self.sight, slot, place))

    def answer(self, slot: int, place: int, shape: int = -1) -> float:
        """Carry out a choice (slot -1: nobody; shape -1: the quickest, fullest nodes first), and go on to the next one
        that is to be made; returns the reward."""
        self.state[PAID] = 0.0
        turn(self.world, self.sight, self.price, self.state, slot, place, shape)
        return -float(self.state[PAID])


ENDED, PAID, ANSWERS = range(3)


@kernel(lean=True)
def turn(w, s, price, state, slot, place, shape):  # type: ignore[no-untyped-def]
    """An answer, and whatever follows until the next is due."""
    state[ANSWERS] += 1.0
    if slot >= 0:
        carry_out(w, s, slot, place, shape)
        if state[ANSWERS] < MOST_ANSWERS and _asks(w, s):
            return
    go_on(w, s, price, state)


@kernel(lean=True)
def go_on(w, s, price, state):  # type: ignore[no-untyped-def]
    """Let time pass until somebody could go somewhere, or nothing is to come."""
    state[ANSWERS] = 0.0
    while True:
        before, cost = w.clock[c.NOW], priced(w, price)
        if not step(w):
            state[ENDED] = 1.0
            return
        state[PAID] += cost * (w.clock[c.NOW] - before)
        if _asks(w, s):
            return


@kernel(lean=True)
def _asks(w, s):  # type: ignore[no-untyped-def]
    """Look; whether anybody who is shown could go somewhere."""
    count = 0
    for at in range(observe.look(w, s)):
        count += s.may[at]
    return count > 0


@kernel(lean=True)
def priced(w, price):  # type: ignore[no-untyped-def]
    """Price per second of the jobs in the system."""
    found = 0.0
    for job in range(w.tally[c.ARRIVED]):
        if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
            found += price[job]
    return found


STANDING = 4


@kernel(lean=True)
def standing(w, s, price, found):  # type: ignore[no-untyped-def]
    """How a world stands, with hindsight, into ``found`` (STANDING,): price per second of who is there, and of who
    waits; priced seconds and seconds of the whole site that those who are there need still, at their quickest."""
    for number in range(STANDING):
        found[number] = 0.0
    devices = 0.0
    for each in range(len(w.bin)):
        devices += w.bin[each, c.BIN_SIZE]
    for job in range(w.tally[c.ARRIVED]):
        status = w.mark[job, c.STATUS]
        if status == c.WAITING or status == c.RUNNING:
            left_s = remaining(w, job, w.clock[c.NOW]) / s.quickest[job]
            found[0] += price[job]
            found[1] += price[job] if status == c.WAITING else 0.0
            found[2] += price[job] * left_s
            found[3] += left_s * w.mark[job, c.DEVICES] / devices


@kernel(lean=True)
def carry_out(w, s, slot, place, shape):  # type: ignore[no-untyped-def]
    """Begin, stop or resize a job that is shown, as one of its places and one of the shapes of that say."""
    job, offer, order = s.job[slot], s.offer[place], observe.FULLEST
    if offer >= 0 and shape >= 0:
        offer, order = s.shape[shape], s.order[shape]
    if offer == -2:
        try_start(w, job)
    else:
        if w.mark[job, c.STATUS] == c.RUNNING:
            stop(w, job, False)
        if offer >= 0:
            for domain in s.where[place]:
                observe.rank_nodes(w, domain, order)
            elastic.begin(w, job, offer, s.where[place])
            for domain in s.where[place]:
                observe.rank_nodes(w, domain, observe.FULLEST)
    share(w)
