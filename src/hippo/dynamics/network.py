"""How the links of a cluster move: Ornstein-Uhlenbeck swing, daily curve, congestion that raises latency, outages.

Everything is drawn from a generator that the caller seeds. ``trace_to_csv`` writes a trace as
``hippo.problem.trace_csv`` reads it. T instants, E links as in ``cluster.links``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.processes import DAY_S, daily_factor, links_up, swing_path
from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace, base_bandwidth, base_latency
from hippo.problem.trace_csv import HEADER
from hippo.units import gbps_from_bytes_per_s, ms_from_s

CONGESTED_LATENCY = 1.5
"""Latency over its base where eps is at its lowest: queues grow as what is left of a link shrinks. A judgement: round
trips under load were 1.3 to 3 times the base on an emulated WAN with queues of one bandwidth-delay product."""

Floats = NDArray[np.float64]


def moving_network(cluster: Cluster, *, duration_s: float, every_s: float, rng: np.random.Generator) -> Trace:
    """A trace of all movements of ``cluster.dynamics``: a state every ``every_s`` for ``duration_s`` seconds."""
    dynamics, links = cluster.dynamics, len(cluster.links)
    time_s = np.arange(0.0, duration_s, every_s)
    eps = swing_path(dynamics, time_s, links, rng)
    daily = daily_factor(time_s, dynamics.diurnal_peak_to_trough, _busiest_s(cluster, rng))
    alive = links_up(dynamics, time_s, links, rng)
    bandwidth = base_bandwidth(cluster) * (1.0 + eps) * daily * alive
    latency = base_latency(cluster) * _congestion(cluster, eps)
    return Trace(time_s, bandwidth, latency, source=f"moving network of {cluster.name}")


def shares_of_time(trace: Trace) -> Floats:
    """The share of its time that each state of a trace holds, (T,); the last as long as the one before."""
    lengths = np.diff(trace.time_s, append=trace.time_s[-1] + (trace.time_s[-1] - trace.time_s[-2:][0]))
    lengths = lengths if lengths.sum() > 0 else np.ones(1)
    found: Floats = lengths / lengths.sum()
    return found


def _congestion(cluster: Cluster, eps: Floats) -> Floats:
    """Factor on the latency: 1 unless the bandwidth is below its base, ``CONGESTED_LATENCY`` at the lowest eps."""
    swing = cluster.dynamics.swing or 1.0
    factor: Floats = 1.0 + (CONGESTED_LATENCY - 1.0) * np.maximum(0.0, -eps) / swing
    return factor


def _busiest_s(cluster: Cluster, rng: np.random.Generator) -> Floats:
    """Second of the day at which each link is fullest, (E,): one per pair of domains, both directions alike."""
    pairs = [frozenset((link.source, link.destination)) for link in cluster.links]
    distinct = list(dict.fromkeys(pairs))
    seconds = rng.uniform(0.0, DAY_S, len(distinct))
    return seconds[[distinct.index(pair) for pair in pairs]]


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
        gbps = gbps_from_bytes_per_s(float(bandwidth[instant, link]) / edge.goodput)
        ms = ms_from_s(float(latency[instant, link]) - edge.overhead_s)
        lines.append(f"{trace.time_s[instant]:.10g},{edge.source},{edge.destination},{gbps:.9g},{ms:.9g}")
    return "\n".join(lines) + "\n"
