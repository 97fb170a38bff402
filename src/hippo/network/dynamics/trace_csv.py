"""A network trace as CSV: what ``hippo.problem.trace_csv`` reads, written."""

from __future__ import annotations

import numpy as np

from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace
from hippo.problem.trace_csv import HEADER
from hippo.units import gbps_from_bytes_per_s, ms_from_s


def trace_to_csv(trace: Trace, cluster: Cluster) -> str:
    """The text of a trace over the links of ``cluster``: every link at the first instant, then where it changes.

    Numbers have nine digits, so that what is read again equals what was written to that precision.
    """
    lines = [",".join(HEADER)]
    bandwidth, latency = trace.bandwidth_bytes_per_s, trace.latency_s
    changed = np.ones(bandwidth.shape, dtype=bool)
    changed[1:] = (bandwidth[1:] != bandwidth[:-1]) | (latency[1:] != latency[:-1])
    for instant, link in zip(*np.nonzero(changed), strict=True):
        edge = cluster.links[link]
        gbps = gbps_from_bytes_per_s(float(bandwidth[instant, link]))
        ms = ms_from_s(float(latency[instant, link]))
        lines.append(f"{trace.time_s[instant]:.10g},{edge.source},{edge.destination},{gbps:.9g},{ms:.9g}")
    return "\n".join(lines) + "\n"
