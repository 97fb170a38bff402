"""ZB-H2 (Qi et al. 2023, arXiv 2401.10241, section 2.3): about twice the memory of 1F1B, hardly a bubble.

The warm-up fills the time until the first gradient comes home, and the weight gradients the time that is then missing
at the end: rank i lets 2 i of them fall behind. Every rank keeps at most 2 p - 1 micro-batches from F to W. Where F, B
and W take equally long and messages no time, no rank waits between its first operation and its last.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators.split_backward import split
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Shape


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (3 m p, 3), and where each starts, (p + 1,).

    Rank i runs 2 (p - i - 1) forwards before the first that is followed by a backward.
    """
    p = shape.stages
    return split(shape.micro_batches, [2 * (p - 1 - rank) for rank in range(p)], [2 * rank for rank in range(p)])


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for a problem; its memory limit is left to the checker."""
    return orders(Shape(problem.ranks, problem.micro_batches))
