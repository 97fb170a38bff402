"""Which domains may stand where: how many of every kind in one pipeline, which sets a path joins, and what groups of
several domains can have of borders and rings at once.

A *mix* says how many domains of every class it holds; a class is a kind of domain, or several where there are so many
kinds that mixes would be too many. Letters: K domains, C classes, M mixes, S steps from a mix to one with a domain
more, which are what a dynamic program over pipelines goes through (``bounds.mixed_fits``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.planners.exact.ways import MOST_DOMAINS, DomainRoutes, DomainWay, ideal_ways, ring_paces

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
MOST_MIXES = 256
FEW_DOMAINS, FEW_CEILINGS = 10, 6  # up to so many domains every pace of a pair is a ceiling, of more only so many


class Steps(NamedTuple):
    """Steps from mix to mix, S of them, those of the first domain of a pipeline first; state 0 holds no domain."""

    source: Ints  # (S,)
    target: Ints  # (S,)
    place: Ints  # (S,) of the domain in the pipeline
    group: Ints  # (S,) its class
    ends: Flags  # (M,) where a pipeline may end

    @classmethod
    def along(cls, groups: Sequence[int]) -> Steps:
        """Through domains of these classes in this order."""
        n, ends = len(groups), np.zeros(len(groups) + 1, bool)
        ends[n] = True
        return cls(np.arange(n), np.arange(1, n + 1), np.arange(n), np.array(groups, np.int64), ends)


@dataclass(frozen=True, eq=False)
class Mixes:
    """All mixes of some domains."""

    group: Ints  # (kinds,) class of every kind; -1: there is no such domain
    counts: Ints  # (C,) domains of each
    stride: Ints  # (C,) what a domain of each adds to the number of a mix
    held: Ints  # (C, M)
    size: Ints  # (M,) domains
    _steps: dict[bytes, Steps] = field(default_factory=dict)

    @classmethod
    def of(cls, kinds: Sequence[int], among: Sequence[int]) -> Mixes:
        """Of those ``among`` domains of these kinds."""
        classes = [({kind}, count) for kind, count in sorted(Counter(kinds[each] for each in among).items())]
        while np.prod([count + 1 for _, count in classes], dtype=float) > MOST_MIXES:
            (one, few), (other, more), *rest = sorted(classes, key=lambda each: each[1])
            classes = [*rest, (one | other, few + more)]
        group = np.full(max(kinds) + 1, -1)
        for at, (members, _) in enumerate(classes):
            group[list(members)] = at
        counts = np.array([count for _, count in classes])
        stride = np.concatenate([np.cumprod((counts + 1)[::-1])[-2::-1], [1]]).astype(np.int64)
        held = np.array(np.unravel_index(np.arange(np.prod(counts + 1)), counts + 1))
        return cls(group, counts, stride, held, held.sum(axis=0))

    def least(self, values: Floats) -> Floats:
        """(K + 1,) least of the values, (M,), over all mixes of each number of domains."""
        found = np.full(int(self.size.max()) + 1, np.inf)
        np.minimum.at(found, self.size, values)
        return found

    def steps(self, ends: Flags) -> Steps:
        """Those that lead to one of these mixes, (M,)."""
        if (asked := ends.tobytes()) not in self._steps:
            self._steps[asked] = self._steps_to(ends)
        return self._steps[asked]

    def behind(self, steps: Steps, groups: Sequence[int]) -> Steps:
        """Of some steps those of pipelines that begin with domains of these classes."""
        begun = np.concatenate(([0], np.cumsum(self.stride[list(groups)])))
        at = np.minimum(steps.place, len(groups) - 1)
        first = (steps.source == begun[at]) & (steps.group == np.array(groups)[at])
        later = (self.held[:, steps.source] >= self.held[:, begun[-1]][:, None]).all(axis=0)
        kept = np.where(steps.place < len(groups), first, later)
        return Steps(steps.source[kept], steps.target[kept], steps.place[kept], steps.group[kept], steps.ends)

    def _steps_to(self, ends: Flags) -> Steps:
        leads, rows = ends.copy(), []
        for place in range(int(self.size[ends].max(initial=0)) - 1, -1, -1):
            for at, stride in enumerate(self.stride.tolist()):
                source = np.flatnonzero((self.size == place) & (self.held[at] < self.counts[at]))
                source = source[leads[source + stride]]
                leads[source] = True
                rows.append(np.stack([source, source + stride, np.full(len(source), place), np.full(len(source), at)]))
        found = np.concatenate(rows[::-1], axis=1) if rows else np.zeros((4, 0), np.int64)
        source, target, places, groups = np.ascontiguousarray(found)
        return Steps(source, target, places, groups, ends)


@dataclass(frozen=True, eq=False)
class JoinedSets:
    """What paths over pairs below a ceiling join."""

    ways: dict[int, DomainWay]  # an ideal way for every number of domains that some path joins
    mixes: Flags  # (M,) of the sets that a path joins


@dataclass(frozen=True, eq=False)
class Reach:
    """Sets of domains that a pipeline may join, by how slow a border may be."""

    routes: DomainRoutes
    rings: DomainRoutes
    among: tuple[int, ...]
    mixes: Mixes
    groups: Ints  # (K,) class of each
    tied: bool
    _known: dict[float, JoinedSets] = field(default_factory=dict)

    def under(self, ceiling: float) -> JoinedSets:
        """Over borders of at most ``ceiling`` seconds per byte."""
        pace = self.routes.pair_pace[np.ix_(self.among, self.among)]
        paces = np.unique(pace[np.isfinite(pace)])
        if len(self.among) > FEW_DOMAINS:
            paces = paces[np.linspace(0, len(paces) - 1, FEW_CEILINGS).round().astype(int)]
        few = len(self.among) <= FEW_DOMAINS
        at = np.searchsorted(paces, ceiling * (1 + 1e-9), side="right") - (1 if few else 0)
        own = float(paces[min(int(at), len(paces) - 1)]) if len(paces) and at >= 0 else 0.0
        if own not in self._known:
            self._known[own] = self._joined(own, pace)
        return self._known[own]

    def _joined(self, ceiling: float, pace: Floats) -> JoinedSets:
        found = ideal_ways(self.routes, self.rings, self.among, tied=self.tied, ceiling=ceiling, groups=1)
        ways, size = {way.span: way for way in found}, self.mixes.size
        mixes = np.isin(size, list(ways))
        if len(self.among) <= MOST_DOMAINS:
            near = (pace <= ceiling) & ~np.eye(len(pace), dtype=bool)
            mixes = _joined_mixes(near, self.mixes.stride[self.groups], len(size))
        return JoinedSets(ways, mixes & (size > 0))


@kernel
def _joined_mixes(near, strides, count):  # type: ignore[no-untyped-def]
    """(M,) the mixes of sets that an open path joins; ``near`` (K, K) which pairs may follow one another."""
    size = len(near)
    ends, number = np.zeros(1 << size, np.int64), np.zeros(1 << size, np.int64)
    beside, found = np.zeros(size, np.int64), np.zeros(count, np.bool_)
    for i in range(size):
        ends[1 << i] = 1 << i
        for j in range(size):
            if near[i, j]:
                beside[i] |= 1 << j
    for mask in range(1, 1 << size):
        for i in range(size):
            if mask >> i & 1:
                number[mask] = number[mask & ~(1 << i)] + strides[i]
                break
        if ends[mask] == 0:
            continue
        found[number[mask]] = True
        for i in range(size):
            if mask >> i & 1 == 0 and ends[mask] & beside[i]:
                ends[mask | 1 << i] |= 1 << i
    return found


MOST_RANKED, MOST_MEMBERS = 40_000, 4  # ways that are looked at one by one; groups of them
FEW_RINGS = 3  # every order of which is looked at where ways are too many


def told_apart(routes: DomainRoutes, rings: DomainRoutes, among: tuple[int, ...], way: DomainWay) -> list[DomainWay]:
    """Ways of as many groups and domains as an ideal one, each with borders and rings that it can have at once; no real
    way is better than all of them. The first domains of all groups make a ring, the second ones, and so on; borders
    are matchings of one such set with the next, and do not hang on each other."""
    g, n, size = way.groups, way.span, len(among)
    if g > MOST_MEMBERS or factorial(size) // factorial(g) ** n // factorial(size - g * n) > MOST_RANKED:
        if n > FEW_RINGS:
            return [way]
        return [replace(way, sync_pace=np.array(order)) for order in sorted(set(permutations(way.rings)))]
    index = np.ix_(among, among)
    sets = list(combinations(range(size), g))
    around, pair = np.ascontiguousarray(rings.seconds_per_byte[index]), routes.pair_pace[index]
    members, orders = np.array(sets), np.array(list(permutations(range(g))))
    ring = 2 * (g - 1) / g * ring_paces(around, members)
    border = np.full((len(sets), len(sets)), np.inf)
    for order in orders:
        border = np.minimum(border, pair[members[:, None, :], members[None, :, order]].max(axis=2))
    masks = (1 << members).sum(axis=1)
    border[(masks[:, None] & masks[None, :]) > 0] = np.inf
    found = _quickest(ring, border, masks, n)
    return [
        replace(way, slowest=float(each[n]), sync_pace=each[:n].copy(), rings=tuple(each[:n].tolist()))
        for each in found
    ]


@kernel
def _quickest(ring, border, masks, count):  # type: ignore[no-untyped-def]
    """(F, n + 1) paces of the n rings and of the slowest border, of all rows of n disjoint sets of which no other is as
    quick in everything."""
    kept, size = np.empty((64, count + 1)), 0
    at, row = np.full(count, -1), np.zeros(count + 1)
    used, slow = np.zeros(count + 1, np.int64), np.zeros(count + 1)
    depth = 0
    while depth >= 0:
        at[depth] += 1
        if at[depth] == len(ring):
            at[depth] = -1
            depth -= 1
            continue
        this = at[depth]
        if used[depth] & masks[this]:
            continue
        row[depth] = ring[this]
        slowest = slow[depth] if depth == 0 else max(slow[depth], border[at[depth - 1], this])
        if slowest == np.inf or row[depth] == np.inf:
            continue
        row[count] = slowest
        beaten = False
        for k in range(size):  # rings that are still to come count as nothing
            worse = kept[k, count] <= slowest
            for j in range(count):
                worse = worse and kept[k, j] <= (row[j] if j <= depth else 0.0)
            if worse:
                beaten = True
                break
        if beaten:
            continue
        if depth + 1 < count:
            used[depth + 1], slow[depth + 1] = used[depth] | masks[this], slowest
            depth += 1
            continue
        stay = 0
        for k in range(size):
            if not (row <= kept[k]).all():
                kept[stay] = kept[k]
                stay += 1
        size = stay
        if size == len(kept):
            kept = np.concatenate((kept, np.empty_like(kept)))
        kept[size] = row
        size += 1
    return kept[:size].copy()
