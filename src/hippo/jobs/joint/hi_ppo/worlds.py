"""Worlds side by side: what is seen of all of them lies in common arrays, and each is followed by another when it ends.

Letters: W worlds, K domains, J jobs, P places, M parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import Row, kernel
from hippo.jobs.engine import observe
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import (
    DOMAIN_NUMBERS,
    JOB_NUMBERS,
    LINK_NUMBERS,
    PLACE_NUMBERS,
    SHAPE_NUMBERS,
    SHAPES,
    SITE_NUMBERS,
    Sight,
)
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.joint import advice
from hippo.jobs.joint.advice import NO_CHARGES, Advisor, Charges
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.env import (
    BELOW,
    COSTS,
    EGRESS,
    ENDED,
    JOBS,
    PAID,
    PLACES,
    STANDING,
    STOPPED,
    UNFAIR,
    WorldEnv,
    WorldScene,
    account,
    add_up,
    costs,
    pass_time,
    prices,
    stand,
    turn,
    used,
)
from hippo.jobs.joint.ranked import decide_ranked

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Masks = NDArray[np.bool_]


class Sights(NamedTuple):
    """Common arrays, in the order of ``network.MomentsSeen``; rows of domains that a world has not are zero."""

    site: Floats  # (W, SITE_NUMBERS)
    domains: Floats  # (W, K, DOMAIN_NUMBERS)
    links: Floats  # (W, K, K, LINK_NUMBERS)
    jobs: Floats  # (W, J, JOB_NUMBERS)
    may: Masks  # (W, J + 1)
    places: Floats  # (W, P, PLACE_NUMBERS)
    where: Ints  # (W, P, M)
    may_place: Masks  # (W, P)
    shapes: Floats  # (W, V, SHAPE_NUMBERS)
    may_shape: Masks  # (W, V)
    beside: Floats  # (W, BESIDE) for the value alone: how the world stands under the rule, and is going to

    @classmethod
    def of(cls, worlds: int, domains: int) -> Sights:
        """Room for so many worlds."""
        return cls(
            np.zeros((worlds, SITE_NUMBERS), np.float32),
            np.zeros((worlds, domains, DOMAIN_NUMBERS), np.float32),
            np.zeros((worlds, domains, domains, LINK_NUMBERS), np.float32),
            np.zeros((worlds, JOBS, JOB_NUMBERS), np.float32),
            np.zeros((worlds, JOBS + 1), bool),
            np.zeros((worlds, PLACES, PLACE_NUMBERS), np.float32),
            np.full((worlds, PLACES, c.MOST_PARTS), -1, np.int64),
            np.zeros((worlds, PLACES), bool),
            np.zeros((worlds, SHAPES, SHAPE_NUMBERS), np.float32),
            np.zeros((worlds, SHAPES), bool),
            np.zeros((worlds, BESIDE), np.float32),
        )


class Scenes(Protocol):
    """Worlds by their number: equal numbers, equal worlds."""

    @property
    def domains(self) -> tuple[str, ...]:
        """Of the world that has most."""
        ...

    def scene(self, number: int) -> WorldScene:
        """What is played under that number."""
        ...


AHEAD_S = (1800.0, 7200.0, 6 * 3600.0, 1e12)
BESIDE = 2 * STANDING + len(AHEAD_S) + 1
UNITS = (0.1, 0.1, 0.1, 1.0 / 36000.0)  # of what ``stand`` says
PAID_NEXT = 2  # of what ``stand`` says: priced seconds, told in those of a job


class RuleCurve(NamedTuple):
    """What the rule has paid in a world by when, its charges included."""

    time_s: NDArray[np.float64]  # (A,) ascending
    paid_s: NDArray[np.float64]  # (A,) priced seconds up to then
    standing: NDArray[np.float64]  # (A, STANDING)
    used: NDArray[np.float64]  # (COSTS,) of what is limited, in the whole world

    @property
    def total_s(self) -> float:
        """Of the whole world."""
        return float(self.paid_s[-1])


NO_CURVE = RuleCurve(np.zeros(0), np.zeros(0), np.zeros((0, STANDING)), np.zeros(len(COSTS)))


@kernel(lean=True)
def _row(curve, at_s):  # type: ignore[no-untyped-def]
    """The last row by a time; -1: none."""
    low, high = 0, len(curve.time_s)
    while low < high:
        middle = (low + high) // 2
        if curve.time_s[middle] <= at_s:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel(lean=True)
def paid(curve, at_s):  # type: ignore[no-untyped-def]
    """Priced seconds by a time, between two rows as much as of the time; after its last job the rule pays nothing."""
    at = max(0, _row(curve, at_s))
    begin_s, begin = curve.time_s[at], curve.paid_s[at]
    if at == len(curve.time_s) - 1 or at_s <= begin_s:
        return begin
    return (curve.paid_s[at + 1] - begin) / (curve.time_s[at + 1] - begin_s) * (at_s - begin_s) + begin


@kernel(lean=True)
def beside(curve, now_s, own, jobs, found):  # type: ignore[no-untyped-def]
    """Write down how a world of so many jobs that stands at ``own`` does beside the rule, and what the rule is going to
    pay, (BESIDE,): more than anybody who decides can know, for values alone (an asymmetric critic: Pinto et al.
    2018)."""
    at, total_s, by_now = max(0, _row(curve, now_s)), curve.paid_s[-1], paid(curve, now_s)
    share = jobs / total_s
    for number in range(STANDING):
        scale = UNITS[number] * (share if number == PAID_NEXT else 1.0)
        found[number] = own[number] * scale
        found[STANDING + number] = (own[number] - curve.standing[at, number]) * scale
    for number, ahead_s in enumerate(AHEAD_S):
        found[2 * STANDING + number] = np.log1p((paid(curve, now_s + ahead_s) - by_now) * share)
    found[BESIDE - 1] = (by_now - curve.paid_s[0]) / total_s


def by_rule(scene: WorldScene, world: QueueWorld | None = None) -> RuleCurve:
    """A world under the rule that advises the agents; ``world``: as it is opened, it is played to its end."""
    rule, world = scene.advisor(), world or scene.opened()
    state = account(world, scene.charges.floor)
    rows = np.zeros((ROWS * len(scene.workload) + 2, 2 + STANDING))
    rows[0, 0] = world.clock[c.STARTED_AT]
    rows = rows[: 1 + _follow(world, rule, rule.sight.price, state, rows[1:])]
    time_s, paid_s, standing = (np.ascontiguousarray(each) for each in (rows[:, 0], rows[:, 1], rows[:, 2:]))
    return RuleCurve(time_s, paid_s, standing, used(state))


ROWS = 8
"""Of a curve, for each job; later ones take the place of the last."""


@kernel(lean=True)
def _follow(w, rule, price, state, rows):  # type: ignore[no-untyped-def]
    """Play a world to its end by the rule; writes down time, priced seconds with charges, and how it stands."""
    count, charges = 0, rule.charges
    while True:
        goes_on = pass_time(w, price, state)
        if count == 0 or w.clock[c.NOW] > rows[count - 1, 0]:
            count = min(count + 1, len(rows))
        add_up(w, state)
        paid = state[PAID] + charges.egress * state[EGRESS] + charges.unfairness * state[UNFAIR]
        paid += charges.stop * state[STOPPED] + charges.below * 1e-9 * state[BELOW]
        rows[count - 1, 0], rows[count - 1, 1] = w.clock[c.NOW], paid
        stand(w, rule.sight, price, rows[count - 1, 2:])
        if not goes_on:
            return count
        decide_ranked(w, rule.sight, rule.terms, rule.room)


class BatchSide(NamedTuple):
    """One of worlds side by side, for kernels."""

    world: QueueWorld
    sight: Sight
    rule: Advisor
    price: NDArray[np.float64]
    state: NDArray[np.float64]
    standing: NDArray[np.float64]
    curve: RuleCurve  # of no rows: nothing is told beside the rule


class Answered(NamedTuple):
    """What answers led to, until the next are due; zero where a world had ended."""

    paid_s: NDArray[np.float64]  # (W,) priced seconds
    ruled_s: NDArray[np.float64]  # (W,) what the rule paid meanwhile
    passed_s: NDArray[np.float64]  # (W,)
    spent: NDArray[np.float64]  # (W, COSTS + 1) of what is limited; the last: jobs that came
    done: Masks  # (W,) whether it has ended now


class WorldEnd(NamedTuple):
    """A world that was played to its end."""

    of_rule: float  # priced seconds with charges, over what the rule pays
    used: NDArray[np.float64]  # (COSTS,) of what is limited
    hours: float
    jobs: int


@dataclass(eq=False)
class WorldBatch:
    """W worlds of K domains, and numbers for those that follow: ``first``, then every ``step``-th.

    ``charges``: of what is limited, in worlds that are opened from now on; a world keeps those that it has.
    ``regret``: rewards are told beside what the rule pays meanwhile in the same world, in shares of what it pays for a
    job there. The rule's play hangs on nothing that is chosen, so this takes off what chance brought, and no more (an
    input-dependent baseline, Mao et al. 2019).
    """

    scenes: Scenes
    worlds: int
    domains: int
    first: int = 0
    step: int = 1
    regret: bool = False
    endless: bool = True  # False: a world that has ended stays, and nobody is shown in it
    usd_per_job: float = 1000.0  # egress that counts as a job's time does, for who prefers something between both
    charges: Charges = NO_CHARGES
    sights: Sights = field(init=False)
    envs: list[WorldEnv] = field(init=False)
    row: Row = field(init=False)  # of ``BatchSide``
    number: list[int] = field(init=False)  # of each world
    answers: list[list[tuple[int, int, int]]] = field(init=False)  # in each world, from its beginning on
    paid: NDArray[np.float64] = field(init=False)  # priced seconds with charges, of each world from its beginning on
    total_s: NDArray[np.float64] = field(init=False)  # (W,) priced seconds that the rule pays in each world
    ended: list[WorldEnd] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sights = Sights.of(self.worlds, self.domains)
        self.paid, self.total_s, self.row = np.zeros(self.worlds), np.zeros(self.worlds), Row(self.worlds)
        self.envs, self.number, self.answers = [], [], []
        for each in range(self.worlds):
            self.envs.append(self._opened(each, self._next(), self.charges))
            self.answers.append([])
        _show(self.row, self.sights)

    def _next(self) -> int:
        number = self.first
        self.first += self.step
        return number

    def _opened(self, each: int, number: int, charges: Charges) -> WorldEnv:
        scene = replace(self.scenes.scene(number), charges=charges)
        world = scene.opened()
        curve = by_rule(scene, WorldCopy.of(world).copy) if self.regret else NO_CURVE
        env = WorldEnv(scene, prices(scene), world)
        fewer = len(scene.site.domains) < self.domains
        names = ("site", *(() if fewer else ("domains", "links")), "jobs", "places", "where", "shapes")
        into = {name: getattr(self.sights, name)[each] for name in names}
        self.sights.domains[each], self.sights.links[each] = 0.0, 0.0
        for name, array in into.items():
            array[:] = getattr(env.sight, name)
        env.sight = env.sight._replace(**into)
        self.paid[each] = env.paid_s + env.costs() @ charges[: len(COSTS)]
        self.number[each : each + 1] = [number]
        self.total_s[each] = curve.total_s if self.regret else 0.0
        self.row[each] = BatchSide(env.world, env.sight, env.rule, env.price, env.state, env.standing, curve)
        return env

    def ask(self, slots: Ints) -> None:
        """Fill in where the chosen jobs (W,) could go."""
        _ask(self.row, slots, self.sights)

    def hand_down(self, slots: Ints, places: Ints) -> None:
        """Fill in in which shapes the chosen places (W,) could be taken."""
        _hand_down(self.row, slots, places, self.sights)

    def answer(self, action: Ints) -> tuple[Floats, NDArray[np.float64], Masks]:
        """Carry out answers (W, 3) for which was asked and handed down: rewards (W,) in priced seconds (or as
        ``regret`` says) less what is charged, seconds that passed (W,), and which worlds ended (W,)."""
        count, kinds = self.worlds, len(COSTS)
        taken, spent = action.copy(), np.zeros((count, kinds + 1))
        found = Answered(np.zeros(count), np.zeros(count), np.zeros(count), spent, np.zeros(count, bool))
        _answer(self.row, taken, self.sights, found)
        for said, (slot, place, shape) in zip(self.answers, taken.tolist(), strict=True):
            if place >= 0:
                said.append((slot, place, shape))
        charges = np.array([env.scene.charges[:kinds] for env in self.envs])
        reward = -(found.paid_s + (spent[:, :kinds] * charges).sum(axis=1)).astype(np.float32)
        self.paid -= reward
        if self.regret:
            jobs, weight = np.array([(len(env.price), env.scene.egress_weight) for env in self.envs]).T
            reward += found.ruled_s.astype(np.float32)
            reward *= (jobs / self.total_s).astype(np.float32)
            reward += weight * (-spent[:, 0] / self.usd_per_job - reward)
        for each in np.flatnonzero(found.done).tolist():
            env = self.envs[each]
            of_rule = float(self.paid[each] / self.total_s[each]) if self.regret else np.nan
            hours = float(env.world.clock[c.NOW] - env.world.clock[c.STARTED_AT]) / 3600.0
            self.ended.append(WorldEnd(of_rule, env.costs(), hours, len(env.price)))
            if self.endless:
                self.envs[each], self.answers[each] = self._opened(each, self._next(), self.charges), []
        _show(self.row, self.sights)
        return reward, found.passed_s, found.done

    @property
    def over(self) -> bool:
        """Whether every world has ended."""
        return all(env.done for env in self.envs)

    def state(self) -> dict[str, Any]:
        """Everything that what comes depends on: which worlds, and what was answered in them."""
        answers = [np.array(each, np.int64).reshape(-1, 3) for each in self.answers]
        charges = [tuple(env.scene.charges) for env in self.envs]
        return {"first": self.first, "number": list(self.number), "answers": answers, "charges": charges}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The way back: every world is played again up to where it was."""
        for each, (number, answers) in enumerate(zip(state["number"], state["answers"], strict=True)):
            charges = Charges(*state["charges"][each])
            env = self.envs[each] = self._opened(each, int(number), charges)
            self.answers[each], begun = [], env.costs()
            for slot, place, shape in np.asarray(answers).tolist():
                if slot >= 0:
                    env.places(slot)
                if shape >= 0:
                    env.shapes(slot, place)
                self.paid[each] -= env.answer(slot, place, shape)
                self.answers[each].append((slot, place, shape))
            self.paid[each] += (env.costs() - begun) @ charges[: len(COSTS)]
        _show(self.row, self.sights)
        self.first = int(state["first"])


@kernel(lean=True)
def _show(row, sights):  # type: ignore[no-untyped-def]
    """Write down who may be chosen, and what is not seen where it lies."""
    for each in range(len(sights.may)):
        of, may = row[each], sights.may[each]
        own, jobs, some = len(of.sight.domains), len(of.sight.may), False
        for slot in range(jobs):
            may[slot] = of.sight.may[slot] and of.state[ENDED] == 0.0
            some = some or may[slot]
        may[jobs] = of.world.tally[c.N_RUNNING] > 0 or not some  # who leaves all waiting pays nothing
        if own < sights.domains.shape[1]:
            for here in range(own):
                for number in range(DOMAIN_NUMBERS):
                    sights.domains[each, here, number] = of.sight.domains[here, number]
                for there in range(own):
                    for number in range(LINK_NUMBERS):
                        sights.links[each, here, there, number] = of.sight.links[here, there, number]
        if len(of.curve.time_s) > 0:
            beside(of.curve, of.world.clock[c.NOW], of.standing, len(of.price), sights.beside[each])


@kernel(lean=True)
def _ask(row, slots, sights):  # type: ignore[no-untyped-def]
    """Write down the places of the chosen jobs."""
    for each in range(len(slots)):
        of, count = row[each], 0
        if slots[each] < len(of.sight.job):
            count = advice.places(of.world, of.sight, of.rule, slots[each])
        for place in range(sights.may_place.shape[1]):
            sights.may_place[each, place] = place < count
            if place >= count:
                sights.places[each, place] = 0.0
                sights.where[each, place] = -1


@kernel(lean=True)
def _hand_down(row, slots, places, sights):  # type: ignore[no-untyped-def]
    """Write down the shapes of the chosen places."""
    for each in range(len(slots)):
        of, count = row[each], 0
        if slots[each] < len(of.sight.job) and sights.may_place[each, places[each]]:
            count = observe.shapes(of.world, of.sight, slots[each], places[each])
        for shape in range(sights.may_shape.shape[1]):
            sights.may_shape[each, shape] = shape < count
            if shape >= count:
                sights.shapes[each, shape] = 0.0


@kernel(lean=True)
def _answer(row, taken, sights, found):  # type: ignore[no-untyped-def]
    """Carry out answers, as they are taken: slot -1 is nobody; place -1: the world had ended."""
    for each in range(len(taken)):
        of, last = row[each], found.spent.shape[1] - 1
        if of.state[ENDED] > 0.0:
            taken[each, 1] = -1
            continue
        if taken[each, 0] >= len(of.sight.job) or not sights.may_place[each].any():
            taken[each, 0] = -1
        if not sights.may_shape[each].any():
            taken[each, 2] = -1
        began_s, came, spent = of.world.clock[c.NOW], of.world.tally[c.ARRIVED], found.spent[each]
        costs(of.state, spent)
        before = spent[0], spent[1], spent[2], spent[3]
        slot, place, shape = taken[each, 0], taken[each, 1], taken[each, 2]
        turn(of.world, of.sight, of.rule, of.price, of.state, of.standing, slot, place, shape)
        costs(of.state, spent)
        for number in range(last):
            spent[number] -= before[number]
        spent[last] = of.world.tally[c.ARRIVED] - came
        found.paid_s[each], found.done[each] = of.state[PAID], of.state[ENDED] > 0.0
        found.passed_s[each] = of.world.clock[c.NOW] - began_s
        if len(of.curve.time_s) > 0:
            ends_s = np.inf if found.done[each] else of.world.clock[c.NOW]
            found.ruled_s[each] = paid(of.curve, ends_s) - paid(of.curve, began_s)
