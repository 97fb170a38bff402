"""GPipe (Huang et al. 2019, section 2.3): all forwards, then all backwards, micro-batches in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.pipeline.schedule import Shape, merge


def rank_order(shape: Shape, rank: int) -> NDArray[np.int64]:
    """Operations of one rank, (2 m, 3); the same on every rank."""
    del rank
    micro_batch = np.arange(shape.micro_batches)
    column = np.stack([np.zeros_like(micro_batch), micro_batch], axis=1)
    return merge(column, column, warm_up=shape.micro_batches)
