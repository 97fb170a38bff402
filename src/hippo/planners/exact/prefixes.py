"""Bounds of pipelines over unlike domains along real paths: the first domains are tried one by one, with their own
links, the rest gets what the best of those that are left could have (docs/theory.md, "Along paths").

A depth-first search: a beginning of a path under which no step within the limit is possible is not gone on from.
Letters: K domains among which paths lie, n of them in one; O options of the family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field

import numpy as np
from numpy.typing import NDArray

from hippo.planners.exact.families import FamilyOnWay
from hippo.planners.exact.lineups import Mixes, Reach
from hippo.planners.exact.space import Field
from hippo.planners.exact.ways import DomainRoutes, least_from

Floats = NDArray[np.float64]
MOST_DOMAINS = 12  # among which paths lie: sums over what is left take a table of its subsets
MOST_FITS = 400  # of beginnings, after which a path is taken to be possible


@dataclass(eq=False)
class Beginnings:
    """Paths of one family over n domains within a limit, by how they begin."""

    whole: FamilyOnWay  # where any domain may stand anywhere
    mixes: Mixes
    reach: Reach
    trip: Floats  # (K, K) seconds of a wave over a border and back, from the most nodes; inf: too slow
    down: Floats  # (K, K) one way, the quicker direction
    pace: Floats  # (K, K) seconds in which a wave occupies the slower direction, at least
    goes: Floats  # (O, K, K) seconds of a wave from one to another, as each option sends it
    sends: Floats  # (O, K, K) of them those in which it occupies links, at least
    left: int = MOST_FITS
    _rests: dict[tuple[int, frozenset[int]], tuple[Floats, Floats]] = dataclass_field(default_factory=dict)

    @classmethod
    def of(cls, field: Field, whole: FamilyOnWay, mixes: Mixes, reach: Reach, ceiling: float) -> Beginnings:
        """Over borders of at most ``ceiling`` seconds per byte."""
        family, index = whole.family, np.ix_(reach.among, reach.among)
        wave_bytes, onward = family.wave * field.wave_bytes, field.routes(None)
        most, of = family.senders(field), family.nodes.tolist() if field.capped else [0] * len(family.nodes)
        paces = {nodes: field.routes(nodes).seconds_per_byte[index] for nodes in {most, *of}}
        seconds = {
            nodes: quickest(field.routes(nodes), onward, wave_bytes, ceiling, relays=field.rules.relays)[index]
            for nodes in {most, *of}
        }
        pair = np.maximum(paces[most], paces[most].T)
        allowed = (pair <= ceiling * (1 + 1e-9)) & ~np.eye(len(pair), dtype=bool)
        there = np.where(allowed, seconds[most], np.inf)
        return cls(
            whole,
            mixes,
            reach,
            there + there.T,
            np.minimum(there, there.T),
            wave_bytes * pair,
            np.stack([seconds[nodes] for nodes in of]),
            np.stack([wave_bytes * paces[nodes] for nodes in of]),
        )

    def fits(self, limit: float, begun: tuple[int, ...] = ()) -> bool:
        """Whether a step within ``limit`` may be possible along a path that begins with these domains."""
        size, length = len(self.trip), len(self.whole.before)
        rest = [each for each in range(size) if each not in begun]
        following = [each for each in rest if not begun or self.trip[begun[-1], each] < np.inf]
        for each in sorted(following, key=lambda domain: self.trip[begun[-1], domain] if begun else 0.0):
            if self.left <= 0:
                return True
            self.left -= 1
            path = (*begun, each)
            course = self._course(path)
            if course is not None and course.fits(limit) and (len(path) == length or self.fits(limit, path)):
                return True
        return False

    def _course(self, path: tuple[int, ...]) -> FamilyOnWay | None:
        """What is known of paths that begin so; None: there is no such path."""
        whole, last = self.whole, path[-1]
        length, begun = len(whole.before), len(path)
        pairs = list(zip(path, path[1:], strict=False))
        trips, downs = ([matrix[pair] for pair in pairs] for matrix in (self.trip, self.down))
        onward, after = self._rest(last, frozenset(range(len(self.trip))) - set(path))
        descent, _ = self._rest(last, frozenset(range(len(self.trip))) - set(path), down=True)
        if length - begun >= len(onward) or onward[length - begun] == np.inf:
            return None
        before = np.concatenate(([0.0], np.cumsum(trips), sum(trips) + onward[1 : length - begun + 1]))
        down = np.concatenate(([0.0], np.cumsum(downs), sum(downs) + descent[1 : length - begun + 1]))
        total = before[begun - 1] + onward[length - begun]
        behind = np.concatenate((total - before[:begun], after[length - begun - 1 :: -1] if begun < length else []))
        sends, late, least = whole.sends.copy(), whole.late.copy(), self.goes.min(axis=0)
        for j, (one, two) in enumerate(pairs):
            for towards, at, way in ((1, j, (one, two)), (0, j + 1, (two, one))):
                late[towards, at] = self.goes[:, *way] - least[way]
                sends[at] = np.maximum(sends[at], self.sends[:, *way])
        return replace(
            whole,
            before=before,
            after=behind,
            down=down,
            slowest=max(whole.slowest, *(self.pace[pair] for pair in pairs), 0.0),
            sends=sends,
            late=late,
            steps=self.mixes.behind(whole.steps, [int(self.reach.groups[each]) for each in path]),
        )

    def _rest(self, last: int, rest: frozenset[int], *, down: bool = False) -> tuple[Floats, Floats]:
        """(R + 1,) least sums over so many more borders from ``last`` on through R domains that are left, and over so
        many borders among them alone."""
        key = (last + len(self.trip) * down, rest)
        if key not in self._rests:
            matrix, among = self.down if down else self.trip, np.array(sorted(rest), np.int64)
            inside = matrix[np.ix_(among, among)]
            self._rests[key] = (
                np.append(0.0, least_from(inside, matrix[last, among])),
                np.append(least_from(inside, np.zeros(len(among))), np.inf),
            )
        return self._rests[key]


def quickest(routes: DomainRoutes, onward: DomainRoutes, wave_bytes: float, ceiling: float, *, relays: bool) -> Floats:
    """(K, K) least seconds of a wave from one domain to another, over the link itself or through a third domain (whose
    nodes do not hold it up: ``onward``), of routes of at most ``ceiling`` seconds per byte; inf: there is none."""
    ceiling *= 1 + 1e-9
    pace, late = routes.direct_seconds_per_byte, routes.direct_latency_s
    found = np.where(pace <= ceiling, late + wave_bytes * np.where(pace <= ceiling, pace, 0.0), np.inf)
    if relays:
        through = np.maximum(pace[:, :, None], onward.direct_seconds_per_byte[None])  # from, through, to
        usable = through <= ceiling
        seconds = late[:, :, None] + late[None] + wave_bytes * np.where(usable, through, 0.0)
        found = np.minimum(found, np.where(usable, seconds, np.inf).min(axis=1))
    return found
