"""When everything happens in one play, and why ranks pause: starved, or waiting by choice while something is ready.

One chunk per rank. Letters: p ranks, m micro-batches; kinds F, B, W = 0, 1, 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.dispatch.base import UNKNOWN
from hippo.dispatch.dispatch import one_play
from hippo.dispatch.guard import settled
from hippo.dispatch.network import DispatchWeights
from hippo.dispatch.noise.fluctuation import Factors
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.by_hint import makespans, queues
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Schedule, Shape

Floats = NDArray[np.float64]

_ROUNDING = 1e-9  # of the makespan: pauses shorter than this are none


@dataclass(frozen=True, eq=False)
class TimedPlay:
    """One play, in the unit of the problem."""

    start: Floats  # (3, p, m)
    end: Floats  # (3, p, m)
    arrived: Floats  # (3, p, m) when the input of each operation is there
    makespan: float


@dataclass(frozen=True)
class Pause:
    """A rank that has work left and runs nothing."""

    rank: int
    begin: float
    end: float
    by_choice: bool  # something could have run; else everything that is next was missing its input or its memory


def timed_hint(
    problem: ScheduleProblem, hint: Schedule, factors: Factors, index: int, *, patience: float = 0.0
) -> TimedPlay:
    """Play ``index`` of some draws, ranks running by hint."""
    start = np.empty((3, problem.ranks, problem.micro_batches))
    operations, messages, ranks = (each[index : index + 1].astype(np.float64) for each in factors)
    makespans(problem, queues(problem, hint, patience=patience), (operations, messages, ranks), starts=start)
    return timed(problem, factors, index, start)


def timed_learned(
    problem: ScheduleProblem, weights: DispatchWeights, factors: Factors, index: int, *, level: float = UNKNOWN
) -> TimedPlay:
    """Play ``index`` of some draws, ranks running by a policy."""
    start = np.empty((3, problem.ranks, problem.micro_batches))
    draws = factors.operations[index], factors.messages[index], factors.ranks[index]
    found = settled(problem, weights, level)
    one_play(problem, found.base, found.weights, draws, start)
    return timed(problem, factors, index, start)


def timed(problem: ScheduleProblem, factors: Factors, index: int, start: Floats) -> TimedPlay:
    """The play whose operations start at these times (3, p, m)."""
    tables = problem.tables
    stretch = factors.operations[index].reshape(start.shape) * factors.ranks[index].astype(np.float64)[:, None]
    end = start + tables.duration[:, :, None] * stretch
    late, arrived = factors.messages[index].astype(np.float64).reshape(2, *start.shape[1:]), np.zeros(start.shape)
    arrived[BACKWARD, -1], arrived[WEIGHT] = end[FORWARD, -1], end[BACKWARD]
    for kind, step in ((FORWARD, 1), (BACKWARD, -1)):
        for rank in range(problem.ranks):
            if 0 <= rank + step < problem.ranks:
                sent = _sent(end[kind, rank], tables.transfer[kind, rank] * late[kind, rank])
                arrived[kind, rank + step] = sent + tables.delay[kind, rank] * late[kind, rank]
    return TimedPlay(start, end, arrived, float((end.max(axis=(0, 2)) + tables.reduction).max()))


def order_run(play: TimedPlay, name: str) -> Schedule:
    """The order in which ranks ran their operations."""
    m, p = play.start.shape[2], play.start.shape[1]
    run_ = np.argsort(play.start.transpose(1, 0, 2).reshape(p, 3 * m), axis=1, kind="stable").ravel()
    order = np.stack([run_ // m, np.zeros_like(run_), run_ % m], axis=1)
    return Schedule(name, Shape(p, m), False, order, 3 * m * np.arange(p + 1))


def _sent(end: Floats, transfer: Floats) -> Floats:
    """When messages have left a link that carries one after the other, (m,)."""
    free, found = 0.0, np.empty(len(end))
    for k, (ready, taken) in enumerate(zip(end.tolist(), transfer.tolist(), strict=True)):
        free = found[k] = max(ready, free) + taken
    return found


def pauses(problem: ScheduleProblem, play: TimedPlay) -> Iterator[Pause]:
    """Every pause before the last operation of its rank, rank by rank, in the order of time.

    A pause in which something becomes ready and is left alone is two: first starved, then by choice.
    """
    tables, m, least = problem.tables, problem.micro_batches, _ROUNDING * play.makespan
    for rank in range(problem.ranks):
        done, now, live = [0, 0, 0], 0.0, 0.0
        given = (tables.taken[rank], -tables.freed[rank], tables.freed[rank] - tables.taken[rank])
        for place in np.argsort(play.start[:, rank].ravel(), kind="stable").tolist():
            kind, k = divmod(place, m)
            begin = float(play.start[kind, rank, k])
            if begin - now > least:
                fits = live + tables.taken[rank] <= tables.limit[rank] * (1 + 1e-9)
                ready = max(now, _first_ready(play, rank, done, fits=fits))
                if ready - now > least:
                    yield Pause(rank, now, min(ready, begin), False)
                if begin - ready > least:
                    yield Pause(rank, ready, begin, True)
            now, live, done[kind] = float(play.end[kind, rank, k]), live + given[kind], done[kind] + 1


def _first_ready(play: TimedPlay, rank: int, done: list[int], *, fits: bool) -> float:
    """When the first of the next F, B and W of a rank could run."""
    m, found = play.start.shape[2], [np.inf]
    for kind in (FORWARD, BACKWARD, WEIGHT):
        before = m if kind == FORWARD else done[kind - 1]  # its own forward or backward has run
        if done[kind] < min(before, m) and (fits or kind != FORWARD):
            found.append(float(play.arrived[kind, rank, done[kind]]))
    return min(found)
