"""What the pictures of a played schedule are drawn from: messages on links, memory over time, the longest way.

Letters: N operations, p ranks, S slots ``rank * v + chunk``, m micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import BACKWARD, FORWARD
from hippo.schedule.problem import chains
from hippo.schedule.replay import Replay

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SentMessage:
    """What one rank sends another after an operation: activations (kind F) or their gradients (B)."""

    sender: int  # rank
    receiver: int  # rank
    kind: int
    chunk: int  # of the sender
    micro_batch: int
    leaves: float  # the link begins to send it
    arrives: float


def messages(replay: Replay) -> tuple[SentMessage, ...]:
    """All messages between ranks, in the order of the senders' operations; each directed link sends one at a time."""
    tables, problem = replay.problem.tables, replay.problem
    v, order = problem.chunks, replay.schedule.order.tolist()
    free: dict[int, float] = {}
    found = []
    for rank, slot, op in _sends(replay):
        kind, chunk, micro_batch = order[op]
        receiver = int(tables.onward[kind, slot]) // v
        ready, port, transfer = float(replay.end[op]), int(tables.port[kind, slot]), float(tables.transfer[kind, slot])
        leaves = ready
        if port >= 0:
            leaves = max(ready, free.get(port, 0.0))
            free[port] = leaves + transfer
        arrives = leaves + transfer + float(tables.delay[kind, slot])
        found.append(SentMessage(rank, receiver, kind, chunk, micro_batch, leaves, arrives))
    return tuple(found)


def _sends(replay: Replay) -> list[tuple[int, int, int]]:
    """(rank, slot, operation) of every F and B whose result goes to another rank."""
    tables, v = replay.problem.tables, replay.problem.chunks
    order, ranks = replay.schedule.order, operation_ranks(replay)
    slots = ranks * v + order[:, 1]
    kinds = np.minimum(order[:, 0], BACKWARD)
    onward = tables.onward[kinds, slots]
    leaves = (order[:, 0] <= BACKWARD) & (onward >= 0) & (onward // v != ranks)
    ops = np.flatnonzero(leaves)
    return list(zip(ranks[ops].tolist(), slots[ops].tolist(), ops.tolist(), strict=True))


def operation_ranks(replay: Replay) -> Ints:
    """Rank of every operation, (N,)."""
    starts = replay.schedule.order_start
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def memory_over_time(replay: Replay, rank: int) -> tuple[Floats, Floats]:
    """When the memory of a rank changes, and what it holds from then on, both (changes,); from nothing to nothing.

    Taken at the start of F, given back at the end of B (``Memory.at_backward``) and W (the rest), in the unit of the
    limit.
    """
    tables, schedule = replay.problem.tables, replay.schedule
    own = slice(*schedule.order_start[rank : rank + 2].tolist())
    rows, slots = schedule.order[own], rank * replay.problem.chunks + schedule.order[own, 1]
    kind, taken = rows[:, 0], tables.taken[slots]
    freed = taken if schedule.fused else tables.freed[slots]
    change = np.select([kind == FORWARD, kind == BACKWARD], [taken, -freed], freed - taken)
    when = np.where(kind == FORWARD, replay.start[own], replay.end[own])
    at, where = np.unique(when, return_inverse=True)
    held = np.cumsum(np.bincount(where, change))
    held = np.where(np.abs(held) < 1e-9 * taken.max(), 0.0, held)
    moved = np.diff(held, prepend=0.0) != 0
    return at[moved], held[moved]


# ------------------------------------------------------------------------------------------------------- longest way
@dataclass(frozen=True)
class LongestWay:
    """Operations and messages one after the other that end with the schedule: shorten none of them, shorten nothing."""

    operations: tuple[int, ...]  # in order of time
    computing: tuple[float, float, float]  # time of F, B and W in it
    travelling: tuple[tuple[tuple[int, int], float], ...]  # (lower, upper rank of a hop) and time, longest first
    crossings: int  # messages in it
    agreeing: float = 0.0  # reduction of gradients after the last of them


def longest_way(replay: Replay) -> LongestWay:
    """Back from the rank that ends last: what each operation waited for, its rank or its input (of both, its rank)."""
    ranks, order = operation_ranks(replay).tolist(), replay.schedule.order.tolist()
    inputs = _inputs(replay)
    reduction, last = replay.problem.tables.reduction, replay.schedule.order_start[1:] - 1
    rank = int(np.argmax(replay.end[last] + reduction))
    op, way, hops, crossings = int(last[rank]), [], dict[tuple[int, int], float](), 0
    while True:
        way.append(op)
        began = float(replay.start[op])
        if began <= 0:
            break
        source = inputs[op]
        first = op == replay.schedule.order_start[ranks[op]]
        if source >= 0 and (first or replay.end[op - 1] < began * (1 - 1e-12)):
            hop = (min(ranks[source], ranks[op]), max(ranks[source], ranks[op]))
            hops[hop] = hops.get(hop, 0.0) + began - float(replay.end[source])
            crossings += hop[0] != hop[1]
            op = source
        else:
            op -= 1
    computing = [0.0, 0.0, 0.0]
    for each in way:
        computing[order[each][0]] += float(replay.end[each] - replay.start[each])
    longest = sorted(((hop, time) for hop, time in hops.items() if hop[0] != hop[1]), key=lambda item: -item[1])
    by_kind = (computing[0], computing[1], computing[2])
    return LongestWay(tuple(reversed(way)), by_kind, tuple(longest), crossings, float(reduction[rank]))


def _inputs(replay: Replay) -> list[int]:
    """Operation whose result each one reads, (N,); -1: none (the first F; W reads from its own rank)."""
    problem, order = replay.problem, replay.schedule.order
    v, m, size = problem.chunks, problem.micro_batches, problem.ranks * problem.chunks
    slots = operation_ranks(replay) * v + order[:, 1]
    at = np.full((3, size, m), -1)
    at[order[:, 0], slots, order[:, 2]] = np.arange(len(order))
    before, after = np.full(size, -1), np.full(size, -1)
    for chain in chains(problem):
        before[list(chain[1:])], after[list(chain[:-1])] = chain[:-1], chain[1:]
    found = np.full(len(order), -1)
    forward, backward = order[:, 0] == FORWARD, order[:, 0] == BACKWARD
    found[forward] = np.where(before[slots[forward]] >= 0, at[FORWARD, before[slots[forward]], order[forward, 2]], -1)
    turn = after[slots[backward]] < 0
    found[backward] = np.where(
        turn,
        at[FORWARD, slots[backward], order[backward, 2]],
        at[BACKWARD, after[slots[backward]], order[backward, 2]],
    )
    return found.tolist()
