"""A schedule as a graph, for searches on the orders of its ranks: heads, tails and a longest path. Any placement.

Letters: N operations, p ranks, S slots, m micro-batches. Operations are joined to their neighbours on the rank and to
those that wait for their message; the longest path through it all is the makespan (job-shop scheduling).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import sequence
from hippo.schedule.schedule import Schedule, split

# Whole numbers of an operation: rank, slot, group, place in its group, operation whose result it waits for and that
# waits for its own (-1: none), neighbours in the order of its rank, place in the topological order, number on its rank,
# directed link of its message (-1: none).
RANK, SLOT, GROUP, NTH, INPUT, OUTPUT, BEFORE, AFTER, PLACE, LOCAL, PORT = range(11)
# Times: duration, latency and transfer of its message, earliest start, longest way from its end to the very end, when
# its input is there, longest way through its message or its reduction; memory taken at the start, given back at the
# end, and on the rank before it starts; start that a move would give it; reduction of its rank, which follows the last.
TIME, LATENCY, TRANSFER, HEAD, TAIL, THERE, AWAY, TAKES, GIVES, LIVE, MOVED, REST = range(12)


class Graph(NamedTuple):
    """A schedule as a graph; kernels change it in place."""

    facts: NDArray[np.int64]  # (N, 11)
    times: Floats  # (N, 12)
    order: NDArray[np.int64]  # (N,) topological
    limit: Floats  # (p,)


def graph(problem: ScheduleProblem, schedule: Schedule) -> Graph:
    """The graph of a schedule that has passed the checker; a fused backward becomes B and W."""
    whole = split(schedule)
    tables, rows, start = problem.tables, whole.order, whole.order_start
    slots, n = len(tables.taken), len(rows)
    per_rank = np.diff(start)
    rank, number = np.repeat(np.arange(problem.ranks), per_rank), np.full((3 * slots, problem.micro_batches), -1)
    kind, slot, batch = rows[:, 0], rank * problem.chunks + rows[:, 1], rows[:, 2]
    number[kind * slots + slot, batch] = np.arange(n)
    facts, times = np.full((n, 11), -1), np.zeros((n, 12))
    facts[:, RANK], facts[:, SLOT], facts[:, GROUP] = rank, slot, kind * slots + slot
    facts[:, NTH], facts[:, LOCAL] = batch, np.arange(n) - start[rank]
    message = kind != WEIGHT
    way, whence = kind[message], slot[message]
    goes_to = tables.onward[way, whence]
    turns = (goes_to < 0) & (way == FORWARD)
    place = np.where(turns, BACKWARD * slots + whence, way * slots + goes_to)
    output = np.where((goes_to >= 0) | turns, number[place, batch[message]], -1)
    facts[message, OUTPUT] = output
    facts[output[output >= 0], INPUT] = np.flatnonzero(message)[output >= 0]
    facts[message, PORT] = tables.port[way, whence]
    times[:, TIME], times[:, REST] = tables.duration[kind, slot], tables.reduction[rank]
    times[message, LATENCY], times[message, TRANSFER] = tables.delay[way, whence], tables.transfer[way, whence]
    times[:, TAKES] = np.where(kind == FORWARD, tables.taken[slot], 0.0)
    gives = np.stack([np.zeros(slots), tables.freed, tables.taken - tables.freed])
    times[:, GIVES] = gives[kind, slot]
    order = sequence(problem, whole)[:, 0].copy()
    return Graph(facts, times, order, tables.limit * (1 + 1e-9))


def rows_of(problem: ScheduleProblem, facts: NDArray[np.int64], order: NDArray[np.int64]) -> Rows:
    """The orders of all ranks that a topological order stands for."""
    slots, chunks = problem.ranks * problem.chunks, problem.chunks
    mine = order[np.argsort(facts[order, RANK], kind="stable")]
    rows = np.stack([facts[mine, GROUP] // slots, facts[mine, SLOT] % chunks, facts[mine, NTH]], axis=1)
    return rows, np.concatenate([[0], np.cumsum(np.bincount(facts[:, RANK], minlength=problem.ranks))])


# ----------------------------------------------------------------------------------------------------------- the graph
@kernel
def link_up(facts, times, order, ranks):  # type: ignore[no-untyped-def]
    """Neighbours, places and memory of every operation, from the topological order."""
    last, live = np.full(ranks, -1), np.zeros(ranks)
    for place in range(len(order)):
        op = order[place]
        rank = facts[op, RANK]
        facts[op, PLACE], facts[op, BEFORE], facts[op, AFTER] = place, last[rank], -1
        if last[rank] >= 0:
            facts[last[rank], AFTER] = op
        last[rank] = op
        times[op, LIVE] = live[rank]
        live[rank] += times[op, TAKES] - times[op, GIVES]


@kernel
def heads(facts, times, order, begin, port_free, ends):  # type: ignore[no-untyped-def]
    """Earliest starts from place ``begin`` on, and when each rank has agreed its gradients in ``ends``."""
    port_free[:] = 0.0
    for place in range(begin, len(order)):
        op = order[place]
        now, before, there = 0.0, facts[op, BEFORE], times[op, THERE]
        source = facts[op, INPUT]
        if source >= 0:
            if facts[source, PORT] < 0:
                there = times[source, HEAD] + times[source, TIME] + times[source, LATENCY]
                times[op, THERE] = there
            now = there
        if before >= 0:
            now = max(now, times[before, HEAD] + times[before, TIME])
        times[op, HEAD] = now
        now += times[op, TIME]
        ends[facts[op, RANK]] = now + times[op, REST]
        if facts[op, PORT] >= 0:
            now = max(now, port_free[facts[op, PORT]]) + times[op, TRANSFER]
            port_free[facts[op, PORT]] = now
            times[facts[op, OUTPUT], THERE] = now + times[op, LATENCY]


@kernel
def tails(facts, times, order, begin, port_tail):  # type: ignore[no-untyped-def]
    """Longest ways to the very end from place ``begin`` down."""
    port_tail[:] = 0.0
    for place in range(begin, -1, -1):
        op = order[place]
        tail, after, target = times[op, REST], facts[op, AFTER], facts[op, OUTPUT]
        if target >= 0:
            way = times[op, LATENCY] + times[target, TIME] + times[target, TAIL]
            if facts[op, PORT] >= 0:
                way = times[op, TRANSFER] + max(way, port_tail[facts[op, PORT]])
                port_tail[facts[op, PORT]] = way
            tail = max(tail, way)
        times[op, AWAY] = tail
        if after >= 0:
            tail = max(tail, times[after, TIME] + times[after, TAIL])
        times[op, TAIL] = tail


@kernel
def longest_path(facts, times, order, span, path, rng):  # type: ignore[no-untyped-def]
    """Operations of one longest path, drawn where there are several, last first in ``path``; returns how many."""
    close, op, count = 1e-9 * span, -1, 0
    for place in range(len(order)):
        last = order[place]
        if times[last, HEAD] + times[last, TIME] + times[last, REST] >= span - close:
            op = last
            if rng.random() < 0.5:
                break
    while op >= 0:
        path[count] = op
        count += 1
        before, source, head = facts[op, BEFORE], facts[op, INPUT], times[op, HEAD]
        by_rank = before >= 0 and times[before, HEAD] + times[before, TIME] >= head - close
        by_message = source >= 0 and times[op, THERE] >= head - close
        if head <= close:
            break
        if by_rank and (not by_message or facts[source, RANK] == facts[op, RANK] or rng.random() < 0.5):
            op = before
            continue
        begins = times[op, THERE] - times[source, LATENCY] - times[source, TRANSFER]
        op = source
        while facts[op, PORT] >= 0 and begins > times[op, HEAD] + times[op, TIME] + close:
            port, op = facts[op, PORT], facts[op, BEFORE]  # it waited for the message before it on its link
            while facts[op, PORT] != port:
                op = facts[op, BEFORE]
            begins -= times[op, TRANSFER]
    return count


@kernel
def refresh(facts, times, order, links, ends):  # type: ignore[no-untyped-def]
    """Everything that follows from the topological order."""
    link_up(facts, times, order, len(ends))
    heads(facts, times, order, 0, links, ends)
    tails(facts, times, order, len(order) - 1, links)
