"""GPipe (Huang et al. 2019, section 2.3): all forwards, then all backwards, micro-batches in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators.merge import in_order, merge
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.schedule import Shape


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (2 m p, 3), and where each rank starts, (p + 1,)."""
    every = in_order(shape.micro_batches)
    return merge(every, every, [shape.micro_batches] * shape.stages)


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for a problem; its memory limit is left to the checker."""
    return orders(Shape(problem.ranks, problem.micro_batches, problem.chunks))
