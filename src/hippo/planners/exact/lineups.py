"""Which domains may stand in one pipeline: how many of every kind there are, and which sets a path joins.

A *mix* says how many domains of every class it holds; a class is a kind of domain, or several where there are so many
kinds that mixes would be too many. Letters: K domains, C classes, M mixes, S steps from a mix to one with a domain
more, which are what a dynamic program over pipelines goes through (``bounds.mixed_fits``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.planners.exact.ways import MOST_DOMAINS, DomainRoutes, DomainWay, ideal_ways

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

    group: Ints  # (kinds,) class of every kind
    counts: Ints  # (C,) domains of each
    stride: Ints  # (C,) what a domain of each adds to the number of a mix
    held: Ints  # (C, M)
    size: Ints  # (M,) domains

    @classmethod
    def of(cls, kinds: Sequence[int]) -> Mixes:
        """Of domains of these kinds."""
        classes = [({kind}, count) for kind, count in sorted(Counter(kinds).items())]
        while np.prod([count + 1 for _, count in classes], dtype=float) > MOST_MIXES:
            (one, few), (other, more), *rest = sorted(classes, key=lambda each: each[1])
            classes = [*rest, (one | other, few + more)]
        group = np.zeros(max(kinds) + 1, np.int64)
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
        leads, rows = ends.copy(), []
        for place in range(int(self.size[ends].max(initial=0)) - 1, -1, -1):
            for at, stride in enumerate(self.stride.tolist()):
                source = np.flatnonzero((self.size == place) & (self.held[at] < self.counts[at]))
                source = source[leads[source + stride]]
                leads[source] = True
                rows.append(np.stack([source, source + stride, np.full(len(source), place), np.full(len(source), at)]))
        found = np.concatenate(rows[::-1], axis=1) if rows else np.zeros((4, 0), np.int64)
        return Steps(*np.ascontiguousarray(found), ends)


@dataclass(frozen=True, eq=False)
class Joined:
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
    _known: dict[float, Joined] = field(default_factory=dict)

    def under(self, ceiling: float) -> Joined:
        """Over borders of at most ``ceiling`` seconds per byte."""
        pace = self.routes.pair_pace[np.ix_(self.among, self.among)]
        paces = np.unique(pace[np.isfinite(pace)])
        if len(self.among) > FEW_DOMAINS:
            paces = paces[np.linspace(0, len(paces) - 1, FEW_CEILINGS).round().astype(int)]
        few = len(self.among) <= FEW_DOMAINS
        at = np.searchsorted(paces, ceiling * (1 + 1e-9), side="right") - (1 if few else 0)
        own = paces[min(at, len(paces) - 1)] if len(paces) and at >= 0 else 0.0
        if own not in self._known:
            self._known[own] = self._joined(own, pace)
        return self._known[own]

    def _joined(self, ceiling: float, pace: Floats) -> Joined:
        found = ideal_ways(self.routes, self.rings, self.among, tied=self.tied, ceiling=ceiling, groups=1)
        ways, size = {way.span: way for way in found}, self.mixes.size
        mixes = np.isin(size, list(ways))
        if len(self.among) <= MOST_DOMAINS:
            mixes = _joined_mixes((pace <= ceiling) & ~np.eye(len(pace), dtype=bool), self.mixes.stride[self.groups], len(size))
        return Joined(ways, mixes & (size > 0))


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
