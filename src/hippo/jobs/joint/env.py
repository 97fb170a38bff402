"""The world as an environment: at a moment the upper agent chooses a job and a place for it, again and again, until it
lets time go on.

One answer is three choices: which of the J jobs that are shown (J: nobody, time goes on), which of its P places, both
by the upper agent; and in which of its V shapes, by the lower agent of that domain.
The reward is minus the price of the jobs in the system, integrated over time: summed over an episode in which every job
ends, that is minus the sum of priced completion times (Little 1961).

Letters: K domains, J jobs, P places, V shapes, n jobs of a workload.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
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
from hippo.jobs.joint import advice
from hippo.jobs.joint.advice import NO_CHARGES, Advisor, Charges, advisor
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
    egress_weight: float = 0.0  # of egress in the preferences of who asks, 0 to 1; the rest is time's
    charges: Charges = NO_CHARGES  # that are paid beside the time of jobs

    def opened(self) -> QueueWorld:
        """The world before its first moment."""
        return opened(self.workload, self.site, self.settings, offers=self.offers, tenants=self.tenants).world

    def advisor(self) -> Advisor:
        """The rule that advises there."""
        asked = (self.workload, self.site, self.offers)
        stops, weight = self.settings.stops, self.egress_weight
        return advisor(*asked, stops=stops, egress_weight=weight, charges=self.charges)


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
    given: InitVar[QueueWorld | None] = None
    """The scene's world, opened, for this to play; None: it is opened now."""
    world: QueueWorld = field(init=False)
    sight: Sight = field(init=False)
    rule: Advisor = field(init=False, repr=False)
    state: Floats = field(init=False)  # see ``account``
    standing: Floats = field(init=False)  # (STANDING,) how it stands, with hindsight: see ``stand``

    def __post_init__(self, given: QueueWorld | None) -> None:
        each = self.scene
        self.world = given or each.opened()
        self.sight = sight(
            each.workload,
            each.site,
            each.offers,
            jobs=JOBS,
            places=PLACES,
            price=self.price,
            stops=each.settings.stops,
            egress_weight=each.egress_weight,
        )
        self.rule = each.advisor()
        self.state = account(self.world, each.charges.floor)
        self.standing = np.zeros(STANDING)
        go_on(self.world, self.sight, self.rule, self.price, self.state, self.standing)

    @property
    def done(self) -> bool:
        """Whether nothing is to come."""
        return bool(self.state[ENDED])

    @property
    def paid_s(self) -> float:
        """Priced seconds since the last answer."""
        return float(self.state[PAID])

    def costs(self) -> Floats:
        """(COSTS,) what is limited, since the beginning: egress in USD, shares of the site that owners lacked of an
        equal share, times seconds, stops, GB sent below the floor."""
        return used(self.state)

    def places(self, slot: int) -> int:
        """How many places a job that is shown has; they stand in ``sight``."""
        return int(advice.places(self.world, self.sight, self.rule, slot))

    def shapes(self, slot: int, place: int) -> int:
        """In how many shapes a place can be taken, 0: it takes no devices, or is a gang's; they stand in ``sight``."""
        return int(observe.shapes(self.world, self.sight, slot, place))

    def advised(self) -> tuple[int, int]:
        """The slot that the rule would choose, -1: nobody; and the place, of those that now stand in ``sight``."""
        slots = np.flatnonzero(self.sight.jobs[:, observe.ADVISED_JOB])
        if not len(slots):
            return -1, 0
        count = self.places(int(slots[0]))
        return int(slots[0]), int(self.sight.places[:count, observe.ADVISED_PLACE].argmax()) if count else 0

    def answer(self, slot: int, place: int, shape: int = -1) -> float:
        """Carry out a choice (slot -1: nobody; shape -1: the quickest, fullest nodes first), and go on to the next one
        that is to be made; returns the reward."""
        turn(self.world, self.sight, self.rule, self.price, self.state, self.standing, slot, place, shape)
        return -float(self.state[PAID])


ENDED, PAID, ANSWERS, UNFAIR, BELOW, EGRESS, STOPPED, FLOOR, HELD = range(9)
"""Of ``WorldEnv.state``; behind them devices that each user holds, then those that its jobs would take."""
COSTS = ("egress", "unfairness", "stops", "below_floor")


def account(world: QueueWorld, floor_bytes_per_s: float) -> Floats:
    """(HELD + 2 U,) for what is paid and used in a world of U users; what exchange sends over links that carry less
    than the floor counts as sent below it."""
    found = np.zeros(HELD + 2 * len(world.user))
    found[FLOOR] = floor_bytes_per_s
    return found


def used(state: Floats) -> Floats:
    """(COSTS,) what was used by then, see ``WorldEnv.costs``."""
    found = np.zeros(len(COSTS))
    costs(state, found)
    return found


@kernel(lean=True)
def turn(w, s, rule, price, state, stands, slot, place, shape):  # type: ignore[no-untyped-def]
    """An answer, and whatever follows until the next is due."""
    state[PAID] = 0.0
    state[ANSWERS] += 1.0
    if slot >= 0:
        carry_out(w, s, slot, place, shape)
        if state[ANSWERS] < MOST_ANSWERS and _asks(w, s, rule):
            _note(w, s, price, state, stands)
            return
    go_on(w, s, rule, price, state, stands)


@kernel(lean=True)
def go_on(w, s, rule, price, state, stands):  # type: ignore[no-untyped-def]
    """Let time pass until somebody could go somewhere, or nothing is to come."""
    state[ANSWERS] = 0.0
    while True:
        if not pass_time(w, price, state) or _asks(w, s, rule):
            break
    _note(w, s, price, state, stands)


@kernel(lean=True)
def pass_time(w, price, state):  # type: ignore[no-untyped-def]
    """Go on to the next moment, and add up what is paid and used until then; False: nothing is to come."""
    before, cost, lacks, below = w.clock[c.NOW], priced(w, price), _lacking(w, state), _below(w, state[FLOOR])
    if not step(w):
        state[ENDED] = 1.0
        return False
    state[PAID] += cost * (w.clock[c.NOW] - before)
    state[UNFAIR] += lacks * (w.clock[c.NOW] - before)
    state[BELOW] += below * (w.clock[c.NOW] - before)
    return True


@kernel(lean=True)
def add_up(w, state):  # type: ignore[no-untyped-def]
    """What is counted in the world itself."""
    state[EGRESS], state[STOPPED] = egress_usd(w), 0.0
    for job in range(w.tally[c.ARRIVED]):
        state[STOPPED] += w.mark[job, c.STOPS]


@kernel(lean=True)
def _note(w, s, price, state, stands):  # type: ignore[no-untyped-def]
    """What has been used so far, and how it stands."""
    add_up(w, state)
    stand(w, s, price, stands)


@kernel(lean=True)
def costs(state, found):  # type: ignore[no-untyped-def]
    """Write down what is limited, (COSTS,)."""
    found[0], found[1], found[2], found[3] = state[EGRESS], state[UNFAIR], state[STOPPED], state[BELOW] * 1e-9


@kernel(lean=True)
def _asks(w, s, rule):  # type: ignore[no-untyped-def]
    """Look; whether anybody who is shown could go somewhere."""
    count = 0
    for at in range(advice.look(w, s, rule)):
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


@kernel(lean=True)
def _lacking(w, state):  # type: ignore[no-untyped-def]
    """Share of the site that owners lack of what each could use of an equal share."""
    users, devices, owners, lacks = len(w.user), 0.0, 0, 0.0
    state[HELD:] = 0.0
    for each in range(len(w.bin)):
        devices += w.bin[each, c.BIN_SIZE]
    for job in range(w.tally[c.ARRIVED]):
        status = w.mark[job, c.STATUS]
        if status == c.WAITING or status == c.RUNNING:
            state[HELD + users + w.mark[job, c.USER]] += w.mark[job, c.DEVICES]
            state[HELD + w.mark[job, c.USER]] += w.mark[job, c.HOLDS] if status == c.RUNNING else 0
    for user in range(users):
        owners += state[HELD + users + user] > 0.0
    for user in range(users):
        lacks += max(0.0, min(state[HELD + users + user], devices / max(1, owners)) - state[HELD + user])
    return lacks / devices


@kernel(lean=True)
def _below(w, floor):  # type: ignore[no-untyped-def]
    """Bytes/s that exchange sends over links that carry less than ``floor``."""
    found, links = 0.0, w.links
    if floor <= 0.0:
        return found
    for here in range(len(links.capacity)):
        for there in range(len(links.capacity)):
            if links.capacity[here, there] < floor:
                flow = links.first[here, there]
                while flow >= 0:
                    found += links.demand[flow] if flow >= len(links.transfer) else 0.0
                    flow = links.next[flow]
    return found


@kernel(lean=True)
def egress_usd(w):  # type: ignore[no-untyped-def]
    """What all links have cost so far, as of the last change of each flow."""
    found = 0.0
    for here in range(len(w.links.capacity)):
        for there in range(len(w.links.capacity)):
            gb = w.links.moved_gb[here, there] + w.links.exchanged_gb[here, there]
            found += gb * 1e9 * w.links.usd_per_byte[here, there] if here != there else 0.0
    return found


STANDING = 4


@kernel(lean=True)
def stand(w, s, price, found):  # type: ignore[no-untyped-def]
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
