"""Is it a schedule: every operation once, in an order that can run to its end, within memory.

Conditions (docs/schedules.md): each rank has F, B and W (or F and a fused B) of every micro-batch of each of its
chunks once; B after F and W after B on the rank; the ranks do not wait for each other in a circle; the memory taken at
the start of F and given back at the end of B and W never exceeds the rank's limit.

A kernel says quickly whether all is well; only when it is not are the sentences looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.problem import Ints, ScheduleProblem
from hippo.schedule.replay import peak_memory, sequence
from hippo.schedule.schedule import Schedule
from hippo.schedule.text import operation_name

MOST = 20  # violations told
MOST_STUCK = 8  # ranks named in a deadlock


def violations(problem: ScheduleProblem, schedule: Schedule, *, memory: bool = True) -> tuple[str, ...]:
    """What is wrong, one sentence each, at most ``MOST``; empty when the schedule is sound."""
    shaped = _is_shaped(problem, schedule)
    if not shaped or not complete(problem.tables, schedule.order, schedule.order_start, schedule.fused):
        return tuple(islice(_structure(problem, schedule), MOST))
    waits = _deadlock(problem, schedule)
    if waits:
        return waits
    return tuple(islice(_memory(problem, schedule), MOST)) if memory else ()


def _is_shaped(problem: ScheduleProblem, schedule: Schedule) -> bool:
    """Whether the arrays are those of a schedule of p ranks."""
    order, start = schedule.order, schedule.order_start
    return (
        start.shape == (problem.ranks + 1,)
        and order.shape == (len(order), 3)
        and bool(start[0] == 0 and start[-1] == len(order) and (np.diff(start) >= 0).all())
    )


@kernel
def complete(tables, order, order_start, fused):  # type: ignore[no-untyped-def]
    """Whether each rank runs everything once, F before B before W."""
    v, m = tables.chunks, tables.micro_batches
    kinds = 2 if fused else 3
    if len(order) != kinds * tables.passes.sum():
        return False
    done = np.zeros(tables.ranks * v * m, np.int8)  # operations of a pass that have run
    for rank in range(tables.ranks):
        for op in range(order_start[rank], order_start[rank + 1]):
            kind, chunk, micro_batch = order[op, 0], order[op, 1], order[op, 2]
            if kind < 0 or kind >= kinds or chunk < 0 or chunk >= v:
                return False
            slot = rank * v + chunk
            first = tables.offset[slot]
            if micro_batch < first or micro_batch >= first + tables.passes[slot]:
                return False
            if done[slot * m + micro_batch] != kind:  # runs again, or too early
                return False
            done[slot * m + micro_batch] = kind + 1
    return True  # as many as there are, none twice


# ---------------------------------------------------------------------------------------------------------- sentences
def _structure(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    """What is missing, too much, or too early on its rank."""
    if not _is_shaped(problem, schedule):
        yield f"{len(schedule.order_start) - 1} ranks, not {problem.ranks}, or rows that belong to none"
        return
    tables, kinds = problem.tables, (FORWARD, BACKWARD) if schedule.fused else (FORWARD, BACKWARD, WEIGHT)
    for rank in range(problem.ranks):
        rows = schedule.rank(rank)
        outside = (rows[:, 0] < 0) | (rows[:, 0] > kinds[-1]) | (rows[:, 1] < 0) | (rows[:, 1] >= problem.chunks)
        for kind, chunk, micro_batch in rows[outside].tolist():
            fused = " with a fused backward" if kind == WEIGHT and schedule.fused else ""
            yield f"rank {rank}: {_name(problem, kind, chunk, micro_batch)} is no operation of its chunks{fused}"
        for chunk in range(problem.chunks):
            slot = rank * problem.chunks + chunk
            wanted = tables.offset[slot] + np.arange(tables.passes[slot])
            yield from _chunk(problem, rank, chunk, rows[~outside], wanted, kinds)


def _chunk(
    problem: ScheduleProblem, rank: int, chunk: int, rows: Ints, wanted: Ints, kinds: tuple[int, ...]
) -> Iterator[str]:
    """Every micro-batch of a chunk once for each kind, F before B before W."""
    earlier: dict[int, int] = {}
    for kind in kinds:
        at = np.flatnonzero((rows[:, 0] == kind) & (rows[:, 1] == chunk))
        got, first, counts = np.unique(rows[at, 2], return_index=True, return_counts=True)
        for wrong, problem_of_it in (
            (np.setdiff1d(wanted, got), "is missing"),
            (np.setdiff1d(got, wanted), "does not belong there"),
            (got[counts > 1], "runs more than once"),
        ):
            for micro_batch in wrong.tolist():
                yield f"rank {rank}: {_name(problem, kind, chunk, micro_batch)} {problem_of_it}"
        position = dict(zip(got.tolist(), at[first].tolist(), strict=True))
        for micro_batch, index in position.items():
            if kind != FORWARD and index < earlier.get(micro_batch, -1):
                name, before = (_name(problem, each, chunk, micro_batch) for each in (kind, kind - 1))
                yield f"rank {rank}: {name} runs before {before}"
        earlier = position


def _name(problem: ScheduleProblem, kind: int, chunk: int, micro_batch: int) -> str:
    """``B3a``, or the numbers where they are none of an operation."""
    if not (FORWARD <= kind <= WEIGHT and chunk >= 0 and micro_batch >= 0):
        return f"({kind}, {chunk}, {micro_batch})"
    return operation_name(kind, chunk, micro_batch, chunks=problem.chunks)


def _deadlock(problem: ScheduleProblem, schedule: Schedule) -> tuple[str, ...]:
    """One sentence with the first operation of each rank that never starts; empty when all can run."""
    rows = sequence(problem, schedule)
    if len(rows) == len(schedule.order):
        return ()
    done = np.bincount(rows[:, 1], minlength=problem.ranks)
    stuck = [
        f"rank {rank} at {_name(problem, *schedule.rank(rank)[done[rank]].tolist())}"
        for rank in range(problem.ranks)
        if done[rank] < len(schedule.rank(rank))
    ]
    more = ", ..." if len(stuck) > MOST_STUCK else ""
    return (f"the ranks wait for each other: {', '.join(stuck[:MOST_STUCK])}{more}",)


def _memory(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    """Ranks above their limit."""
    for rank, (need, limit) in enumerate(zip(peak_memory(problem, schedule).tolist(), problem.limit, strict=True)):
        if need > limit * (1 + 1e-9):
            yield f"rank {rank}: keeps {need:g}, the limit is {limit:g}"
