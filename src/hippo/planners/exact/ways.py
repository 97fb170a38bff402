"""Ways to join domains: routes between pairs, relays and open paths; and G groups, each a pipeline over n domains.

An *ideal* way names no domains: each of its numbers is the least that any n, or any G, domains allow. Bounds over ideal
ways hold for every real one; real ways are looked for only where an ideal one could win. Letters: K domains. Rates
count one flow alone on its links and all nodes of the sender, so they only flatter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb

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
class DomainRoutes:
    """Best route of every directed pair: the link itself, or through a third domain where that is faster."""

    cluster: Cluster
    seconds_per_byte: Floats  # (K, K) inf: no route
    latency_s: Floats  # (K, K) of that route
    via: Ints  # (K, K) -1: the link itself
    direct_seconds_per_byte: Floats  # (K, K)
    direct_latency_s: Floats  # (K, K)
    least_latency_s: Floats  # (K, K) of any route
    _relays: dict[int, Relay] = field(default_factory=dict, repr=False)
    _under: dict[float, tuple[Floats, Floats, NDArray[np.bool_]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, cluster: Cluster, *, floor_bytes_per_s: float | None, senders: int | None = 0, relays: bool = True
    ) -> DomainRoutes:
        """Routes over links of at least ``floor_bytes_per_s``.

        ``senders``: nodes that send; 0: all of a domain; None: whatever the links themselves carry. ``relays``: whether
        a pair may send through a third domain.
        """
        size = len(cluster.domains)
        pace, latency, onward = (np.full((size, size), np.inf) for _ in range(3))
        for link, base in zip(cluster.links, base_bandwidth(cluster).tolist(), strict=True):
            i, j = cluster.domain_index[link.source], cluster.domain_index[link.destination]
            nodes = cluster.domains[i].nodes
            whole = link.rate_bytes_per_s(nodes)
            rate = base if senders is None else link.rate_bytes_per_s(min(senders or nodes, nodes))
            if rate > 0 and whole >= (floor_bytes_per_s or 0.0):
                onward[i, j] = 1.0 / base  # a relay is not held up by the nodes of the middle
                pace[i, j], latency[i, j] = 1.0 / rate, link.delay_s
        best, delay, via = pace.copy(), latency.copy(), np.full((size, size), -1)
        for k in range(size if relays else 0):
            through = np.maximum(pace[:, k, None], onward[None, k, :])
            np.fill_diagonal(through, np.inf)
            better = through < best * (1 - 1e-9)
            best, via = np.where(better, through, best), np.where(better, k, via)
            delay = np.where(better, latency[:, k, None] + latency[None, k, :], delay)
        least = np.minimum(latency, np.min(latency[:, :, None] + latency[None, :, :], axis=1)) if relays else latency
        return cls(cluster, best, delay, via, pace, latency, least)

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

    def relays(self, pairs: Ints, ceiling: float) -> tuple[Relay, ...]:
        """Relays of those directed pairs, (n, 2), that need them (see ``relayed``)."""
        if not self._relays:
            names = [domain.name for domain in self.cluster.domains]
            for i, j in np.argwhere(self.via >= 0).tolist():
                self._relays[len(names) * i + j] = Relay(names[i], names[j], names[self.via[i, j]])
        i, j = pairs[self.under(ceiling)[2][pairs[:, 0], pairs[:, 1]]].T
        asked, first = np.unique(len(self.via) * i + j, return_index=True)
        return tuple(self._relays[each] for each in asked[np.argsort(first)].tolist())


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
        return _grown_path(allowed)
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


def _grown_path(cost: Floats) -> list[tuple[int, ...] | None]:
    """Paths by insertion at the cheaper end, from every start; the best of each length."""
    totals, found = _grow_paths(np.ascontiguousarray(cost))
    rows = zip(totals.tolist(), found.tolist(), strict=True)
    return [tuple(path[:length]) if total < np.inf else None for length, (total, path) in enumerate(rows, start=1)]


@kernel
def _grow_paths(cost):  # type: ignore[no-untyped-def]
    """(K,) least total cost of a path that was grown to every length (inf: none), and its domains (K, K) in order."""
    size = len(cost)
    totals, found = np.full(size, np.inf), np.zeros((size, size), np.int64)
    row = np.empty(2 * size, np.int64)  # the path lies in it from ``first`` to ``last``, free at both ends
    for start in range(size):
        first = last = size
        row[first], total = start, 0.0
        left = np.ones(size, np.bool_)
        left[start] = False
        for length in range(size):
            if total < totals[length]:
                totals[length] = total
                found[length, : length + 1] = row[first : last + 1]
            step, domain, at_end = np.inf, -1, False
            for other in range(size):  # of equals the first domain, and at the beginning
                if left[other]:
                    if cost[other, row[first]] < step:
                        step, domain, at_end = cost[other, row[first]], other, False
                    if cost[row[last], other] < step:
                        step, domain, at_end = cost[row[last], other], other, True
            if domain < 0:
                break
            left[domain], total = False, total + step
            if at_end:
                last += 1
                row[last] = domain
            else:
                first -= 1
                row[first] = domain
    return totals, found


Groups = tuple[tuple[int, ...], ...]
Lines = list[list[tuple[tuple[int, ...], float]]]
MOST_WAYS = 4  # real ways per (G, n)
MOST_SETS = 200  # sets of domains looked at one by one
MOST_ORDERED = 5  # members of a ring whose orders are all tried
MOST_CLOSED = 11  # domains up to which paths are closed by what their ends exchange
MOST_STEPS = 6  # ceilings on the slowest border for which a path is looked for
TYPICAL_BYTES = 5e7  # of a wave, where latency and bandwidth are weighed against each other


@dataclass(frozen=True, eq=False)
class DomainWay:
    """How domains are joined. Per byte of one wave of one group, or per byte of gradients; arrays are (n,)."""

    groups: int
    span: int  # n domains per group
    before_s: Floats  # round-trip latency before each domain of a group
    before_pace: Floats  # round-trip seconds per byte before each domain
    after_s: Floats
    after_pace: Floats
    down_s: Floats  # one way, from the first domain
    down_pace: Floats
    slowest: float  # seconds per byte on the busiest link of a border, one way
    sync_pace: Floats  # seconds per byte of the whole model's gradients on the ring through each position
    sync_s: float  # latencies of the ring
    tail_pace: float  # seconds per byte of the tied matrix after the first stage is done
    tail_s: float
    domains: Groups = ()  # empty: ideal
    relays: tuple[Relay, ...] = ()
    senders: int = 0  # nodes of a stage, where links cap what a node sends; 0: it does not matter
    rings: tuple[float, ...] = ()  # (n,) of ideal ways: least ``sync_pace`` of the quickest ring, of the second, ..

    @property
    def size(self) -> int:
        """Domains in use."""
        return self.groups * self.span


def ideal_ways(
    routes: DomainRoutes,
    rings: DomainRoutes,
    among: tuple[int, ...],
    *,
    tied: bool,
    ceiling: float = np.inf,
    groups: int | None = None,
) -> list[DomainWay]:
    """One ideal way for every (G, n) with G n domains among those given.

    ``rings``: routes for what replicas exchange; several stages of a domain may do so from different nodes at once.
    ``ceiling``: of the seconds per byte of a border; ``groups``: most.
    """
    index = np.ix_(among, among)
    pair, directed, delay = routes.pair_pace[index], routes.seconds_per_byte[index], routes.least_latency_s[index]
    ends = float(np.where(np.eye(len(among), dtype=bool), np.inf, pair).min())  # of one stage each
    if ceiling < np.inf:
        pair, directed, delay = (np.where(pair <= ceiling, each, np.inf) for each in (pair, directed, delay))
    around, both = rings.seconds_per_byte[index], rings.pair_pace[index]
    either = np.minimum(around, around.T)
    size, away = len(among), ~np.eye(len(among), dtype=bool)
    trip, pace = (least_sums(matrix + matrix.T) for matrix in (delay, directed))
    down, down_pace = (least_sums(np.minimum(matrix, matrix.T)) for matrix in (delay, directed))
    hop = float(routes.least_latency_s[index][away].min()) if size > 1 else 0.0
    alike = _alike(around[away])
    borders, slowest_either, slowest_both = map(slowest_borders, (pair, either, both))
    found = []
    for n in range(1, size + 1):
        exchanged = tied and n > 1
        for g in range(1, min(groups or size, size // n) + 1):
            share = 2 * (g - 1) / g
            border, rounds = float(borders[n, g]), 2 * (g - 1) if alike else min(1, g - 1)
            # Of so many disjoint rings the slowest is no quicker.
            least = (share * (slowest_both if g == 2 else slowest_either)[g, 1 : n + 1]).tolist()
            if np.isfinite([trip[n], border, least[-1]]).all():
                way = DomainWay(
                    groups=g,
                    span=n,
                    before_s=trip[1 : n + 1],
                    before_pace=pace[1 : n + 1],
                    after_s=trip[n:0:-1],
                    after_pace=pace[n:0:-1],
                    down_s=down[1 : n + 1],
                    down_pace=down_pace[1 : n + 1],
                    slowest=border,
                    sync_pace=np.full(n, least[0]),
                    sync_s=rounds * hop,
                    rings=tuple(least),
                    tail_pace=ends if exchanged else 0.0,
                    tail_s=(2 if alike else 1) * hop if exchanged else 0.0,
                )
                found.append(way)
    return found


def slowest_borders(pace: Floats) -> Floats:
    """(K + 1, K + 1) at [length, count]: least possible slowest pair of so many disjoint connected sets of so many
    domains each (0 for length 1; inf: there are not so many domains)."""
    size = len(pace)
    values, sizes = mergers(pace)
    found = np.full((size + 1, size + 1), np.inf)
    found[:2], found[:, 0] = 0.0, 0.0
    for length in range(2, size + 1):  # sets become more as components join
        most = (sizes // length).sum(axis=1)
        enough = np.searchsorted(most, np.arange(1, size + 1))
        found[length, 1:] = np.append(values, np.inf)[enough]
    return found


def mergers(pace: Floats) -> tuple[Floats, Ints]:
    """Pairs added from fast to slow (Kruskal): the pace (M,) of every pair that joins two components, and the sizes of
    the components (M, K) from then on."""
    size = len(pace)
    component, members = np.arange(size), np.ones(size, np.int64)
    rows, columns = np.triu_indices(size, 1)
    values: list[float] = []
    sizes: list[Ints] = []
    for index in np.argsort(pace[rows, columns], kind="stable"):
        value, i, j = pace[rows[index], columns[index]], component[rows[index]], component[columns[index]]
        if not np.isfinite(value) or len(values) == size - 1:
            break
        if i != j:
            component[component == j] = i
            members[i] += members[j]
            members[j] = 0
            values.append(float(value))
            sizes.append(members.copy())
    return np.array(values), np.array(sizes, np.int64).reshape(len(values), size)


def least_sums(cost: Floats) -> Floats:
    """(K + 1,) at position k: least total cost of an open path over k domains (0 for one), or less beyond 16 domains.

    There no path is searched: each domain of a path but the last is left by an edge no cheaper than its cheapest.
    """
    sums = np.zeros(len(cost) + 1)
    if len(cost) > 16:
        cheapest = np.sort(np.where(np.eye(len(cost), dtype=bool), np.inf, cost).min(axis=1))
        sums[2:] = np.cumsum(cheapest)[:-1]
        return sums
    for count, path in enumerate(paths(cost, cost, np.inf), start=1):
        sums[count] = np.inf if path is None else sum(cost[a, b] for a, b in zip(path, path[1:], strict=False))
    return sums


def least_from(cost: Floats, first: Floats) -> Floats:
    """(K,) least total cost of an open path over k + 1 domains that begins in one at its cost ``first``, (K,)."""
    if not len(cost):
        return np.zeros(0)
    table, _ = _grow_sets(np.ascontiguousarray(cost), first)
    masks, ends = _best_of_every_size(table)
    return np.asarray(table[masks, ends])


def real_way(routes: DomainRoutes, groups: Groups, ceiling: float, *, tied: bool) -> DomainWay | None:
    """What these groups of domains cost, relayed where a pair would be slower than ``ceiling`` seconds per byte.

    None: some that must exchange data are not joined.
    """
    n, g = len(groups[0]), len(groups)
    pace, latency, relayed = routes.under(ceiling)
    path = np.array(groups)
    one, two = path[:, :-1], path[:, 1:]
    trip, slow = (_from_zero((each[one, two] + each[two, one]).max(axis=0)) for each in (latency, pace))
    if not np.isfinite([trip, slow]).all():
        return None
    down, quick = (_from_zero(each[one, two].min(axis=0)) for each in (latency, pace))
    rings = path.T if g > 1 else path.T[:0]
    ring = ring_paces(pace, rings) if g > 1 else np.zeros(n)
    ends = [(path[0], path[-1]) for path in groups] if tied and n > 1 else []
    tails = [_sum_of(pace, latency, pair) for pair in ends]
    if len(ends) > 1:  # the holders of all groups may sum their matrix at once
        tails.append(_sum_of(pace, latency, tuple(dict.fromkeys(each for pair in ends for each in pair))))
    borders, relays = [pair for path in groups for pair in border_pairs(path)], tuple[Relay, ...]()
    if relayed.any():
        around = rings[:, np.argwhere(~np.eye(g, dtype=bool))].reshape(-1, 2)
        pairs = [*borders, *((b, a) for a, b in ends), *ends]
        relays = routes.relays(np.concatenate([np.array(pairs, np.int64).reshape(-1, 2), around]), ceiling)
    return DomainWay(
        groups=g,
        span=n,
        before_s=np.cumsum(trip),
        before_pace=np.cumsum(slow),
        after_s=trip.sum() - np.cumsum(trip),
        after_pace=slow.sum() - np.cumsum(slow),
        down_s=np.cumsum(down),
        down_pace=np.cumsum(quick),
        slowest=_busiest(routes, borders, relayed),
        sync_pace=2 * (g - 1) / g * ring,
        sync_s=float(_late(pace, latency, rings).min()) if g > 1 else 0.0,
        tail_pace=min((each for each, _ in tails), default=0.0),
        tail_s=min((each for _, each in tails), default=0.0),
        domains=groups,
        relays=relays,
    )


def sent_pace(routes: DomainRoutes, way: DomainWay) -> Floats:
    """(2, n) seconds per byte from each domain of a real way's first group back to the one before it, and on to the
    next (0 where there is none), relayed as the way says; ``routes`` say how many nodes send."""
    path, at = way.domains[0], routes.cluster.domain_index
    relayed = {(at[each.source], at[each.destination]) for each in way.relays}
    found = np.zeros((2, len(path)))
    for j, (one, two) in enumerate(zip(path, path[1:], strict=False)):
        for (source, destination), where in (((two, one), (0, j + 1)), ((one, two), (1, j))):
            through = (source, destination) in relayed
            paces = routes.seconds_per_byte if through else routes.direct_seconds_per_byte
            found[where] = paces[source, destination]
    return found


def _from_zero(borders: Floats) -> Floats:
    """(n,) what lies in front of each domain."""
    return np.concatenate(([0.0], borders))


def _busiest(routes: DomainRoutes, pairs: list[tuple[int, int]], relayed: NDArray[np.bool_]) -> float:
    """Seconds per byte of a border on the link that carries most: relayed borders load two links."""
    if pairs and not relayed.any():
        return float(routes.direct_seconds_per_byte[tuple(zip(*pairs, strict=True))].max())
    load: dict[tuple[int, int], float] = {}
    for a, b in pairs:
        middle = int(routes.via[a, b])
        for link in ((a, middle), (middle, b)) if relayed[a, b] else ((a, b),):
            load[link] = load.get(link, 0.0) + routes.direct_seconds_per_byte[link]
    return max(load.values(), default=0.0)


def ring_pace(pace: Floats, members: tuple[int, ...]) -> float:
    """Seconds per byte of the slowest pair of the best directed ring; of many members by nearest neighbours."""
    return float(ring_paces(pace, np.array([members]))[0])


def ring_paces(pace: Floats, rings: Ints) -> Floats:
    """The same of R rings of as many members each, (R, G)."""
    found: Floats = _slowest_of_rings(pace, np.ascontiguousarray(rings))
    return found


@kernel
def _slowest_of_rings(pace, rings):  # type: ignore[no-untyped-def]
    count, size = rings.shape
    slowest, own = np.empty(count), np.empty((size, size))
    for ring in range(count):
        for i in range(size):
            for j in range(size):
                own[i, j] = pace[rings[ring, i], rings[ring, j]]
        slowest[ring] = _slowest_of_ring(own)
    return slowest


@kernel
def _best_ring(pace):  # type: ignore[no-untyped-def]
    """Least possible slowest pair of a directed ring through all (n, n): over sets of members but the first, and which
    of them is last."""
    n = len(pace)
    slowest = np.full((1 << n - 1, n), np.inf)
    if n == 1:
        return pace[0, 0]
    for last in range(1, n):
        slowest[1 << last - 1, last] = pace[0, last]
    for mask in range(1, 1 << n - 1):
        for last in range(1, n):
            for following in range(1, n):
                if not mask >> following - 1 & 1:
                    larger, worst = mask | 1 << following - 1, max(slowest[mask, last], pace[last, following])
                    slowest[larger, following] = min(slowest[larger, following], worst)
    return np.maximum(slowest[-1, 1:], pace[1:, 0]).min()


@kernel
def _nearest_ring(pace):  # type: ignore[no-untyped-def]
    """The same of rings that go on to the nearest member, of equals the first, from any start."""
    n, best = len(pace), np.inf
    for start in range(n):
        left, at, slowest = np.ones(n, np.bool_), start, 0.0
        left[start] = False
        for _ in range(n - 1):
            following = -1
            for other in range(n):
                if left[other] and (following < 0 or pace[at, other] < pace[at, following]):
                    following = other
            slowest = max(slowest, pace[at, following])
            at, left[following] = following, False
        best = min(best, max(slowest, pace[at, start]))
    return best


@kernel
def _slowest_of_ring(pace):  # type: ignore[no-untyped-def]
    """Least slowest pair of a directed ring through all (n, n); of many either way round."""
    if len(pace) <= MOST_ORDERED:
        return _best_ring(pace)
    return min(_nearest_ring(pace), _nearest_ring(np.ascontiguousarray(pace.T)))


def _alike(pace: Floats) -> bool:
    """Whether all pairs are equally quick: then a sum waits for the latencies of all its hops, else of one at least."""
    return bool(len(pace) and pace.min() >= pace.max() * (1 - 1e-9))


def _sum_of(pace: Floats, latency: Floats, members: tuple[int, ...]) -> tuple[float, float]:
    """Least seconds per byte and least latencies of a sum over a ring of all members, each once."""
    n, rings = len(members), np.array([members])
    return 2 * (n - 1) / n * float(ring_paces(pace, rings)[0]), float(_late(pace, latency, rings)[0])


def _late(pace: Floats, latency: Floats, rings: Ints) -> Floats:
    """(R,) least latencies of sums over rings (R, G): of all hops where the pairs of a ring are equally quick, else of
    one."""
    size = rings.shape[1]
    one, two = np.nonzero(~np.eye(size, dtype=bool))
    among = rings[:, one], rings[:, two]
    quick, slow = pace[among].min(axis=1), pace[among].max(axis=1)
    late: Floats = np.where(quick >= slow * (1 - 1e-9), 2 * (size - 1), 1) * latency[among].min(axis=1)
    return late


def real_ways(
    routes: DomainRoutes, among: tuple[int, ...], known: Lines, groups: int, span: int, *, tied: bool
) -> list[DomainWay]:
    """Real ways of this kind worth trying, the fastest borders and rings first; ``known`` from ``lines``."""
    found: dict[tuple[object, ...], DomainWay] = {}  # of ways that cost the same one is enough
    for chosen, ceiling in _choices(routes, among, known, groups, span):
        way = real_way(routes, chosen, ceiling, tied=tied)
        if way is not None and np.isfinite([way.slowest, *way.sync_pace, way.tail_pace]).all():
            paces = (
                *way.before_s,
                *way.before_pace,
                way.slowest,
                *way.sync_pace,
                way.sync_s,
                way.tail_pace,
                way.tail_s,
            )
            found.setdefault((len(way.relays), *(f"{each:.9g}" for each in paces)), way)
    ordered = sorted(
        found.values(), key=lambda way: (way.slowest + way.sync_pace.max(), way.before_s[-1] + way.tail_pace)
    )
    return ordered[: 3 * MOST_WAYS if groups == 1 else 2 * MOST_WAYS if span == 1 else MOST_WAYS]


def _choices(
    routes: DomainRoutes, among: tuple[int, ...], known: Lines, groups: int, span: int
) -> list[tuple[Groups, float]]:
    """Groups of domains, and the pace (seconds per byte) above which their pairs are relayed."""
    if span == 1:
        pace = routes.pair_pace[np.ix_(among, among)]
        sets = _rings(among, pace, groups) if groups > 1 else [among[:1]]
        return [
            (tuple((k,) for k in members), ceiling) for members in sets for ceiling in ring_ceilings(routes, members)
        ]
    chosen: list[tuple[Groups, float]] = []
    for order, ceiling in known[groups * span - 1]:
        chosen.append((tuple(order[i * span : (i + 1) * span] for i in range(groups)), ceiling))
        if groups > 1:
            chosen.append((tuple(order[i::groups] for i in range(groups)), ceiling))
    return chosen


def least_ring_pace(pace: Floats, size: int) -> float:
    """Least seconds per byte of the slowest pair of a directed ring through any ``size`` domains, or less where their
    sets are too many to look at: any ring joins a connected set."""
    if size <= MOST_ORDERED and comb(len(pace), size) <= MOST_SETS:
        return min(ring_pace(pace, members) for members in combinations(range(len(pace)), size))
    return float(slowest_borders(np.minimum(pace, pace.T))[size, 1])


def ring_ceilings(routes: DomainRoutes, members: tuple[int, ...]) -> list[float]:
    """Paces (seconds per byte) above which pairs of a ring may be relayed: none; and the ring's own with relays, where
    they make it quicker."""
    relayed, direct = (ring_pace(pace, members) for pace in (routes.seconds_per_byte, routes.direct_seconds_per_byte))
    return [np.inf, relayed] if len(members) > 1 and relayed < direct else [np.inf]


def lines(routes: DomainRoutes, among: tuple[int, ...], *, tied_bytes: float) -> Lines:
    """Open paths over every number of domains, directly and with relays: over the fastest borders, and the nearest.

    At position n - 1 the paths over n domains, each with the pace above which its borders are relayed; where the ends
    exchange ``tied_bytes``, also the paths for which that counts.
    """
    index = np.ix_(among, among)
    direct = np.maximum(routes.direct_seconds_per_byte, routes.direct_seconds_per_byte.T)[index]
    found: list[dict[tuple[tuple[int, ...], float], None]] = [{} for _ in among]
    for pace, barred in ((direct, True), (routes.pair_pace[index], False)):
        steps = np.unique(slowest_pair(pace)[2:])
        steps = steps[np.isfinite(steps)]
        if len(steps) > MOST_STEPS:
            steps = steps[np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int)]
        for step in (*steps, np.inf):
            ceiling = np.inf if barred else float(step)
            cost = routes.round_trip_s(TYPICAL_BYTES, ceiling)[index]
            ways = paths(pace, cost, float(step) * (1 + 1e-12))
            if tied_bytes and len(among) <= MOST_CLOSED:
                ways += closed_paths(pace, cost, float(step) * (1 + 1e-12), pace * tied_bytes)
            for path in ways:
                if path is not None:
                    found[len(path) - 1][tuple(among[i] for i in path), ceiling] = None
    return [list(ways) for ways in found]


def _rings(among: tuple[int, ...], pace: Floats, groups: int) -> list[tuple[int, ...]]:
    """Sets of domains that agree fastest: all of them where few, else grown from every start."""
    size = len(among)
    total = 1
    for i in range(groups):
        total = total * (size - i) // (i + 1)
    if total <= MOST_SETS:
        sets = list(combinations(range(size), groups))
    else:
        sets = list(dict.fromkeys(_grown(pace, start, groups) for start in range(size)))
    ranked = sorted(sets, key=lambda members: (ring_pace(pace, members), members))
    return [tuple(among[i] for i in members) for members in ranked[:MOST_WAYS]]


def _grown(pace: Floats, start: int, count: int) -> tuple[int, ...]:
    """The set grown from ``start`` by the domain with the fastest pair to any member."""
    members = [start]
    while len(members) < count:
        outside = [i for i in range(len(pace)) if i not in members]
        members.append(min(outside, key=lambda i: (pace[members, i].min(), i)))
    return tuple(sorted(members))
