"""Links as they are when nothing moves. E links in the order of ``cluster.links``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.problem.cluster import Cluster


def base_bandwidth(cluster: Cluster) -> NDArray[np.float64]:
    """Bytes/s of every link, (E,); one with a cap per node only carries what all nodes of its source send together."""
    rates = [
        link.rate_bytes_per_s(cluster.domain(link.source).nodes)
        if link.bandwidth_bytes_per_s is None
        else link.bandwidth_bytes_per_s
        for link in cluster.links
    ]
    return np.array(rates, dtype=np.float64)


def base_latency(cluster: Cluster) -> NDArray[np.float64]:
    """One-way seconds of every link, (E,)."""
    return np.array([link.latency_s for link in cluster.links], dtype=np.float64)


def per_node_only(cluster: Cluster) -> NDArray[np.bool_]:
    """Links that have a cap per node and no bandwidth of their own, (E,)."""
    return np.array([link.bandwidth_bytes_per_s is None for link in cluster.links], dtype=np.bool_)
