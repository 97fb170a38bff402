"""Plans made anew for one state of the links, in tens of ms: the tables of the exact search, new ways to join domains.

What layers cost does not depend on the links, so tables are made once per problem. Under a state the best open paths
over every number of domains are found (directly, and with relays), each gets the bound of its best shape, and the few
best sets of domains are cut, run ahead, ordered and played. Sets of domains that lie differently get the cuts of the
dynamic program for mixed pipelines, with the family of layouts that suits the base state.

Letters: E links as in ``cluster.links``, K domains, n domains of a path.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import field as kept
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.plan.plan import Plan
from hippo.planners.exact.candidates import Tried
from hippo.planners.exact.families import LayoutFamily, families
from hippo.planners.exact.lineups import Mixes
from hippo.planners.exact.mixed import along
from hippo.planners.exact.polish import LONG, play_ordered
from hippo.planners.exact.space import NOBODY, Field, remembered
from hippo.planners.exact.uniform import PlanShape, best_first, play, rough_bounds
from hippo.planners.exact.ways import DomainWay, lines, real_way
from hippo.problem.cluster import Link
from hippo.problem.links import base_bandwidth
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Path = tuple[int, ...]
MOST_DOMAINS = 8  # that are looked at, those with the fastest pairs: sets of them are enumerated
WAYS = 2  # of one set of domains that are planned
LOOKED_AT = 2  # sets of domains with a bound over all cuts, for one that is planned
PLAYED = 4  # shapes played for a plan,
CLOSE = 1.003  # or one, where it comes this close to its bound
FAMILIES = 4  # of layouts that are played for mixed pipelines, those of the best bound
WITHIN = (1.5, 3.0, 10.0)  # times the bound within which cuts of mixed pipelines are looked for


class Net(NamedTuple):
    """One state of the links."""

    bandwidth_bytes_per_s: Floats  # (E,), 0: down
    latency_s: Floats  # (E,)


class Joined(NamedTuple):
    """A set of domains under a state: the bound of its best shape, and the ways and paths that were looked at."""

    bound: float
    kind: int  # of all its domains; -1: they differ
    ways: tuple[DomainWay, ...]
    paths: tuple[tuple[Path, float], ...]  # with the pace above which borders are relayed
    families: tuple[LayoutFamily, ...] = ()  # of layouts, where domains differ: those of the best bounds


class Refined(NamedTuple):
    """The same with the bound over all cuts, which knows memory (of mixed pipelines as it is)."""

    bound: float
    joined: Joined
    field: Field  # with a judge of its own
    shapes: Iterator[tuple[float, PlanShape, Ints]]  # best first


@dataclass(frozen=True, eq=False)
class Replanner:
    """Plans one problem again and again, each time under another state of its links."""

    field: Field
    known: dict[object, Any] = kept(default_factory=dict)  # answers, while ``remembering``
    _open: list[bool] = kept(default_factory=list)

    @property
    def remembers(self) -> bool:
        """Whether answers are to be kept in ``known``."""
        return bool(self._open)

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Inside, what was planned for a state is not planned again: for many runs over the same states. Nothing but
        the time of an answer depends on it."""
        self._open.append(True)
        try:
            yield
        finally:
            self._open.pop()
            if not self._open:
                self.known.clear()

    @classmethod
    def of(cls, problem: Problem) -> Replanner:
        """The one that was made for this very problem, if it is among the last ones; else a new one."""
        known = next((each for each in _LAST if each.field.problem is problem), None)
        if known is None:
            known = cls(remembered(problem) or Field.of(problem, Tried(problem)))
        _LAST[:] = [known, *(each for each in _LAST if each is not known)][:MOST_KEPT]
        return known

    def plans(self, state: Net, *, most: int = 2, without: frozenset[int] = frozenset()) -> Iterator[Plan]:
        """The best plan of each of the ``most`` sets of domains of least bound, the least first.

        ``without``: domains that must not be used.
        """
        if not self.remembers:
            yield from self._plans(state, most, without)
            return
        key = "plans", *(each.tobytes() for each in state), most, without
        if key not in self.known:
            self.known[key] = tuple(self._plans(state, most, without))
        yield from self.known[key]

    def _plans(self, state: Net, most: int, without: frozenset[int]) -> Iterator[Plan]:
        field = self._field(under(self.field.problem, state))
        rough = sorted(self._joined(field, without), key=lambda each: each.bound)[: LOOKED_AT * most]
        ranked: list[Refined] = []
        for joined in rough:
            if len(ranked) == most and joined.bound >= ranked[-1].bound:
                break  # a refined bound is no less than a rough one
            ranked = sorted((*ranked, self._refined(field, joined)), key=lambda each: each.bound)[:most]
        for each in ranked:
            winner = self._uniform(each) if each.joined.kind >= 0 else self._mixed(each.field, each.joined)
            if winner is not None:
                yield winner

    @cached_property
    def _families(self) -> list[tuple[LayoutFamily, Floats]]:
        """Families of layouts for mixed pipelines, with their bounds for every number of domains."""
        kinds = self.field.tables.kinds
        mixes = Mixes.of(kinds, range(len(kinds)))
        return [(each, mixes.least(each.fluid(mixes))) for each in families(self.field)]

    def _field(self, problem: Problem) -> Field:
        """The field under this problem's links, with a judge of its own."""
        own = self.field
        return Field(problem, own.tables, Tried(problem), own.sync, own.ordered)

    def _joined(self, field: Field, without: frozenset[int]) -> list[Joined]:
        """Every set of domains that some best path joins, with the bound of its best shape."""
        kinds, tied = field.tables.kinds, bool(field.tied_bytes)
        routes, among = field.routes(0), self._among(field, without)
        sets: dict[frozenset[int], dict[tuple[Path, float], DomainWay]] = {}
        for path, ceiling in [each for row in lines(routes, among, tied_bytes=field.tied_bytes) for each in row]:
            way = real_way(routes, (path,), ceiling, tied=tied)
            if way is not None and np.isfinite(way.slowest + way.tail_pace):
                sets.setdefault(frozenset(path), {})[path, ceiling] = way
        for each in among:
            way = real_way(routes, ((each,),), np.inf, tied=tied)
            if way is not None:
                sets.setdefault(frozenset((each,)), {})[(each,), np.inf] = way
        found = []
        for members, ways in sets.items():
            own = {kinds[each] for each in members}
            kind = own.pop() if len(own) == 1 else -1
            best = sorted(ways.items(), key=lambda item: (item[1].slowest, item[1].before_s[-1] + item[1].tail_s))
            paths, chosen = tuple(path for path, _ in best[:WAYS]), tuple(way for _, way in best[:WAYS])
            if kind >= 0:
                bound = min(float(rough_bounds(field, kind, way)[0].min(initial=np.inf)) for way in chosen)
                found.append(Joined(bound, kind, chosen, paths))
            else:
                ranked = sorted(self._mixed_bounds(field, chosen[0]), key=lambda each: each[0])[:FAMILIES]
                mixed = tuple(family for _, family in ranked)
                found.append(Joined(ranked[0][0] if ranked else np.inf, kind, chosen, paths, mixed))
        return [each for each in found if np.isfinite(each.bound)]

    def _refined(self, field: Field, joined: Joined) -> Refined:
        own = replace(field, tried=Tried(field.problem))  # what is known of the state's links is shared
        if joined.kind < 0:
            return Refined(joined.bound, joined, own, iter(()))
        ranked = best_first(own, joined.kind, list(joined.ways))
        first = next(ranked, None)
        if first is None:
            return Refined(np.inf, joined, own, ranked)
        return Refined(first[0], joined, own, chain((first,), ranked))

    def _mixed_bounds(self, field: Field, way: DomainWay) -> Iterator[tuple[float, LayoutFamily]]:
        """Least step time of every family on a way, by its work and by the slowest link."""
        for family, fluid in self._families:
            wave_bytes = family.wave * field.wave_bytes
            trip = family.rest[0] + way.after_s[0] + way.after_pace[0] * wave_bytes
            yield max(float(fluid[way.span]), trip + (family.waves - 1) * way.slowest * wave_bytes), family

    def _among(self, field: Field, without: frozenset[int]) -> Path:
        """Domains that are looked at: all, or those with the fastest pairs and most GPUs."""
        cluster = field.problem.cluster
        found = [each for each in range(len(cluster.domains)) if each not in without]
        if len(found) > MOST_DOMAINS:
            rate = np.sort(1.0 / field.routes(0).pair_pace[np.ix_(found, found)], axis=1)[:, ::-1][:, :3].sum(axis=1)
            gpus = np.array([cluster.domains[each].gpus for each in found])
            best = np.argsort(-rate * gpus, kind="stable")[:MOST_DOMAINS]
            found = sorted(found[int(each)] for each in best)
        return tuple(found)

    def _uniform(self, refined: Refined) -> Plan | None:
        field = refined.field
        for tried, (bound, shape, cuts) in enumerate(refined.shapes):
            play(field, shape, cuts, bound)
            if tried + 1 >= PLAYED or field.tried.value <= bound * CLOSE:
                break
        return _ordered(field)

    def _mixed(self, field: Field, joined: Joined) -> Plan | None:
        for family in joined.families:
            for share in WITHIN:
                found = along(field, family, *joined.paths[0], limit=share * joined.bound)
                for candidate in found:
                    field.tried.play(candidate)
                if found or field.tried.value <= share * joined.bound:
                    break
        return _ordered(field)


MOST_KEPT = 4
_LAST: list[Replanner] = []


def under(problem: Problem, state: Net) -> Problem:
    """The problem with its links in that state; links that are down are not there."""
    links, base = problem.cluster.links, base_bandwidth(problem.cluster)
    changed = tuple(
        _changed(link, bandwidth, bandwidth / usual, latency)
        for link, usual, bandwidth, latency in zip(links, base, *state, strict=True)
        if bandwidth > 0
    )
    return replace(problem, cluster=replace(problem.cluster, links=changed))


def reachable(problem: Problem, state: Net, compute: Floats) -> Problem:
    """The problem with its links in that state, without the domains that do not answer, (K,) ``compute``."""
    changed = under(problem, state)
    cluster = changed.cluster
    kept = tuple(domain for domain, slower in zip(cluster.domains, compute, strict=True) if np.isfinite(slower))
    if not kept or len(kept) == len(cluster.domains):
        return changed
    names = {domain.name for domain in kept}
    links = tuple(link for link in cluster.links if {link.source, link.destination} <= names)
    return replace(changed, cluster=replace(cluster, domains=kept, links=links))


def _changed(link: Link, bandwidth: float, share: float, latency: float) -> Link:
    late = float(latency) - link.overhead_s
    if link.bandwidth_bytes_per_s is None:
        assert link.per_node_bytes_per_s is not None
        return replace(link, per_node_bytes_per_s=link.per_node_bytes_per_s * share, latency_s=late)
    return replace(link, bandwidth_bytes_per_s=float(bandwidth) / link.goodput, latency_s=late)


def _ordered(field: Field) -> Plan | None:
    """The best plan so far, with an order made for it where that is better and short enough."""
    winner = field.tried.winner
    if winner is None:
        return None
    operations = 3 * sum(len(line.stages) * line.num_micro_batches for line in winner.pipelines)
    if field.ordered != NOBODY and operations <= LONG:
        play_ordered(field, operations=1)
    best = field.tried.winner
    return None if best is None else best.plan(field.problem)
