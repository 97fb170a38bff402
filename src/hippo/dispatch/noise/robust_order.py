"""The order with the least expected makespan when times move, and how to run it: as it is, or as a hint.

A schedule that is best for exact times is not best for moving ones: it has no slack where a late message hurts. Here
the expected makespan itself is lowered (sample-average approximation, Kleywegt, Shapiro and Homem-de-Mello 2002):

1. Candidates: the named methods and ``best``, each played every way on the same ``_BATCH`` draws. The ways: in fixed
   order, as a hint, as a patient hint (``WAYS``; a patient rank waits for what comes first and is announced, see
   ``schedule.by_hint``: that takes a runtime that sends announcements).
2. Local search from the best of them, each way. An order is what comes of sorting the operations of each rank by
   *when*: their start in the candidate without fluctuation, plus shifts. A move adds one shift to the F, the B or the W
   of some neighbouring ranks, of all or of a window of micro-batches: "these ranks run further ahead", "these weight
   gradients later". It stays when the order is legal and the mean over the batch falls; most losers are known after a
   quarter of the batch.
3. The batch flatters whoever was chosen on it, so the finalists play on fresh draws, and the winner again on others:
   only those are reported. A way that asks more of the runtime must be quicker beyond the sampling error: a fixed order
   asks nothing, a hint dispatch by readiness, a patient hint announcements too.

Letters: S slots, m micro-batches, p ranks (``engine.program.Packed``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, MakespanSpread, drawn, play, spread
from hippo.engine.program import BACKWARD, WEIGHT
from hippo.errors import InfeasibleError, InputError
from hippo.schedule.best import SLACK, best
from hippo.schedule.by_hint import at_of, ordered
from hippo.schedule.check import violations
from hippo.schedule.methods import METHODS, generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan, peak_memory, replay
from hippo.schedule.schedule import Schedule, split
from hippo.schedule.search.clock import Clock, Watch

Floats = NDArray[np.float64]

JUDGED = 1000  # fresh plays of each finalist
_BATCH = 64  # plays that the search looks at: one yield of ``drawn``
_JUDGED_EACH = 2  # candidates of each way that play on fresh draws
_QUARTER = 16  # of them, the first look at a move
_FIXED_S, _HINT_S = 5e-9, 35e-9  # seconds per operation of a play
_MOVE_S = (
    300e-6  # per move besides its plays; with these rates the limit is a number of moves, the same on all machines
)
_SEARCHED = 0.9  # of the limit, by that count; the clock ends the search only where a machine is slower


@dataclass(frozen=True)
class Way:
    """How ranks run an order."""

    name: str
    by_hint: bool  # an idle rank runs what is ready and comes first; else each rank keeps to its list
    patience: float = 0.0  # of ``schedule.by_hint``

    @property
    def announces(self) -> bool:
        """Whether the runtime has to announce messages."""
        return self.patience > 0

    def played(
        self, problem: ScheduleProblem, schedule: Schedule, fluctuation: Fluctuation, *, samples: int, seed: int
    ) -> MakespanSpread:
        """``fluctuation.spread`` of a schedule run this way."""
        return spread(
            problem,
            schedule,
            fluctuation,
            samples=samples,
            seed=seed,
            by_hint=self.by_hint,
            patience=self.patience,
        )


FIXED, HINT = Way("in fixed order", False), Way("as a hint", True)
WAYS = (FIXED, HINT, *(Way(f"as a hint with patience {each:g}", True, each) for each in (0.25, 0.5, 0.75, 1.0)))


@dataclass(frozen=True, eq=False)
class JudgedOrder:
    """One way to run one order, on fresh draws."""

    schedule: Schedule
    way: Way
    spread: MakespanSpread

    @property
    def name(self) -> str:
        """The schedule and how it is run."""
        return f"{self.schedule.name} {self.way.name}"


@dataclass(frozen=True, eq=False)
class RobustOrder:
    """The winner, the best of each way, and the finalists; every schedule has passed the checker."""

    winner: JudgedOrder  # one of the next three, which were played on draws that nobody was chosen by
    fixed: JudgedOrder  # the best fixed order
    hint: JudgedOrder  # the best hint without patience
    patient: JudgedOrder  # the best patient hint
    tried: tuple[JudgedOrder, ...]  # the finalists: good candidates and what search made of them, on other fresh draws
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

    Judging takes its own time on top: ``JUDGED`` plays of each of a dozen finalists, .03 s each for p 8 m 32, .4 s for
    p 16 m 128. The number of moves ends the search, so equal seeds give equal answers; the clock ends it after
    ``schedule.best.SLACK`` times the limit.

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
    clock = Clock(time_limit_s, watch, SLACK)
    streams = np.random.default_rng(seed).spawn(2)
    names = _candidates(problem, min(1.0, 0.2 * time_limit_s), seed)
    batch = next(drawn(problem, fluctuation, samples=_BATCH, rng=streams[0]))
    search = _Search(problem, batch, streams[1], clock)
    found: list[tuple[Schedule, Way]] = []
    for ways in _KINDS_OF_WAYS:
        ranked = sorted(((each, way) for way in ways for each in names), key=lambda each: search.mean(*each))
        found += ranked[:_JUDGED_EACH]
        start, way = ranked[0]
        moved = search.run(start, way, share=_SEARCHED / len(_KINDS_OF_WAYS))
        if moved is not start:  # what is good one way may be good another way too
            found += [(moved, FIXED), (moved, HINT), (moved, way if way.announces else WAYS[3])]
    return _judge(problem, fluctuation, found, seed)


_KINDS_OF_WAYS = ((FIXED,), (HINT,), tuple(way for way in WAYS if way.announces))


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

    def mean(self, schedule: Schedule, way: Way) -> float:
        """Over the batch."""
        return float(self._plays(schedule, way, slice(None)).mean())

    def run(self, start: Schedule, way: Way, *, share: float) -> Schedule:
        """Moves from a schedule for that share of the time limit; ``start`` itself when none is better."""
        base = current = split(start)
        when, best_plays = _when(self.problem, base), self._plays(start, way, slice(None))
        play_s = len(base.order) * (_HINT_S if way.by_hint else _FIXED_S)
        left_s = self.clock.limit_s * share
        while left_s > 0 and not self.clock.over("search under fluctuation"):
            tried = when + self._shift()
            moved = _sorted(base, tried, f"{start.name} adapted")
            left_s -= _MOVE_S
            if np.array_equal(moved.order, current.order) or not _sound(self.problem, moved):
                continue
            plays = self._look(moved, way, best_plays)
            left_s -= play_s * len(plays)
            if len(plays) == len(best_plays) and plays.mean() < best_plays.mean():
                when, best_plays, current = tried, plays, moved
        assert not violations(self.problem, current), "an illegal order"
        return start if current is base else current

    def _look(self, schedule: Schedule, way: Way, best_plays: Floats) -> Floats:
        """Its plays: all of the batch, or a quarter that is no better."""
        first = self._plays(schedule, way, slice(0, _QUARTER))
        if first.mean() >= best_plays[:_QUARTER].mean():
            return first
        return np.concatenate([first, self._plays(schedule, way, slice(_QUARTER, None))])

    def _plays(self, schedule: Schedule, way: Way, part: slice) -> Floats:
        factors = Factors(*(each[part] for each in self.batch))
        return play(self.problem, schedule, factors, by_hint=way.by_hint, patience=way.patience)

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
    found[at_of(schedule)] = replay(problem, schedule).start
    return found


def _sorted(base: Schedule, when: Floats, name: str) -> Schedule:
    """The operations of each rank by ``when``, F before B before W and micro-batches in order; ties as in ``base``."""
    times = np.maximum.accumulate(when, axis=2)
    for kind in (BACKWARD, WEIGHT):
        times[kind] = np.maximum(times[kind], times[kind - 1])
    return ordered(base, times[at_of(base)], name)


def _sound(problem: ScheduleProblem, schedule: Schedule) -> bool:
    """Whether the ranks do not wait for each other, within memory; nothing else can go wrong when sorting."""
    limit = np.array(problem.limit) * (1 + 1e-9)
    return bool(np.isfinite(makespan(problem, schedule)) and (peak_memory(problem, schedule) <= limit).all())


def _judge(
    problem: ScheduleProblem, fluctuation: Fluctuation, found: list[tuple[Schedule, Way]], seed: int
) -> RobustOrder:
    """Everybody on the same fresh draws; the best of each way on others still."""
    choosing, reporting = np.random.SeedSequence([seed, 1]).generate_state(2).tolist()

    def judged(schedule: Schedule, way: Way, with_seed: int) -> JudgedOrder:
        return JudgedOrder(schedule, way, way.played(problem, schedule, fluctuation, samples=JUDGED, seed=with_seed))

    tried = tuple(judged(schedule, way, choosing) for schedule, way in found)
    chosen = [
        min((each for each in tried if each.way in ways), key=lambda each: each.spread.mean) for ways in _KINDS_OF_WAYS
    ]
    fixed, hint, patient = (judged(each.schedule, each.way, reporting) for each in chosen)
    winner = fixed
    for each in (hint, patient):
        if winner.spread.minus(each.spread).interval[0] > 0:
            winner = each
    return RobustOrder(winner, fixed, hint, patient, tried, _why(winner, (fixed, hint, patient)))


def _why(winner: JudgedOrder, judged: tuple[JudgedOrder, ...]) -> str:
    """How to run it, and what the other ways would cost."""
    others = []
    for other in judged:
        if other is not winner:
            more = other.spread.minus(winner.spread)
            mean, error = 100 * more.mean / winner.spread.mean, 100 * more.error / winner.spread.mean
            others.append(f"the best {other.way.name} takes {mean:+.2f} % (95 %: within {error:.2f})")
    return f"{winner.name}: {winner.spread.mean:.4g} expected; {', '.join(others)}."
