"""The least makespan that knowing all draws beforehand could reach: what separates a schedule from clairvoyance.

For every play a lower bound on the makespan of every schedule that runs the micro-batches of each rank in order, be it
chosen after the draws are known. One chunk per rank. Heads are longest paths over the data, the order of the
micro-batches and the memory (F k after W ``k - K``); a rank's operations take the time of one machine from their heads
on, and what goes home from a rank after its last B is added to it (docs/schedules.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, drawn
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import InputError
from hippo.schedule.problem import ScheduleProblem

Floats = NDArray[np.float64]


def floors(problem: ScheduleProblem, fluctuation: Fluctuation, *, samples: int, rng: np.random.Generator) -> Floats:
    """A lower bound on the makespan of each play, (n,); a generator in the same state means the same plays.

    Raises ``InputError`` when ranks have more than one chunk: there no order of the micro-batches is given.
    """
    found = [floors_of(problem, each) for each in drawn(problem, fluctuation, samples=samples, rng=rng)]
    return np.concatenate(found)


def floors_of(problem: ScheduleProblem, factors: Factors) -> Floats:
    """The same for draws that are there already, (n,)."""
    if problem.placement != "plain":
        remedy = "use a placement of one chunk per rank"
        raise InputError("has no bound per play", key="placement", value=problem.placement, remedy=remedy)
    tables = problem.tables
    kept = np.where(tables.taken > tables.freed, tables.taken - tables.freed, np.inf)
    with np.errstate(invalid="ignore"):
        live = np.where(np.isinf(tables.limit), np.inf, (tables.limit - tables.freed) / kept * (1 + 1e-9))
    most = np.minimum(np.maximum(live, 1), problem.micro_batches).astype(np.int64)
    most = np.where(tables.taken > tables.freed, most, problem.micro_batches)
    found = np.empty(len(factors.ranks))
    _floors(tables, most, *factors, found)
    return found


@kernel
def _floors(tables, most, operations, messages, ranks, found):  # type: ignore[no-untyped-def]
    p, m = tables.ranks, tables.micro_batches
    taken, sent, head = np.empty((3, p, m)), np.empty((2, p, m)), np.empty((3, p, m))
    for play in range(len(found)):
        for rank in range(p):
            for index in range(m):
                for kind in range(3):
                    at = (kind * p + rank) * m + index
                    taken[kind, rank, index] = tables.duration[kind, rank] * operations[play, at] * ranks[play, rank]
                    if kind < 2:
                        way = tables.delay[kind, rank] + tables.transfer[kind, rank]
                        sent[kind, rank, index] = way * messages[play, at]
        found[play] = _heads(taken, sent, most, head)
        home = taken[WEIGHT, 0, m - 1] + tables.reduction[0]
        for rank in range(p):
            if rank > 0:
                home += sent[BACKWARD, rank, m - 1]
            found[play] = max(found[play], _load(taken[:, rank], head[:, rank], 3) + tables.reduction[rank])
            found[play] = max(found[play], _load(taken[:, rank], head[:, rank], 2) + home)
            home += taken[BACKWARD, rank, m - 1]
    return


@kernel
def _heads(taken, sent, most, head):  # type: ignore[no-untyped-def]
    """Writes the earliest starts (3, p, m) over data, micro-batches in order, memory and load; the last end."""
    p, m = taken.shape[1], taken.shape[2]
    last = 0.0
    before = np.zeros((3, p))  # work of the operations of each kind before this micro-batch
    left = np.zeros((2, p))  # of B and W, what memory has made to run before F of this micro-batch
    for index in range(m):
        for rank in range(p):
            first = 0.0
            if rank > 0:
                first = (
                    head[FORWARD, rank - 1, index] + taken[FORWARD, rank - 1, index] + sent[FORWARD, rank - 1, index]
                )
            if index > 0:
                first = max(first, head[FORWARD, rank, index - 1] + taken[FORWARD, rank, index - 1])
            old = index - most[rank]
            if old >= 0:
                left[0, rank] += taken[BACKWARD, rank, old]
                left[1, rank] += taken[WEIGHT, rank, old]
                first = max(first, head[WEIGHT, rank, old] + taken[WEIGHT, rank, old])
                first = max(first, head[FORWARD, rank, 0] + before[FORWARD, rank] + left[0, rank] + left[1, rank])
            head[FORWARD, rank, index] = first
        for rank in range(p - 1, -1, -1):
            end = head[FORWARD, rank, index] + taken[FORWARD, rank, index]
            if rank < p - 1:
                home = head[BACKWARD, rank + 1, index] + taken[BACKWARD, rank + 1, index]
                end = max(end, home + sent[BACKWARD, rank + 1, index])
            before[FORWARD, rank] += taken[FORWARD, rank, index]
            begin = head[FORWARD, rank, 0]
            end = max(end, begin + before[FORWARD, rank] + before[BACKWARD, rank])
            if index > 0:
                end = max(end, head[BACKWARD, rank, index - 1] + taken[BACKWARD, rank, index - 1])
            head[BACKWARD, rank, index] = end
            before[BACKWARD, rank] += taken[BACKWARD, rank, index]
            end = max(
                end + taken[BACKWARD, rank, index],
                begin + before[FORWARD, rank] + before[BACKWARD, rank] + before[WEIGHT, rank],
            )
            if index > 0:
                end = max(end, head[WEIGHT, rank, index - 1] + taken[WEIGHT, rank, index - 1])
            head[WEIGHT, rank, index] = end
            before[WEIGHT, rank] += taken[WEIGHT, rank, index]
            last = max(last, end + taken[WEIGHT, rank, index])
    return last


@kernel
def _load(taken, head, kinds):  # type: ignore[no-untyped-def]
    """When one machine has run the operations (kinds, m) of the first ``kinds``, each from its head on."""
    m = taken.shape[1]
    at, now = np.zeros(3, np.int64), 0.0
    for _ in range(kinds * m):
        soonest, chosen = np.inf, 0
        for kind in range(kinds):
            if at[kind] < m and head[kind, at[kind]] < soonest:
                soonest, chosen = head[kind, at[kind]], kind
        now = max(now, soonest) + taken[chosen, at[chosen]]
        at[chosen] += 1
    return now
