"""1F1B with a warm-up that leaves the same slack at every hop, for pipelines whose hops are slow links.

Rank i of 1F1B runs one forward more ahead than rank i + 1. Then a border with a round trip of ``r`` seconds between
ranks that need ``t`` seconds per micro-batch costs ``t + r / 2`` per micro-batch instead of ``t``, however many
micro-batches fit in memory: a forward leaves only when the backward of the one before it has come home. Here rank i
runs ``ceil(live_limit (p - i) / p)`` forwards ahead, so that ``live_limit / p`` micro-batches are on their way at each
hop; ``1 + r / t`` of them hide the border. ``live_limit = m p`` is GPipe, ``live_limit <= p`` is 1F1B. A plan may
instead say how far ahead each rank runs: then memory goes to the borders that need it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.generators.merge import in_order, merge
from hippo.schedule.schedule import Shape


def warm_up(shape: Shape, rank: int) -> int:
    """Forwards before the first backward: as asked for, else ``min(m, max(p - i, ceil(live_limit (p - i) / p)))``."""
    if shape.warm_up:
        return shape.warm_up[rank]
    p, behind = shape.stages, shape.stages - rank
    return min(shape.micro_batches, max(behind, -(-(shape.live_limit or p) * behind // p)))


def orders(shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operations of all ranks, (2 m p, 3), and where each rank starts, (p + 1,)."""
    every = in_order(shape.micro_batches)
    return merge(every, every, [warm_up(shape, rank) for rank in range(shape.stages)])
