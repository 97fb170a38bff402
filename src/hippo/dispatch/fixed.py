"""What a rank knows of itself before a step begins: its place, its times, its links, its memory, all as ratios."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import BACKWARD, FORWARD
from hippo.schedule.problem import ScheduleProblem

FIXED = (
    "place",  # rank over p - 1
    "first",
    "last",
    "forward",  # F over F + B + W of the rank
    "backward",
    "load",  # F + B + W of the rank over that of the slowest
    "link_before_down",  # log1p of latency and transfer over the beat, of the link that F comes in on
    "link_before_up",  # that B goes out on
    "link_after_down",  # that F goes out on
    "link_after_up",  # that B comes in on
    "trip",  # log1p of the time from the end of F of a lone micro-batch to its B, over the beat
    "memory",  # micro-batches that the limit holds over p, at most 4
    "memory_trip",  # the same over what a round trip asks for, at most 4
    "micro_batches",  # log of m / p
    "ranks",  # log of p, over 3
    "warm_up",  # F before the first B in the hint, over p, at most 4
    "patience",  # of the base
)
"""Columns of ``Base.fixed``; the beat is the longest time that a rank takes for one micro-batch."""


def fixed_features(problem: ScheduleProblem, turn: NDArray[np.int64], patience: float) -> NDArray[np.float32]:
    """(p, len(FIXED)) of a plain problem; ``turn`` (3, p, m) of its hint."""
    t, p = problem.tables, problem.ranks
    load = t.duration.sum(axis=0)
    beat, way = load.max(), t.delay + t.transfer
    before = np.concatenate([np.zeros((2, 1)), way[:, :-1]], axis=1)
    after_up = np.append(way[BACKWARD, 1:], 0.0)
    trip = np.zeros(p)
    for rank in range(p - 2, -1, -1):
        there, back = way[FORWARD, rank], way[BACKWARD, rank + 1]
        trip[rank] = there + back + t.duration[FORWARD, rank + 1] + trip[rank + 1] + t.duration[BACKWARD, rank + 1]
    held = np.minimum(t.limit / t.taken, 4.0 * problem.micro_batches)
    asked = np.maximum(trip + load, beat) / beat
    warm_up = (turn[FORWARD] < turn[BACKWARD][:, :1]).sum(axis=1)
    ranks, ones = np.arange(p), np.ones(p)
    columns = (
        ranks / max(p - 1, 1),
        ranks == 0,
        ranks == p - 1,
        t.duration[FORWARD] / load,
        t.duration[BACKWARD] / load,
        load / beat,
        np.log1p(before[FORWARD] / beat),
        np.log1p(np.where(ranks > 0, way[BACKWARD], 0.0) / beat),
        np.log1p(np.where(ranks < p - 1, way[FORWARD], 0.0) / beat),
        np.log1p(after_up / beat),
        np.log1p(trip / beat),
        np.minimum(held / p, 4.0),
        np.minimum(held / asked, 4.0),
        ones * np.log(problem.micro_batches / p),
        ones * np.log(p) / 3,
        np.minimum(warm_up / p, 4.0),
        ones * patience,
    )
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.float32))
