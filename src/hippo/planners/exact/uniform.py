"""Plans whose stages all lie alike: every layout, number of stages and way to join, best bound first.

For one domain alone, and for replicas in one domain each, this is the whole space and its bound is a proof; pipelines
over several domains may also mix layouts, which ``mixed`` looks at. Shapes stand in a contest for the least bound over
all cuts: none is settled further than that takes. Letters: G groups of n domains, q stages per domain, p = n q stages
per group, m waves; S shapes, L layouts of a kind, W ways to join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.cost.money import rent_usd_per_s
from hippo.plan.plan import Sync
from hippo.planners.cuts import even_cuts
from hippo.planners.effort import SHAPE_S
from hippo.planners.exact.bounds import (
    NO_LIMIT,
    Courses,
    Entries,
    ShapeNumbers,
    Sorts,
    Standings,
    UniformLine,
    gathering,
    room_for,
    settle,
    uniform_bound,
)
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.layouts import DomainLayout
from hippo.planners.exact.space import Field, ring_share
from hippo.planners.exact.ways import DomainWay
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.run_ahead import ChainTimes
from hippo.planners.run_ahead import warm_ups as warm_ups_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False)
class ShapeContest:
    """Shapes of one kind on some ways, the least rough bound first."""

    field: Field
    sorts: Sorts
    courses: Courses
    entries: Entries
    standing: Standings
    begun: int = 0  # shapes that were looked at

    @classmethod
    def of(cls, field: Field, kind: int, ways: list[DomainWay], rough: Floats, keys: Ints) -> ShapeContest:
        """``rough`` (S,) and ``keys`` (S, 3) from ``shapes``."""
        if field.problem.uniform_cuts:  # those that no equal cuts have stay out
            stages = np.array([way.span for way in ways])[keys[:, 1]] * keys[:, 2]
            fit = stages <= field.problem.model.num_layers - 2
            rough, keys = rough[fit], keys[fit]
        size = len(rough)
        standing = Standings(
            np.full(size, np.inf),
            np.zeros(size, bool),
            np.full(size, np.inf),
            np.tile([0.0, np.inf], (size, 1)),
            np.full(size, np.inf),
        )
        return cls(field, sorts(field, kind), courses(field, ways), _entries(field, kind, ways, rough, keys), standing)

    def least(self, ceiling: float) -> tuple[float, Ints, Ints] | None:
        """Takes out the shape of the least bound below ``ceiling``: the bound, its key and its cuts; None: there is
        none."""
        field, found = self.field, np.zeros(self.field.problem.model.num_layers + 1, np.int64)
        batch, ahead = field.problem.workload.global_batch, field.rules.live_limit
        asked = ShapeNumbers(batch, ahead, field.tables.usable_bytes, field.wave_bytes)
        arrays = self.sorts, self.courses, self.entries, self.standing
        best, self.begun = settle(*arrays, self.begun, asked, ceiling, found)
        if best < 0:
            return None
        bound, key = float(self.standing.bound[best]), self.entries.keys[best]
        self.standing.bound[best] = np.inf
        return bound, key, found[: self.courses.span[key[1]] * key[2] + 1]


def sorts(field: Field, kind: int) -> Sorts:
    """The layouts of a kind; what they take does not depend on links."""

    def made() -> Sorts:
        rows, tables = field.layout_rows(kind), [field.table(layout) for layout in field.layouts[kind]]
        packed = np.stack([table.packed for table in tables])
        fused = packed
        if field.tables.split:
            fused = packed.copy()
            fused[:, 8] = fused[:, 1]
        return Sorts(packed, fused, np.array([table.hop_s for table in tables]), rows.ends, rows.wave)

    return field.tables.shared(("sorts", kind), made)


def courses(field: Field, ways: list[DomainWay]) -> Courses:
    """The ways as the kernel takes them."""
    longest = max(way.span for way in ways)
    latency, pace, sync, carried = (np.zeros((len(ways), *rest, longest)) for rest in ((3,), (3,), (), ()))
    for w, way in enumerate(ways):
        latency[w, :, : way.span] = way.before_s, way.after_s, way.down_s
        pace[w, :, : way.span] = way.before_pace, way.after_pace, way.down_pace
        sync[w, : way.span] = field.sync_s(way)
        carried[w, : way.span] = field.carried_s(way)
    return Courses(
        np.array([way.span for way in ways]),
        np.array([way.groups for way in ways]),
        np.array([field.splits(way) for way in ways]),
        latency,
        pace,
        np.array([way.slowest for way in ways], dtype=np.float64),
        np.array([field.tail_s(way) for way in ways], dtype=np.float64),
        np.array([field.gathers_s(way) for way in ways], dtype=np.float64),
        sync,
        carried,
    )


def _entries(field: Field, kind: int, ways: list[DomainWay], rough: Floats, keys: Ints) -> Entries:
    """Shapes with their price by the objective; of the money, no more than its least egress."""
    rows, groups = field.layout_rows(kind), np.array([way.groups for way in ways])[keys[:, 1]]
    at = keys[:, 0]
    longer = ring_share(groups, rows.ranks[at], rows.summed[at], flat=rows.flat[at])
    if field.problem.objective.name != "cost":
        return Entries(keys, rough, np.ones(len(rough)), np.zeros(len(rough)), longer)
    size, egress = (np.array(each) for each in ([w.size for w in ways], [field.least_egress_usd(w) for w in ways]))
    gpus = size[keys[:, 1]] * keys[:, 2] * rows.lane[keys[:, 0]]
    rent = np.array([rent_usd_per_s(field.problem.cluster.gpu, each) for each in gpus.tolist()])
    return Entries(keys, rough, rent, egress[keys[:, 1]], longer)


FEW_RULES = 10  # by which long orders are made while many shapes are played; the best of them gets one by all
LONG = 3000  # operations
WORTH_AN_ORDER = 1.02  # an order made for a shape plays about so much longer than its bound, seldom less
CLOSED = 1e-6  # a play this close to its bound settles it
FEW_GUESSES, MOST_GUESSES = 24, 400  # shapes looked at for a first plan: where some fit, and where none does


@dataclass(frozen=True)
class Price:
    """What a shape is worth: ``fixed + per_second * step time`` (seconds themselves, or USD)."""

    per_second: float = 1.0
    fixed: float = 0.0

    def of(self, seconds: float) -> float:
        """Worth of a step that takes so long."""
        return self.fixed + self.per_second * seconds

    def seconds(self, value: float) -> float:
        """The step time that is worth ``value``."""
        return (value - self.fixed) / self.per_second


@dataclass(frozen=True, eq=False)
class PlanShape:
    """A layout on a way to join domains, with ``stages`` stages in every domain."""

    layout: DomainLayout
    way: DomainWay
    stages: int
    waves: tuple[int, ...]  # of every group

    def delays(self, field: Field) -> tuple[Floats, Floats, Floats]:
        """(p,) delays of a wave: round trip before and behind every stage, and the way down alone."""
        way, q, wave_bytes = self.way, self.stages, self.layout.wave * field.wave_bytes
        hop = field.table(self.layout).hop_s
        inside = np.arange(way.span * q)
        hops = inside - inside // q
        before, after, down = (
            np.repeat(seconds + pace * wave_bytes, q)
            for seconds, pace in (
                (way.before_s, way.before_pace),
                (way.after_s, way.after_pace),
                (way.down_s, way.down_pace),
            )
        )
        return before + 2 * hop * hops, after + 2 * hop * (way.span * (q - 1) - hops), down + hop * hops

    def table(self, field: Field, *, split: bool) -> Floats:
        """(12, N + 1) of the layout, where passes gather over links with the time of that; ``split``: as its backwards
        may be."""
        own, gathers_s = field.table(self.layout), np.array(field.gathers_s(self.way))
        table = own.packed if split else own.fused
        return np.asarray(gathering(table, gathers_s, self.way.span * self.stages)) if gathers_s[0] > 0 else table

    def border_delays(self, field: Field) -> Floats:
        """(p,) round trip between each stage and the one before."""
        before, _, _ = self.delays(field)
        return np.diff(before, prepend=0.0)

    def tail_s(self, field: Field) -> float:
        """Seconds after the first stage is done: tied embeddings."""
        inside = self.way.span == 1 and self.stages > 1
        return field.ends_s(self.layout) if inside else field.tail_s(self.way)

    def price(self, field: Field) -> Price:
        """Worth by the objective."""
        return self.usd(field) if field.problem.objective.name == "cost" else Price()

    def usd(self, field: Field) -> Price:
        """What it costs, no more than its least egress."""
        gpus = self.way.size * self.stages * self.layout.gpus
        return Price(rent_usd_per_s(field.problem.cluster.gpu, gpus), field.least_egress_usd(self.way))


@dataclass(frozen=True, eq=False)
class Range:
    """Shapes of one kind on ways over so many groups and domains, R of them, and what no link changes of their bounds.

    The bounds: one wave's round trip and the slowest link for all others; the work of p stages with the bubble that no
    cut avoids, ``C / (1 - (1 - 1/m)^p)``; or that work with the agreement that follows it (docs/theory.md, bounds 1, 4
    and 5).
    """

    layout: Ints  # (R,)
    stages: Ints  # (R,) per domain
    wave_bytes: Floats  # (R,)
    followers: Ints  # (R,) fewest waves of a group but the first
    trip: Floats  # (R,) seconds of one wave's round trip
    bubbled: Floats  # (R,) seconds of the work with its bubble
    early: Floats | None  # (R,) the same of stages that wait for nothing behind them; None: all wait
    once: Floats  # (R,) least seconds per step of the first stage
    ends: Floats  # (R,) seconds in which both ends sum what they share, where they lie in one domain
    work: Floats  # (R,) seconds of the heaviest blocks
    lane: Ints  # (R,) GPUs of a stage
    longer: Floats  # (R,) ``space.ring_share``

    @classmethod
    def known(cls, field: Field, kind: int, way: DomainWay, *, chunked: bool = False) -> Range:
        """The same as ``of``, worked out once for ways over as many groups and domains."""
        key = "range", kind, way.groups, way.span, way.senders, field.splits(way), field.sync.method, chunked
        return field.tables.shared(key, lambda: cls.of(field, kind, way, chunked=chunked))

    @classmethod
    def of(cls, field: Field, kind: int, way: DomainWay, *, chunked: bool = False) -> Range:
        """All shapes of domains of this kind on ways like this one; without chunks (``chunked``) exchanges overlap on
        one stage alone."""
        rows, split = field.layout_rows(kind), field.splits(way)
        batch, layers = field.problem.workload.global_batch, field.problem.model.num_layers
        per_domain = np.arange(1, int(rows.stages.max(initial=0)) + 1)[None, :]
        lots = batch // rows.wave
        fits = (lots >= way.groups) & (rows.lone <= (way.span == 1) + (way.groups * way.span == 1))
        if field.sync.method == "allreduce":
            fits &= (rows.least <= way.groups) & (rows.most >= way.groups)
        else:  # each keeps an optimizer of its own
            fits &= rows.least == 1
        if way.senders:
            fits &= rows.nodes == way.senders
        if field.rules.equal_shares:
            fits &= lots % way.groups == 0
        p = way.span * per_domain
        allowed = fits[:, None] & (per_domain <= rows.stages[:, None]) & (p <= layers)
        allowed &= p * field.tables.usable_bytes > rows.kept[:, None]
        if field.tables.overlapped and not chunked:
            allowed &= (p == 1) & field.fits_two(kind)[:, None]
        at, q = np.nonzero(allowed)
        q += 1
        total, m, stages = rows.total[at], -(-lots // way.groups)[at], way.span * q
        trip, early, once = rows.trip[at] if split else total, rows.early[at], rows.once[at]
        return cls(
            layout=at,
            stages=q,
            wave_bytes=np.asarray(rows.wave[at] * field.wave_bytes, dtype=np.float64),
            followers=lots[at] // way.groups - 1,
            trip=trip,
            bubbled=bubbled(trip, 1.0 / m, stages),
            early=bubbled(early * total, early / m, stages) - rows.spared[at] + once if split else None,
            once=once,
            ends=np.where(q > 1, rows.ends[at], 0.0),
            work=m * rows.blocks[at],
            lane=rows.lane[at],
            longer=ring_share(way.groups, rows.ranks[at], rows.summed[at], flat=rows.flat[at]),
        )


def rough_bounds(field: Field, kind: int, way: DomainWay) -> tuple[Floats, Range]:
    """Bound of every shape on a way, (R,), in the unit of the objective."""
    own = Range.known(field, kind, way)
    links = way.after_s[0] + way.after_pace[0] * own.wave_bytes + own.followers * own.wave_bytes * way.slowest
    tail = own.ends if way.span == 1 else field.tail_s(way)
    bubble = own.bubbled
    if field.tables.gathering:
        passes, share = gathered_s(field, way, own), 1.0 / (own.followers + 1)
        bubble = np.maximum(bubble, bubbled(passes, share, way.span * own.stages))
    bound = np.maximum(own.trip + links, bubble) + own.once + tail
    if own.early is not None:  # stages between the ends do not wait for tied embeddings
        bound = np.maximum(bound, own.early)
    bound = np.maximum(bound, agreed_bound(field, way, own))
    if field.problem.objective.name == "cost":
        gpus = way.size * own.stages * own.lane
        bound = bound * rent_usd_per_s(field.problem.cluster.gpu, 1) * gpus + field.least_egress_usd(way)
    return bound, own


def gathered_s(field: Field, way: DomainWay, own: Range, chunks: Ints | int = 1) -> Floats:
    """(R,) seconds in which the passes of a wave gather weights over links, and scatter gradients, on all stages."""
    carried, late = field.gathers_s(way)
    return np.asarray(3 * carried * field.tables.share[-1] + 2 * late * chunks * way.span * own.stages)


def agreed_bound(field: Field, way: DomainWay, own: Range) -> Floats:
    """(R,) seconds of the work with the agreement that follows it, bound 5."""
    rings = np.array(way.rings) if way.rings else way.sync_pace
    late_s = float((field.sync_s(way) - field.carried_s(way)).min())
    carried = own.longer[:, None] * field.tables.gradient_bytes * field.awaited * rings
    agreed = field.tables.blocks_share * (carried + np.where(own.longer[:, None] != 1.0, 0.0, late_s))
    if not (agreed > 0).all():
        return np.zeros(len(agreed))
    work = own.work[:, None]
    return np.asarray(1 / ((1 - (work / (work + agreed)) ** own.stages[:, None]) / agreed).sum(axis=1))


def shapes(field: Field, kind: int, ways: list[DomainWay]) -> tuple[Floats, Ints]:
    """Bound of every shape, in the unit of the objective, and its (layout, way, stages per domain); best first."""
    bounds, keys = [], []
    for w, way in enumerate(ways):
        bound, own = rough_bounds(field, kind, way)
        bounds.append(bound)
        keys.append(np.stack([own.layout, np.full(len(bound), w), own.stages], axis=1))
    if not any(len(bound) for bound in bounds):
        field.tried.rejected[NO_MEMORY] += (
            0 if field.tables.overlapped or field.tables.gathering else len(field.layout_rows(kind).wave)
        )
        return np.empty(0), np.empty((0, 3), np.int64)
    bound, key = np.concatenate(bounds), np.concatenate(keys)
    order = np.argsort(bound, kind="stable")
    return bound[order], key[order]


def bubbled(seconds: Floats, share: Floats, stages: Ints) -> Floats:
    """``seconds / (1 - (1 - share)^stages)``: work that stages take in turn, each ``share`` of what is left."""
    with np.errstate(divide="ignore"):
        return np.asarray(seconds / -np.expm1(stages * np.log1p(-share)))


@dataclass(frozen=True)
class Near:
    """Shapes that may come within ``reach`` times the best step time and cost less than ``usd`` a step."""

    reach: float = 1.0
    usd: float = float("inf")

    def among(self, field: Field, kind: int, ways: list[DomainWay], found: tuple[Floats, Ints]) -> tuple[Floats, Ints]:
        """Those of the shapes found, (S,) rough bounds in seconds and (S, 3) keys, that may at their bound."""
        bound, keys = found
        if self.usd == float("inf"):
            return found
        size, egress = (np.array(each) for each in ([w.size for w in ways], [field.least_egress_usd(w) for w in ways]))
        gpus = size[keys[:, 1]] * keys[:, 2] * field.layout_rows(kind).lane[keys[:, 0]]
        usd = rent_usd_per_s(field.problem.cluster.gpu, 1) * gpus * bound + egress[keys[:, 1]]
        kept = usd < self.usd
        return bound[kept], keys[kept]


NEARER = Near()


def least_bound(field: Field, kind: int, ways: list[DomainWay]) -> float:
    """Least step time of any shape on ideal ways that is below the best value so far; inf: there is none."""
    return next((bound for bound, _, _ in best_first(field, kind, ways)), np.inf)


def best_first(
    field: Field, kind: int, ways: list[DomainWay], joined: str | None = None, *, near: Near = NEARER
) -> Iterator[tuple[float, PlanShape, Ints]]:
    """Shapes in order of their bounds over all cuts, with those cuts, as long as they can beat the best value.

    ``joined``: the best value of that way to join domains instead of the best of all. ``near``: those that come near
    it for less money instead.
    """
    tried, (rough, keys) = field.tried, shapes(field, kind, ways)
    rough, keys = near.among(field, kind, ways, (rough, keys))
    if not len(rough):
        return
    contest = ShapeContest.of(field, kind, ways, rough, keys)
    while True:
        ceiling = near.reach * (tried.value if joined is None else tried.best_of(joined))
        begun = contest.begun
        found = contest.least(ceiling)
        tried.effort.spend(SHAPE_S * (1 + contest.begun - begun))
        lost = int(np.isinf(contest.standing.bound[begun : contest.begun]).sum())
        tried.rejected[NO_MEMORY if ceiling == np.inf else BEATEN] += lost
        if found is None:
            tried.rejected[BEATEN] += len(rough) - contest.begun
            return
        bound, key, cuts = found
        if field.problem.uniform_cuts:
            cuts = np.array(even_cuts(field.problem.model.num_layers, len(cuts) - 1), np.int64)
        yield bound, _at(field, kind, ways, key), cuts


def first_guess(field: Field, kind: int, ways: list[DomainWay]) -> tuple[float, PlanShape, Ints] | None:
    """The best of the first shapes that fit, whether it can win or not; None: none was found among many."""
    bounds, keys = shapes(field, kind, ways)
    best: tuple[float, PlanShape, Ints] | None = None
    for at in range(min(len(bounds), MOST_GUESSES)):
        if best is not None and (at >= FEW_GUESSES or bounds[at] >= best[0]):
            break
        shape = _at(field, kind, ways, keys[at])
        bound, cuts = refine(field, shape, NO_LIMIT if best is None else best[0], floor=float(bounds[at]))
        if np.isfinite(bound):
            best = (bound, shape, cuts)
        elif best is None:
            field.tried.rejected[NO_MEMORY] += 1
    return best


def _at(field: Field, kind: int, ways: list[DomainWay], key: Ints) -> PlanShape:
    layout, way, stages = key.tolist()
    return shape_of(field, field.layouts[kind][layout], ways[way], stages)


BEATEN, NO_MEMORY = "cannot beat the best plan (bound)", "out of memory"


def shape_of(field: Field, layout: DomainLayout, way: DomainWay, stages: int) -> PlanShape:
    """The shape with its waves dealt: one more to the first groups where they do not divide."""
    each, more = divmod(field.problem.workload.global_batch // layout.wave, way.groups)
    return PlanShape(layout, way, stages, tuple(each + (group < more) for group in range(way.groups)))


def agreed_s(field: Field, way: DomainWay, layout: DomainLayout) -> Floats:
    """(n,) seconds in which replicas of a layout agree on the whole model over the ring of each position, at least."""
    flat = field.problem.all_reduce_with(layout.mode.sharding) == "ring"
    longer = ring_share(way.groups, layout.ranks, layout.summed(field.problem), flat=flat)
    return field.sync_s(way) if longer == 1.0 else field.carried_s(way) * longer


def refine(field: Field, shape: PlanShape, ceiling: float, *, floor: float = 0.0) -> tuple[float, Ints]:
    """Least worth of the shape over all cuts, and those cuts; inf: no cut fits, or none is below ``ceiling``.

    ``floor`` and ``ceiling`` in the unit of the objective.
    """
    layout, way, price = shape.layout, shape.way, shape.price(field)
    before, after, down = shape.delays(field)
    table, stages = shape.table(field, split=field.splits(way)), len(before)
    fewer = (min(shape.waves) - 1) / max(1, max(shape.waves) - 1)  # whoever has the slowest border may have fewer waves
    line = UniformLine(
        table,
        before,
        after,
        down,
        sync=np.repeat(agreed_s(field, way, layout), shape.stages),
        per_domain=shape.stages,
        waves=max(shape.waves),
        ahead=field.rules.live_limit,
        slowest=way.slowest * layout.wave * field.wave_bytes * fewer,
        tail=shape.tail_s(field),
        usable=field.tables.usable_bytes,
    )
    cuts = np.zeros(stages + 1, np.int64)
    field.tried.effort.spend(SHAPE_S)
    limits = price.seconds(floor), min(price.seconds(ceiling), NO_LIMIT)
    bound = price.of(float(uniform_bound(line, *limits, cuts)))
    if not field.problem.uniform_cuts:
        return bound, cuts
    even = stages <= table.shape[1] - 3
    return (bound, np.array(even_cuts(table.shape[1] - 1, stages), np.int64)) if even else (np.inf, cuts)


def play(field: Field, shape: PlanShape, cuts: Ints, bound: float) -> float:
    """Best value over the ways to run ahead that are worth trying, and an order made for the best of them."""
    best, likely = np.inf, None
    for warm_up in warm_ups(field, shape, cuts):
        tried = candidate(field, shape, cuts.tolist(), warm_up)
        value = field.tried.play(tried)
        best, likely = (value, tried) if value < best else (best, likely)
        if best <= bound * (1 + CLOSED):
            return best
    if likely is None or not field.orders(shape.way) or bound * WORTH_AN_ORDER > field.tried.value:
        return best
    operations = 3 * len(likely.pipelines[0].stages) * shape.waves[0]
    own = field.tried.in_order(likely, rules=FEW_RULES if operations > LONG else None)
    return best if own is None else min(best, field.tried.play(own))


def warm_ups(field: Field, shape: PlanShape, cuts: Ints) -> list[tuple[int, ...]]:
    """Plain 1F1B where all stages are near; run-ahead for the best pace that memory allows, and deeper where it can."""
    layout, p = shape.layout, len(cuts) - 1
    plain: list[tuple[int, ...]] = [()] if shape.way.span == 1 or not field.rules.live_limit else []
    if not field.rules.live_limit or p == 1:
        return plain
    table, waves = shape.table(field, split=True), min(shape.waves)
    room = np.array([room_for(table, field.tables.usable_bytes, cuts[i], cuts[i + 1]) for i in range(p)], np.float64)
    forward, seconds = (table[row, cuts[1:]] - table[row, cuts[:-1]] for row in (0, 1))
    slowest = shape.way.slowest * layout.wave * field.wave_bytes
    ways = warm_ups_of(ChainTimes(forward, seconds, shape.border_delays(field), room, waves, slowest))
    if ways and shape.way.groups > 1:  # the last stages are done early, and agree while the first still works
        room = np.minimum.accumulate(np.minimum(room, waves))
        falling = np.minimum(room, np.ceil(room[0] * (p - np.arange(p)) / p))
        falling[-1] = 1
        ways = [tuple(int(each) for each in falling), *ways]
    return plain + ways


def candidate(
    field: Field, shape: PlanShape, cuts: list[int], warm_up: tuple[int, ...], *, chunks: int = 1
) -> Candidate:
    """The shape with these cuts, and so many chunks a stage, as a candidate."""
    layout, mode = shape.layout, shape.layout.mode
    names = [domain.name for domain in field.problem.cluster.domains]
    lines = tuple(
        PipelineSketch(
            tuple(
                StageSketch(names[path[i // shape.stages]], (cuts[i], cuts[i + 1]), layout.tp, layout.dp)
                for i in range(len(cuts) - 1)
            ),
            waves,
            warm_up,
        )
        for path, waves in zip(shape.way.domains, shape.waves, strict=True)
    )
    sync = field.sync if len(lines) > 1 else Sync()
    shared = mode.micro_batch, mode.recompute, mode.sharding, shape.way.relays, sync, chunks
    return field.tried.fitted(Candidate(lines, *shared, field.tables.overlapped))
