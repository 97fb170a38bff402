"""The shortest makespan by looking at everything, and random problems small enough for it.

``shortest`` shares nothing with the package but the problem: it starts operations one after the other, never one before
the last one started, each as soon as its rank is free and its input there, and tries all. It assumes no order of
micro-batches beyond the first slot, no rule of memory, no bound but the work that is left.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import inf

from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem

Operation = tuple[int, int, int]  # kind, slot, micro-batch


@dataclass
class State:
    """What is done so far; times of ranks, links and operations."""

    free: list[float]
    link_free: dict[int, float]
    held: list[float]
    there: dict[Operation, float]  # when the input of an operation has arrived; absent: not yet
    work: list[float]
    left: set[Operation] = field(default_factory=set)
    last: float = 0.0  # start of the last operation


def shortest(problem: ScheduleProblem) -> float:
    """The smallest makespan of any schedule within memory."""
    return _search(problem, _first(problem), inf)


def _first(problem: ScheduleProblem) -> State:
    tables = problem.tables
    state = State([0.0] * problem.ranks, {}, [0.0] * problem.ranks, {}, [0.0] * problem.ranks)
    for slot in range(len(tables.offset)):
        for micro_batch in range(tables.offset[slot], tables.offset[slot] + tables.passes[slot]):
            for kind in range(3):
                state.left.add((kind, slot, micro_batch))
                state.work[slot // problem.chunks] += float(tables.duration[kind, slot])
            if tables.onward[1, slot] < 0:
                state.there[0, slot, micro_batch] = 0.0
    return state


def _search(problem: ScheduleProblem, state: State, best: float) -> float:
    rests = problem.reduction or (0.0,) * problem.ranks  # a rank agrees its gradients after its last operation
    if max(map(sum, zip(state.free, state.work, rests, strict=True))) >= best - 1e-9:
        return best
    if not state.left:
        return max(map(sum, zip(state.free, rests, strict=True)))
    tables, ready = problem.tables, []
    for operation in state.left:
        kind, slot, micro_batch = operation
        rank = slot // problem.chunks
        if operation not in state.there or (kind == 0 and _early(problem, state, slot, micro_batch)):
            continue
        start = max(state.free[rank], state.there[operation])
        if start >= state.last:
            ready.append((start, -kind, operation, start + float(tables.duration[kind, slot])))
    for start, _, operation, end in sorted(ready):
        best = min(best, _search(problem, _run(problem, state, operation, start, end), best))
    return best


def _early(problem: ScheduleProblem, state: State, slot: int, micro_batch: int) -> bool:
    """No memory left; or a micro-batch enters before its elder twin."""
    tables, rank = problem.tables, slot // problem.chunks
    twin = tables.onward[1, slot] < 0 and (0, slot, micro_batch - 1) in state.left
    return bool(twin or state.held[rank] + tables.taken[slot] > problem.limit[rank] * (1 + 1e-9))


def _run(problem: ScheduleProblem, old: State, operation: Operation, start: float, end: float) -> State:
    tables, (kind, slot, micro_batch) = problem.tables, operation
    rank = slot // problem.chunks
    new = State(
        old.free[:], dict(old.link_free), old.held[:], dict(old.there), old.work[:], old.left - {operation}, start
    )
    new.free[rank] = end
    new.work[rank] -= float(tables.duration[kind, slot])
    taken, freed = float(tables.taken[slot]), float(tables.freed[slot])
    new.held[rank] += (taken, -freed, freed - taken)[kind]
    if kind == 1:
        new.there[2, slot, micro_batch] = end
    if kind < 2:
        receiver = int(tables.onward[kind, slot])
        if receiver >= 0:
            port, transfer = int(tables.port[kind, slot]), float(tables.transfer[kind, slot])
            sent = max(end, new.link_free.get(port, 0.0)) + transfer if port >= 0 else end
            if port >= 0:
                new.link_free[port] = sent
            new.there[kind, receiver, micro_batch] = sent + float(tables.delay[kind, slot])
        elif kind == 0:
            new.there[1, slot, micro_batch] = end
    return new


def with_reduction(problem: ScheduleProblem, seed: int) -> ScheduleProblem:
    """The same with a time after the last operation of each rank: none, short, or as long as several operations."""
    rng = random.Random(seed)
    most = rng.choice((5, 30, 80))
    return replace(problem, reduction=tuple(rng.choice((0, 1, 1)) * rng.randint(0, most) / 10 for _ in problem.forward))


def random_problem(seed: int, placement: str = "plain", *, most: int = 3) -> ScheduleProblem:
    """Unequal ranks and links, memory of every kind; times are multiples of a tenth."""
    rng = random.Random(seed)
    p = rng.randint(1, most) if placement == "plain" else rng.randint(1, 2)
    m = rng.randint(1, 4 - (p > 2) if placement == "plain" else 2 + (placement == "bidirectional"))
    tenths = lambda low, high: rng.randint(low, high) / 10  # noqa: E731
    times = [tuple(tenths(2, 20) for _ in range(p)) for _ in range(3)]
    if rng.random() < 0.4:
        times = [(tenths(5, 12),) * p for _ in range(3)]
    slow, transfers = rng.choice((0, 5, 40)), rng.random() < 0.4
    links = [
        tuple(RankLink(tenths(0, slow), tenths(0, 15) if transfers else 0.0) for _ in range(p - 1)) for _ in range(2)
    ]
    memory, chunks = [], 1 if placement == "plain" else 2
    for _ in range(p):
        taken = rng.choice((1.0, 1.0, 2.0, 1.7))
        memory.append(MicroBatchMemory(taken, rng.choice((0.0, 0.0, 0.3, 0.9)) * taken))
    limit = tuple(inf if rng.random() < 0.2 else each.at_forward * rng.choice((1, 1.5, 2, 2.6, 3)) for each in memory)
    return ScheduleProblem(m, *times, *links, limit, tuple(memory), placement, chunks)
