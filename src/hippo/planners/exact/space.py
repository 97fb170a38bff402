"""What the parts of the exact search share: tables, layouts, ways to join, what was tried, and what agreeing costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.cost.money import rent_usd_per_s
from hippo.plan.plan import Sync
from hippo.planners.answers import degrees_of, with_degrees
from hippo.planners.exact.bounds import NO_LIMIT
from hippo.planners.exact.candidates import Tried
from hippo.planners.exact.layouts import DomainLayout, LayerTable, LayerTables, layouts, lone, shards_across
from hippo.planners.exact.lineups import told_apart
from hippo.planners.exact.ways import (
    DomainRoutes,
    DomainWay,
    Lines,
    ideal_ways,
    least_ring_pace,
    lines,
    real_ways,
    ring_pace,
)
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS, Runtime
from hippo.simulate.agree import summed_share
from hippo.simulate.routes import border_share

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NEXT_TO_NOTHING = 1e-12  # stands for 0 where shares are divided by
PATIENCE, LONG_PATIENCE = 6, 40  # shapes of one way to join without a new best plan; the latter where that is
# cheap: small batches, and local SGD, whose replicas hardly wait for links
ORDERED_PATIENCE = 3  # where each gets an order made for it, which says more than a play
SMALL_BATCH = 64
WAYS_PATIENCE = 12  # ways to join in a row that bring nothing better, after which the rest is left
MOST_DOMAINS = 64  # of a kind that are looked at; beyond, the work of all GPUs alone is a bound


NOBODY, SINGLE, EVERY = "nobody", "single pipelines", "replicas, too"


@dataclass(frozen=True)
class Only:
    """Plans that use all of these domains (indices) and no other, of so many groups where that is asked, too."""

    domains: frozenset[int]
    groups: int | None = None

    def admits(self, groups: int, span: int) -> bool:
        """Whether ways of so many groups of ``span`` domains may be such."""
        return groups * span == len(self.domains) and self.groups in (None, groups)

    def holds(self, groups: Iterable[Iterable[int]]) -> bool:
        """Whether these groups of domains are such."""
        paths = [frozenset(group) for group in groups]
        return frozenset().union(*paths) == self.domains and self.groups in (None, len(set(paths)))


@dataclass(frozen=True, eq=False)
class LayoutRows:
    """Numbers of all layouts of a kind, (L,) each."""

    total: Floats  # seconds of one wave through the whole model
    trip: Floats  # of them those of its round trip
    early: Floats  # least share of forwards in the seconds of any layer; 1 where backwards are not split
    spared: Floats  # seconds of the first layer that a later stage need not wait for; 0 where it must
    blocks: Floats  # seconds of one wave through the heaviest blocks
    kept: Floats  # bytes of the whole model's state on one rank
    once: Floats  # least seconds per step of the first stage
    ends: Floats  # least seconds in which two stages of a domain sum what they share
    wave: Ints  # sequences
    stages: Ints  # room in a domain
    lone: Ints  # 1: only for pipelines of one stage, 2: and for one of them
    nodes: Ints  # most nodes of a stage
    lane: Ints  # GPUs of a stage
    ranks: Ints  # of a stage that hold the same weights
    flat: NDArray[np.bool_]  # whether replicas in several domains sum over one flat ring
    summed: Floats  # what their sums send over what those of gradients do
    least: Ints  # groups of a plan
    most: Ints


@dataclass(frozen=True, eq=False)
class Field:
    """One problem, prepared; ``sync`` is how replicas agree."""

    problem: Problem
    tables: LayerTables
    tried: Tried
    sync: Sync = Sync()
    ordered: str = SINGLE  # which plans may have orders of their own, where the runtime plays any: bounds hold for them
    only: Only | None = None  # None: plans over any domains
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, problem: Problem, tried: Tried, *, split: bool = True) -> Field:
        """A problem with tables of its own; ``split``: bounds hold for backwards that are split, too, where the runtime
        plays any order."""
        rules = problem.rules
        return cls(
            problem, LayerTables.of(problem, split=split and rules.schedules is None and rules.live_limit), tried
        )

    @cached_property
    def rules(self) -> Runtime:
        """Limits of the runtime."""
        return self.problem.rules

    def patience(self, *, ordered: bool = False) -> int:
        """Shapes of one way to join that are played in a row without a better plan; ``ordered``: each with orders."""
        if self.problem.workload.global_batch <= SMALL_BATCH or self.sync.method == "local_sgd":
            return LONG_PATIENCE
        return ORDERED_PATIENCE if ordered else PATIENCE

    @property
    def awaited(self) -> float:
        """Of the bytes of all gradients, what a step waits for at least."""
        return self.sync.awaited_share(self.problem.workload.gradient_bytes_per_parameter)

    @cached_property
    def layouts(self) -> tuple[list[DomainLayout], ...]:
        """Layouts of every kind of domain; where passes gather over links only those that may be worth it when first
        asked for."""

        def made() -> tuple[list[DomainLayout], ...]:
            found = tuple(layouts(self.tables, kind) for kind in range(len(self.tables.examples)))
            return tuple([each for each in own if self._may_win(each)] for own in found)

        return self.tables.shared("layouts", made)

    def _may_win(self, layout: DomainLayout) -> bool:
        """Whether gathers over the quickest links alone do not take longer than the best plan so far."""
        if not self.tables.gathering:
            return True
        problem, domains, (least, most) = self.problem, len(self.tables.kinds), layout.between(self.problem)
        waves = max(1, problem.workload.global_batch // layout.wave // min(most, domains))
        gathers_s = 3 * waves * self.gathers_of(least, least)[0] * self.tables.share[-1]
        if problem.objective.name == "cost":
            return bool(rent_usd_per_s(problem.cluster.gpu, 1) * layout.gpus * least * gathers_s < self.tried.value)
        return bool(gathers_s / (layout.stages * (domains // least)) < self.tried.value)

    def gathers_s(self, way: DomainWay) -> tuple[float, float]:
        """Seconds in which the links carry all weights to the groups of a way, at least, and of latencies before: of
        every forward pass, where weights are sharded over groups; a backward sends twice as much. Of a real way on the
        ring that is likely."""
        if not self.tables.gathering or way.groups < 2:
            return 0.0, 0.0
        if not way.domains:
            return self.gathers_of(way.groups, way.size)
        routes, members = self.routes(None), tuple(sorted(each for path in way.domains for each in path))
        pace = routes.seconds_per_byte if way.relays else routes.direct_seconds_per_byte
        carried_s = self._gathered_bytes(way.groups) * ring_pace(pace, members)
        return min(carried_s, NO_LIMIT), self.gathers_of(way.groups, way.size)[1]

    def gathers_of(self, groups: int, size: int) -> tuple[float, float]:
        """The same of so many groups on a ring through ``size`` domains, whichever."""
        key = "gathers", groups, size
        if key not in self._cache:
            routes, away = self.routes(None), ~np.eye(len(self.tables.kinds), dtype=bool)
            late = (size - 1) * float(routes.least_latency_s[away].min())
            carried_s = self._gathered_bytes(groups) * least_ring_pace(routes.seconds_per_byte, size)
            self._cache[key] = min(carried_s, NO_LIMIT), min(late, NO_LIMIT)
        return self._cache[key]  # type: ignore[return-value]

    def _gathered_bytes(self, groups: int) -> float:
        """Bytes of the whole model that a domain gets in a forward pass where so many groups share it."""
        return self.tables.gradient_bytes * (groups - 1) / groups

    def table(self, layout: DomainLayout) -> LayerTable:
        """Prefix sums of a layout."""
        return self.tables.table(layout.kind, layout.tp, layout.dp, layout.mode)

    def orders(self, way: DomainWay) -> bool:
        """Whether plans of this way to join may have orders of their own."""
        return self.tables.split and (self.ordered == EVERY or (self.ordered == SINGLE and way.groups == 1))

    def splits(self, way: DomainWay) -> bool:
        """Whether bounds of this way to join hold for backwards that are split: by an order, or by the runtime."""
        return self.orders(way) or (self.tables.split and self.rules.gradients_first)

    def layout_rows(self, kind: int) -> LayoutRows:
        """Numbers of all layouts of a kind."""
        return self.tables.shared(("rows", kind), lambda: self._layout_rows(kind))

    def _layout_rows(self, kind: int) -> LayoutRows:
        rows, early_of = [], dict[int, float]()
        for layout in self.layouts[kind]:
            where = layout.kind, layout.tp, layout.dp
            mode = layout.mode
            once, fixed = self.tables.once(*where, mode.sharding, mode.groups)
            forward, seconds, trip = self.tables.times(*where, mode)
            blocks = np.diff(seconds)[self.tables.heaviest].sum()
            if id(seconds) not in early_of:  # one array for all layouts that take as long
                early_of[id(seconds)] = early_share(forward, seconds) if self.tables.split else 1.0
            early = early_of[id(seconds)]
            spared = early * seconds[1] + once[1] if self.tables.split else 0.0
            kept = self.tables.kept(*where[1:], mode.sharding, groups=mode.groups)[-1]
            nodes = layout.nodes(self.tables.examples[kind].gpus_per_node)
            alone = lone(self.problem, mode.sharding, mode.groups)
            gpus, flat = layout.gpus, self.problem.all_reduce_with(mode.sharding) == "ring"
            share = layout.summed(self.problem)
            seconds_of = (seconds[-1], trip[-1], early, spared, blocks)
            sums = kept, once[1] + fixed, self.ends_s(layout)
            ways = flat, share, *layout.between(self.problem)
            rows.append((*seconds_of, *sums, layout.wave, layout.stages, alone, nodes, gpus, layout.ranks, *ways))
        columns = np.array(rows, dtype=np.float64).reshape(len(rows), 18).T
        total, trips, earlies, spare, inner, state, least, ends = columns[:8]
        wave, stages, lones, nodes, gpus, ranks = columns[8:14].astype(np.int64)
        flats, few, many = columns[14].astype(bool), *columns[16:].astype(np.int64)
        figures = total, trips, earlies, spare, inner, state, least, ends
        return LayoutRows(*figures, wave, stages, lones, nodes, gpus, ranks, flats, columns[15], few, many)

    def fits_two(self, kind: int) -> NDArray[np.bool_]:
        """(L,) whether one stage of each layout has room for two micro-batches: one may be forward beside the other."""

        def made() -> NDArray[np.bool_]:
            tables = [self.table(layout) for layout in self.layouts[kind]]
            needs = [
                each.kept_bytes[-1] + 2 * each.activation_bytes[-1] + each.workspace_bytes[[0, -1]].max()
                for each in tables
            ]
            return np.array(needs, dtype=np.float64) <= self.tables.usable_bytes

        return self.tables.shared(("fits two", kind), made)

    @property
    def wave_bytes(self) -> float:
        """Bytes one sequence sends over a border, each way."""
        return self.tables.wave_bytes_per_sequence * border_share(self.problem)

    @cached_property
    def tied_bytes(self) -> float:
        """What first and last domain of a pipeline exchange when the head shares the embedding's matrix."""
        model = self.problem.model
        return model.vocab * model.hidden * self.problem.workload.gradient_bytes_per_parameter if model.tied else 0.0

    def sync_s(self, way: DomainWay) -> Floats:
        """(n,) seconds in which the groups would agree on the whole model over the ring of each position."""
        return self.carried_s(way) + (0.0 if self.sync.delay else way.sync_s / self.sync.every)

    def carried_s(self, way: DomainWay) -> Floats:
        """(n,) of them those in which links carry, without latencies."""
        return self.tables.gradient_bytes * way.sync_pace * self.awaited

    def tail_s(self, way: DomainWay) -> float:
        """Seconds after the first stage is done: tied embeddings in two domains."""
        return self.tied_bytes * way.tail_pace + way.tail_s

    def ends_s(self, layout: DomainLayout) -> float:
        """Least seconds in which the first and the last of several stages in one domain sum tied embeddings."""
        if not self.tied_bytes:
            return 0.0
        domain, gpus = self.tables.examples[layout.kind], layout.gpus
        node, p2p_s = domain.gpus_per_node, self.tables.model.p2p_seconds
        apart = p2p_s(domain.name, self.tied_bytes / layout.nodes(node), same_node=False)
        return apart if 2 * gpus > node else min(apart, p2p_s(domain.name, self.tied_bytes / gpus, same_node=True))

    def least_egress_usd(self, way: DomainWay) -> float:
        """Least price of what the groups send in a step: activations and gradients over borders, and the agreement."""
        borders = 2.0 * self.problem.workload.global_batch * self.wave_bytes * (way.span - 1)
        agreed = 2.0 * (way.groups - 1) * self.tables.gradient_bytes * self.least_summed
        agreed *= self.sync.sent_share(self.problem.workload.gradient_bytes_per_parameter)
        return self.least_usd_per_byte * (borders + agreed)

    @cached_property
    def least_summed(self) -> float:
        """What sums of replicas send at least, over what those of gradients do."""
        return min(1.0, summed_share(self.problem, ACROSS)) if shards_across(self.problem) else 1.0

    @cached_property
    def least_usd_per_byte(self) -> float:
        """Price of the cheapest link."""
        return min((link.price_usd_per_gb for link in self.problem.cluster.links), default=0.0) * 1e-9

    def members(self, kind: int) -> tuple[int, ...]:
        """Domains of a kind; of very many only those with the fastest links."""
        wanted = range(len(self.tables.kinds)) if self.only is None else sorted(self.only.domains)
        found = [index for index in wanted if self.tables.kinds[index] == kind]
        if len(found) <= MOST_DOMAINS:
            return tuple(found)
        worth = (1.0 / self.routes(0).pair_pace[np.ix_(found, found)]).sum(axis=1)
        best = np.argsort(-worth, kind="stable")[:MOST_DOMAINS]
        return tuple(sorted(found[int(index)] for index in best))

    def ideal_ways(self, kind: int) -> list[DomainWay]:
        """One ideal way for every number of groups and domains (and of sending nodes, where links cap each node)."""
        among, tied, only = self.members(kind), bool(self.tied_bytes), self.only
        if not among:
            return []
        found: list[DomainWay] = []
        for senders in self._senders(kind):
            key = "ideal", kind, senders
            if key not in self._cache:
                self._cache[key] = ideal_ways(self.routes(senders), self.routes(None), among, tied=tied)
            ways: list[DomainWay] = self._cache[key]  # type: ignore[assignment]
            found += [replace(way, senders=senders) for way in ways]
        return found if only is None else [way for way in found if only.admits(way.groups, way.span)]

    def ways_apart(self, kind: int, ideal: DomainWay) -> list[DomainWay]:
        """Ideal ways that are told apart by the borders and rings that they can have at once."""
        if min(ideal.groups, ideal.span) < 2:
            return [ideal]
        key = ("apart", kind, ideal.groups, ideal.span, ideal.senders)
        if key not in self._cache:
            self._cache[key] = told_apart(self.routes(ideal.senders), self.routes(None), self.members(kind), ideal)
        return self._cache[key]  # type: ignore[return-value]

    def real_ways(self, kind: int, ideal: DomainWay) -> list[DomainWay]:
        """Real ways over domains of a kind, with as many groups and domains as the ideal one."""
        key = ("ways", kind, ideal.groups, ideal.span, ideal.senders)
        if key not in self._cache:
            routes, among, tied = self.routes(ideal.senders), self.members(kind), bool(self.tied_bytes)
            known = self._lines(kind, ideal.senders)
            found = real_ways(routes, among, known, ideal.groups, ideal.span, tied=tied)
            self._cache[key] = [replace(way, senders=ideal.senders) for way in found]
        return self._cache[key]  # type: ignore[return-value]

    def routes(self, senders: int | None) -> DomainRoutes:
        """Routes with so many nodes sending (0: all; None: whatever the links carry)."""
        key = ("routes", senders)
        if key not in self._cache:
            floor = self.problem.objective.bandwidth_floor_bytes_per_s
            self._cache[key] = DomainRoutes.of(
                self.problem.cluster, floor_bytes_per_s=floor, senders=senders, relays=self.rules.relays
            )
        return self._cache[key]  # type: ignore[return-value]

    def least_pace(self, kind: int, nodes: int) -> float:
        """Least seconds per byte in which so many nodes of a domain of a kind send to another domain."""
        key = "least pace", kind, nodes
        if key not in self._cache:
            mine = np.flatnonzero(np.array(self.tables.kinds) == kind)
            self._cache[key] = float(self.routes(nodes).seconds_per_byte[mine].min())
        return self._cache[key]  # type: ignore[return-value]

    def slower_pace(self, kind: int, nodes: int, than: int) -> float:
        """Least seconds per byte that so many nodes of a domain of a kind take more to another domain ``than`` so many
        do."""
        key = "slower pace", kind, nodes, than
        if key not in self._cache:
            mine = np.flatnonzero(np.array(self.tables.kinds) == kind)
            few, many = (self.routes(each).seconds_per_byte[mine] for each in (nodes, than))
            joined = np.isfinite(few)
            self._cache[key] = float((few[joined] - many[joined]).min(initial=np.inf))
        return self._cache[key]  # type: ignore[return-value]

    @cached_property
    def capped(self) -> bool:
        """Whether links cap each node."""
        return any(link.per_node_bytes_per_s is not None for link in self.problem.cluster.links)

    def _senders(self, kind: int) -> list[int]:
        return sorted(set(self.layout_rows(kind).nodes.tolist())) if self.capped else [0]

    def _lines(self, kind: int, senders: int) -> Lines:
        key = ("lines", kind, senders)
        if key not in self._cache:
            self._cache[key] = lines(self.routes(senders), self.members(kind), tied_bytes=self.tied_bytes)
        return self._cache[key]  # type: ignore[return-value]


def ring_share(
    groups: Ints | int, ranks: Ints | int, summed: Floats | float, *, flat: NDArray[np.bool_] | bool
) -> Floats:
    """By how much more a flat ring of so many ``ranks`` in each of so many domains carries than one of gradients with a
    single rank in each, elementwise; ``summed``: what it sends over what one of gradients does. Just 1 where sums of
    gradients go on two levels, or over single ranks: then its latencies count, else they overlap with what it carries,
    and a bound leaves them out.
    """
    several = np.maximum(groups, 2)
    share = (several * ranks - 1) / (ranks * (several - 1.0))
    longer = np.where(np.asarray(flat) & (np.asarray(groups) > 1) & (np.asarray(ranks) > 1), share, 1.0)
    return np.asarray(np.where(summed == 1.0, longer, np.minimum(summed * longer, summed * longer * (1 - 1e-9))))


def early_share(forward: Floats, total: Floats) -> float:
    """Least share of the forward in the seconds of any layer but the first; both are prefix sums, (N + 1,)."""
    seconds = np.diff(total)[1:]
    least = float((np.diff(forward)[1:] / np.maximum(seconds, 1e-300)).min(initial=1.0, where=seconds > 0))
    return min(1.0, max(least, NEXT_TO_NOTHING))


_LAST: list[Field] = []
_ASKED: set[tuple[int, int, int | None]] = set()
"""Degrees with which the question of ``_LAST`` was searched."""
KEPT = 1.01  # times the worth of the best plan up to which a search is remembered beside the last


def remember(field: Field) -> None:
    """Keeps the field of the problem searched last, for those who plan the same problem anew; beside it those of other
    degrees of the same question that found plans about as good as the best."""
    others, degrees = searched(field.problem), degrees_of(field.problem)
    if not others or degrees in _ASKED:  # another question, or it is asked anew
        others = []
        _ASKED.clear()
    _ASKED.add(degrees)
    best = min((each.tried.least for each in others), default=np.inf)
    _LAST[:] = [field, *(each for each in others if each.tried.least <= KEPT * best < np.inf)]


def searched(problem: Problem) -> list[Field]:
    """The fields of this problem with any degrees that are remembered, the last one first."""
    return [each for each in _LAST if with_degrees(each.problem, degrees_of(problem)) == problem]


def remembered(problem: Problem) -> Field | None:
    """The field of this problem, if its search is remembered."""
    return next((field for field in _LAST if field.problem == problem), None)
