"""Pipelines whose domains lie differently: every domain with its own tp, dp and number of stages.

For every family (``families``) and number of domains it is asked whether a step within a limit is possible: on ideal
borders, over no more domains of a kind than borders quick enough for the limit join (``lineups``), and then along paths
(``prefixes``), that is a bound; along one path it gives the cuts. Letters: n domains; K and M as in ``lineups``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from hippo.planners.effort import FLUID_S
from hippo.planners.exact.bounds import DomainPart, cuts_of_domain, room_for
from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.families import FamilyOnWay, LayoutFamily, families, sending
from hippo.planners.exact.lineups import Mixes, Reach, Steps
from hippo.planners.exact.polish import play_with_order
from hippo.planners.exact.prefixes import MOST_DOMAINS, Beginnings
from hippo.planners.exact.space import Field
from hippo.planners.exact.ways import DomainWay, lines, real_way
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.run_ahead import ChainTimes, warm_ups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PRECISION, ALONG, HALVINGS = 5e-4, 2e-3, 12  # of a bound, relative, and of one along paths; most
MOST_PATHS = 3
MOST_FAMILIES, MANY_FAMILIES = 6, 60  # played, those with the best bounds; the latter for small batches
WORTH_AN_ORDER = 1.02  # an order made for a pipeline plays about so much longer than its bound, seldom less
LEAST_OF_A_SPAN = 2  # played in any case over each number of domains
SMALL_BATCH = 64


def between(
    fits: Callable[[float], bool],
    low: float,
    high: float,
    tried: Tried | None = None,
    precision: float = PRECISION,
) -> tuple[float, float]:
    """The limit from which on a step is possible lies between the two returned: close together, unless the effort of
    ``tried`` is spent before."""
    for _ in range(HALVINGS):
        if high - low <= precision * high or (tried is not None and tried.must_stop):
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
        course = self.course(family, span, limit)
        return course is not None and course.fits(limit)

    def fits_along(self, family: LayoutFamily, span: int, limit: float) -> bool:
        """Whether a step within the limit may be possible along some path of so many domains."""
        whole = self.course(family, span, limit)
        if whole is None or not whole.fits(limit):
            return False
        reach = self.reach(family)
        return Beginnings.of(self.field, whole, self.mixes, reach, self.ceiling(family, limit)).fits(limit)

    def course(self, family: LayoutFamily, span: int, limit: float) -> FamilyOnWay | None:
        """The family over so many domains that a step within the limit may use; None: there are no such."""
        mixes, ceiling = self.mixes, self.ceiling(family, limit)
        joined = self.reach(family).under(ceiling)
        ends = joined.mixes & (mixes.size == span) & (self.work_s(family) <= limit)
        if not ends.any() or span not in joined.ways:
            return None
        way = joined.ways[span]
        quick = sending(self.field, family, way)[0][0] <= ceiling * (1 + 1e-9)
        groups = np.where(quick, mixes.group[family.kinds], -1)
        return FamilyOnWay.of(self.field, family, way, mixes.steps(ends), groups)


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


def least_along(field: Field, known: float, floor: float) -> float:
    """The bound ``known`` of ``search_mixed`` made tighter, at most to ``floor``: that of the best path, found by how
    paths begin; of more than ``MOST_DOMAINS`` domains, or where the effort is spent, ``known`` itself."""
    lineups, least, stop = Lineups.of(field), floor, field.tried
    if len(lineups.reaches[0].among) > MOST_DOMAINS:
        return known
    work = [
        (bound, at, span, family)
        for at, family in enumerate(families(field))
        for span, bound in lineups.bounds(family).items()
    ]
    for bound, _, span, family in sorted(work, key=lambda item: item[:3]):
        if bound >= least:
            break
        low = max(known, bound)
        if lineups.fits(family, span, least):
            low, high = between(partial(lineups.fits, family, span), low, least, stop)
            if high < least or lineups.fits_along(family, span, least):
                least = min(least, between(partial(lineups.fits_along, family, span), low, least, stop, ALONG)[0])
        if stop.must_stop:
            return known
    return max(known, least)


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
