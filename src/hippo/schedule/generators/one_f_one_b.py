"""1F1B (PipeDream-Flush, Narayanan et al. 2021, section 2.2.1), with an optional deeper warm-up.

Rank i runs p - i forwards before its first backward. Where a slow link delays the first backward, a ``live_limit``
above p lets rank i run ahead by ``live_limit - i`` forwards instead, at the price of as many live micro-batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators.merge import in_order, merge
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Shape


def warm_up(shape: Shape, rank: int) -> int:
    """Forwards before the first backward: ``min(m, max(p - i, live_limit - i))``."""
    depth = max(shape.stages, shape.live_limit or 0)
    return min(shape.micro_batches, depth - rank)


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (2 m p, 3), and where each rank starts, (p + 1,)."""
    every = in_order(shape.micro_batches)
    return merge(every, every, [warm_up(shape, rank) for rank in range(shape.stages)])


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for a problem; its memory limit is left to the checker."""
    return orders(Shape(problem.ranks, problem.micro_batches, problem.chunks))
