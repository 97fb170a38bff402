"""Pipelines whose domains lie differently: every domain with its own tp, dp and number of stages.

A *family* is what all stages of a plan share: sequences of a wave, recomputation, sharding. For every family and number
of domains a dynamic program (``bounds.mixed_fits``) tells whether a step within a limit is possible: on ideal borders
that is a bound, along a real path it gives the cuts. Letters: n domains, m waves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from math import inf

import numpy as np
from numpy.typing import NDArray

from hippo.planners.effort import FIT_S
from hippo.planners.exact.bounds import Borders, DomainPart, Options, StepLimits, cuts_of_domain, mixed_fits, room_for
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.layouts import DomainLayout, in_chains
from hippo.planners.exact.polish import play_with_order
from hippo.planners.exact.space import Field, early_share
from hippo.planners.exact.ways import DomainWay, ideal_ways, lines, real_way
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.run_ahead import ChainTimes, warm_ups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HALVINGS = 12
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
    rest: Floats  # (N + 1,) least round trip of the layers behind a cut
    drained: float  # least seconds per step of a first stage
    _known: dict[tuple[int, int], Floats] = dataclass_field(default_factory=dict)  # of ``_work_s``

    def fluid(self, most: int, tail_s: float = 0.0) -> Floats:
        """(most + 1,) bound for n domains where stages take any share of a layer (docs/theory.md, bound 4).

        ``tail_s``: seconds after the first stage is done.
        """
        bounds = self._work_s(8, most) + self.drained + tail_s
        if (self.early < 1.0).any():  # backwards are split: a stage need not wait for the first one's end, nor the tail
            first, fixed = (self.early * self.tables[:, 1, 1]).max(), self.tables[:, 6, 0].min()
            bounds = np.maximum(bounds, self._work_s(1, most) - first + fixed)
        return bounds

    def _work_s(self, row: int, most: int) -> Floats:
        """(most + 1,) least seconds in which n domains do all waves; ``row`` 8: round trips, each stage after those
        before, 1: everything, after the early part of those before. No link changes it: worked out once.

        Options are quick at unlike layers. So layers count by weights, tried as the seconds of each option, and an
        option is as quick as at the layer it does best.
        """
        if (row, most) not in self._known:
            early = np.ones(len(self.early)) if row == 8 else self.early
            seconds = np.diff(self.tables[:, row], axis=1)  # (O, N)
            weights = seconds / seconds.sum(axis=1, keepdims=True)
            done = np.zeros((most + 1, len(weights)))  # share of all layers per second
            with np.errstate(divide="ignore", invalid="ignore"):
                each = np.where(weights[:, None] > 0, seconds / weights[:, None], np.inf)  # weights, options, layers
                total, taken = early * each.min(axis=2), -np.expm1(self.stages * np.log1p(-early / self.waves))
                for n in range(1, most + 1):
                    done[n] = np.max(taken / total + (1.0 - taken) * done[n - 1][:, None], axis=1)
                self._known[row, most] = np.asarray(1.0 / done.min(axis=1))
        return self._known[row, most]


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
    allowed: NDArray[np.bool_]  # (n, kinds)

    def room(self) -> tuple[Ints, Floats]:
        """Arrays for what the dynamic program finds: its choices, and the least rests."""
        shape = len(self.before), self.family.tables.shape[2]
        return np.zeros((*shape, 3), np.int64), np.zeros(shape)

    def fits(self, limit: float, found: tuple[Ints, Floats] | None = None) -> bool:
        """Whether a step within ``limit`` is possible; fills ``found``."""
        own = self.family
        trip = own.rest[0] + self.after[0]
        if trip + (own.waves - 1) * self.slowest + self.drained > limit:
            return False
        options = Options(own.tables, own.kinds, own.stages, own.hops)
        borders = Borders(self.before, self.after, self.down, self.allowed)
        room = self.room() if found is None else found
        return bool(mixed_fits(options, own.rest, borders, self.limits(limit), *room))

    def limits(self, limit: float) -> StepLimits:
        """What a step within ``limit`` seconds has to keep to."""
        return StepLimits(self.family.waves, self.usable_bytes, limit, self.drained)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """The limit from which on a step is possible lies between the two returned."""
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.fits(middle) else (middle, high)
        return low, high


def search_mixed(field: Field, floor: float) -> float:
    """Plays mixed pipelines that may be better; returns the least bound of them below ``floor``, else ``floor``.

    ``floor`` is the bound that stands already: what cannot be below it need not be looked at.
    """
    domains = len(field.tables.kinds)
    if domains < 2:
        return floor
    tied = bool(field.tied_bytes)
    ideal = [
        way
        for way in ideal_ways(field.routes(None), field.routes(None), tuple(range(domains)), tied=tied)
        if way.groups == 1 and (field.only is None or field.only.admits(1, way.span))
    ]
    work: list[tuple[float, DomainWay, LayoutFamily]] = []
    tail_s = min((field.tail_s(way) for way in ideal if way.span > 1), default=0.0)
    for family in families(field):
        bounds = family.fluid(domains, tail_s)
        work += [(float(bounds[way.span]), way, family) for way in ideal if way.span > 1]
    least, tried, spans = floor, 0, Counter[int]()
    most = MANY_FAMILIES if field.problem.workload.global_batch <= SMALL_BATCH else MOST_FAMILIES
    several = [way.span for way in ideal if way.span > 1]
    for bound, way, family in sorted(work, key=lambda item: item[0]):
        if bound >= least and (
            bound >= field.tried.value or (tried >= most and min(spans[span] for span in several) >= LEAST_OF_A_SPAN)
        ):
            break
        if field.tried.must_stop:
            return min(least, bound)
        course = _course(field, family, way)
        fit_s = FIT_S * way.span * len(family.options) * family.tables.shape[2] ** 2
        field.tried.effort.spend(fit_s)
        if bound < least and course.fits(least):
            field.tried.effort.spend(HALVINGS * fit_s)
            least = min(least, course.between(bound, least)[0])
        wanted = tried < most or spans[way.span] < LEAST_OF_A_SPAN
        if bound < field.tried.value and wanted and course.fits(field.tried.value):
            tried += 1
            spans[way.span] += 1
            _play(field, family, way.span)
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
        rest=np.append(np.cumsum(quickest[::-1])[::-1], 0.0),
        drained=float((tables[:, 1, 1] - tables[:, 8, 1] + tables[:, 5, 1] + tables[:, 6, 0]).min()),
    )


def _course(field: Field, family: LayoutFamily, way: DomainWay, order: Ints | None = None) -> FamilyOnWay:
    """The family on a way; ``order`` (n,) are the kinds of its domains (None: any)."""
    wave_bytes, kinds = family.wave * field.wave_bytes, len(field.tables.examples)
    allowed = np.ones((way.span, kinds), bool) if order is None else order[:, None] == np.arange(kinds)[None, :]
    return FamilyOnWay(
        family,
        way.before_s + way.before_pace * wave_bytes,
        way.after_s + way.after_pace * wave_bytes,
        way.down_s + way.down_pace * wave_bytes,
        way.slowest * wave_bytes,
        family.drained + field.tail_s(way),
        field.tables.usable_bytes,
        allowed,
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
    course = _course(field, family, way, np.array(field.tables.kinds)[list(path)])
    highest = min(field.tried.value, limit)
    if not course.fits(highest):
        return inf, []
    least, reach = course.between(0.0, highest)
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
    stop = family.tables.shape[2] - 1
    for j in range(way.span - 1, -1, -1):
        option, depth, first = (int(each) for each in choice[j, stop])
        layout, table = family.options[option], family.tables[option]
        cuts = _cuts(course, j, (option, first, stop, depth), rests[j], limit)
        pairs = list(zip(cuts[:-1], cuts[1:], strict=True))
        stages[:0] = [StageSketch(names[way.domains[0][j]], pair, layout.tp, layout.dp) for pair in pairs]
        seconds[:0] = [table[1, b] - table[1, a] for a, b in pairs]
        forward[:0] = [table[0, b] - table[0, a] for a, b in pairs]
        room[:0] = [float(room_for(table, field.tables.usable_bytes, a, b)) for a, b in pairs]
        border = course.before[j] - (course.before[j - 1] if j else 0.0)
        hops[:0] = [border, *[2 * family.hops[option]] * (depth - 1)]
        stop = first
    chain = ChainTimes(
        np.array(forward), np.array(seconds), np.array(hops), np.array(room), family.waves, course.slowest
    )
    mode, micro_batch = family.options[0].mode, family.wave // stages[0].dp
    return [
        Candidate(
            (PipelineSketch(tuple(stages), family.waves, warm_up),),
            micro_batch,
            mode.recompute,
            mode.sharding,
            way.relays,
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
