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
from hippo.planners.exact.ways import DomainWay, real_way
from hippo.planners.placement import PipelineSketch, StageSketch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_DOMAINS = 6  # all of whose subsets are looked at; of more, only the quickest ones
MOST_PLAYED = 24
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
    if len(field.tables.examples) < 2 or field.rules.uniform_tp_dp or field.rules.equal_shares:
        return
    offers: list[tuple[float, tuple[int, int], DomainWay, Dealt]] = []
    for at, (members, way) in enumerate(_sets(field)):
        for dealt in _dealt(field, tuple(field.tables.kinds[each] for each in members)):
            wait_s = dealt.busy_s + float(agreed_s(field, way, dealt.seats[0].layout)[0])
            offers.append((wait_s, (dealt.mode, at), way, dealt))
    for wait_s, _, way, dealt in sorted(offers, key=lambda offer: offer[:2])[:MOST_PLAYED]:
        if wait_s >= field.tried.value or field.tried.must_stop:
            return
        for candidate in _candidates(field, way, dealt):
            field.tried.play(candidate)


def _dealt(field: Field, kinds: tuple[int, ...]) -> list[Dealt]:
    """Domains of these kinds as replicas, in every mode in which they can share the batch; links do not matter."""

    def make() -> list[Dealt]:
        found = []
        for at, ((micro_batch, _, _), of) in enumerate(field.tables.shared("seats", lambda: _seats(field)).items()):
            if not all(kind in of for kind in kinds):
                continue
            seats = [of[kind] for kind in kinds]
            lots = field.problem.workload.global_batch // micro_batch
            waves = deal(lots, [seat.layout.dp for seat in seats], [1.0 / seat.seconds for seat in seats])
            if waves is not None:
                busy_s = max(own * seat.layout.wave * seat.seconds for own, seat in zip(waves, seats, strict=True))
                found.append(Dealt(at, seats, waves, busy_s))
        return found

    return field.tables.shared(("dealt", kinds), make)


def _seats(field: Field) -> dict[tuple[int, str, str], dict[int, DomainShare]]:
    """For every (micro-batch, recomputation, sharding) the quickest seat of every kind."""
    found: dict[tuple[int, str, str], dict[int, DomainShare]] = {}
    batch, domains = field.problem.workload.global_batch, len(field.tables.kinds)
    for kind, layouts in enumerate(field.layouts):
        for layout in (each for each in layouts if each.mode.groups == 1):
            mode = (layout.mode.micro_batch, layout.mode.recompute, layout.mode.sharding)
            seats, table = found.setdefault(mode, {}), field.table(layout).packed
            total, waves = float(table[1, -1]), max(1.0, batch / domains / layout.wave)
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
            way = real_way(routes, tuple((each,) for each in members), np.inf, tied=False)
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
    lines: list[list[PipelineSketch]] = []
    for seat, path, own in zip(seats, way.domains, waves, strict=True):
        shape = PlanShape(seat.layout, way, seat.stages, (own,))
        bound, cuts = refine(field, shape, NO_LIMIT)
        if not np.isfinite(bound):
            return
        lines.append([_line(field, shape, path[0], cuts, warm_up) for warm_up in warm_ups(field, shape, cuts)])
    for choice in range(max(len(options) for options in lines)):
        pipelines = tuple(options[min(choice, len(options) - 1)] for options in lines)
        yield field.tried.fitted(Candidate(pipelines, mode.micro_batch, mode.recompute, mode.sharding, (), field.sync))


def _line(field: Field, shape: PlanShape, domain: int, cuts: Ints, warm_up: tuple[int, ...]) -> PipelineSketch:
    name, layout = field.problem.cluster.domains[domain].name, shape.layout
    pairs = [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return PipelineSketch(
        tuple(StageSketch(name, pair, layout.tp, layout.dp) for pair in pairs), shape.waves[0], warm_up
    )
