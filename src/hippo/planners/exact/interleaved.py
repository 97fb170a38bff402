"""Plans with several chunks of layers a rank, whose stages all lie alike: interleaved 1F1B, bounded and played.

A rank's chunks differ by one layer at most; the waves go through chunk 0 of all ranks, then chunk 1, and so on, so each
border is crossed v times a wave, and the first wave reaches a rank v times as soon. Bounds: docs/theory.md, "Chunks".
Letters: v chunks, p ranks of a pipeline, q of them in each of n domains, m waves; R shapes of a way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.cost.money import rent_usd_per_s
from hippo.planners.effort import SHAPE_S
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.space import Field
from hippo.planners.exact.uniform import PlanShape, Range, agreed_bound, bubbled, candidate, shape_of, sorts
from hippo.planners.exact.ways import DomainWay

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CHUNKS = 8  # of a rank
PATIENCE = 6  # shapes of one way to join in a row without a better plan
PRECISION, SLACK = 1e-4, 1e-9  # of a bound, of a block
REACH = 1.1  # times the best, beyond which a shape is not likely to win


CHUNKS = np.arange(2, MOST_CHUNKS + 1)


@dataclass(frozen=True, eq=False)
class Chunked:
    """Shapes of one way with each of ``CHUNKS``, (V, R) each, in the unit of the objective."""

    own: Range
    usd: Floats  # (R,) per second
    bound: Floats  # inf: there is no such plan, or no room for it
    likely: Floats  # what it takes if every chunk takes as long as the longest


def search_interleaved(field: Field) -> None:
    """Plays shapes with chunks, the likeliest first, as long as they may win and some of them do."""
    tried = field.tried
    for kind, ideal in _worth(field):
        if shapes_of(field, kind, ideal).bound.min(initial=inf) >= tried.value:
            continue
        failures = 0
        for bound, each in _likeliest_first(field, kind, field.real_ways(kind, ideal)):
            if failures >= PATIENCE or tried.must_stop:
                break
            if bound < tried.value:
                before = tried.value
                failures = 0 if tried.play(each) < before else failures + 1


def least_interleaved(field: Field) -> float:
    """Least worth, in the unit of the objective, of any plan with chunks whose stages lie alike that is below the best
    value so far; inf: there is none."""
    least = field.tried.value
    for kind, way in _worth(field):
        least = _least_on(field, kind, way, least)
    return least if least < field.tried.value else inf


def _least_on(field: Field, kind: int, way: DomainWay, ceiling: float) -> float:
    """Least worth over all ways to deal the layers, of any shape on a way; the ceiling where none is below it."""
    shapes = shapes_of(field, kind, way)
    v, r = np.nonzero(shapes.bound < ceiling)
    order = np.argsort(shapes.bound[v, r], kind="stable")
    v, r = v[order], r[order]
    field.tried.effort.spend(SHAPE_S * len(v))
    own, packed = shapes.own, sorts(field, kind)
    at = own.layout[r]
    p, wave = way.span * own.stages[r], field.layout_rows(kind).wave[at]
    waves = -(-(field.problem.workload.global_batch // wave) // way.groups)
    waits = np.maximum(0, waves * (CHUNKS[v] - 1) - 1) * packed.hop_s[at] if _coupled(field, way) else np.zeros(len(v))
    agreed = field.carried_s(way)[None, :] * own.longer[r, None]
    agreed = np.where(own.longer[r, None] > 1.0, agreed, field.sync_s(way)[None, :]) * field.tables.blocks_share
    tail = own.ends[r] if way.span == 1 else np.full(len(v), field.tail_s(way))
    usd = shapes.usd[r] if field.problem.objective.name == "cost" else np.ones(len(v))
    entries = Entries(
        shapes.bound[v, r], usd, at, p, own.stages[r], CHUNKS[v], waves, own.wave_bytes[r], own.once[r] + tail, waits,
        agreed / (field.problem.model.num_layers - 2),
    )  # fmt: skip
    fixed = field.least_egress_usd(way) if field.problem.objective.name == "cost" else 0.0
    borders = np.array([way.before_s, way.before_pace, way.down_s, way.down_pace])
    later = field.rules.gradients_first and field.tables.split
    numbers = _numbers(field, kind, later=later)
    return float(
        least_dealt(entries, numbers, packed.hop_s, borders, (field.problem.model.num_layers - 2, fixed), ceiling)
    )


def _coupled(field: Field, way: DomainWay) -> bool:
    """Whether a rank waits until what its forwards send has come, inside one domain."""
    return field.rules.messages.calls == "coupled" and way.span == 1


# Columns of the numbers of a layout: seconds, round trip and forward of the least block, of the first and the last
# layer; bytes kept and left per wave of each; room for them; what any rank does once per step.
TOTAL, TRIP, FORTH, KEPT, LEFT, ROOM, FIXED = 0, 3, 6, 9, 12, 15, 16


def _numbers(field: Field, kind: int, *, later: bool) -> Floats:
    """(L, 17) of all layouts of a kind."""
    tables = sorts(field, kind).tables
    rows = np.diff(tables[:, [1, 8 if later else 1, 0, 2, 3]], axis=2)
    parts = np.stack([rows[:, :, 1:-1].min(axis=2), rows[:, :, 0], rows[:, :, -1]], axis=2)  # (L, 5, 3)
    room = field.tables.usable_bytes - tables[:, 4, :-1].min(axis=1)
    return np.concatenate([parts.reshape(len(tables), 15), room[:, None], tables[:, 6, :1]], axis=1)


class Entries(NamedTuple):
    """Shapes of one way with so many chunks, S of them, the least rough bound first."""

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
    """Least worth below ``ceiling`` of any shape over all ways to deal the blocks to its ranks; else the ceiling.

    ``borders`` (4, n) before each domain: round trip in seconds and per byte, the way down alike. ``model``: its
    blocks, and what any plan costs beside its time.
    """
    least, fixed = ceiling, model[1]
    for one in range(len(entries.rough)):
        if entries.rough[one] >= least:
            break
        rate = entries.per_second[one]
        low, high = (entries.rough[one] - fixed) / rate, (least - fixed) / rate
        if not dealt_within(entries, one, numbers, hops, borders, model[0], high):
            continue
        while high - low > PRECISION * high:
            middle = 0.5 * (low + high)
            if dealt_within(entries, one, numbers, hops, borders, model[0], middle):
                high = middle
            else:
                low = middle
        least = fixed + rate * low
    return least


@kernel
def dealt_within(entries, one, numbers, hops, borders, blocks, limit):  # type: ignore[no-untyped-def]
    """Whether ranks can be dealt all blocks so that each can be done within the limit.

    What a rank may hold falls with the blocks in the first chunks before it; for each number of these the most blocks
    dealt so far are kept. A rank that is dealt less may leave others more, so all are tried.
    """
    own, p, v, m = numbers[entries.layout[one]], entries.ranks[one], entries.chunks[one], entries.waves[one]
    hop, q, size = hops[entries.layout[one]], entries.per_domain[one], entries.wave_bytes[one]
    most = np.full(blocks + 2, -1)
    most[0] = 0
    for s in range(p):
        j, near = s // q, hop * (s - s // q)
        before = borders[0, j] + borders[1, j] * size + 2.0 * near
        down = borders[2, j] + borders[3, j] * size + near
        live = min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1) / v
        total, trip, room, ends = 0.0, 0.0, own[ROOM], 0
        for end in range(1, 3):
            if s == (0 if end == 1 else p - 1):
                total, trip, ends = total + own[TOTAL + end], trip + own[TRIP + end], ends + 1
                room -= own[KEPT + end] + live * own[LEFT + end]
        held = max(own[KEPT] + live * own[LEFT], 1e-9)
        each, alone = (m - 1) * own[TOTAL] + own[TRIP], m * own[TOTAL] + entries.agreed[one, j]
        following = np.full(blocks + 2, -1)
        for c in range(blocks + 1):
            if most[c] < 0:
                continue
            head, forth = before + c * own[TRIP], down + c * own[FORTH]
            if s > 0:
                head, forth = head + own[TRIP + 1], forth + own[FORTH + 1]
            left = limit - entries.back[one] - entries.waits[one] - head - (m - 1) * total - trip
            free = limit - own[FIXED] - entries.waits[one] - forth - m * total
            if left < 0.0 or free < 0.0 or room < 0.0:
                continue
            n = int(min(left / each, free / alone, room / held, float(blocks)) + SLACK)
            for chunk in range(1, (n + ends) // v + 1):
                dealt = min(n, chunk * v + v - 1 - ends)
                first = c + chunk - (1 if s == 0 else 0)
                if s == p - 1:
                    dealt, first = n, c
                if first <= blocks:
                    following[first] = max(following[first], min(blocks, most[c] + dealt))
        most = following
    return most.max() >= blocks


def _worth(field: Field) -> Iterator[tuple[int, DomainWay]]:
    """Ideal ways with the kind of their domains; none where the runtime has no chunks."""
    if not field.rules.interleave or field.sync.method != "allreduce":
        return
    for kind in range(len(field.tables.examples)):
        yield from ((kind, way) for way in field.ideal_ways(kind))


def _likeliest_first(field: Field, kind: int, ways: list[DomainWay]) -> Iterator[tuple[float, Candidate]]:
    found: list[tuple[float, float, int, int, int, int]] = []
    for at, way in enumerate(ways):
        shapes = shapes_of(field, kind, way)
        v, r = np.nonzero((shapes.bound < field.tried.value) & (shapes.likely < REACH * field.tried.value))
        layouts, stages = shapes.own.layout[r].tolist(), shapes.own.stages[r].tolist()
        figures = shapes.likely[v, r].tolist(), shapes.bound[v, r].tolist()
        found += zip(*figures, [at] * len(v), layouts, stages, CHUNKS[v].tolist(), strict=True)
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


def shapes_of(field: Field, kind: int, way: DomainWay) -> Chunked:
    """All shapes on a way with chunks."""
    own = Range.known(field, kind, way)
    field.tried.effort.spend(SHAPE_S)
    key = "chunks", kind, way.groups, way.span, way.senders
    compute, likely, wave = field.tables.shared(key, lambda: _without_links(field, kind, way, own))
    v, tail = CHUNKS[:, None], own.ends if way.span == 1 else field.tail_s(way)
    wave = wave + v * (way.after_s[0] + way.after_pace[0] * own.wave_bytes)
    links = v * (own.followers + 1) * own.wave_bytes * way.slowest
    bound = np.maximum(np.maximum(compute, wave), links) + own.once + tail
    bound = np.maximum(bound, agreed_bound(field, way, own))
    likely = np.maximum(bound, likely + own.once + tail)
    usd = rent_usd_per_s(field.problem.cluster.gpu, 1) * way.size * own.stages * own.lane
    if field.problem.objective.name == "cost":
        bound, likely = (each * usd + field.least_egress_usd(way) for each in (bound, likely))
    return Chunked(own, np.asarray(usd, np.float64), np.asarray(bound), np.asarray(likely))


def _without_links(field: Field, kind: int, way: DomainWay, own: Range) -> tuple[Floats, Floats, Floats]:
    """Seconds (V, R) of the work with the bubble that chunks leave, the same as it is likely to be, and those of one
    wave's trip, whatever the links."""
    rules, rows, packed = field.rules, field.layout_rows(kind), sorts(field, kind)
    layers, at, p = field.problem.model.num_layers, own.layout, way.span * own.stages
    v, m = CHUNKS[:, None], -(-(field.problem.workload.global_batch // rows.wave[at]) // way.groups)
    later = rules.gradients_first and field.tables.split
    prefix, whole = packed.tables[at, 8 if later else 1], packed.tables[at, 1]
    trip, total, hop = prefix[:, -1], whole[:, -1], packed.hop_s[at]
    blocks = np.diff(prefix, axis=1)[:, 1:-1]
    least, longest = blocks.min(axis=1), np.diff(whole, axis=1)[:, 1:-1].max(axis=1)
    alike = least / longest

    # Each chunk holds a layer: before a rank's first wave, and behind its last, lie those of the ranks before.
    each = np.arange(len(at))
    heads = np.cumsum(prefix, axis=1)[each, p - 1] + hop * (p * (p - 1) - own.stages * way.span * (way.span - 1))
    shortest = (heads + (m - 1) * total + trip) / p
    # Chunks of a rank differ by a layer at most: the recursion of bound 4 with the v-th part of a rank before the next.
    slack = np.maximum(0.0, p * least * (v - 1) / v - prefix[:, 1])
    dealt = bubbled((whole[:, -2] - whole[:, 1]) * alike / v, alike / v / (m - 1 + alike), p) - slack
    most = -(-(layers - 2) // p)
    coupled = _coupled(field, way)
    waits = np.maximum(0, m * (v - 1) - 1) * hop if coupled else 0.0
    compute = np.maximum(np.maximum(shortest, m * most * least), dealt) + waits
    chunk = -(-most // v) * np.diff(whole, axis=1)[:, 1:-1].mean(axis=1)
    likely = m * np.maximum(v * chunk, total / p) + (p - 1) * chunk
    likely += (m * v if coupled else 2 * p) * _usual_hops(field, kind)[at]
    hops = v * way.span * (own.stages - 1) + (v - 1 if way.span == 1 else 0)
    fits = _fits(field, kind, own, p, m) & (p > 1) & (v * p <= layers)
    if rules.interleave_in_rounds:
        fits &= m % p == 0
    return np.where(fits, compute, inf), np.where(fits, likely, inf), trip + 2 * hop * hops


def _usual_hops(field: Field, kind: int) -> Floats:
    """(L,) seconds of a message between two stages of a domain that lie side by side."""
    domain, found = field.tables.examples[kind], []
    for layout in field.layouts[kind]:
        size, gpus = layout.mode.micro_batch * field.tables.wave_bytes_per_sequence, layout.tp * layout.dp
        near = 2 * gpus <= domain.gpus_per_node
        sent = size if near else size * layout.dp / layout.nodes(domain.gpus_per_node)
        found.append(field.tables.model.p2p_seconds(domain.name, sent, same_node=near))
    return np.array(found)


def _fits(field: Field, kind: int, own: Range, p: Ints, m: Ints) -> NDArray[np.bool_]:
    """(V, R) whether there may be room: each rank takes the share of the blocks that it has memory for, where they are
    alike; else all ranks keep no more waves than the last one does."""
    tables, layers = field.tables, field.problem.model.num_layers
    kept, left = (sorts(field, kind).tables[own.layout, row] for row in (2, 3))
    room = tables.usable_bytes - sorts(field, kind).tables[own.layout, 4, :layers].min(axis=1)
    if tables.blocks_share == 0.0:
        live = np.minimum(m, ((CHUNKS[:, None] - 1) * p + 1) / CHUNKS[:, None])
        return np.asarray(kept[:, -1] + live * left[:, -1] <= p * room)
    inner, each = kept[:, -2] - kept[:, 1], left[:, -2] - left[:, 1]
    share = np.zeros((len(CHUNKS), len(p)))
    for ranks in np.unique(p).tolist():
        for at, chunks in enumerate(CHUNKS.tolist()):
            mine = p == ranks
            live = np.minimum(m[mine, None], warm_ups(ranks, chunks) / chunks)
            need = np.maximum(inner[mine, None] + live * each[mine, None], 1e-9)
            share[at, mine] = (room[mine, None] / need).sum(axis=1)
    return share >= 1.0 - 1e-9
