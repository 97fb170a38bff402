"""What a learned dispatcher starts from: the hint, and the patience, that did best in a few quick plays.

The four named schedules that the problem's memory allows are each played as a hint, with seven patiences, on the same
few draws (``hippo.engine.events``; every operation and message with the standard deviation that operations had
in the steps before, to the nearest of ``LEVELS``). The best pair is the base: the policy sees where each operation
stands in it, and untrained it follows it. Which base goes best with a policy, its trial plays say (``guard``).

Letters: p ranks, m micro-batches; N operations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.features import fixed_features
from hippo.errors import InfeasibleError, InputError
from hippo.schedule.by_hint import makespans, queues
from hippo.schedule.methods import generate
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import replay, sequence
from hippo.schedule.schedule import Schedule, split

HINTS = ("cross-domain", "zb-auto", "zb-h2", "zb-h1")
PATIENCES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3)
UNKNOWN, PLAYS = 0.2, 24
"""Standard deviation that is assumed before the first step; plays of each pair."""


class Base(NamedTuple):
    """A hint ready for the kernels."""

    turn: NDArray[np.int64]  # (3, p, m) place of each operation among those of its rank, in the hint
    start: Floats  # (3, p, m) when it starts where nothing moves, ranks keeping to the hint's order
    tail: Floats  # (3, p, m) from its start to the end of all, likewise
    fixed: NDArray[np.float32]  # (p, n) what never changes during a play, see ``features.FIXED``
    patience: float  # of ``schedule.by_hint``
    makespan: float  # where nothing moves, in the hint's order
    beat: float  # longest time that a rank takes for one micro-batch: the unit of times that a policy sees


def nearest_level(level: float) -> float:
    """The one of ``LEVELS`` that is nearest."""
    return min(LEVELS, key=lambda each: abs(each - level))


@lru_cache(maxsize=256)
def base_of(problem: ScheduleProblem, level: float = UNKNOWN) -> Base:
    """The base of a problem; ``level``: standard deviation of operations against their promise, a share.

    Raises
    ------
    InputError
        The placement is not plain: the dispatcher was made for one chunk per rank.
    InfeasibleError
        One micro-batch does not fit into the memory of a rank.
    """
    return base_from(problem, *pairs_of(problem, nearest_level(level))[0])


def base_from(problem: ScheduleProblem, hint: Schedule, patience: float) -> Base:
    """The base that a given hint makes: one chunk per rank, each kind in the order of the micro-batches."""
    if problem.placement != "plain":
        remedy = "use a placement of one chunk per rank"
        raise InputError("has no learned dispatch", key="placement", value=problem.placement, remedy=remedy)
    whole, p, m = split(hint), problem.ranks, problem.micro_batches
    rows, played = sequence(problem, whole), replay(problem, whole)
    ranks = np.repeat(np.arange(p), np.diff(whole.order_start))
    at = (whole.order[:, 0], ranks, whole.order[:, 2])
    turn, starts = np.empty((3, p, m), np.int64), np.empty((3, p, m))
    turn[at], starts[at] = np.arange(len(ranks)) - whole.order_start[ranks], played.start
    tail = _tails(problem.tables, whole.order, ranks, rows)
    fixed = fixed_features(problem, turn, patience)
    return Base(
        turn, starts, tail, fixed, float(patience), played.makespan, float(problem.tables.duration.sum(axis=0).max())
    )


def pair_name(hint: Schedule, patience: float) -> str:
    """An order, and with which patience it is a hint."""
    return f"{hint.name} as a hint" + (f" with patience {patience:g}" if patience else "")


@lru_cache(maxsize=256)
def pairs_of(problem: ScheduleProblem, level: float) -> tuple[tuple[Schedule, float], ...]:
    """Each order with its best patience at one of ``LEVELS``, the best pair first; errors as of ``base_of``."""
    if problem.placement != "plain":
        remedy = "use a placement of one chunk per rank"
        raise InputError("has no learned dispatch", key="placement", value=problem.placement, remedy=remedy)
    rng, count = np.random.default_rng(0), 3 * problem.ranks * problem.micro_batches
    draws = np.maximum(1 + level * rng.standard_normal((PLAYS if level else 1, 2, count)), 0.05)
    found: list[tuple[float, Schedule, float]] = []
    refused: InfeasibleError | None = None
    for name in HINTS:
        try:
            hint = generate(name, problem)
        except InfeasibleError as error:
            refused = refused or error.with_traceback(None)  # which would keep the frames of all callers
            continue
        means = [_mean(problem, hint, patience, draws) for patience in PATIENCES]
        best = int(np.argmin(means))
        found.append((means[best], hint, PATIENCES[best]))
    if not found:
        assert refused is not None
        raise refused
    return tuple((hint, patience) for _, hint, patience in sorted(found, key=lambda each: each[0]))


def _mean(problem: ScheduleProblem, hint: Schedule, patience: float, draws: Floats) -> float:
    """Mean makespan of a hint over draws (n, 2, 3 p m): of operations, of what they send."""
    factors = draws[:, 0], draws[:, 1], np.ones((len(draws), problem.ranks))
    return float(np.mean(makespans(problem, queues(problem, hint, patience=patience), factors)))


@kernel
def _tails(tables, order, ranks, rows):  # type: ignore[no-untyped-def]
    """From the start of each operation to the end of all, (3, p, m), over data and the orders of the ranks."""
    p, m = tables.ranks, tables.micro_batches
    tail, after = np.zeros((3, p, m)), tables.reduction.copy()  # after: from the end of the rank's operation on
    for row in range(len(rows) - 1, -1, -1):
        op = rows[row, 0]
        kind, rank, index = order[op, 0], ranks[op], order[op, 2]
        least = after[rank]
        if kind < 2:
            receiver = tables.onward[kind, rank]
            way = tables.transfer[kind, rank] + tables.delay[kind, rank]
            if receiver >= 0:
                least = max(least, way + tail[kind, receiver, index])
            elif kind == 0:
                least = max(least, tail[1, rank, index])
        tail[kind, rank, index] = after[rank] = tables.duration[kind, rank] + least
    return tail
