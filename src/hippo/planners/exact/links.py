"""Which domains can follow each other: rates between pairs, relays, and the best open paths over any number of domains.

Letters: K domains. Rates count one flow alone on its links and all nodes of the sender, so they only flatter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.plan.plan import Relay
from hippo.problem.cluster import Cluster
from hippo.problem.links import base_bandwidth

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_DOMAINS = 16  # above it paths are found greedily: a table over all subsets would be too large


@dataclass(frozen=True, eq=False)
class Routes:
    """Best route of every directed pair: the link itself, or through a third domain where that is faster."""

    cluster: Cluster
    seconds_per_byte: Floats  # (K, K) inf: no route
    latency_s: Floats  # (K, K) of that route
    via: Ints  # (K, K) -1: the link itself
    direct_seconds_per_byte: Floats  # (K, K)
    direct_latency_s: Floats  # (K, K)
    price_usd_per_byte: Floats  # (K, K) of the route
    least_latency_s: Floats  # (K, K) of any route
    _under: dict[float, tuple[Floats, Floats, NDArray[np.bool_]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, cluster: Cluster, *, floor_bytes_per_s: float | None, senders: int | None = 0) -> Routes:
        """Routes over links of at least ``floor_bytes_per_s``.

        ``senders``: nodes that send; 0: all of a domain; None: whatever the links themselves carry.
        """
        size = len(cluster.domains)
        pace, latency, price, onward = (np.full((size, size), np.inf) for _ in range(4))
        for link, base in zip(cluster.links, base_bandwidth(cluster).tolist(), strict=True):
            i, j = cluster.domain_index[link.source], cluster.domain_index[link.destination]
            nodes = cluster.domains[i].nodes
            whole = link.rate_bytes_per_s(nodes)
            rate = base if senders is None else link.rate_bytes_per_s(min(senders or nodes, nodes))
            if rate > 0 and whole >= (floor_bytes_per_s or 0.0):
                onward[i, j] = 1.0 / base  # a relay is not held up by the nodes of the middle
                pace[i, j], latency[i, j], price[i, j] = 1.0 / rate, link.latency_s, link.price_usd_per_gb * 1e-9
        best, delay, cost, via = pace.copy(), latency.copy(), price.copy(), np.full((size, size), -1)
        for k in range(size):
            through = np.maximum(pace[:, k, None], onward[None, k, :])
            np.fill_diagonal(through, np.inf)
            better = through < best * (1 - 1e-9)
            best, via = np.where(better, through, best), np.where(better, k, via)
            delay = np.where(better, latency[:, k, None] + latency[None, k, :], delay)
            cost = np.where(better, price[:, k, None] + price[None, k, :], cost)
        two_hops = np.min(latency[:, :, None] + latency[None, :, :], axis=1)
        return cls(cluster, best, delay, via, pace, latency, cost, np.minimum(latency, two_hops))

    @cached_property
    def pair_pace(self) -> Floats:
        """(K, K) seconds per byte of the slower direction: a pipeline uses both."""
        return np.maximum(self.seconds_per_byte, self.seconds_per_byte.T)

    def relayed(self, ceiling: float) -> NDArray[np.bool_]:
        """(K, K) pairs that need their relay to be at least as fast as ``ceiling`` seconds per byte."""
        return (self.via >= 0) & (self.direct_seconds_per_byte > ceiling * (1 + 1e-9))

    def under(self, ceiling: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """(K, K) seconds per byte and latency where only those are relayed that ``ceiling`` asks for, and which."""
        if ceiling not in self._under:
            relayed = self.relayed(ceiling)
            pace = np.where(relayed, self.seconds_per_byte, self.direct_seconds_per_byte)
            self._under[ceiling] = pace, np.where(relayed, self.latency_s, self.direct_latency_s), relayed
        return self._under[ceiling]

    def round_trip_s(self, wave_bytes: float, ceiling: float) -> Floats:
        """(K, K) seconds of one wave over a border and back, relayed only where ``ceiling`` asks for it."""
        pace, latency, _ = self.under(ceiling)
        there = np.where(np.isfinite(pace), wave_bytes * pace, np.inf) + latency
        return there + there.T

    def relays(self, pairs: list[tuple[int, int]], ceiling: float) -> tuple[Relay, ...]:
        """Relays of those directed pairs that need them (see ``relayed``)."""
        names = [domain.name for domain in self.cluster.domains]
        relayed = self.under(ceiling)[2]
        chosen = dict.fromkeys((i, j) for i, j in pairs if relayed[i, j])
        return tuple(Relay(names[i], names[j], names[self.via[i, j]]) for i, j in chosen)


def border_pairs(path: tuple[int, ...]) -> list[tuple[int, int]]:
    """Directed pairs that a pipeline over ``path`` uses, both directions of every border."""
    return [pair for i, j in zip(path, path[1:], strict=False) for pair in ((i, j), (j, i))]


def paths(pace: Floats, cost: Floats, ceiling: float) -> list[tuple[int, ...] | None]:
    """For every length 1..K the open path of least total ``cost`` over pairs with ``pace`` <= ``ceiling`` (None: none).

    Both (K, K) and symmetric in effect: a path and its reverse count as one.
    """
    size = len(pace)
    allowed = np.where(pace <= ceiling, cost, np.inf)
    if size > MOST_DOMAINS:
        return _grown(allowed)
    table, previous = _grow_sets(allowed, np.zeros(size))
    masks, ends = _best_of_every_size(table)
    found: list[tuple[int, ...] | None] = []
    for mask, end in zip(masks.tolist(), ends.tolist(), strict=True):
        found.append(_trace(previous, mask, end) if np.isfinite(table[mask, end]) else None)
    return found


def closed_paths(pace: Floats, cost: Floats, ceiling: float, ends: Floats) -> list[tuple[int, ...] | None]:
    """The same with ``ends`` (K, K) added for the pair of both ends."""
    size = len(pace)
    allowed = np.where(pace <= ceiling, cost, np.inf)
    best: list[tuple[float, tuple[int, ...] | None]] = [(np.inf, None)] * size
    for start in range(size):
        from_start = np.full(size, np.inf)
        from_start[start] = 0.0
        table, previous = _grow_sets(allowed, from_start)
        totals = table + np.where(np.arange(size) == start, 0.0, ends[start])
        for mask, end in zip(*_best_of_every_size(totals), strict=True):
            count = int(mask).bit_count()
            if totals[mask, end] < best[count - 1][0]:
                best[count - 1] = (float(totals[mask, end]), _trace(previous, int(mask), int(end)))
    return [path for _, path in best]


def slowest_pair(pace: Floats) -> Floats:
    """(K + 1,) at position n: least possible slowest pair of any connected set of n domains; a bound for paths.

    Pairs are added from fast to slow; a path over n domains needs a component of n (Kruskal's argument).
    """
    size = len(pace)
    component, members = list(range(size)), dict.fromkeys(range(size), 1)
    bound = np.full(size + 1, np.inf)
    bound[:2] = 0.0
    rows, columns = np.triu_indices(size, 1)
    for index in np.argsort(pace[rows, columns], kind="stable"):
        value, i, j = pace[rows[index], columns[index]], component[rows[index]], component[columns[index]]
        if i == j or not np.isfinite(value):
            continue
        component = [i if c == j else c for c in component]
        members[i] += members.pop(j)
        bound[: members[i] + 1] = np.minimum(bound[: members[i] + 1], value)
    return bound


@kernel
def _grow_sets(cost, first):  # type: ignore[no-untyped-def]
    """Held-Karp (1962): least cost (2^K, K) of a path over a set that ends in a domain, and the domain before it.

    ``first`` (K,) is the cost of beginning in each domain.
    """
    size = cost.shape[0]
    table = np.full((1 << size, size), np.inf)
    previous = np.full((1 << size, size), -1, np.int8)
    for i in range(size):
        table[1 << i, i] = first[i]
    for mask in range(1, 1 << size):
        for end in range(size):
            here = table[mask, end]
            if here == np.inf:
                continue
            for following in range(size):
                if mask >> following & 1 == 0:
                    value = here + cost[end, following]
                    larger = mask | 1 << following
                    if value < table[larger, following]:
                        table[larger, following] = value
                        previous[larger, following] = end
    return table, previous


@kernel
def _best_of_every_size(table):  # type: ignore[no-untyped-def]
    """(K,) sets and (K,) ends with the least entry (2^K, K) of every size of the set."""
    size = table.shape[1]
    best_value, best_mask, best_end = np.full(size, np.inf), np.ones(size, np.int64), np.zeros(size, np.int64)
    best_end[1:] = size - 1  # never reached with this set: "no path"
    for mask in range(1, 1 << size):
        count = 0
        for i in range(size):
            count += mask >> i & 1
        for end in range(size):
            if table[mask, end] < best_value[count - 1]:
                best_value[count - 1], best_mask[count - 1], best_end[count - 1] = table[mask, end], mask, end
    return best_mask, best_end


def _trace(previous: NDArray[np.int8], mask: int, end: int) -> tuple[int, ...]:
    path = []
    while end >= 0:
        path.append(end)
        mask, end = mask & ~(1 << end), int(previous[mask, end])
    return tuple(reversed(path))


def _grown(cost: Floats) -> list[tuple[int, ...] | None]:
    """Paths by insertion at the cheaper end, from every start; the best of each length."""
    size = len(cost)
    best: list[tuple[float, tuple[int, ...]] | None] = [None] * size
    for start in range(size):
        path, total = [start], 0.0
        for length in range(size):
            known = best[length]
            if known is None or total < known[0]:
                best[length] = (total, tuple(path))
            outside = [i for i in range(size) if i not in path]
            grown = [(cost[path[-1], i], i, True) for i in outside] + [(cost[i, path[0]], i, False) for i in outside]
            if not grown or not np.isfinite(min(grown)[0]):
                break
            step, domain, at_end = min(grown)
            path, total = ([*path, domain] if at_end else [domain, *path]), total + step
    return [None if item is None else item[1] for item in best]
