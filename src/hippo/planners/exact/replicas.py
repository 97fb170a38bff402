"""Replicas in domains that differ: one pipeline in each, with its own layout and its own share of the batch.

Nothing here is a bound (``exact`` takes one that covers it); it finds plans. Letters: n domains, q stages, m waves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from hippo.planners.exact.bounds import NO_LIMIT, held
from hippo.planners.exact.candidates import Candidate
from hippo.planners.exact.layouts import DomainLayout
from hippo.planners.exact.space import Field
from hippo.planners.exact.uniform import PlanShape, agreed_s, refine, warm_ups
from hippo.planners.exact.ways import DomainWay, real_way, ring_ceilings
from hippo.planners.placement import PipelineSketch, StageSketch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_DOMAINS = 6  # all of whose subsets are looked at; of more, only the quickest ones
MOST_PLAYED, MOST_LOOKED_AT = 24, 96  # the latter with those that do not fit
NEARBY = 3  # waves more or less than a proportional share


@dataclass(frozen=True)
class DomainShare:
    """How a domain of one kind would work: a layout, its stages, and seconds per sequence."""

    layout: DomainLayout
    stages: int
    seconds: float


@dataclass(frozen=True)
class Dealt:
    """The batch dealt to one replica of every domain."""

    mode: int  # its place among those of ``_seats``
    seats: list[DomainShare]
    waves: tuple[int, ...]
    busy_s: float  # of the slowest


def search_replicas(field: Field) -> None:
    """Plays replicas over sets of domains that are not all alike, the most promising first."""
    if len(field.tables.examples) < 2 or field.tables.overlapped:
        return
    offers: list[tuple[float, tuple[int, int], DomainWay, Dealt]] = []
    for at, (members, way) in enumerate(_sets(field)):
        for dealt in _dealt(field, tuple(field.tables.kinds[each] for each in members)):
            wait_s = dealt.busy_s + float(agreed_s(field, way, dealt.seats[0].layout)[0])
            offers.append((wait_s, (dealt.mode, at), way, dealt))
    played = 0
    for wait_s, _, way, dealt in sorted(offers, key=lambda offer: offer[:2])[:MOST_LOOKED_AT]:
        if wait_s >= field.tried.value or field.tried.must_stop or played == MOST_PLAYED:
            return
        found = [field.tried.play(candidate) for candidate in _candidates(field, way, dealt)]
        played += len(found) > 0


def _dealt(field: Field, kinds: tuple[int, ...]) -> list[Dealt]:
    """Domains of these kinds as replicas, in every mode in which they can share the batch; links do not matter."""
    able = (1,) if field.sync.method == "local_sgd" else (1, len(kinds))  # groups that shard something

    def made() -> list[Dealt]:
        found = []
        for at, ((mode, groups), of) in enumerate(field.tables.shared("seats", lambda: _seats(field)).items()):
            if groups not in able or not all(kind in of for kind in kinds):
                continue
            seats = [of[kind] for kind in kinds]
            lots = field.problem.workload.global_batch // mode[0]
            waves = deal(lots, [seat.layout.dp for seat in seats], [1.0 / seat.seconds for seat in seats])
            if waves is not None:
                busy_s = max(own * seat.layout.wave * seat.seconds for own, seat in zip(waves, seats, strict=True))
                found.append(Dealt(at, seats, waves, busy_s))
        return found

    def alike() -> list[Dealt]:
        return _dealt_alike(field, kinds)

    return field.tables.shared(("dealt", field.sync.method, kinds), alike if field.rules.uniform_tp_dp else made)


def _dealt_alike(field: Field, kinds: tuple[int, ...]) -> list[Dealt]:
    """The same for a runtime in which all replicas lie alike: each layout with all the stages there is room for, and
    with half of them; the likeliest."""
    rows, n = {kind: field.layout_rows(kind) for kind in kinds}, len(kinds)
    if not all(len(each.wave) for each in rows.values()):
        return []
    first, at = rows[kinds[0]], {kind: _same_layouts(field, kinds[0], kind) for kind in rows}
    lots, local = field.problem.workload.global_batch // first.wave, field.sync.method == "local_sgd"
    able = (lots >= n) & (lots % n == 0) & (first.lone < 2) & np.all([each >= 0 for each in at.values()], axis=0)
    able &= (first.least == 1) if local else (first.least <= n) & (n <= first.most)
    total = np.max([each.total[at[kind]] for kind, each in rows.items()], axis=0)
    if field.tables.gathering:
        total = np.maximum(total, 3 * field.gathers_of(n, n)[0])
    most, waves = np.min([each.stages[at[kind]] for kind, each in rows.items()], axis=0), lots // n
    found = []
    for stages in (most, -(-most // 2)):
        busy_s = np.where(able, (waves + stages - 1) * total / stages, np.inf)
        for one in np.argsort(busy_s, kind="stable")[:MOST_LOOKED_AT].tolist():
            if able[one]:
                q, count = int(stages[one]), int(waves[one])
                seconds = float(busy_s[one]) / (count * int(first.wave[one]))
                seats = [DomainShare(field.layouts[kind][at[kind][one]], q, seconds) for kind in kinds]
                found.append(Dealt(one, seats, (count,) * n, float(busy_s[one])))
    return found


def _same_layouts(field: Field, one: int, other: int) -> Ints:
    """(L,) where each layout of one kind of domain stands among those of the other; -1: it has none such."""

    def made() -> Ints:
        own = {(each.tp, each.dp, each.mode): at for at, each in enumerate(field.layouts[other])}
        return np.array([own.get((each.tp, each.dp, each.mode), -1) for each in field.layouts[one]], np.int64)

    return field.tables.shared(("same layouts", one, other), made)


def _seats(field: Field) -> dict[tuple[tuple[int, str, str], int], dict[int, DomainShare]]:
    """For every (micro-batch, recomputation, sharding), and groups that shard something, the quickest seat of every
    kind."""
    found: dict[tuple[tuple[int, str, str], int], dict[int, DomainShare]] = {}
    batch, domains = field.problem.workload.global_batch, len(field.tables.kinds)
    for kind, layouts in enumerate(field.layouts):
        for layout in layouts:
            mode, groups = (layout.mode.micro_batch, layout.mode.recompute, layout.mode.sharding), layout.mode.groups
            seats, table = found.setdefault((mode, groups), {}), field.table(layout).packed
            gathers_s = 3 * field.gathers_of(groups, groups)[0] if field.tables.gathering else 0.0
            total, waves = max(float(table[1, -1]), gathers_s), max(1.0, batch / domains / layout.wave)
            for stages in range(1, min(layout.stages, table.shape[1] - 1) + 1):
                seconds = (waves + stages - 1) / waves * total / layout.wave / stages
                if kind in seats and seconds >= seats[kind].seconds:
                    continue
                if held(table, stages, field.tables.usable_bytes):
                    seats[kind] = DomainShare(layout, stages, seconds)
    return found


def _sets(field: Field) -> Iterator[tuple[tuple[int, ...], DomainWay]]:
    """Sets of domains of several kinds that are joined in a ring."""
    kinds, routes = field.tables.kinds, field.routes(0)
    among = range(len(kinds))
    if len(kinds) > MOST_DOMAINS:
        speed = np.argsort([-domain.gpus for domain in field.problem.cluster.domains], kind="stable")
        sets = [tuple(sorted(int(each) for each in speed[:n])) for n in range(2, len(kinds) + 1)]
    else:
        sets = [each for n in among for each in combinations(among, n + 1) if n]
    for members in sets:
        if len({kinds[each] for each in members}) > 1:
            if field.only is not None and not field.only.holds((each,) for each in members):
                continue
            for ceiling in ring_ceilings(routes, members):
                way = real_way(routes, tuple((each,) for each in members), ceiling, tied=False)
                if way is not None and np.isfinite(way.sync_pace).all():
                    yield members, way


def deal(lots: int, widths: list[int], speeds: list[float]) -> tuple[int, ...] | None:
    """Waves of every pipeline, at least one, with ``sum waves * width = lots`` and the slowest as quick as can be found
    near shares in proportion to ``speeds``; None: they do not add up."""
    shares = [max(1, round(lots * speed / sum(speeds) / width)) for width, speed in zip(widths, speeds, strict=True)]
    # All but the widest may vary a little; the widest takes what is left.
    last = int(np.argmin(widths))
    free = [index for index in range(len(widths)) if index != last]
    near = range(-NEARBY, NEARBY + 1) if len(free) <= 3 else range(1)
    waves = np.array(shares) + np.zeros((len(near) ** len(free), 1), np.int64)
    waves[:, free] += np.array(list(product(near, repeat=len(free))))
    waves[:, last], odd = np.divmod(lots - waves[:, free] @ np.array(widths)[free], widths[last])
    slowest = np.where((odd == 0) & (waves.min(axis=1) >= 1), (waves * widths / speeds).max(axis=1), np.inf)
    best = int(slowest.argmin())
    return tuple(waves[best].tolist()) if np.isfinite(slowest[best]) else None


def _candidates(field: Field, way: DomainWay, dealt: Dealt) -> Iterator[Candidate]:
    """The replicas with their shares, cut by the bound, with plain 1F1B and with run-ahead."""
    seats, waves = dealt.seats, dealt.waves
    mode = seats[0].layout.mode
    shapes = [PlanShape(seat.layout, way, seat.stages, (own,)) for seat, own in zip(seats, waves, strict=True)]
    found = [refine(field, shape, NO_LIMIT) for shape in shapes]
    if not all(np.isfinite(bound) for bound, _ in found):
        return
    if field.rules.uniform_cuts_across_replicas:
        found = [max(found, key=lambda each: each[0])] * len(found)
    lines = [
        [_line(field, shape, path[0], cuts, warm_up) for warm_up in warm_ups(field, shape, cuts)]
        for shape, path, (_, cuts) in zip(shapes, way.domains, found, strict=True)
    ]
    for choice in range(max(len(options) for options in lines)):
        pipelines = tuple(options[min(choice, len(options) - 1)] for options in lines)
        shared = mode.micro_batch, mode.recompute, mode.sharding, way.relays, field.sync
        yield field.tried.fitted(Candidate(pipelines, *shared))


def _line(field: Field, shape: PlanShape, domain: int, cuts: Ints, warm_up: tuple[int, ...]) -> PipelineSketch:
    name, layout = field.problem.cluster.domains[domain].name, shape.layout
    pairs = [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return PipelineSketch(
        tuple(StageSketch(name, pair, layout.tp, layout.dp) for pair in pairs), shape.waves[0], warm_up
    )
