"""A fixed order made a timeline: each rank runs its operations in order, each as soon as its input is there.

Letters: N operations, p ranks, S slots, m micro-batches (``engine.program.Packed``). A schedule stores no time: that is
the longest path through the orders of the ranks, the messages, and the FIFO of each directed link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.engine.events import Pipe, pipe
from hippo.engine.fixed_order import play
from hippo.engine.program import BACKWARD, FORWARD, NOTHING, Packed
from hippo.schedule.problem import Floats, Ints, ScheduleProblem
from hippo.schedule.schedule import Schedule


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
    program = packed(problem, schedule)
    count = len(schedule.order)
    start, end = np.empty((2, count + 2 * problem.ranks))
    if np.isnan(play(program, problem.network, NOTHING._replace(op_start=start, op_end=end))):
        raise ValueError("the ranks wait for each other: no operation left can start")
    return Replay(problem, schedule, start[:count], end[:count])


def makespan(problem: ScheduleProblem, schedule: Schedule) -> float:
    """Only the makespan; inf when the ranks wait for each other."""
    found = float(play(packed(problem, schedule), problem.network, NOTHING))
    return np.inf if np.isnan(found) else found


def packed(problem: ScheduleProblem, schedule: Schedule, *, again: bool = False) -> Packed:
    """A schedule as the engine plays it over ``problem.network``; a fused backward lasts as long as B and W together.

    ``again``: it is played many times, so the first play notes the sequence for the others.
    """
    return problem.program(schedule.order, schedule.order_start, fused=schedule.fused, again=again)


def choosing(problem: ScheduleProblem) -> Pipe:
    """The pipeline for ranks that choose what comes first."""
    tables = problem.tables
    memory = np.stack([tables.taken, -tables.freed, tables.freed - tables.taken])
    length = np.add.reduceat(tables.passes, problem.chunks * np.arange(problem.ranks))
    return pipe(problem.packed[0], problem.network, memory, np.array(tables.limit), length)


def sequence(problem: ScheduleProblem, schedule: Schedule) -> Ints:
    """Rows (N, 4) of operation, rank, place and micro-batch in an order that can be played; fewer than N when the ranks
    wait for each other."""
    program = packed(problem, schedule, again=True)
    play(program, problem.network, NOTHING)
    return program.sequence[: program.known[0]]


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
