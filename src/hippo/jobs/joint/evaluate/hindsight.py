"""The best that a search with hindsight finds in a world: a rule is told when jobs truly end, and other prices and
sizes than they have, and kept from jobs for a while, and whatever makes the jobs' true cost less is kept.

Every candidate is played by the engine with what truly happens, so the search knows when jobs come and end, nodes fail,
others take devices and links move. It starts from the schedule of every competitor: of a rule in its own settings; of
any other by the order in which its jobs end. Then it changes what it has, now one job, now all that are in the system
at some time (large neighbourhoods: Shaw 1998), jobs that lose most more often, and goes on until twice the plays gain
less than ``ENOUGH``. Counted in plays, so equal seeds find equal schedules on every machine.

n jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.jobs.engine import world as c
from hippo.jobs.engine.observe import Sight, sight
from hippo.jobs.joint.env import WorldScene
from hippo.jobs.joint.moment import MOST_PLACES
from hippo.jobs.joint.play import opened, step
from hippo.jobs.joint.ranked import RankRoom, decide_without, rank_room
from hippo.jobs.joint.rules import SRPT, Ranked

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ENOUGH = 0.005
"""Twice the plays must gain more than this share for the search to go on."""
FIRST, MOST = 100, 6400
"""Plays before the first look at what they gained; and in all."""
FINE = 1000
"""A priority of 0 is told as so much, so that it can be told a little more or less."""
STEPS = (0.1, 0.5, 2.0)
"""Deviations of the change of a price's logarithm."""
SETTINGS: dict[str, tuple[float, ...]] = {
    "ahead": (0.0, 0.1, 0.3, 1.0),
    "margin": (0.02, 0.05, 0.1, 0.2, 1.0),
    "slack": (0.0, 0.02, 0.05, 0.1, 0.2),
    "crowd": (0.0, 0.3, 1.0, 2.0),
    "grows": (False, True),
    "preempts": (False, True),
    "most_parts": (1, 2, 4),
    "regions": (False, True),
}
"""Of the rule, that the search tries, too."""


@dataclass(frozen=True, eq=False)
class Hints:
    """What a rule is told in place of what is so."""

    rule: Ranked
    weight: Floats  # (n,) logarithm of what price and priority (1 + it) are multiplied with
    least: Ints  # (n,) GPUs of elastic jobs
    most: Ints  # (n,)
    since_s: Floats  # (n,) it does not see a job before
    ends: bool = False  # when jobs truly end, in place of what was told of them


@dataclass(frozen=True)
class BestFound:
    """What a search came to."""

    cost: float  # priced seconds of all jobs
    plays: int
    start: str  # whose schedule it began from
    started: float  # what that cost
    curve: tuple[tuple[int, float], ...]  # plays, least cost by then; whenever the search looked
    ends_s: Floats = field(repr=False)  # (n,) of the jobs


@dataclass(frozen=True, eq=False)
class HindsightPlayer:
    """Plays hints in one world and counts what the jobs truly cost."""

    scene: WorldScene
    price: Floats
    seen: Sight
    room: RankRoom

    @classmethod
    def of(cls, scene: WorldScene, price: Floats) -> HindsightPlayer:
        """Of a scene whose jobs have these prices (n,)."""
        seen = sight(
            *(scene.workload, scene.site, scene.offers),
            jobs=1,
            places=MOST_PLACES,
            price=price.copy(),
            stops=scene.settings.stops,
        )
        return cls(scene, price, seen, rank_room(seen))

    def plain(self, rule: Ranked) -> Hints:
        """A rule that is told what is so."""
        work = self.scene.workload
        return Hints(rule, np.zeros(len(work)), work.least, work.most, np.full(len(work), -np.inf))

    def played(self, hints: Hints, most: float = np.inf) -> tuple[float, Floats]:
        """Priced seconds of all jobs, and when each ends (n,): at twice the last one's end, if it can never run. Inf
        where one is left waiting for ever, or where they cost more than ``most``: such a play is given up."""
        scene, work = self.scene, self.scene.workload
        world = opened(work, scene.site, scene.settings, offers=scene.offers, tenants=scene.tenants).world
        times = np.exp(np.clip(hints.weight, -20.0, 20.0))
        told = FINE * (1.0 + np.maximum(work.priority, 0)) * times
        world.mark[:, c.PRIORITY] = np.maximum(0.0, np.rint(told) - 1.0)
        self.seen.price[:] = self.price * times
        if hints.ends:
            world.job[:, c.ESTIMATE] = np.nan
        elastic = work.elastic
        world.mark[elastic, c.LEAST], world.mark[elastic, c.DEVICES] = hints.least[elastic], hints.most[elastic]
        if not play_with_hints(world, self.seen, hints.rule.terms, self.room, hints.since_s, self.price, most):
            return np.inf, np.full(len(work), np.nan)
        done, refused = world.mark[:, c.STATUS] == c.DONE, world.mark[:, c.STATUS] == c.REFUSED
        if not (done | refused).all():
            return np.inf, np.full(len(work), np.nan)
        last_s = float(world.job[done, c.FINISH].max()) if done.any() else float(work.arrival_s[-1])
        ends_s = np.where(done, world.job[:, c.FINISH], 2.0 * last_s)
        return self.cost(ends_s), ends_s

    def cost(self, ends_s: Floats) -> float:
        """Priced seconds of all jobs that end then."""
        return float(self.price @ (ends_s - self.scene.workload.arrival_s))


def search(
    scene: WorldScene,
    price: Floats,
    rules: Sequence[Ranked],
    schedules: Sequence[tuple[str, Floats]] = (),
    *,
    seed: int = 0,
    most: int = MOST,
    watch: Callable[[int, float], None] | None = None,
) -> BestFound:
    """The best schedule that is found. ``rules``: competitors that can be told hints; ``schedules``: of others, when
    each job ends (n,). ``watch``: told plays and the least cost so far."""
    player, rng = HindsightPlayer.of(scene, price), np.random.default_rng(seed)
    best_name, best, ends_s, least, plays = "", player.plain(SRPT), np.zeros(0), np.inf, 0

    def tries(hints: Hints, name: str = "") -> None:
        nonlocal best_name, best, ends_s, least, plays
        cost, found_s = player.played(hints, least)
        plays += 1
        if cost <= least:
            best_name, best, ends_s, least = name or best_name, hints, found_s, cost

    for rule in rules:
        tries(player.plain(rule), rule.name)
    for rule in rules:
        tries(replace(player.plain(rule), ends=True), rule.name)
    others = [(player.cost(found_s), name, found_s) for name, found_s in schedules]
    for _, name, found_s in others:
        tries(_in_order(player.plain(best.rule), scene, found_s), name)
    started, curve, look = least, [(plays, least)], max(FIRST, 2 * plays)
    while plays < most:
        tries(_changed(best, ends_s, scene, price, rng))
        if watch is not None:
            watch(plays, least)
        if plays == look:
            curve.append((plays, least))
            if len(curve) > 2 and curve[-2][1] - least < ENOUGH * curve[-2][1]:
                break
            look *= 2
    for cost, name, found_s in others:  # as it was, where no hints make it
        if cost < least:
            best_name, ends_s, least = name, found_s, cost
    return BestFound(least, plays, best_name, started, tuple(curve), ends_s)


def _in_order(hints: Hints, scene: WorldScene, ends_s: Floats) -> Hints:
    """Hints by which jobs rank as they end in a schedule: work left over price, at first, goes with the end."""
    work = scene.workload
    device_s = work.duration_s / scene.offers.quickest(work) * work.devices
    weight = np.log(np.maximum(device_s, 1.0) / scene.offers.prices(work))
    weight -= np.log(np.maximum(ends_s - work.arrival_s[0], 60.0))
    rule = replace(SRPT, margin=hints.rule.margin, slack=hints.rule.slack)
    return replace(hints, rule=rule, weight=weight - weight.mean(), ends=True)


def _changed(hints: Hints, ends_s: Floats, scene: WorldScene, price: Floats, rng: np.random.Generator) -> Hints:
    """A neighbour: other priorities, sizes or beginnings of one job or of some that meet, or another setting."""
    work, n = scene.workload, len(price)
    best_s = work.duration_s / scene.offers.quickest(work)
    loses = price * np.maximum(ends_s - work.arrival_s - best_s, 0.0) + 1e-3 * price * best_s
    job = int(rng.choice(n, p=loses / loses.sum()))
    meets = np.flatnonzero((work.arrival_s < ends_s[job]) & (ends_s > work.arrival_s[job]))
    kind = rng.choice(5, p=[0.4, 0.2, 0.2, 0.1, 0.1])
    if kind == 0:  # a job, or who is in its way
        chosen = np.array([job if rng.random() < 0.5 else int(rng.choice(meets))])
    elif kind == 1:  # some that meet
        chosen = rng.permutation(meets)[: 1 + int(rng.integers(8))]
    if kind <= 1:
        weight = hints.weight.copy()
        weight[chosen] += rng.normal(0.0, STEPS[int(rng.integers(len(STEPS)))], len(chosen))
        return replace(hints, weight=weight)
    if kind == 2:
        elastic = meets[work.elastic[meets]]
        if not len(elastic):
            return _changed(hints, ends_s, scene, price, rng)
        chosen = np.array([job]) if work.elastic[job] and rng.random() < 0.5 else rng.choice(elastic, 1)
        least, most = hints.least.copy(), hints.most.copy()
        each, side = int(chosen[0]), int(rng.integers(4))
        if side == 0:
            most[each] = max(least[each], most[each] // 2)
        elif side == 1:
            most[each] = min(work.most[each], 2 * most[each])
        elif side == 2:
            least[each] = min(most[each], 2 * least[each])
        else:
            least[each] = max(work.least[each], least[each] // 2)
        return replace(hints, least=least, most=most)
    if kind == 3:
        since_s = hints.since_s.copy()
        each, other = rng.choice(meets, 2).tolist()  # it waits until the other comes, or ends
        until_s = (-np.inf, work.arrival_s[other], ends_s[other])[int(rng.integers(3))]
        since_s[each] = until_s if until_s > work.arrival_s[each] else -np.inf
        return replace(hints, since_s=since_s)
    at = int(rng.integers(len(SETTINGS) + 1))
    if at == len(SETTINGS):
        return replace(hints, ends=not hints.ends)
    name = list(SETTINGS)[at]
    value = SETTINGS[name][int(rng.integers(len(SETTINGS[name])))]
    return replace(hints, rule=replace(hints.rule, **{name: value}))  # type: ignore[arg-type]


@kernel(lean=True)
def play_with_hints(w, s, r, room, since, price, most):  # type: ignore[no-untyped-def]
    """A world to its end under a rule that does not see a job that waits before ``since`` (n,); False: given up, as its
    jobs cost more than ``most`` by ``price`` (n,)."""
    paid = 0.0
    while True:
        before, now = 0.0, w.clock[c.NOW]
        for job in range(w.tally[c.ARRIVED]):
            if w.mark[job, c.STATUS] == c.WAITING or w.mark[job, c.STATUS] == c.RUNNING:
                before += price[job]
        if not step(w):
            return True
        paid += before * (w.clock[c.NOW] - now)
        if paid > most * (1.0 + 1e-9):
            return False
        decide_without(w, s, r, room, since)
