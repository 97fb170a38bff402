"""V-min (Qi et al. 2024, arXiv 2405.15362, section 3): a third of the memory of 1F1B in the ``v`` placement.

A pass spends one slot per rank, down and up, so a micro-batch stays for four p slots of a period of six: the least
that a V allows. Where F, B and W are unequal its steady phase has bubbles. How the orders are made, for any times,
delays and links: ``v_shape``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators import v_shape
from hippo.schedule.problem import ScheduleProblem


def most_live(ranks: int) -> int:
    """Micro-batches of memory on each rank: ``floor((p + 4) / 3)``."""
    return (ranks + 4) // 3


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (6 p m, 3) and where each rank starts, (p + 1,); the memory limit is left to the checker.

    The memory is that of ``most_live`` micro-batches as ``problem.memory`` counts it: of those that are past B, a chunk
    keeps only what it gives back at W.
    """
    return v_shape.schedule(problem, most_live(problem.ranks) * v_shape.whole(problem))
