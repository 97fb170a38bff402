"""A network trace: bandwidth and latency of each link over time (``time_s,src,dst,bandwidth_gbps,latency_ms``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Trace:
    """State of the links at instants ``time_s``; a value holds until the next instant.

    T instants, E links in the order of ``cluster.links``.
    """

    time_s: NDArray[np.float64]  # (T,), increasing
    bandwidth_bytes_per_s: NDArray[np.float64]  # (T, E), 0 = outage
    latency_s: NDArray[np.float64]  # (T, E), one way
    source: str = ""

    def at(self, time_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bandwidth and latency, each (E,), that hold at ``time_s`` (the first instant before the trace starts)."""
        index = max(int(np.searchsorted(self.time_s, time_s, side="right")) - 1, 0)
        return self.bandwidth_bytes_per_s[index], self.latency_s[index]
