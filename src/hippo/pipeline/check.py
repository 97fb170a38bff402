"""Is it a schedule: every operation once, in an order that can run to its end, within memory.

Conditions (docs/schedules.md): each rank has F, B and W (or F and a fused B) of every micro-batch of each of its
chunks once; B after F and W after B on the rank; the ranks do not wait for each other in a circle; the memory taken at
the start of F and given back at the end of B and W never exceeds the rank's limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from hippo.pipeline.problem import ScheduleProblem
from hippo.pipeline.replay import peak_memory, sequence
from hippo.pipeline.schedule import BACKWARD, FORWARD, WEIGHT, Schedule
from hippo.pipeline.text import operation_name

MOST = 20  # violations told


def violations(problem: ScheduleProblem, schedule: Schedule, *, memory: bool = True) -> tuple[str, ...]:
    """What is wrong, one sentence each, at most ``MOST``; empty when the schedule is sound."""
    found = tuple(islice(_structure(problem, schedule), MOST))
    if found:
        return found
    waits = tuple(_deadlock(problem, schedule))
    return waits or (tuple(_memory(problem, schedule)) if memory else ())


def _structure(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    """Every operation once, and in order on its rank."""
    if len(schedule.order_start) != problem.ranks + 1:
        yield f"{len(schedule.order_start) - 1} ranks, not {problem.ranks}"
        return
    tables, kinds = problem.tables, (FORWARD, BACKWARD) if schedule.fused else (FORWARD, BACKWARD, WEIGHT)
    for rank in range(problem.ranks):
        rows = schedule.rank(rank)
        outside = (rows[:, 0] < 0) | (rows[:, 0] > kinds[-1]) | (rows[:, 1] < 0) | (rows[:, 1] >= problem.chunks)
        for kind, chunk, micro_batch in rows[outside]:
            given = (int(kind), int(chunk), int(micro_batch))
            yield f"rank {rank}: {given} is no operation of its {problem.chunks} chunks"
        if outside.any():
            continue
        for chunk in range(problem.chunks):
            slot = rank * problem.chunks + chunk
            wanted = tables.offset[slot] + np.arange(tables.passes[slot])
            yield from _chunk(rank, chunk, rows, wanted, kinds)


def _chunk(rank: int, chunk: int, rows: np.ndarray, wanted: np.ndarray, kinds: tuple[int, ...]) -> Iterator[str]:
    """Every micro-batch of a chunk once for each kind, F before B before W."""
    earlier: dict[int, int] = {}
    for kind in kinds:
        at = np.flatnonzero((rows[:, 0] == kind) & (rows[:, 1] == chunk))
        got, counts = np.unique(rows[at, 2], return_counts=True)
        for micro_batch in np.setdiff1d(wanted, got):
            yield f"rank {rank}: {operation_name(kind, chunk, int(micro_batch))} is missing"
        for micro_batch in np.setdiff1d(got, wanted):
            yield f"rank {rank}: {operation_name(kind, chunk, int(micro_batch))} does not belong there"
        for micro_batch in got[counts > 1]:
            yield f"rank {rank}: {operation_name(kind, chunk, int(micro_batch))} runs more than once"
        position = {int(rows[index, 2]): int(index) for index in at}
        for micro_batch, index in position.items():
            if kind != FORWARD and index < earlier.get(micro_batch, -1):
                name, before = (operation_name(each, chunk, micro_batch) for each in (kind, kind - 1))
                yield f"rank {rank}: {name} runs before {before}"
        earlier = position


def _deadlock(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    """The first operation of each rank that never starts, when there is one."""
    rows = sequence(problem.tables, schedule.order, schedule.order_start)
    if len(rows) == len(schedule.order):
        return
    done = np.bincount(rows[:, 1], minlength=problem.ranks) if len(rows) else np.zeros(problem.ranks, dtype=np.int64)
    stuck = []
    for rank in range(problem.ranks):
        if done[rank] < len(schedule.rank(rank)):
            kind, chunk, micro_batch = (int(each) for each in schedule.rank(rank)[done[rank]])
            stuck.append(f"rank {rank} at {operation_name(kind, chunk, micro_batch)}")
    yield f"the ranks wait for each other: {', '.join(stuck[:8])}{', ...' if len(stuck) > 8 else ''}"


def _memory(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    """Ranks above their limit."""
    for rank, (need, limit) in enumerate(zip(peak_memory(problem, schedule), problem.limit, strict=True)):
        if need > limit * (1 + 1e-9):
            yield f"rank {rank}: keeps {need:g}, the limit is {limit:g}"
