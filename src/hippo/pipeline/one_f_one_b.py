"""1F1B (PipeDream-Flush, Narayanan et al. 2021, section 2.2.1), with an optional deeper warm-up.

Rank i runs p - i forwards before its first backward. Where a slow link delays the first backward, a ``live_limit``
above p lets rank i run ahead by ``live_limit - i`` forwards instead, at the price of as many live micro-batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.pipeline.schedule import Shape, merge


def warm_up(shape: Shape, rank: int) -> int:
    """Forwards before the first backward: ``min(m, max(p - i, live_limit - i))``."""
    depth = max(shape.stages, shape.live_limit or 0)
    return min(shape.micro_batches, depth - rank)


def rank_order(shape: Shape, rank: int) -> NDArray[np.int64]:
    """Operations of one rank, (2 m, 3)."""
    micro_batch = np.arange(shape.micro_batches)
    column = np.stack([np.zeros_like(micro_batch), micro_batch], axis=1)
    return merge(column, column, warm_up(shape, rank))
