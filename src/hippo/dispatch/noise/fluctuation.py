"""A schedule when times move: many plays of one pipeline, each with its own draws.

What an operation takes varies in two parts: a factor of its own, and one that it shares with all operations of its
rank in that step (a play is a step). The shared one may be like that of the step before, and now and then a rank
stalls for a whole step. Messages vary on their own, and now and then one takes far longer. A schedule runs as a *fixed
order* (each rank waits for the next operation of its list) or *by hint* (``schedule.by_hint``: an idle rank runs what
is ready and comes first; with patience it waits a little for what comes first and is announced). ``presets`` has the
settings under which steps swing as published ones do, and the stress tests of 10 to 30 %.

Draws belong to operations, not to places in an order: the factor of F of micro-batch 3 on rank 2 is the same for every
schedule of the problem and for both ways to run it, given generators in the same state. So two schedules are compared
on the same plays, and their difference has far less noise than either.

Letters: S slots, m micro-batches, p ranks (``engine.program.Packed``), n plays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.fixed_order import LEAST_FACTOR, new_state, play_in
from hippo.engine.program import WEIGHT, Network, Record
from hippo.errors import InputError
from hippo.schedule.by_hint import makespans as hinted
from hippo.schedule.by_hint import queues
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import packed
from hippo.schedule.schedule import Schedule

Floats = NDArray[np.float64]
Factors32 = NDArray[np.float32]

KINDS = ("normal", "uniform")

MOST_LEVEL, MOST_STALL = 1.0, 100.0
_AT_ONCE = 64  # plays drawn at once: the draws of p 16 m 128 stay within 3 MB


@dataclass(frozen=True)
class Fluctuation:
    """How times move; checked when made (``InputError`` names the field).

    ``normal``: ``level`` is the standard deviation of the factor of every operation and every message.
    ``uniform``: the factor lies anywhere within ``level`` of 1. Factors never fall below ``fixed_order.LEAST_FACTOR``.
    """

    level: float = 0.2  # of the length, from 0 to 1; 0.1 to 0.3 in practice
    kind: str = "normal"
    rank_level: float = 0.0  # the same for one factor per rank and play, on top: slow ranks stay slow
    abnormal_share: float = 0.0  # of the messages that are abnormally late, from 0 to 1
    abnormal_factor: float = 10.0  # such a message takes this many times as long, 1 or more
    rank_memory: float = 0.0  # correlation of a rank's factor with its own of the play before, between -1 and 1
    stall_share: float = 0.0  # of the plays of a rank in which it stalls (those in which it is slowest), from 0 to 0.5
    stall_level: float = 0.0  # mean of what a stall adds to the rank's factor (exponential), from 0 to 100

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("unknown kind of fluctuation", key="kind", value=self.kind, remedy="use normal or uniform")
        for key in ("level", "rank_level", "abnormal_share"):
            value = getattr(self, key)
            if not 0 <= value <= MOST_LEVEL:
                remedy = "give a share from 0 to 1, for instance 0.2"
                raise InputError("must lie between 0 and 1", key=key, value=value, remedy=remedy)
        if not -1 < self.rank_memory < 1:
            remedy = "give a correlation, for instance 0.5"
            raise InputError("must lie between -1 and 1", key="rank_memory", value=self.rank_memory, remedy=remedy)
        if not 0 <= self.stall_share <= 0.5:
            remedy = "give a share from 0 to 0.5, for instance 0.01: what happens more often is no stall"
            raise InputError("must lie between 0 and 0.5", key="stall_share", value=self.stall_share, remedy=remedy)
        if not 0 <= self.stall_level <= MOST_STALL:
            problem, remedy = f"must be from 0 to {MOST_STALL:g}", "give what a stall adds, as a share of the usual"
            raise InputError(problem, key="stall_level", value=self.stall_level, remedy=remedy)
        if self.kind != "normal" and (self.rank_memory or self.stall_share):
            remedy = "use kind normal, or leave out rank_memory and stall_share"
            raise InputError("has neither memory nor stalls", key="kind", value=self.kind, remedy=remedy)
        if not 1 <= self.abnormal_factor < np.inf:
            remedy = "give how many times as long an abnormal message takes"
            raise InputError("must be at least 1", key="abnormal_factor", value=self.abnormal_factor, remedy=remedy)

    @property
    def deviation(self) -> float:
        """Standard deviation of how long operations take against their promise, as steps before have shown it: those
        without a stall or a late message."""
        each, rank = (level * (1.0 if self.kind == "normal" else 3**-0.5) for level in (self.level, self.rank_level))
        return float(np.hypot(each, rank))


class Factors(NamedTuple):
    """Draws of n plays."""

    operations: Factors32  # (n, 3 S m): [(kind * S + slot) * m + micro-batch] of F, B and W
    messages: Factors32  # (n, 2 S m): likewise of what F and B send, on latency and transfer
    ranks: Factors32  # (n, p): on all operations of the rank; plays are steps one after the other


@dataclass(frozen=True, eq=False)
class MakespanSpread:
    """Makespans of n plays, in the unit of the problem."""

    makespans: Floats  # (n,)

    @property
    def mean(self) -> float:
        """Expected makespan, as estimated by these plays."""
        return float(self.makespans.mean())

    @property
    def p50(self) -> float:
        """Median."""
        return float(np.percentile(self.makespans, 50))

    @property
    def p95(self) -> float:
        """95th percentile: 19 steps in 20 are quicker."""
        return float(np.percentile(self.makespans, 95))

    @property
    def error(self) -> float:
        """Half the width of the 95 % interval of the expected value: 1.96 standard errors; 0 for one play."""
        count = len(self.makespans)
        return float(1.96 * self.makespans.std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where the expected makespan lies with 95 % confidence."""
        return self.mean - self.error, self.mean + self.error

    def minus(self, other: MakespanSpread) -> MakespanSpread:
        """Differences play by play, of two spreads over the same draws."""
        return MakespanSpread(self.makespans - other.makespans)


def makespans(
    problem: ScheduleProblem,
    schedule: Schedule,
    fluctuation: Fluctuation,
    *,
    samples: int,
    rng: np.random.Generator,
    by_hint: bool = False,
    patience: float = 0.0,
) -> Floats:
    """Makespan of each of n = ``samples`` plays, (n,).

    The schedule is legal (has passed the checker). ``patience`` is that of ``schedule.by_hint``, with ``by_hint``.
    ``rng`` is asked for one number, so that generators in the same state give the same draws to every schedule of the
    problem.
    """
    played = [
        play(problem, schedule, each, by_hint=by_hint, patience=patience)
        for each in drawn(problem, fluctuation, samples=samples, rng=rng)
    ]
    return np.concatenate(played)


def spread(
    problem: ScheduleProblem,
    schedule: Schedule,
    fluctuation: Fluctuation,
    *,
    samples: int = 1000,
    seed: int = 0,
    by_hint: bool = False,
    patience: float = 0.0,
) -> MakespanSpread:
    """Expected makespan and percentiles of a schedule; equal seeds mean equal draws."""
    rng = np.random.default_rng(seed)
    played = makespans(problem, schedule, fluctuation, samples=samples, rng=rng, by_hint=by_hint, patience=patience)
    return MakespanSpread(played)


def drawn(
    problem: ScheduleProblem, fluctuation: Fluctuation, *, samples: int, rng: np.random.Generator
) -> Iterator[Factors]:
    """Draws of ``samples`` plays, some at a time. Operations, messages, ranks and abnormal delays have generators of
    their own: what one of them is asked for does not move the others."""
    if samples < 1:
        raise InputError("must be at least 1", key="samples", value=samples, remedy="give a number of plays")
    return _drawn(problem, fluctuation, samples, np.random.SeedSequence(int(rng.integers(2**63))))


def _drawn(
    problem: ScheduleProblem, fluctuation: Fluctuation, samples: int, seed: np.random.SeedSequence
) -> Iterator[Factors]:
    ranks, per_kind = problem.ranks, problem.ranks * problem.chunks * problem.micro_batches
    of_operations, of_messages, of_ranks, of_abnormal = (
        np.random.Generator(np.random.SFC64(each)) for each in seed.spawn(4)
    )
    kind, level, latent = fluctuation.kind, fluctuation.level, None
    for first in range(0, samples, _AT_ONCE):
        count = min(_AT_ONCE, samples - first)
        messages = _factors(of_messages, kind, level, (count, 2 * per_kind))
        if fluctuation.abnormal_share > 0:
            late = of_abnormal.random(messages.shape, np.float32) < fluctuation.abnormal_share
            messages[late] *= np.float32(fluctuation.abnormal_factor)
        operations = _factors(of_operations, kind, level, (count, 3 * per_kind))
        if fluctuation.rank_memory or fluctuation.stall_share:
            shared, latent = _with_memory(of_ranks, fluctuation, (count, ranks), latent)
        else:
            shared = _factors(of_ranks, kind, fluctuation.rank_level, (count, ranks))
        yield Factors(operations, messages, shared)


def _factors(rng: np.random.Generator, kind: str, level: float, shape: tuple[int, int]) -> Factors32:
    """Factors of mean 1, never below the least; all ones, and nothing drawn, at level 0."""
    if level == 0:
        return np.ones(shape, np.float32)
    if kind == "normal":
        found = rng.standard_normal(shape, np.float32)
        found *= np.float32(level)
        found += np.float32(1)
    else:
        found = rng.random(shape, np.float32)
        found *= np.float32(2 * level)
        found += np.float32(1 - level)
    return np.maximum(found, np.float32(LEAST_FACTOR), out=found)


def _with_memory(
    rng: np.random.Generator, fluctuation: Fluctuation, shape: tuple[int, int], before: Floats | None
) -> tuple[Factors32, Floats]:
    """Factors of ranks (n, p) in plays one after the other, and the normal numbers (p,) that the last came from.

    Behind each factor stands a normal number, correlated with that of the play ``before`` (an autoregression of order
    1). The factor grows with it linearly; where it is among the ``stall_share`` largest, an exponential is added, whose
    quantile is the number's own among those. So stalls come together where ranks have memory.
    """
    memory, latent = fluctuation.rank_memory, rng.standard_normal(shape)
    for step, fresh in enumerate(latent):
        if before is not None:
            latent[step] = memory * before + math.sqrt(1 - memory**2) * fresh
        before = latent[step]
    found = 1 + fluctuation.rank_level * latent
    if fluctuation.stall_share:
        for at in np.argwhere(latent > -NormalDist().inv_cdf(fluctuation.stall_share)):
            above = 0.5 * math.erfc(latent[tuple(at)] / math.sqrt(2))  # share of numbers that are larger still
            found[tuple(at)] += fluctuation.stall_level * math.log(fluctuation.stall_share / above)
    return np.maximum(found, LEAST_FACTOR).astype(np.float32), latent[-1]


def play(
    problem: ScheduleProblem,
    schedule: Schedule,
    factors: Factors,
    *,
    by_hint: bool = False,
    patience: float = 0.0,
) -> Floats:
    """Makespans (n,) under draws that are there already; inf where a hint above the memory limit gets stuck."""
    if by_hint:
        operations, messages, ranks = (each.astype(np.float64) for each in factors)
        return hinted(problem, queues(problem, schedule, patience=patience), (operations, messages, ranks))
    drawn, duration, found = places(problem, schedule), problem.tables.duration, np.empty(len(factors.ranks))
    place = drawn // problem.micro_batches
    fused = duration[WEIGHT][place % duration.shape[1]] if schedule.fused else np.empty(0)
    program, lasts = packed(problem, schedule, again=True), (drawn, duration.ravel()[place], fused)
    _play_fixed(program, problem.network, lasts, factors, found)
    return found


def places(problem: ScheduleProblem, schedule: Schedule) -> NDArray[np.int64]:
    """Where the draw of each operation of a schedule stands in ``Factors.operations``, (N,)."""
    order, starts, v = schedule.order, schedule.order_start, problem.chunks
    slot = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * v + order[:, 1]
    return (order[:, 0] * problem.ranks * v + slot) * problem.micro_batches + order[:, 2]


@kernel
def _play_fixed(packed, network, lasts, factors, found):  # type: ignore[no-untyped-def]
    """Writes the makespan of each play (n,).

    ``lasts`` says of each operation (N,) where its factor stands, how long it takes without, and how long the weight
    gradient that is part of it if it is a backward (empty: it is not).
    """
    drawn, usual, fused = lasts
    operations, messages, ranks = factors.operations, factors.messages, factors.ranks
    count, per_kind, sends, none = len(drawn), packed.slots * packed.waves, messages.shape[1], np.empty(0)
    seconds, late, record = np.empty(count), np.ones(count), Record(none, none, none, none)
    moved = Network(network.bandwidth, network.latency, network.nic_scale, seconds, late, late)
    state = new_state(packed, moved)
    for number in range(len(found)):
        for rank in range(len(packed.sync_s)):
            for op in range(packed.order_start[rank], packed.order_start[rank + 1]):
                at = drawn[op]
                taken = usual[op] * operations[number, at]
                if at < sends:
                    late[op] = messages[number, at]
                    if len(fused) > 0 and at >= per_kind:
                        taken += fused[op] * operations[number, at + per_kind]
                seconds[op] = taken * ranks[number, rank]
        found[number] = play_in(packed, moved, record, state)
