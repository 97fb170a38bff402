"""ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.3): 1F1B's warm-up and memory, a third of its bubble.

The backward is split: the gradient of the input (B) goes on to the rank before at once, that of the weights (W) fills
the time that 1F1B waits at its end. Rank i lets i weight gradients fall behind, so every rank keeps at most p
micro-batches from F to W.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators.split_backward import split
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Shape


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (3 m p, 3), and where each starts, (p + 1,).

    Rank i runs p - i - 1 forwards before the first that is followed by a backward.
    """
    p = shape.stages
    return split(shape.micro_batches, [p - 1 - rank for rank in range(p)], list(range(p)))


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for a problem; its memory limit is left to the checker."""
    return orders(Shape(problem.ranks, problem.micro_batches))
