"""Plans with several chunks of layers a rank, whose stages all lie alike: interleaved 1F1B, bounded and played.

A rank's chunks differ by one layer at most; the waves go through chunk 0 of all ranks, then chunk 1, and so on, so each
border is crossed v times a wave, and the first wave reaches a rank v times as soon. Bounds: docs/theory.md, "Chunks".
Letters: v chunks, p ranks of a pipeline, q of them in each of n domains, m waves; R shapes of a way.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.cost.money import rent_usd_per_s
from hippo.planners.effort import SHAPE_S
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.space import WAYS_PATIENCE, Field
from hippo.planners.exact.uniform import (
    PlanShape,
    Range,
    agreed_bound,
    bubbled,
    candidate,
    gathered_s,
    shape_of,
    sorts,
)
from hippo.planners.exact.ways import DomainWay

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CHUNKS = 8  # of a rank
PRECISION, SLACK = 1e-4, 1e-9  # of a bound, of a block
REACH = 1.25  # times the best, beyond which a shape is not likely to win


# Columns of the numbers of a layout: seconds, round trip and forward of one of the heaviest blocks, of the first and of
# the last layer, and of the least block; bytes kept and left per wave of each; what each does once per step; room for
# them; what any rank does once per step; seconds of the longest block, and of all; of one of the heaviest blocks, what
# it leaves more where it is not computed again, and the seconds of that.
TOTAL, TRIP, FORTH, KEPT, LEFT, ONCE, ROOM, FIXED, LONGEST, BLOCKS, SPARE, AGAIN = 0, 4, 8, 12, 16, 20, *range(24, 30)
LEAST = 3


def _numbers(field: Field, kind: int) -> Floats:
    """(L, 30) of all layouts of a kind."""

    def made() -> Floats:
        tables, heaviest = sorts(field, kind).tables, field.tables.heaviest
        rows = np.diff(tables[:, [1, _trip_row(field), 0, 2, 3, 5]], axis=2)
        blocks, room = rows[:, :, 1:-1], field.tables.usable_bytes - tables[:, 4, :-1].min(axis=1)
        parts = rows[:, :, heaviest].min(axis=2), rows[:, :, 0], rows[:, :, -1], blocks.min(axis=2)
        others = room, tables[:, 6, 0], blocks[:, 0].max(axis=1), blocks[:, 0].sum(axis=1)
        others = *others, *np.diff(tables[:, 9:11], axis=2)[:, :, heaviest].min(axis=2).T
        return np.concatenate([np.stack(parts, axis=2).reshape(len(tables), 24), np.stack(others, axis=1)], axis=1)

    return field.tables.shared(("chunk numbers", kind), made)


class InterleavedShapes(NamedTuple):
    """Shapes of one way with so many chunks, S of them."""

    rough: Floats  # (S,) in the unit of the objective
    per_second: Floats  # (S,)
    layout: Ints  # (S,)
    ranks: Ints  # (S,)
    per_domain: Ints  # (S,)
    chunks: Ints  # (S,)
    waves: Ints  # (S,)
    wave_bytes: Floats  # (S,)
    back: Floats  # (S,) seconds that the first rank needs once its last gradient has come
    waits: Floats  # (S,) seconds of a step in which every rank waits for messages
    agreed: Floats  # (S, n) seconds in which a domain's ring carries one block


@kernel
def least_dealt(entries, numbers, hops, borders, model, ceiling):  # type: ignore[no-untyped-def]
    """Least worth below ``ceiling`` of any shape over all ways to deal the blocks to its ranks; else the ceiling. The
    shape of the least rough bound comes first.

    ``borders`` (4, n) before each domain: round trip in seconds and per byte, the way down alike. ``model``: its
    heaviest blocks, its others, and what any plan costs beside its time.
    """
    least, fixed = ceiling, model[2]
    for one in range(len(entries.rough)):
        if entries.rough[one] >= least:
            break
        rate = entries.per_second[one]
        low, high = (entries.rough[one] - fixed) / rate, (least - fixed) / rate
        if not dealt_within(entries, one, (numbers, hops, borders), model, high):
            continue
        while high - low > PRECISION * high:
            middle = 0.5 * (low + high)
            if dealt_within(entries, one, (numbers, hops, borders), model, middle):
                high = middle
            else:
                low = middle
        least = fixed + rate * low
    return least


@kernel
def dealt_within(entries, one, about, model, limit):  # type: ignore[no-untyped-def]
    """Whether ranks can be dealt all of the heaviest blocks so that each can be done within the limit; every length of
    the first rank's first chunk is tried, as its other layers count once all gradients have come."""
    v, blocks, others, once = entries.chunks[one], model[0], model[1], about[0][entries.layout[one], ONCE + LEAST]
    most = np.full(blocks + others + 2, -1)
    for lead in range(max(1, (blocks + 1) // v), 0, -1):
        back = entries.back[one] + (v * lead - 1) * once
        most[:] = -1
        most[0] = 0
        for s in range(entries.ranks[one]):
            most = dealt_on(entries, one, about, (s, lead, others, limit, limit - back), most)
            if most.max() < 0:
                break
        if most.max() >= blocks:
            return True
    return False


@kernel
def dealt_on(entries, one, about, asked, most):  # type: ignore[no-untyped-def]
    """(N + 1,) most of the heaviest blocks dealt to the ranks up to ``s``, for each number of blocks of any sort in
    their first chunks, so that each can be done within the limit; -1: none. ``most``: of those before. ``asked``:
    ``s``, the length of the first rank's first chunk, the blocks that are not counted, the limit, and of it what is
    left until the first rank's last gradient has come.

    What a rank may hold falls with the blocks in the first chunks before it. A rank that is dealt less may leave others
    more, so all are tried.
    """
    (s, lead, others, limit, left), (numbers, hops, borders) = asked, about
    own, p, v, m = numbers[entries.layout[one]], entries.ranks[one], entries.chunks[one], entries.waves[one]
    hop, q, size = hops[entries.layout[one]], entries.per_domain[one], entries.wave_bytes[one]
    blocks = len(most) - 2 - others
    j, near = s // q, hop * (s - s // q)
    before = borders[0, j] + borders[1, j] * size + 2.0 * near
    down = borders[2, j] + borders[3, j] * size + near
    live = min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1) / v
    total, trip, once, room, ends = 0.0, 0.0, own[FIXED], own[ROOM], 0
    for end in range(1, 3):
        if s == (0 if end == 1 else p - 1):
            total, trip, once, ends = total + own[TOTAL + end], trip + own[TRIP + end], once + own[ONCE + end], ends + 1
            room -= own[KEPT + end] + live * own[LEFT + end]
    held = max(own[KEPT] + live * own[LEFT], 1e-9)
    each, alone = (m - 1) * own[TOTAL] + own[TRIP], m * own[TOTAL]
    following = np.full(len(most), -1)
    for c in range(blocks + others + 1):
        if most[c] < 0:
            continue
        head, forth = before + c * own[TRIP + LEAST], down + c * own[FORTH + LEAST]
        if s > 0:
            head, forth = head + own[TRIP + 1], forth + own[FORTH + 1]
        back = left - entries.waits[one] - head - (m - 1) * total - trip
        free = limit - entries.waits[one] - forth - m * total
        if back < 0.0 or free < once or room < 0.0:
            continue
        agreed = (free - own[FIXED]) / (alone + entries.agreed[one, j])
        dealt_s = min(back / each, (free - once) / (alone + own[ONCE]), agreed)
        if own[SPARE] > 0.0:  # of n blocks all but ``(room - n held) / saved`` are computed again, m times each
            saved, again = live * own[SPARE], m * own[AGAIN]
            more = again * (1.0 + held / saved)
            gained = again * room / saved
            dealt_s = min(dealt_s, (back + gained) / (each + more), (free - once + gained) / (alone + own[ONCE] + more))
        n = int(min(dealt_s, room / held, float(blocks)) + SLACK)
        if n + ends + others < v:
            continue
        for chunk in range(1, max(1, (n + ends) // v) + 1):
            dealt = min(n, chunk * v + v - 1 - ends)
            first = c + chunk - (1 if s == 0 else 0)
            if s == p - 1:
                dealt, first = n, c
            if first <= blocks + others and (s > 0 or chunk == lead):
                following[first] = max(following[first], min(blocks, most[c] + dealt))
    return following


CHUNKS = np.arange(2, MOST_CHUNKS + 1)


def search_interleaved(field: Field) -> None:
    """Plays shapes with chunks, the likeliest first, as long as they may win and some of them do."""
    tried = field.tried
    ways = [(shapes_of(field, *way, tried.value)[1].min(initial=inf), at, *way) for at, way in enumerate(_worth(field))]
    failed = 0
    for likely, _, kind, ideal in sorted(ways, key=lambda way: way[:2]):
        if likely >= REACH * tried.value:
            break
        if failed >= WAYS_PATIENCE:
            tried.gave_up = True
            break
        start, failures = tried.value, 0
        for bound, each in _likeliest_first(field, kind, field.real_ways(kind, ideal)):
            if failures >= field.patience() or tried.must_stop:
                break
            if bound < tried.value:
                before = tried.value
                failures = 0 if tried.play(each) < before else failures + 1
        failed = 0 if tried.value < start else failed + 1


def least_interleaved(field: Field) -> float:
    """Least worth, in the unit of the objective, of any plan with chunks whose stages lie alike that is below the best
    value so far; inf: there is none."""
    least = field.tried.value
    for kind, ideal in _worth(field):
        found, _ = shapes_of(field, kind, ideal, least)
        for way in field.ways_apart(kind, ideal) if len(found.rough) else ():
            if way is not ideal:
                found, _ = shapes_of(field, kind, way, least)
            least = least_of(field, kind, way, found, least)
    return least if least < field.tried.value else inf


def least_of(field: Field, kind: int, way: DomainWay, found: InterleavedShapes, ceiling: float) -> float:
    """Least worth of these shapes of a way over all ways to deal the layers; the ceiling where none is below it."""
    order = np.argsort(found.rough, kind="stable")
    entries = InterleavedShapes(*(column[order] for column in found))  # type: ignore[arg-type]
    borders = np.array([way.before_s, way.before_pace, way.down_s, way.down_pace])
    blocks, every = int(field.tables.heaviest.sum()), field.problem.model.num_layers - 2
    model = blocks, every - blocks, _egress_usd(field, way)
    return float(least_dealt(entries, _numbers(field, kind), sorts(field, kind).hop_s, borders, model, ceiling))


def _worth(field: Field) -> Iterator[tuple[int, DomainWay]]:
    """Ideal ways with the kind of their domains; none where the runtime has no chunks, or such domains no layout."""
    if not field.rules.interleave or field.sync.method != "allreduce":
        return
    for kind, layouts in enumerate(field.layouts):
        yield from ((kind, way) for way in (field.ideal_ways(kind) if layouts else ()))


def _likeliest_first(field: Field, kind: int, ways: list[DomainWay]) -> Iterator[tuple[float, Candidate]]:
    found: list[tuple[float, float, int, int, int, int]] = []
    for at, way in enumerate(ways):
        entries, likely = shapes_of(field, kind, way, field.tried.value)
        near = likely < REACH * field.tried.value
        where = np.full(len(near), at), entries.layout, entries.per_domain, entries.chunks
        columns = likely, entries.rough, *where
        found += zip(*(column[near].tolist() for column in columns), strict=True)
    for _, bound, at, layout, stages, chunks in sorted(found):
        shape = shape_of(field, field.layouts[kind][layout], ways[at], stages)
        cuts = balanced_cuts(field, shape, chunks)
        if cuts is not None:
            yield bound, candidate(field, shape, cuts, (), chunks=chunks)


def balanced_cuts(field: Field, shape: PlanShape, chunks: int) -> list[int] | None:
    """(p + 1,) cuts for as many layers on each rank as make the busiest least busy, blocks taken alike; None: there is
    no room, or a chunk without a layer."""
    table, p, waves = field.table(shape.layout), shape.way.span * shape.stages, max(shape.waves)
    blocks = len(table.total_s) - 3
    live = np.minimum(waves * chunks, warm_ups(p, chunks)) / chunks
    rows = table.total_s, table.kept_bytes, table.activation_bytes
    first, last = (np.array([row[at] - row[at - 1] for row in rows]) for at in (1, -1))
    block = np.array([(row[-2] - row[1]) / max(blocks, 1) for row in rows])
    busy, held = np.zeros(p), np.zeros(p, np.int64)
    free = np.full(p, field.tables.usable_bytes - table.workspace_bytes[1:-1].max(initial=0.0))
    free[-1] -= max(0.0, table.workspace_bytes[-1] - table.workspace_bytes[1:-1].max(initial=0.0))
    for end, (seconds, kept, each) in ((0, first), (-1, last)):
        busy[end] += seconds
        held[end] += 1
        free[end] -= kept + live[end] * each
    need = block[1] + live * block[2]
    for _ in range(blocks):
        open_ = np.where(free >= need, busy, inf)
        least = p - 1 - int(np.argmin(open_[::-1]))  # of equals the last, which keeps the fewest waves
        if open_[least] == inf:
            return None
        busy[least] += block[0]
        held[least] += 1
        free[least] -= need[least]
    return [0, *np.cumsum(held).tolist()] if held.min() >= chunks else None


def warm_ups(ranks: int, chunks: int) -> Floats:
    """(p,) chunks that each rank runs forward before its first backward, where there are as many."""
    return np.asarray(2 * (ranks - 1 - np.arange(ranks)) + (chunks - 1) * ranks + 1, np.float64)


def shapes_of(field: Field, kind: int, way: DomainWay, ceiling: float) -> tuple[InterleavedShapes, Floats]:
    """Shapes on a way with chunks that may be worth less than the ceiling, and what each is worth, (S,), if every chunk
    takes as long as the longest."""
    own, packed, numbers = Range.known(field, kind, way, chunked=True), sorts(field, kind), _numbers(field, kind)
    rules, batch, layers = field.rules, field.problem.workload.global_batch, field.problem.model.num_layers
    timed = field.problem.objective.name != "cost"
    usd = (
        np.ones(len(own.stages))
        if timed
        else rent_usd_per_s(field.problem.cluster.gpu, 1) * way.size * own.stages * own.lane
    )
    fixed, tail = _egress_usd(field, way), own.ends if way.span == 1 else field.tail_s(way)
    ranks, waves = way.span * own.stages, -(-(batch // field.layout_rows(kind).wave[own.layout]) // way.groups)
    total, trip = packed.tables[own.layout, 1, -1], packed.tables[own.layout, _trip_row(field), -1]

    # Each chunk holds a layer: before a rank's first wave, and behind its last, lie those of the ranks before.
    hops = packed.hop_s[own.layout] * (ranks * (ranks - 1) - own.stages * way.span * (way.span - 1))
    heads = _heads(field, kind, _trip_row(field))[own.layout, ranks - 1] + hops
    back = own.once + tail
    shortest, agreed = (heads + (waves - 1) * total + trip) / ranks, agreed_bound(field, way, own)
    shortest = np.maximum(shortest, waves * gathered_s(field, way, own, 2) / ranks)  # of two chunks at least
    alone = (_heads(field, kind, 0)[own.layout, ranks - 1] + waves * total + packed.tables[own.layout, 5, -1]) / ranks
    agreed = np.maximum(agreed, alone + packed.tables[own.layout, 6, 0])
    fits = (ranks > 1) & (2 * ranks <= layers) & (fixed + usd * np.maximum(shortest + back, agreed) < ceiling)
    if rules.interleave_in_rounds:
        fits &= waves % ranks == 0
    r, v = (each.ravel() for each in np.meshgrid(np.flatnonzero(fits), CHUNKS, indexing="ij"))
    r, v = (each[v * ranks[r] <= layers] for each in (r, v))
    at, p, m = own.layout[r], ranks[r], waves[r]
    least = numbers[at, TRIP + LEAST]
    alike = least / numbers[at, LONGEST]
    inner, hop = numbers[at, BLOCKS], packed.hop_s[at]

    # Chunks of a rank differ by a layer at most: the recursion of bound 4 with the v-th part of a rank before the next.
    slack = np.maximum(0.0, p * least * (v - 1) / v - numbers[at, TRIP + 1])
    dealt = bubbled(inner * alike / v, alike / v / (m - 1 + alike), p) - slack
    coupled = rules.messages.calls == "coupled" and way.span == 1  # a rank waits until its forward has come
    waits = np.maximum(0, m * (v - 1) - 1) * hop if coupled else np.zeros(len(v))
    most, heaviest = -(-(layers - 2) // p), -(-field.tables.heaviest.sum() // p)
    links = v * (own.followers[r] + 1) * own.wave_bytes[r] * way.slowest
    wave = trip[r] + 2 * hop * (v * way.span * (own.stages[r] - 1) + (v - 1 if way.span == 1 else 0))
    wave += v * (way.after_s[0] + way.after_pace[0] * own.wave_bytes[r])
    compute = np.maximum(np.maximum(shortest[r], dealt), m * heaviest * numbers[at, TOTAL]) + waits
    gathers = gathered_s(field, way, own)[r] / p + 2 * (v - 1) * field.gathers_s(way)[1]  # of a wave on a mean rank
    compute = np.maximum(compute, m * gathers)
    bound = np.maximum(np.maximum(compute, np.maximum(wave, links)) + back[r], agreed[r])

    chunk = -(-most // v) * inner / (layers - 2)
    likely = m * np.maximum(v * chunk, total[r] / p) + (p - 1) * chunk + back[r]
    likely = np.maximum(bound, likely + (m * v if coupled else 2 * p) * _usual_hops(field, kind)[at])
    likely = np.maximum(likely, (m + (p - 1) / v) * gathers + back[r])
    ring = field.carried_s(way) * own.longer[r, None]
    ring = np.where(own.longer[r, None] != 1.0, ring, field.sync_s(way)) * np.diff(field.tables.share)[1:-1].min()
    bound, likely = fixed + usd[r] * bound, fixed + usd[r] * likely
    near = np.flatnonzero(bound < ceiling)
    field.tried.effort.spend(SHAPE_S * (1 + len(near)))
    columns = bound, usd[r], at, p, own.stages[r], v, m, own.wave_bytes[r], back[r], waits, ring
    return InterleavedShapes(*(np.asarray(each)[near] for each in columns)), np.asarray(likely)[near]


def _egress_usd(field: Field, way: DomainWay) -> float:
    return field.least_egress_usd(way) if field.problem.objective.name == "cost" else 0.0


def _trip_row(field: Field) -> int:
    """Row of a layout's table with what lies on a round trip: weight gradients come later where the runtime sends those
    of the inputs first."""
    return 8 if field.rules.gradients_first and field.tables.split else 1


def _heads(field: Field, kind: int, row: int) -> Floats:
    """(L, N + 1) a row of the tables through the first layer, the first two, and so on, added up."""
    return field.tables.shared(("heads", kind, row), lambda: np.cumsum(sorts(field, kind).tables[:, row], axis=1))


def _usual_hops(field: Field, kind: int) -> Floats:
    """(L,) seconds of a message between two stages of a domain that lie side by side."""

    def made() -> Floats:
        domain, found = field.tables.examples[kind], []
        for layout in field.layouts[kind]:
            size = layout.mode.micro_batch * field.tables.wave_bytes_per_sequence
            near = 2 * layout.gpus <= domain.gpus_per_node
            sent = size if near else size * layout.dp / layout.nodes(domain.gpus_per_node)
            found.append(field.tables.model.p2p_seconds(domain.name, sent, same_node=near))
        return np.array(found)

    return field.tables.shared(("usual hops", kind), made)
