"""Pipelines whose domains lie differently: every domain with its own tp, dp and number of stages.

A *family* is what all stages of a plan share: sequences of a wave, recomputation, sharding. For every family and number
of domains a dynamic program (``bounds.mixed_fits``) tells whether a step within a limit is possible: on ideal borders,
over no more domains of a kind than borders quick enough for the limit join (``lineups``), that is a bound, along a real
path it gives the cuts. Letters: n domains, m waves; K, M and C as in ``lineups``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from hippo.planners.effort import FIT_S, FLUID_S, Effort
from hippo.planners.exact.bounds import (
    Borders,
    DomainPart,
    Options,
    StepLimits,
    cuts_of_domain,
    done_by,
    mixed_fits,
    room_for,
)
from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.layouts import DomainLayout, in_chains
from hippo.planners.exact.lineups import Mixes, Reach, Steps
from hippo.planners.exact.polish import play_with_order
from hippo.planners.exact.space import Field, early_share
from hippo.planners.exact.ways import DomainWay, lines, real_way, sent_pace
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.run_ahead import ChainTimes, warm_ups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PRECISION, HALVINGS = 5e-4, 12  # of a bound, relative; most
MOST_PATHS = 3
MOST_FAMILIES, MANY_FAMILIES = 6, 60  # played, those with the best bounds; the latter for small batches
WORTH_AN_ORDER = 1.02  # an order made for a pipeline plays about so much longer than its bound, seldom less
LEAST_OF_A_SPAN = 2  # played in any case over each number of domains
SMALL_BATCH = 64


@dataclass(frozen=True, eq=False)
class LayoutFamily:
    """Layouts that can stand in one pipeline."""

    wave: int
    waves: int
    options: tuple[DomainLayout, ...]
    tables: Floats  # (O, 9, N + 1)
    early: Floats  # (O,) least share of forwards in the seconds of a layer; 1 where backwards are not split
    kinds: Ints  # (O,)
    stages: Ints  # (O,)
    hops: Floats  # (O,) seconds between two stages of the domain, one way
    nodes: Ints  # (O,) most that a stage lies on
    rest: Floats  # (N + 1,) least round trip of the layers behind a cut
    drained: float  # least seconds per step of a first stage
    known: dict[tuple[int, Mixes], Floats] = dataclass_field(default_factory=dict)  # of ``_work_s``

    def fluid(self, mixes: Mixes, tail_s: float = 0.0) -> Floats:
        """(M,) bound for the domains of each mix where stages take any share of a layer (docs/theory.md, bound 4).

        ``tail_s``: seconds after the first stage is done.
        """
        bounds = self._work_s(8, mixes) + self.drained + tail_s
        if (self.early < 1.0).any():  # backwards are split: a stage need not wait for the first one's end, nor the tail
            first, fixed = (self.early * self.tables[:, 1, 1]).max(), self.tables[:, 6, 0].min()
            bounds = np.maximum(bounds, self._work_s(1, mixes) - first + fixed)
        return bounds

    def senders(self, field: Field) -> int:
        """Most nodes that send to another domain, where links cap each; else 0."""
        return int(self.nodes.max()) if field.capped else 0

    def _work_s(self, row: int, mixes: Mixes) -> Floats:
        """(M,) least seconds in which domains do all waves; ``row`` 8: round trips, each stage after those before, 1:
        everything, after the early part of those before. No link changes it: worked out once.

        Options are quick at unlike layers. So layers count by weights, tried as the seconds of each option, and an
        option is as quick as at the layer it does best.
        """
        if (row, mixes) not in self.known:
            early = np.ones(len(self.early)) if row == 8 else self.early
            seconds = np.diff(self.tables[:, row], axis=1)  # (O, N)
            weights = seconds / seconds.sum(axis=1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                each = np.where(weights[:, None] > 0, seconds / weights[:, None], np.inf)  # weights, options, layers
                total, taken = early * each.min(axis=2), -np.expm1(self.stages * np.log1p(-early / self.waves))
                done = done_by(total, taken, mixes.group[self.kinds], mixes.steps(mixes.size > 0), len(mixes.size))
                self.known[row, mixes] = np.asarray(1.0 / done.min(axis=1))
        return self.known[row, mixes]


@dataclass(frozen=True, eq=False)
class FamilyOnWay:
    """A family on a way: the numbers the dynamic program takes."""

    family: LayoutFamily
    before: Floats  # (n,) round trips of the borders
    after: Floats
    down: Floats  # one way
    slowest: float  # seconds one wave occupies the slowest link
    drained: float
    usable_bytes: float
    sends: Floats  # (n, O) least seconds in which a stage of each option sends a wave to another domain
    late: Floats  # (2, n, O) what that takes more, back and on, than from the most nodes
    steps: Steps
    groups: Ints  # (O,) class of each option; -1: it cannot be used
    effort: Effort  # which counts its work

    @classmethod
    def of(
        cls, field: Field, family: LayoutFamily, way: DomainWay, steps: Steps, groups: Ints | None = None
    ) -> FamilyOnWay:
        """Along domains as ``steps`` have them; ``groups`` where classes are not kinds."""
        wave_bytes = family.wave * field.wave_bytes
        sends, late = sending(field, family, way)
        return cls(
            family,
            way.before_s + way.before_pace * wave_bytes,
            way.after_s + way.after_pace * wave_bytes,
            way.down_s + way.down_pace * wave_bytes,
            way.slowest * wave_bytes,
            family.drained + field.tail_s(way),
            field.tables.usable_bytes,
            sends * wave_bytes,
            late * wave_bytes,
            steps,
            family.kinds if groups is None else groups,
            field.tried.effort,
        )

    def room(self) -> tuple[Ints, Floats]:
        """Arrays for what the dynamic program finds: its choices, and the least rests."""
        shape = len(self.steps.ends), self.family.tables.shape[2]
        return np.zeros((*shape, 3), np.int64), np.zeros(shape)

    def fits(self, limit: float, found: tuple[Ints, Floats] | None = None) -> bool:
        """Whether a step within ``limit`` is possible; fills ``found``."""
        own = self.family
        trip = own.rest[0] + self.after[0]
        if trip + (own.waves - 1) * self.slowest + self.drained > limit:
            return False
        options = Options(own.tables, self.groups, own.stages, own.hops)
        borders = Borders(self.before, self.after, self.down, self.sends, *self.late)
        room = self.room() if found is None else found
        fits, stages = mixed_fits(options, own.rest, borders, self.steps, self.limits(limit), *room)
        self.effort.spend(FIT_S * stages * own.tables.shape[2] ** 2)
        return bool(fits)

    def limits(self, limit: float) -> StepLimits:
        """What a step within ``limit`` seconds has to keep to."""
        return StepLimits(self.family.waves, self.usable_bytes, limit, self.drained)


def sending(field: Field, family: LayoutFamily, way: DomainWay) -> tuple[Floats, Floats]:
    """Seconds per byte in which a stage of each option sends from each domain of a way to another, at least, (n, O),
    and what that is more than from the most nodes, back and on, (2, n, O); of a real way from all nodes."""
    sends, late = np.zeros((way.span, len(family.options))), np.zeros((2, way.span, len(family.options)))
    if not field.capped:
        return sends, late
    if not way.domains:
        for o, (kind, nodes) in enumerate(zip(family.kinds.tolist(), family.nodes.tolist(), strict=True)):
            sends[:, o] = field.least_pace(kind, nodes)
            late[:, :, o] = field.slower_pace(kind, nodes, family.senders(field))
        return sends, late
    of = {nodes: sent_pace(field.routes(nodes), way) for nodes in {0, *family.nodes.tolist()}}
    for o, nodes in enumerate(family.nodes.tolist()):
        sends[:, o], late[:, :, o] = of[nodes].max(axis=0), np.maximum(0.0, of[nodes] - of[0])
    return sends, late


def between(fits: Callable[[float], bool], low: float, high: float, tried: Tried | None = None) -> tuple[float, float]:
    """The limit from which on a step is possible lies between the two returned: close together, unless the effort of
    ``tried`` is spent before."""
    for _ in range(HALVINGS):
        if high - low <= PRECISION * high or (tried is not None and tried.must_stop):
            break
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low, high


@dataclass(frozen=True, eq=False)
class Lineups:
    """What families may do over the domains of a problem, n of them in a pipeline."""

    field: Field
    reaches: dict[int, Reach]  # by how many nodes send
    tail_s: float

    @classmethod
    def of(cls, field: Field) -> Lineups:
        """Over all domains that plans may use."""
        kinds, only = field.tables.kinds, field.only
        among = tuple(range(len(kinds)) if only is None else sorted(only.domains))
        mixes = field.tables.shared(("mixes", among), lambda: Mixes.of(kinds, among))
        groups = mixes.group[[kinds[each] for each in among]]
        reach = Reach(field.routes(0), field.routes(None), among, mixes, groups, bool(field.tied_bytes))
        tails = [field.tail_s(way) for span, way in reach.under(inf).ways.items() if span > 1]
        return cls(field, {0: reach}, min(tails, default=0.0))

    @property
    def mixes(self) -> Mixes:
        """Of all domains."""
        return self.reaches[0].mixes

    def reach(self, family: LayoutFamily) -> Reach:
        """Over what links carry from as many nodes as a stage of the family may lie on."""
        senders = family.senders(self.field)
        if senders not in self.reaches:
            self.reaches[senders] = replace(self.reaches[0], routes=self.field.routes(senders), _known={})
        return self.reaches[senders]

    @property
    def spans(self) -> list[int]:
        """Numbers of domains of a pipeline, two and more."""
        only, ways = self.field.only, self.reaches[0].under(inf).ways
        return [span for span in ways if span > 1 and (only is None or only.admits(1, span))]

    def work_s(self, family: LayoutFamily) -> Floats:
        """(M,) what the domains of each mix work at least."""
        return family.fluid(self.mixes, self.tail_s)

    def ceiling(self, family: LayoutFamily, limit: float) -> float:
        """Seconds per byte that a border may take in a step within the limit: all waves cross it after the first wave's
        work, or before the last one's (docs/theory.md, bound 1)."""
        free = limit - family.rest[0] - family.drained
        return float(free / max(1e-300, family.waves * family.wave * self.field.wave_bytes))

    def bounds(self, family: LayoutFamily) -> dict[int, float]:
        """Rough bounds for every number of domains, by the work of the sets that are joined quickly enough to beat the
        best plan."""
        mixes, work = self.mixes, self.work_s(family)
        joined = self.reach(family).under(self.ceiling(family, self.field.tried.value)).mixes
        return {span: float(work[joined & (mixes.size == span)].min(initial=inf)) for span in self.spans}

    def fits(self, family: LayoutFamily, span: int, limit: float) -> bool:
        """Whether a step within the limit is possible over so many domains."""
        mixes, ceiling = self.mixes, self.ceiling(family, limit)
        joined = self.reach(family).under(ceiling)
        ends = joined.mixes & (mixes.size == span) & (self.work_s(family) <= limit)
        if not ends.any() or span not in joined.ways:
            return False
        way = joined.ways[span]
        quick = sending(self.field, family, way)[0][0] <= ceiling * (1 + 1e-9)
        groups = np.where(quick, mixes.group[family.kinds], -1)
        return FamilyOnWay.of(self.field, family, way, mixes.steps(ends), groups).fits(limit)


def search_mixed(field: Field, floor: float) -> float:
    """Plays mixed pipelines that may be better; returns the least bound of them below ``floor``, else ``floor``.

    ``floor`` is the bound that stands already: what cannot be below it need not be looked at.
    """
    if len(field.tables.kinds) < 2:
        return floor
    lineups, work = Lineups.of(field), list[tuple[float, int, LayoutFamily]]()
    for family in families(field):
        if floor == 0.0 and field.tried.must_stop:  # where nothing is to be proven
            break
        new = (8, lineups.mixes) not in family.known
        size = family.tables.shape[2] + len(lineups.mixes.size)
        field.tried.effort.spend(FLUID_S * new * len(family.options) ** 2 * size)
        work += [(bound, span, family) for span, bound in lineups.bounds(family).items()]
    least, tried, spans = floor, 0, Counter[int]()
    most = MANY_FAMILIES if field.problem.workload.global_batch <= SMALL_BATCH else MOST_FAMILIES
    several = lineups.spans
    for bound, span, family in sorted(work, key=lambda item: item[0]):
        if bound >= least and (
            bound >= field.tried.value or (tried >= most and min(spans[each] for each in several) >= LEAST_OF_A_SPAN)
        ):
            break
        if field.tried.must_stop:
            return min(least, bound)
        if bound < least and lineups.fits(family, span, least):
            least = min(least, between(partial(lineups.fits, family, span), bound, least, field.tried)[0])
        wanted = tried < most or spans[span] < LEAST_OF_A_SPAN
        if bound < field.tried.value and wanted and lineups.fits(family, span, field.tried.value):
            tried += 1
            spans[span] += 1
            _play(field, family, span)
    return least


def families(field: Field) -> list[LayoutFamily]:
    """All families with at least one layout; one tp and dp for all where the runtime asks for that."""
    return field.tables.shared("families", lambda: _families(field))


def _families(field: Field) -> list[LayoutFamily]:
    grouped: dict[tuple[object, ...], list[DomainLayout]] = {}
    alike = field.rules.uniform_tp_dp
    for layouts in field.layouts:
        for layout in (each for own in layouts for each in in_chains(field.problem, own)):
            widths = (layout.tp, layout.dp) if alike else ()
            key = (layout.wave, layout.mode.recompute, layout.mode.sharding, *widths)
            grouped.setdefault(key, []).append(layout)
    return [
        _family(field, layouts[0].wave, tuple(layouts))
        for layouts in grouped.values()
        if layouts[0].mode.sharding == "none" or any(layout.ranks > 1 for layout in layouts)
    ]


def _family(field: Field, wave: int, options: tuple[DomainLayout, ...]) -> LayoutFamily:
    found = [field.table(layout) for layout in options]
    tables = np.stack([table.packed for table in found])
    quickest = np.diff(tables[:, 8], axis=1).min(axis=0)  # of each layer: another option may be quick at the next one
    return LayoutFamily(
        wave=wave,
        waves=field.problem.workload.global_batch // wave,
        options=options,
        tables=tables,
        early=np.array([early_share(each[0], each[1]) if field.tables.split else 1.0 for each in tables]),
        kinds=np.array([layout.kind for layout in options]),
        stages=np.array([layout.stages for layout in options]),
        hops=np.array([table.hop_s for table in found]),
        nodes=np.array([each.nodes(field.tables.examples[each.kind].gpus_per_node) for each in options]),
        rest=np.append(np.cumsum(quickest[::-1])[::-1], 0.0),
        drained=float((tables[:, 1, 1] - tables[:, 8, 1] + tables[:, 5, 1] + tables[:, 6, 0]).min()),
    )


def _play(field: Field, family: LayoutFamily, span: int) -> None:
    """Plays the family's best pipelines along real paths."""
    wanted = range(len(field.tables.kinds)) if field.only is None else sorted(field.only.domains)
    routes, among = field.routes(0), tuple(wanted)
    for path, ceiling in lines(routes, among, tied_bytes=field.tied_bytes)[span - 1][:MOST_PATHS]:
        least, found = _along(field, family, path, ceiling, 1e15)
        values = [field.tried.play(candidate) for candidate in found]
        if values and least * WORTH_AN_ORDER < field.tried.value:
            play_with_order(field, found[values.index(min(values))])


def along(
    field: Field, family: LayoutFamily, path: tuple[int, ...], ceiling: float, *, limit: float = 1e15
) -> list[Candidate]:
    """The family's best pipelines along a path of domains, relayed where a border would be slower than ``ceiling``
    seconds per byte; none where by the bound none is within ``limit`` and the best value so far."""
    return _along(field, family, path, ceiling, limit)[1]


def _along(
    field: Field, family: LayoutFamily, path: tuple[int, ...], ceiling: float, limit: float
) -> tuple[float, list[Candidate]]:
    """The same with the bound of their step time."""
    way = real_way(field.routes(0), (path,), ceiling, tied=bool(field.tied_bytes))
    if way is None or not np.isfinite(way.slowest):
        return inf, []
    course = FamilyOnWay.of(field, family, way, Steps.along([field.tables.kinds[each] for each in path]))
    highest = min(field.tried.value, limit)
    if not course.fits(highest):
        return inf, []
    least, reach = between(course.fits, 0.0, highest)
    return least, _candidates(field, course, way, reach)


def _candidates(field: Field, course: FamilyOnWay, way: DomainWay, limit: float) -> list[Candidate]:
    """The pipeline found within ``limit``, with every warm-up worth trying."""
    family, found = course.family, course.room()
    course.fits(limit, found)
    choice, rests = found
    names = [domain.name for domain in field.problem.cluster.domains]
    stages: list[StageSketch] = []
    seconds: list[float] = []
    forward: list[float] = []
    room: list[float] = []
    hops: list[float] = []
    stop, slowest = family.tables.shape[2] - 1, course.slowest
    for j in range(way.span - 1, -1, -1):
        option, depth, first = (int(each) for each in choice[j + 1, stop])
        layout, table = family.options[option], family.tables[option]
        cuts = _cuts(course, j, (option, first, stop, depth), rests[j + 1], limit)
        pairs = list(zip(cuts[:-1], cuts[1:], strict=True))
        stages[:0] = [StageSketch(names[way.domains[0][j]], pair, layout.tp, layout.dp) for pair in pairs]
        seconds[:0] = [table[1, b] - table[1, a] for a, b in pairs]
        forward[:0] = [table[0, b] - table[0, a] for a, b in pairs]
        room[:0] = [float(room_for(table, field.tables.usable_bytes, a, b)) for a, b in pairs]
        border = course.before[j] - course.before[j - 1] + course.late[0, j, option] if j else 0.0
        if hops:
            hops[0] += course.late[1, j, option]
        hops[:0] = [border, *[2 * family.hops[option]] * (depth - 1)]
        slowest = max(slowest, course.sends[j, option])
        stop = first
    chain = ChainTimes(np.array(forward), np.array(seconds), np.array(hops), np.array(room), family.waves, slowest)
    mode, micro_batch = family.options[0].mode, family.wave // stages[0].dp
    return [
        field.tried.fitted(
            Candidate(
                (PipelineSketch(tuple(stages), family.waves, warm_up),),
                micro_batch,
                mode.recompute,
                mode.sharding,
                way.relays,
            )
        )
        for warm_up in (warm_ups(chain) if field.rules.live_limit else [()])
    ]


def _cuts(course: FamilyOnWay, j: int, chosen: tuple[int, int, int, int], rests: Floats, limit: float) -> list[int]:
    """Cuts of domain j of the path; ``chosen``: option, first and last layer, number of stages."""
    family, (option, first, stop, depth) = course.family, chosen
    head = 0.0 if first == 0 else float(family.rest[0] - family.rest[first])
    part, border = DomainPart(first, stop, depth, head, rests), (course.before[j], course.after[j], course.down[j])
    found = cuts_of_domain(family.tables[option], family.hops[option], part, border, course.limits(limit))
    return [int(each) for each in found]
