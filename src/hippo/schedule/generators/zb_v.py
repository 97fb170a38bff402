"""ZB-V (Qi et al. 2023, arXiv 2401.10241, section 6): the ``v`` placement without bubbles, in the memory of 1F1B.

With F = B = W and no delays every rank works without a pause from its first operation to its last. Without a limit a
rank keeps p micro-batches; a limit is kept and used up to the last chunk, where more memory hides slow links better.
How the orders are made, for any times, delays and links: ``v_shape``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InfeasibleError
from hippo.schedule.generators import v_shape
from hippo.schedule.problem import ScheduleProblem


def generate(problem: ScheduleProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (6 p m, 3) and where each rank starts, (p + 1,).

    Raises
    ------
    InfeasibleError
        The limit of a rank is below what both chunks keep of one micro-batch.
    """
    whole, limit = v_shape.whole(problem), np.array(problem.limit)
    short = np.flatnonzero(limit < whole * (1 - 1e-9))
    if len(short):
        rank = int(short[0])
        raise InfeasibleError(
            [
                f"one micro-batch keeps {whole[rank]:g} on rank {rank}, the limit is {limit[rank]:g}. "
                f"Nearest way out: --memory {whole.max():g}."
            ]
        )
    return v_shape.schedule(problem, np.where(np.isinf(limit), problem.ranks * whole, limit))
