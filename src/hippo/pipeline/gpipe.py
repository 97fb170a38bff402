"""GPipe (Huang et al. 2019, section 2.3): all forwards, then all backwards, micro-batches in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.pipeline.merge import in_order, merge
from hippo.pipeline.schedule import Shape


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (2 m p, 3), and where each rank starts, (p + 1,)."""
    every = in_order(shape.micro_batches)
    return merge(every, every, [shape.micro_batches] * shape.stages)
