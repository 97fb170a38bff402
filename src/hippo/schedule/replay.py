"""A fixed order made a timeline: each rank runs its operations in order, each as soon as its input is there.

Letters: N operations, p ranks, S slots, m micro-batches (``problem.Tables``). Time is never stored in a schedule: it is
the longest path through the orders of the ranks, the messages, and the FIFO of each directed link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.schedule.problem import Floats, ScheduleProblem, Tables
from hippo.schedule.schedule import BACKWARD, FORWARD, WEIGHT, Schedule

# Columns of a sequence: operation, its rank, its place ``kind * S + slot``, and where in ``arrived`` it reads its input
# and writes its result, ``place * m + micro-batch`` (-1: none).
OPERATION, RANK, PLACE, READ, WRITE = range(5)


@dataclass(frozen=True, eq=False)
class Replay:
    """When each operation of a schedule runs. All figures as defined in docs/schedules.md."""

    problem: ScheduleProblem
    schedule: Schedule
    start: Floats  # (N,) in the order of ``schedule.order``
    end: Floats  # (N,)

    @cached_property
    def makespan(self) -> float:
        """From time 0, when the first F starts, until every rank has done its work and agreed its gradients."""
        return float((self.end[self.schedule.order_start[1:] - 1] + self.problem.tables.reduction).max())

    @cached_property
    def longest_stage(self) -> float:
        """Longest time of a rank from the start of its first operation to the end of its last."""
        first, last = self.schedule.order_start[:-1], self.schedule.order_start[1:] - 1
        return float((self.end[last] - self.start[first]).max())

    @property
    def bubble_rate(self) -> float:
        """``1 - work / longest stage`` of the zero-bubble paper (table 5), work averaged over the ranks."""
        return 1.0 - sum(self.problem.work) / self.problem.ranks / self.longest_stage

    @property
    def bubble_full(self) -> float:
        """``1 - work of all ranks / (p makespan)``: what of all ranks' time until the very end is idle."""
        return 1.0 - sum(self.problem.work) / self.problem.ranks / self.makespan


def replay(problem: ScheduleProblem, schedule: Schedule) -> Replay:
    """Times of a schedule that has passed the checker.

    Raises ``ValueError`` when the orders of the ranks wait for each other.
    """
    order, tables = schedule.order, problem.tables
    found = sequence(tables, order, schedule.order_start)
    if len(found) < len(order):
        raise ValueError("the ranks wait for each other: no operation left can start")
    start, end = np.empty(len(order)), np.empty(len(order))
    play(tables, found, durations(tables, fused=schedule.fused), start, end)
    return Replay(problem, schedule, start, end)


def durations(tables: Tables, *, fused: bool) -> Floats:
    """Time of each place, (3 S,); a fused backward lasts as long as B and W together."""
    found = tables.duration.copy()
    if fused:
        found[BACKWARD] += found[WEIGHT]
    return found.ravel()


def makespan(problem: ScheduleProblem, schedule: Schedule) -> float:
    """Only the makespan; inf when the ranks wait for each other."""
    tables = problem.tables
    found = sequence(tables, schedule.order, schedule.order_start)
    if len(found) < len(schedule.order):
        return np.inf
    nothing = np.empty(0)
    return float(play(tables, found, durations(tables, fused=schedule.fused), nothing, nothing))


@kernel
def sequence(tables, order, order_start):  # type: ignore[no-untyped-def]
    """Rows (N, 5) in an order that can be played; fewer than N when the ranks wait for each other."""
    p, v, m, slots = tables.ranks, tables.chunks, tables.micro_batches, tables.ranks * tables.chunks
    rows = np.empty((len(order), 5), np.int32)
    there = np.zeros(2 * slots * m, np.bool_)
    waits_for, next_op = np.full(p, -1), order_start[:-1].copy()
    stack, top, done = np.arange(p)[::-1].copy(), p, 0
    while top > 0:
        top -= 1
        rank = stack[top]
        while next_op[rank] < order_start[rank + 1]:
            op = next_op[rank]
            kind, slot, micro_batch = order[op, 0], rank * v + order[op, 1], order[op, 2]
            place, read, write = kind * slots + slot, -1, -1
            if kind == BACKWARD or (kind == FORWARD and tables.onward[BACKWARD, slot] >= 0):
                read = place * m + micro_batch
                if not there[read]:
                    waits_for[rank] = read
                    break
            rows[done, OPERATION], rows[done, RANK], rows[done, PLACE], rows[done, READ] = op, rank, place, read
            if kind != WEIGHT:
                receiver = tables.onward[kind, slot]
                if receiver >= 0:
                    write = (kind * slots + receiver) * m + micro_batch
                elif kind == FORWARD:
                    write = (BACKWARD * slots + slot) * m + micro_batch
                if write >= 0:
                    there[write] = True
                    if receiver >= 0 and waits_for[receiver // v] == write:
                        waits_for[receiver // v] = -1
                        if receiver // v != rank:
                            stack[top] = receiver // v
                            top += 1
            rows[done, WRITE] = write
            done += 1
            next_op[rank] += 1
    return rows[:done]


@kernel
def play(tables, rows, duration, start, end):  # type: ignore[no-untyped-def]
    """The makespan; writes start and end (N,) of every operation where there is room for them."""
    p, recorded = tables.ranks, len(start) > 0
    delay, transfer, port = tables.delay.ravel(), tables.transfer.ravel(), tables.port.ravel()
    arrived = np.empty(2 * p * tables.chunks * tables.micro_batches)
    free, port_free = np.zeros(p), np.zeros(p * p)
    for row in range(len(rows)):
        rank, place, read, write = rows[row, RANK], rows[row, PLACE], rows[row, READ], rows[row, WRITE]
        now = free[rank]
        if read >= 0 and arrived[read] > now:
            now = arrived[read]
        if recorded:
            start[rows[row, OPERATION]] = now
        now += duration[place]
        if recorded:
            end[rows[row, OPERATION]] = now
        free[rank] = now
        if write >= 0:
            if port[place] >= 0:
                now = max(now, port_free[port[place]]) + transfer[place]
                port_free[port[place]] = now
            arrived[write] = now + delay[place]
    last = 0.0
    for rank in range(p):
        last = max(last, free[rank] + tables.reduction[rank])
    return last


def live(problem: ScheduleProblem, schedule: Schedule) -> NDArray[np.float64]:
    """Most live micro-batches on each rank, (p,): from the start of F to the end of W; a chunk counts its share."""
    share = 1.0 if problem.placement == "bidirectional" else 1.0 / problem.chunks
    return _peaks(schedule, np.full(problem.ranks * problem.chunks, share), np.zeros(problem.ranks * problem.chunks))


def peak_memory(problem: ScheduleProblem, schedule: Schedule) -> NDArray[np.float64]:
    """Most memory on each rank, (p,), in the unit of the limit."""
    return _peaks(schedule, problem.tables.taken, problem.tables.freed)


def _peaks(schedule: Schedule, taken: Floats, freed: Floats) -> NDArray[np.float64]:
    """Highest sum of what is taken at F and given back at B (``freed``) and W (the rest), per rank."""
    kind, starts = schedule.order[:, 0], schedule.order_start
    ranks = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    slot = ranks * (len(taken) // (len(starts) - 1)) + schedule.order[:, 1]
    at_backward = taken[slot] if schedule.fused else freed[slot]
    change = np.select([kind == FORWARD, kind == BACKWARD], [taken[slot], -at_backward], freed[slot] - taken[slot])
    sums = np.cumsum(change)
    before = np.concatenate([[0.0], sums])[starts[:-1]]
    return np.asarray(np.maximum.reduceat(sums, starts[:-1]) - before)
