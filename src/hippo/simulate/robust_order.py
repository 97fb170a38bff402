"""The order with the least expected makespan when times move, and whether to run it as it is or as a hint.

A schedule that is best for exact times is not best for moving ones: it has no slack where a late message hurts. Here
the expected makespan itself is lowered (sample-average approximation, Kleywegt, Shapiro and Homem-de-Mello 2002):

1. Candidates: the named methods and ``best``, each played both ways on the same ``_BATCH`` draws.
2. Local search from the best of them, both ways. An order is what comes of sorting the operations of each rank by
   *when*: their start in the candidate without fluctuation, plus shifts. A move adds one shift to the F, the B or the W
   of some neighbouring ranks, of all or of a window of micro-batches: "these ranks run further ahead", "these weight
   gradients later". It stays when the order is legal and the mean over the batch falls; most losers are known after a
   quarter of the batch.
3. The batch flatters whoever was chosen on it, so the finalists play on fresh draws, and the winner again on others:
   only those are reported. A hint must be quicker than the best fixed order beyond the sampling error; else the fixed
   order wins, which needs nothing of the runtime.

Letters: S slots, m micro-batches, p ranks (``problem.Tables``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InfeasibleError, InputError
from hippo.pipeline.best import best
from hippo.pipeline.check import violations
from hippo.pipeline.clock import Clock, Watch
from hippo.pipeline.dispatch import ordered, split
from hippo.pipeline.methods import METHODS, generate
from hippo.pipeline.problem import ScheduleProblem
from hippo.pipeline.replay import makespan, peak_memory, replay
from hippo.pipeline.schedule import BACKWARD, WEIGHT, Schedule
from hippo.simulate.fluctuation import Factors, Fluctuation, MakespanSpread, drawn, play, spread

Floats = NDArray[np.float64]

JUDGED = 1000  # fresh plays of each finalist
_BATCH = 64  # plays that the search looks at: one yield of ``drawn``
_QUARTER = 16  # of them, the first look at a move
_FIXED_S, _HINT_S = 5e-9, 35e-9  # seconds per operation of a play
_MOVE_S = (
    300e-6  # per move besides its plays; with these rates the limit is a number of moves, the same on all machines
)
_SEARCHED = 0.9  # of the limit, by that count; the clock ends the search only where a machine is slower


@dataclass(frozen=True, eq=False)
class Judged:
    """One way to run one order, on fresh draws."""

    schedule: Schedule
    by_hint: bool  # an idle rank runs what is ready and comes first; else each rank keeps to its list
    spread: MakespanSpread

    @property
    def name(self) -> str:
        """The schedule and how it is run."""
        return f"{self.schedule.name} {'as a hint' if self.by_hint else 'in fixed order'}"


@dataclass(frozen=True, eq=False)
class RobustOrder:
    """The winner, the best of either way, and all that were played; every schedule has passed the checker."""

    winner: Judged  # on draws that nobody was chosen by
    fixed: Judged  # the best fixed order
    hint: Judged  # the best hint
    tried: tuple[Judged, ...]  # all candidates and the finalists, on the same fresh draws
    why: str


def robust_order(
    problem: ScheduleProblem,
    fluctuation: Fluctuation,
    *,
    time_limit_s: float = 5.0,
    seed: int = 0,
    watch: Watch | None = None,
) -> RobustOrder:
    """The order and the way to run it with the least expected makespan found within about the time limit.

    Judging takes its own time on top: ``JUDGED`` plays of each candidate, .03 s for p 8 m 32, .4 s for p 16 m 128.
    Equal seeds give equal answers as long as the number of moves, not the clock, ends the search.

    Raises
    ------
    InputError
        The time limit is not above 0.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank.
    """
    if not time_limit_s > 0:
        remedy = "give a time limit above 0 seconds"
        raise InputError("must be above 0", key="time_limit_s", value=time_limit_s, remedy=remedy)
    clock = Clock(time_limit_s, watch)
    streams = np.random.default_rng(seed).spawn(2)
    names = _candidates(problem, min(1.0, 0.2 * time_limit_s), seed)
    batch = next(drawn(problem, fluctuation, samples=_BATCH, rng=streams[0]))
    search = _Search(problem, batch, streams[1], clock)
    found = [(each, False) for each in names] + [(each, True) for each in names]
    for by_hint in (False, True):
        start = min(names, key=lambda each: search.mean(each, by_hint))
        moved = search.run(start, by_hint, share=_SEARCHED / 2)
        if moved is not start:
            # What is good one way may be good the other way too.
            found += [(moved, False), (moved, True)]
    return _judge(problem, fluctuation, found, seed)


def _candidates(problem: ScheduleProblem, time_limit_s: float, seed: int) -> list[Schedule]:
    """The named methods that fit, and the best schedule for times that do not move."""
    found = []
    for name, method in METHODS.items():
        if method.placement == problem.placement:
            try:
                found.append(generate(name, problem))
            except InfeasibleError:
                continue
    without = best(problem, time_limit_s=time_limit_s, seed=seed)
    known = {each.name for each in found}
    return found if without.method in known else [*found, without.schedule]


@dataclass
class _Search:
    """A batch of plays, and local search on their mean."""

    problem: ScheduleProblem
    batch: Factors  # of ``_BATCH`` plays
    rng: np.random.Generator
    clock: Clock

    def mean(self, schedule: Schedule, by_hint: bool) -> float:
        """Over the batch."""
        return float(self._plays(schedule, by_hint, slice(None)).mean())

    def run(self, start: Schedule, by_hint: bool, *, share: float) -> Schedule:
        """Moves from a schedule for that share of the time limit; ``start`` itself when none is better."""
        base = current = split(start)
        when, best_plays = _when(self.problem, base), self._plays(start, by_hint, slice(None))
        play_s = len(base.order) * (_HINT_S if by_hint else _FIXED_S)
        left_s = self.clock.limit_s * share
        while left_s > 0 and not self.clock.over("search under fluctuation"):
            tried = when + self._shift()
            moved = _sorted(base, tried, f"{start.name} adapted")
            left_s -= _MOVE_S
            if np.array_equal(moved.order, current.order) or not _sound(self.problem, moved):
                continue
            plays = self._look(moved, by_hint, best_plays)
            left_s -= play_s * len(plays)
            if len(plays) == len(best_plays) and plays.mean() < best_plays.mean():
                when, best_plays, current = tried, plays, moved
        assert not violations(self.problem, current), "an illegal order"
        return start if current is base else current

    def _look(self, schedule: Schedule, by_hint: bool, best_plays: Floats) -> Floats:
        """Its plays: all of the batch, or a quarter that is no better."""
        first = self._plays(schedule, by_hint, slice(0, _QUARTER))
        if first.mean() >= best_plays[:_QUARTER].mean():
            return first
        return np.concatenate([first, self._plays(schedule, by_hint, slice(_QUARTER, None))])

    def _plays(self, schedule: Schedule, by_hint: bool, part: slice) -> Floats:
        factors = Factors(*(each[part] for each in self.batch))
        return play(self.problem, schedule, factors, by_hint=by_hint)

    def _shift(self) -> Floats:
        """One move, (3, S, m): by up to some operations, of one kind, on neighbouring ranks, often of a window only."""
        tables, rng = self.problem.tables, self.rng
        slots, m = len(tables.offset), tables.micro_batches
        found = np.zeros((3, slots, m))
        low, high = np.sort(rng.integers(slots, size=2)) if rng.random() < 1 / 3 else [int(rng.integers(slots))] * 2
        first, last = np.sort(rng.integers(m + 1, size=2)) if rng.random() < 1 / 2 else (0, m)
        step = rng.normal() * rng.choice([0.5, 1.0, 2.0, 4.0]) * tables.duration.mean()
        found[rng.integers(3), low : high + 1, first:last] = step
        return found


def _when(problem: ScheduleProblem, schedule: Schedule) -> Floats:
    """Start of each operation without fluctuation, (3, S, m); -inf where there is none."""
    found = np.full((3, problem.ranks * problem.chunks, problem.micro_batches), -np.inf)
    found[_at(schedule)] = replay(problem, schedule).start
    return found


def _at(schedule: Schedule) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Kind, slot and micro-batch of each operation, (N,) each."""
    starts, order = schedule.order_start, schedule.order
    rank = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return order[:, 0], rank * schedule.shape.chunks + order[:, 1], order[:, 2]


def _sorted(base: Schedule, when: Floats, name: str) -> Schedule:
    """The operations of each rank by ``when``, F before B before W and micro-batches in order; ties as in ``base``."""
    times = np.maximum.accumulate(when, axis=2)
    for kind in (BACKWARD, WEIGHT):
        times[kind] = np.maximum(times[kind], times[kind - 1])
    return ordered(base, times[_at(base)], name)


def _sound(problem: ScheduleProblem, schedule: Schedule) -> bool:
    """Whether the ranks do not wait for each other, within memory; nothing else can go wrong when sorting."""
    limit = np.array(problem.limit) * (1 + 1e-9)
    return bool(np.isfinite(makespan(problem, schedule)) and (peak_memory(problem, schedule) <= limit).all())


def _judge(
    problem: ScheduleProblem, fluctuation: Fluctuation, found: list[tuple[Schedule, bool]], seed: int
) -> RobustOrder:
    """Everybody on the same fresh draws; the winner on others still."""
    choosing, reporting = np.random.SeedSequence([seed, 1]).generate_state(2).tolist()

    def judged(schedule: Schedule, by_hint: bool, with_seed: int) -> Judged:
        played = spread(problem, schedule, fluctuation, samples=JUDGED, seed=with_seed, by_hint=by_hint)
        return Judged(schedule, by_hint, played)

    tried = tuple(judged(schedule, by_hint, choosing) for schedule, by_hint in found)
    fixed, hint = (
        min((each for each in tried if each.by_hint is way), key=lambda each: each.spread.mean) for way in (False, True)
    )
    fixed, hint = (judged(each.schedule, each.by_hint, reporting) for each in (fixed, hint))
    gain = fixed.spread.minus(hint.spread)
    winner = hint if gain.interval[0] > 0 else fixed
    return RobustOrder(winner, fixed, hint, tried, _why(winner, gain, fixed.spread.mean))


def _why(winner: Judged, gain: MakespanSpread, fixed: float) -> str:
    """Which way to run it, and what the other way costs."""
    shown = f"{100 * abs(gain.mean) / fixed:.2f} +- {100 * gain.error / fixed:.2f} % of the expected makespan"
    if winner.by_hint:
        return f"{winner.name}: dispatch saves {shown} against the best fixed order."
    if gain.interval[1] < 0:
        return f"{winner.name}: dispatch would cost {shown}."
    return f"{winner.name}: dispatch changes {shown}, no more than the sampling error."
