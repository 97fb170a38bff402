"""Interleaved 1F1B (Narayanan et al. 2021, section 2.2.2): v chunks per rank, looped over the ranks.

Micro-batches go through in groups of p: the group through chunk 0, then through chunk 1, and so on; backwards in the
same order with the chunks reversed. Rank i runs ``2 (p - i - 1) + (v - 1) p + 1`` forwards before its first backward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators.merge import merge
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Shape


def warm_up(shape: Shape, rank: int) -> int:
    """Forwards (of chunks) before the first backward, where the groups are whole."""
    p, total = shape.stages, shape.micro_batches * shape.chunks
    return min(total, 2 * (p - rank - 1) + (shape.chunks - 1) * p + 1)


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (2 m v p, 3), and where each rank starts, (p + 1,).

    A last group that is not whole runs as if it were, without the micro-batches that it lacks: each rank skips them,
    so nothing waits for what another rank does later.
    """
    p, m, v = shape.stages, shape.micro_batches, shape.chunks
    whole = replace(shape, micro_batches=-(-m // p) * p)
    micro_batch, chunk = np.meshgrid(np.arange(whole.micro_batches), np.arange(v), indexing="ij")
    turn = np.lexsort((micro_batch.ravel(), chunk.ravel(), micro_batch.ravel() // p))
    forwards = np.stack([chunk.ravel()[turn], micro_batch.ravel()[turn]], axis=1)
    backwards = np.stack([v - 1 - forwards[:, 0], forwards[:, 1]], axis=1)
    for each in (forwards, backwards):
        each.setflags(write=False)
    rows, _ = merge(forwards, backwards, [warm_up(whole, rank) for rank in range(p)])
    return rows[rows[:, 2] < m], 2 * m * v * np.arange(p + 1)


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for a problem; its memory limit is left to the checker."""
    return orders(Shape(problem.ranks, problem.micro_batches, problem.chunks))
