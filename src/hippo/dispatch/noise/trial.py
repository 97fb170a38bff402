"""Every way to run one pipeline under fluctuation, on the same draws: in fixed order, as a hint, by learned dispatch.

Baselines are four orders (``ORDERS``), each run in fixed order, as a hint, and as a hint with each patience of
``PATIENT``. An order that needs more memory than the limit stays as a hint: ranks run what is ready within
the limit (``schedule.by_hint``). Which baseline is best is chosen on the very draws that are reported, which favours
the baselines a little: where learned dispatch is ahead, it is ahead of all of them. Learned dispatch in its turn is
told how unsteady operations are (``Fluctuation.deviation``), which a run knows from the steps before. All plays have
the same draws, so differences are taken play by play.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.noise.fluctuation import Fluctuation, MakespanSpread
from hippo.dispatch.noise.hindsight import floors
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.dispatch.noise.robust_order import FIXED, HINT, WAYS, Way
from hippo.errors import InfeasibleError, InputError
from hippo.schedule.bound.lower_bound import must_fit
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule

if TYPE_CHECKING:
    from hippo.dispatch.network import DispatchWeights

Floats = NDArray[np.float64]

ORDERS = ("zb-h1", "zb-h2", "zb-auto", "cross-domain")
"""Orders that baselines run."""

ZERO_BUBBLE = ORDERS[:3]

PATIENT = (*(way for way in WAYS if way.announces), *(Way(f"as a hint with patience {p:g}", True, p) for p in (1.5, 2)))

KINDS: Mapping[str, tuple[Way, ...]] = {"fixed": (FIXED,), "hint": (HINT,), "patient": PATIENT}
"""Kinds of baselines, and the ways that belong to each."""

_ROUNDING = 1e-9  # of the makespan: sums that run in another order


@dataclass(frozen=True, eq=False)
class TriedOrder:
    """One order run one way, and what it took on all plays."""

    order: str
    way: Way
    spread: MakespanSpread

    @property
    def name(self) -> str:
        """The order and how it is run."""
        return f"{self.order} {self.way.name}"


@dataclass(frozen=True, eq=False)
class FluctuationTrial:
    """What everybody took on the same n plays, in the unit of the problem."""

    problem: ScheduleProblem
    fluctuation: Fluctuation
    baselines: tuple[TriedOrder, ...]
    learned: MakespanSpread
    floor: Floats  # (n,) what no order could be below, with all draws known
    per_seed: int  # plays of each seed; they stand one after the other

    def best(self, *kinds: str, orders: Sequence[str] = ORDERS) -> TriedOrder:
        """The baseline with the least mean among kinds (``KINDS``; none named: all) and orders; the first of equals."""
        ways = [way for kind in kinds or KINDS for way in KINDS[kind]]
        found = [each for each in self.baselines if each.way in ways and each.order in orders]
        return min(found, key=lambda each: each.spread.mean)

    def of(self, order: str, kind: str) -> TriedOrder | None:
        """An order run that way, with the patience that is best for it; None where it does not fit into memory."""
        fits = any(each.order == order and each.way in KINDS[kind] for each in self.baselines)
        return self.best(kind, orders=(order,)) if fits else None

    def saved(self, other: TriedOrder) -> tuple[float, float]:
        """Share of a baseline's expected makespan that learned dispatch saves, and half the width of its 95 % interval.

        Play by play: the same draws for both.
        """
        less = other.spread.minus(self.learned)
        return less.mean / other.spread.mean, less.error / other.spread.mean

    def side(self, other: TriedOrder) -> int:
        """1 where learned dispatch is ahead of a baseline, -1 where it is behind, with the whole interval; else 0."""
        saved, error = self.saved(other)
        return int(saved - error > _ROUNDING) - int(saved + error < -_ROUNDING)

    @property
    def above_floor(self) -> tuple[float, float]:
        """Learned dispatch above the floor of each play: share of the mean floor, half the width of the interval."""
        more = self.learned.minus(MakespanSpread(self.floor))
        return more.mean / float(self.floor.mean()), more.error / float(self.floor.mean())

    @property
    def verdict(self) -> str:
        """``learned`` where it beats every baseline, ``hint`` or ``fixed`` where one beats it, intervals apart."""
        best = self.best()
        return {1: "learned", 0: "even", -1: "fixed" if best.way == FIXED else "hint"}[self.side(best)]

    def seeds_ahead(self, other: TriedOrder) -> tuple[int, int]:
        """Of the seeds, those on which learned dispatch has the lower mean, and how many there are."""
        less = other.spread.minus(self.learned).makespans.reshape(-1, self.per_seed).mean(axis=1)
        return int((less > 0).sum()), len(less)


def trial(
    problem: ScheduleProblem,
    fluctuation: Fluctuation,
    *,
    samples: int,
    seeds: Sequence[int] = (0,),
    weights: DispatchWeights | None = None,
    orders: Sequence[str] = ORDERS,
) -> FluctuationTrial:
    """Everybody on ``samples`` plays of each seed; on one play where nothing moves. ``weights``: None, as shipped.

    Raises
    ------
    InputError
        Ranks have more than one chunk, or no seed is given.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank.
    """
    must_fit(problem)
    if not seeds:
        raise InputError("is empty", key="seeds", remedy="give at least one seed")
    if is_still(fluctuation):
        samples, seeds = 1, seeds[:1]

    def floor(seed: int) -> Floats:
        return floors(problem, fluctuation, samples=samples, rng=np.random.default_rng(seed))

    def learned(seed: int) -> Floats:
        return spread_learned(problem, fluctuation, weights=weights, samples=samples, seed=seed).makespans

    def baseline(order: str, schedule: Schedule, way: Way) -> TriedOrder:
        plays = [way.played(problem, schedule, fluctuation, samples=samples, seed=seed).makespans for seed in seeds]
        return TriedOrder(order, way, MakespanSpread(np.concatenate(plays)))

    baselines = []
    for name in orders:
        schedule, fits = order_for(problem, name)
        baselines += [baseline(name, schedule, way) for way in (FIXED, HINT, *PATIENT) if fits or way.by_hint]
    played = MakespanSpread(np.concatenate([learned(seed) for seed in seeds]))
    bound = np.concatenate([floor(seed) for seed in seeds])
    return FluctuationTrial(problem, fluctuation, tuple(baselines), played, bound, samples)


def is_still(fluctuation: Fluctuation) -> bool:
    """Whether every play is the same."""
    moves = (fluctuation.level, fluctuation.rank_level, fluctuation.abnormal_share, fluctuation.stall_share)
    return not any(moves)


def order_for(problem: ScheduleProblem, name: str) -> tuple[Schedule, bool]:
    """The order of a method, and whether it fits into the memory; where it does not, that without a limit."""
    try:
        return generate(name, problem), True
    except InfeasibleError:
        return generate(name, replace(problem, limit=(inf,) * problem.ranks)), False
