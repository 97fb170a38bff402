"""Congestion couples latency to load: what others take of a link fills its queue.

A queue with load rho holds rho / (1 - rho) packets on average (M/M/1); a router's buffer bounds it at one
bandwidth-delay product, so that a full link about doubles its one-way latency.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BUFFER = 1.0
"""Queueing delay of a full buffer over the base latency: the rule of thumb of one bandwidth-delay product."""
USUAL_LOAD = 0.3
"""Load of others at the base bandwidth. A judgement, in the range that backbone operators plan for."""


def congested_latency(base_latency_s: Floats, share: Floats) -> Floats:
    """Latency (T, E) where links carry ``share`` (T, E) of their base bandwidth for us; the base one where it is 1.

    With less left for us, others load the link more: rho = 1 - (1 - USUAL_LOAD) share.
    """
    rho = np.clip(1.0 - (1.0 - USUAL_LOAD) * np.minimum(share, 1.0), 0.0, 0.999)
    queue = rho / (1.0 - rho) - USUAL_LOAD / (1.0 - USUAL_LOAD)
    full = 20.0  # packets-in-queue at which the buffer counts as full
    factor: Floats = 1.0 + BUFFER * np.minimum(queue, full) / full
    return np.asarray(base_latency_s * factor)
