"""The ring on which domains agree: the order of domains that ends first. Deterministic.

The time of a ring of n domains that each hold ``num_bytes``: ``2 (n - 1) / n * num_bytes`` over its slowest pair plus
``2 (n - 1)`` latencies of its farthest pair (Patarasuk and Yuan 2009). Up to nine domains every order is tried; beyond,
the nearest neighbour first, improved by swaps. Ties: the order that comes first by position in the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.problem.links import base_bandwidth, base_latency
from hippo.simulate.routes import Routes

_ALL_ORDERS_UP_TO = 9


class NoRingError(InputError):
    """No ring of links joins domains that have to agree; of more than twelve ``plan.check`` does not look for one."""


def ring(routes: Routes, domains: Sequence[str], num_bytes: float) -> tuple[tuple[int, ...], ...]:
    """Links of each pair of neighbours on the best ring, (n pairs); nothing for one domain.

    Raises ``NoRingError`` when none joins the domains, or none of many is found.
    """
    names = sorted(domains, key=routes.cluster.domain_index.__getitem__)
    if len(names) < 2:
        return ()
    pairs = {(a, b): routes.find(a, b) for a in names for b in names if a != b}
    seconds, latency = _pair_costs(routes, names, pairs)
    rounds = 2 * (len(names) - 1)
    order = _best_order(seconds * num_bytes * rounds / len(names), latency * rounds)
    neighbours = [(names[a], names[b]) for a, b in zip(order, (*order[1:], order[0]), strict=True)]
    if any(pairs[pair] is None for pair in neighbours):
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        raise NoRingError(
            f"the replicas in {shown} cannot agree: no ring of links joins these domains",
            source=routes.cluster.source or None,
            key="links",
            remedy="add the missing links, or relays for the pairs that have none",
        )
    return tuple(routes.links(*pair) for pair in neighbours)


def _pair_costs(
    routes: Routes, names: Sequence[str], pairs: dict[tuple[str, str], tuple[int, ...] | None]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds per byte and latency from each domain to each other, (n, n); inf: no way."""
    bandwidth, delay = base_bandwidth(routes.cluster), base_latency(routes.cluster)
    seconds, latency = np.full((2, len(names), len(names)), np.inf)
    for (a, b), links in pairs.items():
        if links is not None:
            at = names.index(a), names.index(b)
            seconds[at] = 1.0 / min(bandwidth[link] for link in links)
            latency[at] = sum(delay[link] for link in links)
    return seconds, latency


def _best_order(transfer: NDArray[np.float64], latency: NDArray[np.float64]) -> NDArray[np.int64]:
    n = len(transfer)
    orders = _orders(n) if n <= _ALL_ORDERS_UP_TO else _nearest_neighbour(transfer + latency)[None, :]
    times = _times(orders, transfer, latency)
    best: NDArray[np.int64] = orders[int(np.argmin(times))]
    return best if n <= _ALL_ORDERS_UP_TO else _swapped(best, transfer, latency)


def _times(
    orders: NDArray[np.int64], transfer: NDArray[np.float64], latency: NDArray[np.float64]
) -> NDArray[np.float64]:
    following = orders[:, _following(orders.shape[1])]
    times: NDArray[np.float64] = transfer[orders, following].max(axis=1) + latency[orders, following].max(axis=1)
    return times


@lru_cache(maxsize=64)
def _following(n: int) -> NDArray[np.int64]:
    """Position behind each of n on a ring."""
    return (np.arange(n) + 1) % n


@lru_cache(maxsize=16)
def _orders(n: int) -> NDArray[np.int64]:
    """Every ring of n domains that starts with the first, ((n - 1)!, n), in lexicographic order."""
    return np.array([(0, *rest) for rest in permutations(range(1, n))], dtype=np.int64)


def _nearest_neighbour(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    order, left = [0], list(range(1, len(cost)))
    while left:
        order.append(left.pop(int(np.argmin(cost[order[-1], left]))))
    return np.array(order, dtype=np.int64)


def _swapped(
    order: NDArray[np.int64], transfer: NDArray[np.float64], latency: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The order after the best swap of two domains, again and again until none helps."""
    n = len(order)
    swaps = [(i, j) for i in range(1, n) for j in range(i + 1, n)]
    while True:
        tried = np.repeat(order[None, :], len(swaps) + 1, axis=0)
        for row, (i, j) in enumerate(swaps, start=1):
            tried[row, [i, j]] = order[[j, i]]
        best = int(np.argmin(_times(tried, transfer, latency)))
        if best == 0:
            return order
        order = tried[best]
