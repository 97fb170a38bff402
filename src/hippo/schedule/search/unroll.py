"""A schedule for many micro-batches out of a good one for few: a stretch of its steady state is repeated.

Few micro-batches are quickly scheduled well, and the steady state in the middle is the same however long it lasts. On
each rank a stretch of the order is sought that runs n operations of every kind and chunk; repeated q times, each time
with the next n micro-batches, it lengthens the order by q n micro-batches. Memory never holds more than before: every
repetition starts and ends with as much as the stretch. Whether the ranks still go together decides the replay, over
all n and all moments at which the stretches may start.

One chain of slots (not ``bidirectional``). Letters: p ranks, v chunks per rank, m micro-batches.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, Ints, ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.schedule import Schedule, Shape

LONGEST = 16  # micro-batches of a stretch
MOMENTS = 48  # times of the small schedule at which stretches start

Stretch = tuple[int, int]  # rows of a rank from, to


def unrolled(problem: ScheduleProblem, few: ScheduleProblem, small: Schedule) -> Schedule | None:
    """The shortest that repeating a stretch of ``small`` gives; None when no stretch can be repeated.

    ``few`` is the same problem with fewer micro-batches, ``small`` its schedule, checked and with W rows of its own.
    """
    assert problem.placement != "bidirectional"
    assert few.micro_batches < problem.micro_batches
    timeline, best, shortest = replay(few, small), None, np.inf
    starts = [timeline.start[a:b] for a, b in zip(small.order_start[:-1], small.order_start[1:], strict=True)]
    for each in range(1, min(few.micro_batches, LONGEST) + 1):
        places = [_stretches(small.rank(rank), each, problem.chunks) for rank in range(problem.ranks)]
        if not all(places):
            continue
        for chosen in _choices(places, starts, float(timeline.end.max())):
            rows = _repeat(problem, small, chosen, each)
            found = Schedule("unrolled", Shape(problem.ranks, problem.micro_batches, problem.chunks), False, *rows)
            span = makespan(problem, found)
            if span < shortest * (1 - 1e-12):
                best, shortest = found, span
    return best


def _stretches(rows: Ints, each: int, chunks: int) -> list[Stretch]:
    """All stretches of a rank with ``each`` operations of every kind and chunk, by where they start."""
    group = rows[:, 0] * chunks + rows[:, 1]
    counts = np.cumsum(
        np.vstack([np.zeros((1, 3 * chunks), np.int64), np.eye(3 * chunks, dtype=np.int64)[group]]), axis=0
    )
    size = 3 * chunks * each
    return [(int(a), int(a) + size) for a in np.flatnonzero((counts[size:] - counts[:-size] == each).all(axis=1))]


def _choices(places: list[list[Stretch]], starts: list[Floats], span: float) -> set[tuple[Stretch, ...]]:
    """For moments all over the small schedule: on each rank the stretch that starts next."""
    found = set()
    begins = [[float(begin[a]) for a, _ in own] for own, begin in zip(places, starts, strict=True)]
    for moment in np.linspace(0, span, MOMENTS):
        at = (min(bisect_left(begin, moment), len(begin) - 1) for begin in begins)
        found.add(tuple(own[index] for own, index in zip(places, at, strict=True)))
    return found


def _repeat(problem: ScheduleProblem, small: Schedule, chosen: tuple[Stretch, ...], each: int) -> Rows:
    """Rows with the stretches repeated; micro-batches beyond the last are left out."""
    more = problem.micro_batches - small.shape.micro_batches
    times, parts = -(-more // each), []
    for rank, (begin, end) in enumerate(chosen):
        rows = small.rank(rank)
        middle = [rows[begin:end] + np.array([0, 0, each * turn]) for turn in range(times + 1)]
        all_of_it = np.concatenate([rows[:begin], *middle, rows[end:] + np.array([0, 0, each * times])])
        parts.append(all_of_it[all_of_it[:, 2] < problem.micro_batches])
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])])
