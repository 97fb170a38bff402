"""Worlds side by side: what is seen of all of them lies in common arrays, and each is followed by another when it ends.

Letters: W worlds, K domains, J jobs, P places, M parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import (
    DOMAIN_NUMBERS,
    JOB_NUMBERS,
    LINK_NUMBERS,
    PLACE_NUMBERS,
    SHAPE_NUMBERS,
    SHAPES,
    SITE_NUMBERS,
)
from hippo.jobs.engine.world import QueueWorld
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.env import (
    COSTS,
    JOBS,
    PLACES,
    STANDING,
    WorldEnv,
    WorldScene,
    priced,
    prices,
    stand,
)
from hippo.jobs.joint.play import step
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


AHEAD_S = np.array([0.0, 1800.0, 7200.0, 6 * 3600.0, 1e12])
BESIDE = 2 * STANDING + len(AHEAD_S)
UNITS = np.array([0.1, 0.1, 0.1, 1.0 / 36000.0])  # of what ``stand`` says


class RuleCurve(NamedTuple):
    """What the rule has paid in a world by when."""

    time_s: NDArray[np.float64]  # (A,) ascending
    paid_s: NDArray[np.float64]  # (A,) priced seconds up to then
    standing: NDArray[np.float64]  # (A, STANDING)

    @property
    def total_s(self) -> float:
        """Of the whole world."""
        return float(self.paid_s[-1])

    def between(self, begin_s: float, end_s: float) -> float:
        """Priced seconds of a stretch; after its last job the rule pays nothing."""
        low, high = np.interp((begin_s, end_s), self.time_s, self.paid_s)
        return float(high - low)

    def beside(self, now_s: float, own: NDArray[np.float64], jobs: int) -> NDArray[np.float64]:
        """(BESIDE,) how a world that stands at ``own`` does beside the rule, and what the rule is going to pay: more
        than anybody who decides can know, for values alone (an asymmetric critic: Pinto et al. 2018)."""
        at = max(1, int(self.time_s.searchsorted(now_s, side="right"))) - 1
        share = jobs / self.total_s
        scale = UNITS * (1.0, 1.0, share, 1.0)
        paid = np.interp(now_s + AHEAD_S, self.time_s, self.paid_s)  # first: by now
        found = np.empty(BESIDE)
        np.multiply(own, scale, out=found[:STANDING])
        np.multiply(own - self.standing[at], scale, out=found[STANDING : 2 * STANDING])
        np.log1p((paid[1:] - paid[0]) * share, out=found[2 * STANDING : -1])
        found[-1] = (paid[0] - self.paid_s[0]) / self.total_s
        return found


def by_rule(scene: WorldScene, world: QueueWorld | None = None) -> RuleCurve:
    """A world under the rule that advises the agents; ``world``: as it is opened, it is played to its end."""
    rule, world = scene.advisor(), world or scene.opened()
    rows = np.zeros((ROWS * len(scene.workload) + 2, 2 + STANDING))
    rows[0, 0] = world.clock[c.STARTED_AT]
    rows = rows[: 1 + _follow(world, rule, rule.sight.price, rows[1:])]
    return RuleCurve(rows[:, 0], rows[:, 1], rows[:, 2:])


ROWS = 8
"""Of a curve, for each job; later ones take the place of the last."""


@kernel(lean=True)
def _follow(w, rule, price, rows):  # type: ignore[no-untyped-def]
    """Play a world to its end by the rule; writes down time, priced seconds and how it stands."""
    count, paid = 0, 0.0
    while True:
        before, cost = w.clock[c.NOW], priced(w, price)
        goes_on = step(w)
        paid += cost * (w.clock[c.NOW] - before) if goes_on else 0.0
        if count == 0 or w.clock[c.NOW] > rows[count - 1, 0]:
            count = min(count + 1, len(rows))
        rows[count - 1, 0], rows[count - 1, 1] = w.clock[c.NOW], paid
        stand(w, rule.sight, price, rows[count - 1, 2:])
        if not goes_on:
            return count
        decide_ranked(w, rule.sight, rule.terms, rule.room)


@dataclass(eq=False)
class WorldBatch:
    """W worlds of K domains, and numbers for those that follow: ``first``, then every ``step``-th.

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
    floor_bytes_per_s: float = 0.0  # see ``WorldEnv``
    sights: Sights = field(init=False)
    envs: list[WorldEnv] = field(init=False)
    number: list[int] = field(init=False)  # of each world
    answers: list[list[tuple[int, int, int]]] = field(init=False)  # in each world, from its beginning on
    paid: NDArray[np.float64] = field(init=False)  # priced seconds of each world, from its beginning on
    curve: list[RuleCurve | None] = field(init=False)
    costs: NDArray[np.float64] = field(init=False)  # (W, COSTS) of each world, from its beginning on
    spent: NDArray[np.float64] = field(init=False)  # (W, COSTS + 1) by the last answers; the last: jobs that came
    ended: list[float] = field(default_factory=list)  # priced seconds of those that ended, over the rule's

    def __post_init__(self) -> None:
        self.sights = Sights.of(self.worlds, self.domains)
        self.paid, self.costs = np.zeros(self.worlds), np.zeros((self.worlds, len(COSTS)))
        self.spent = np.zeros((self.worlds, len(COSTS) + 1))
        self.envs, self.number, self.answers, self.curve = [], [], [], [None] * self.worlds
        for each in range(self.worlds):
            self.envs.append(self._opened(each, self._next()))
            self.answers.append([])

    def _next(self) -> int:
        number = self.first
        self.first += self.step
        return number

    def _opened(self, each: int, number: int) -> WorldEnv:
        scene = self.scenes.scene(number)
        world = scene.opened()
        self.curve[each] = by_rule(scene, WorldCopy.of(world).copy) if self.regret else None
        env = WorldEnv(scene, prices(scene), world, floor_bytes_per_s=self.floor_bytes_per_s)
        fewer = len(scene.site.domains) < self.domains
        names = ("site", *(() if fewer else ("domains", "links")), "jobs", "places", "where", "shapes")
        into = {name: getattr(self.sights, name)[each] for name in names}
        self.sights.domains[each], self.sights.links[each] = 0.0, 0.0
        for name, array in into.items():
            array[:] = getattr(env.sight, name)
        env.sight = env.sight._replace(**into)
        self.paid[each], self.costs[each] = env.paid_s, env.costs()
        self.number[each : each + 1] = [number]
        self._allow(each, env)
        return env

    def _allow(self, each: int, env: WorldEnv) -> None:
        may = self.sights.may[each]
        np.logical_and(env.sight.may, not env.done, out=may[:-1])
        may[-1] = bool(env.world.tally[c.N_RUNNING]) or not may[:-1].any()  # who leaves all waiting pays nothing
        own = len(env.sight.domains)
        if own < self.domains:
            self.sights.domains[each, :own], self.sights.links[each, :own, :own] = env.sight.domains, env.sight.links
        curve = self.curve[each]
        if curve is not None:
            self.sights.beside[each] = curve.beside(env.world.clock[c.NOW], env.standing, len(env.price))

    def ask(self, slots: Ints) -> None:
        """Fill in where the chosen jobs (W,) could go."""
        for each, slot in enumerate(slots.tolist()):
            count = self.envs[each].places(slot) if slot < JOBS else 0
            self.sights.may_place[each] = False
            self.sights.may_place[each, :count] = True
            self.sights.places[each, count:] = 0.0
            self.sights.where[each, count:] = -1

    def hand_down(self, slots: Ints, places: Ints) -> None:
        """Fill in in which shapes the chosen places (W,) could be taken."""
        for each, (slot, place) in enumerate(zip(slots.tolist(), places.tolist(), strict=True)):
            asks = slot < JOBS and self.sights.may_place[each, place]
            count = self.envs[each].shapes(slot, place) if asks else 0
            self.sights.may_shape[each] = False
            self.sights.may_shape[each, :count] = True
            self.sights.shapes[each, count:] = 0.0

    def answer(self, action: Ints) -> tuple[Floats, NDArray[np.float64], Masks]:
        """Carry out answers (W, 3) for which was asked and handed down: rewards (W,) in priced seconds (or as
        ``regret`` says), seconds that passed (W,), and which worlds ended (W,). ``spent`` says the rest."""
        reward, passed, done = np.zeros(self.worlds, np.float32), np.zeros(self.worlds), np.zeros(self.worlds, bool)
        for each, (slot, place, shape) in enumerate(action.tolist()):
            env = self.envs[each]
            if env.done:
                self.spent[each] = 0.0
                continue
            before_s, came = env.world.clock[c.NOW], env.world.tally[c.ARRIVED]
            if slot >= JOBS or not self.sights.may_place[each].any():
                slot = -1
            taken = (slot, place, shape if self.sights.may_shape[each].any() else -1)
            reward[each] = env.answer(*taken)
            self.answers[each].append(taken)
            over, costs = self.envs[each].done, env.costs()
            self.spent[each, :-1], self.spent[each, -1] = costs - self.costs[each], env.world.tally[c.ARRIVED] - came
            self.costs[each] = costs
            passed[each], done[each] = env.world.clock[c.NOW] - before_s, over
            self.paid[each] -= reward[each]
            curve = self.curve[each]
            if curve is not None:
                reward[each] += curve.between(before_s, np.inf if over else env.world.clock[c.NOW])
                reward[each] *= len(env.price) / curve.total_s
                weight = env.scene.egress_weight
                reward[each] += weight * (-self.spent[each, 0] / self.usd_per_job - reward[each])
                if over:
                    self.ended.append(float(self.paid[each]) / curve.total_s)
            if over and self.endless:
                self.envs[each], self.answers[each] = self._opened(each, self._next()), []
            else:
                self._allow(each, env)
        return reward, passed, done

    @property
    def over(self) -> bool:
        """Whether every world has ended."""
        return all(env.done for env in self.envs)

    def state(self) -> dict[str, Any]:
        """Everything that what comes depends on: which worlds, and what was answered in them."""
        answers = [np.array(each, np.int64).reshape(-1, 3) for each in self.answers]
        return {"first": self.first, "number": list(self.number), "answers": answers}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The way back: every world is played again up to where it was."""
        for each, (number, answers) in enumerate(zip(state["number"], state["answers"], strict=True)):
            env = self.envs[each] = self._opened(each, int(number))
            self.answers[each] = []
            for slot, place, shape in np.asarray(answers).tolist():
                if slot >= 0:
                    env.places(slot)
                if shape >= 0:
                    env.shapes(slot, place)
                self.paid[each] -= env.answer(slot, place, shape)
                self.costs[each] = env.costs()
                self.answers[each].append((slot, place, shape))
            self._allow(each, env)
        self.first = int(state["first"])
