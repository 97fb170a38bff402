"""Playing one plan under other states of the links: what explanations measure with.

Letters: G ranks, C chunks, E links of the cluster. A *factor* multiplies what a link has today.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from hippo.problem.cluster import Link
from hippo.problem.problem import Problem
from hippo.score.judge import Judged
from hippo.simulate.fast import step_time

Floats = NDArray[np.float64]
Links = tuple[int, ...]  # indices of links that are changed together: one, or both ways between two domains
AT_ITS_BEST = 1e9  # a link this many times faster costs no time that shows


def time_with_links(game: Judged, *, bandwidth: Floats | None = None, latency: Floats | None = None) -> float:
    """Step time in seconds when bandwidth and latency of the links are multiplied by factors, each (E,)."""
    program = game.program
    rates = None if bandwidth is None else program.link_bandwidth_bytes_per_s * bandwidth
    delays = None if latency is None else program.link_latency_s * latency
    return step_time(program, bandwidth_bytes_per_s=rates, latency_s=delays)


def time_with(game: Judged, links: Links, *, bandwidth: float = 1.0, latency: float = 1.0) -> float:
    """Step time in seconds when these links change by these factors."""
    size = len(game.program.link_latency_s)
    bandwidths, latencies = np.ones(size), np.ones(size)
    bandwidths[list(links)], latencies[list(links)] = bandwidth, latency
    return time_with_links(game, bandwidth=bandwidths, latency=latencies)


def time_with_rank(game: Judged, rank: int | None, factor: float) -> float:
    """Step time in seconds when everything one rank (None: every rank) computes takes ``factor`` times as long."""
    program = game.program
    scale = np.ones((len(program.rank_stage), 1))
    scale[slice(None) if rank is None else rank] = factor
    slower = replace(
        program,
        forward_s=program.forward_s * scale,
        backward_s=program.backward_s * scale,
        weight_s=program.weight_s * scale,
    )
    return step_time(slower)


def changed_links(problem: Problem, change: Callable[[Link], Link]) -> Problem:
    """The problem with every link replaced by ``change(link)``."""
    cluster = replace(problem.cluster, links=tuple(change(link) for link in problem.cluster.links))
    return replace(problem, cluster=cluster)


def scaled_link(link: Link, *, bandwidth: float = 1.0, latency: float = 1.0, price: float = 1.0) -> Link:
    """The link with bandwidth, latency, price multiplied; where only a per-node cap stands, that is its bandwidth."""
    shared, per_node = link.bandwidth_bytes_per_s, link.per_node_bytes_per_s
    return replace(
        link,
        bandwidth_bytes_per_s=None if shared is None else shared * bandwidth,
        per_node_bytes_per_s=per_node * bandwidth if shared is None and per_node is not None else per_node,
        latency_s=link.latency_s * latency,
        price_usd_per_gb=link.price_usd_per_gb * price,
    )


def crossing(holds: Callable[[float], bool], *, start: float, end: float, tolerance: float = 0.01) -> float | None:
    """Factor nearest to ``start`` from which ``holds`` is true towards ``end``, by bisection of the logarithm.

    ``holds(start)`` is taken to be false. Returns None when ``holds(end)`` is false; the answer is on the true side,
    within ``tolerance`` (relative) of the crossing where there is one crossing only.
    """
    if not holds(end):
        return None
    false_side, true_side = log(start), log(end)
    while abs(true_side - false_side) > tolerance:
        middle = 0.5 * (false_side + true_side)
        if holds(exp(middle)):
            true_side = middle
        else:
            false_side = middle
    return exp(true_side)
