"""Links as they are when nothing moves. E links in the order of ``cluster.links``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.problem.cluster import Cluster

A = TypeVar("A", bound=np.generic)


def _once(made: Callable[[Cluster], NDArray[A]]) -> Callable[[Cluster], NDArray[A]]:
    """Worked out once for a cluster, which holds it (read-only) beside its indexes."""

    @wraps(made)
    def of(cluster: Cluster) -> NDArray[A]:
        held = vars(cluster)
        if made.__name__ not in held:
            held[made.__name__] = made(cluster)
            held[made.__name__].flags.writeable = False
        found: NDArray[A] = held[made.__name__]
        return found

    return of


@_once
def base_bandwidth(cluster: Cluster) -> NDArray[np.float64]:
    """Bytes/s of payload of every link, (E,); one with a cap per node only carries what all nodes of its source send
    together."""
    rates = [
        link.rate_bytes_per_s(cluster.domain(link.source).nodes)
        if link.bandwidth_bytes_per_s is None
        else link.bandwidth_bytes_per_s * link.goodput
        for link in cluster.links
    ]
    return np.array(rates, dtype=np.float64)


@_once
def base_latency(cluster: Cluster) -> NDArray[np.float64]:
    """One-way seconds of every link, (E,), with what the runtime adds to each message."""
    return np.array([link.delay_s for link in cluster.links], dtype=np.float64)


@_once
def per_node_only(cluster: Cluster) -> NDArray[np.bool_]:
    """Links that have a cap per node and no bandwidth of their own, (E,)."""
    return np.array([link.bandwidth_bytes_per_s is None for link in cluster.links], dtype=np.bool_)


# ------------------------------------------------------------------------------------------------------------- network
# A network trace: bandwidth and latency of each link over time (``time_s,src,dst,bandwidth_gbps,latency_ms``).


@dataclass(frozen=True, eq=False)
class Trace:
    """State of the links at instants ``time_s``; a value holds until the next instant.

    T instants, E links in the order of ``cluster.links``; payload and delays as those links carry them.
    """

    time_s: NDArray[np.float64]  # (T,), increasing
    bandwidth_bytes_per_s: NDArray[np.float64]  # (T, E), 0 = outage
    latency_s: NDArray[np.float64]  # (T, E), one way
    source: str = ""

    def at(self, time_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bandwidth and latency, each (E,), that hold at ``time_s`` (the first instant before the trace starts)."""
        index = max(int(np.searchsorted(self.time_s, time_s, side="right")) - 1, 0)
        return self.bandwidth_bytes_per_s[index], self.latency_s[index]
