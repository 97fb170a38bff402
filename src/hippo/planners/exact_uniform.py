"""Pipelines whose stages all lie alike: every layout, every number of stages, best bound first.

For one domain alone this is the whole space and the bound is proven; over several domains it finds the plans that
``exact_mixed`` then tries to beat. Letters: p stages, n domains, m waves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from hippo.planners.bounds import room_for, uniform_bound
from hippo.planners.exact_field import Field, Path
from hippo.planners.exact_judge import Candidate
from hippo.planners.exact_layouts import Layout
from hippo.planners.placement import PipelineSketch, StageSketch

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shape:
    """A layout on a path with ``stages`` stages in every domain."""

    layout: Layout
    path: Path
    stages: int
    waves: int

    def delays(self, field: Field) -> Floats:
        """(p,) round trip between each stage and the one before."""
        hop = field.tables.table(self.layout.kind, self.layout.tp, self.layout.dp, self.layout.mode).hop_s
        delays = np.full((len(self.path.pace), self.stages), 2 * hop)
        delays[:, 0] = self.path.delays(self.layout.wave * field.wave_bytes)
        return delays.ravel()


def shapes(field: Field, kind: int, paths: list[Path]) -> tuple[list[tuple[Layout, Path]], Floats, NDArray[np.int64]]:
    """Every (layout, path) pair, and for every shape its bound and its (pair, stages per domain), best bound first.

    The bound: one wave's round trip and the slowest link for all others, or the work of p stages with the bubble that
    no cut avoids, ``C / (1 - (1 - 1/m)^p)`` (docs/exact.md, bound 4).
    """
    tables, batch, layers = field.tables, field.problem.workload.global_batch, field.problem.model.num_layers
    pairs, bounds, rows = [], [], []
    for layout in field.layouts[kind]:
        total = float(tables.times(kind, layout.tp, layout.dp, layout.mode)[1][-1])
        kept = float(tables.kept(kind, layout.tp, layout.dp, layout.mode.sharding)[-1])
        once, fixed = tables.once(kind, layout.tp, layout.dp, layout.mode.sharding)
        waves, wave_bytes = batch // layout.wave, layout.wave * field.wave_bytes
        for path in paths:
            n = len(path.pace)
            if n > 1 and layout.mode.sharding == "gradients":
                continue
            per_domain = np.arange(1, min(layout.stages, layers // n) + 1)
            p = n * per_domain
            per_domain, p = per_domain[p * tables.usable_bytes > kept], p[p * tables.usable_bytes > kept]
            trip = total + float(path.delays(wave_bytes).sum()) + (waves - 1) * wave_bytes * path.slowest
            work = total / -np.expm1(p * np.log1p(-1.0 / waves)) if waves > 1 else np.full(len(p), total)
            bounds.append(np.maximum(trip, work) + float(once[1]) + fixed + path.tail_s)
            rows.append(np.stack([np.full(len(p), len(pairs)), per_domain], axis=1))
            pairs.append((layout, path))
    if not pairs:
        return [], np.empty(0), np.empty((0, 2), np.int64)
    bound, row = np.concatenate(bounds), np.concatenate(rows)
    order = np.argsort(bound, kind="stable")
    return pairs, bound[order], row[order]


def search(field: Field, kind: int, paths: list[Path], *, most_plays: int) -> float:
    """Plays shapes, best bound first, until none can win; returns the least bound of what is not settled (inf: nothing)."""
    pairs, bounds, rows = shapes(field, kind, paths)
    judge, ticket = field.judge, count()
    refined: list[tuple[float, int, Shape, NDArray[np.int64]]] = []
    unsettled, plays, at = np.inf, 0, 0
    while plays < most_plays and not judge.out_of_time:
        # What has been refined waits until no rougher bound is lower.
        while at < len(bounds) and bounds[at] < min(refined[0][0] if refined else np.inf, judge.value):
            pair, stages = rows[at].tolist()
            layout, path = pairs[pair]
            shape = Shape(layout, path, stages, field.problem.workload.global_batch // layout.wave)
            bound, cuts = refine(field, shape, judge.value)
            if np.isfinite(bound):
                heapq.heappush(refined, (bound, next(ticket), shape, cuts))
            else:
                judge.rejected["out of memory" if judge.value == np.inf else "cannot beat the best plan (bound)"] += 1
            at += 1
        if not refined or refined[0][0] >= judge.value:
            break
        bound, _, shape, cuts = heapq.heappop(refined)
        value = play(field, shape, cuts, bound)
        plays += 1
        if value > bound * (1 + 1e-9):
            unsettled = min(unsettled, bound)
    judge.rejected["cannot beat the best plan (bound)"] += len(bounds) - at
    waiting = min(refined[0][0] if refined else np.inf, bounds[at] if at < len(bounds) else np.inf)
    return min(unsettled, waiting)


def refine(field: Field, shape: Shape, ceiling: float) -> tuple[float, NDArray[np.int64]]:
    """Least step time of the shape over all cuts, and those cuts; inf: no cut fits, or none is below ``ceiling``."""
    layout, path = shape.layout, shape.path
    table = field.tables.table(layout.kind, layout.tp, layout.dp, layout.mode).packed
    cuts = np.zeros(shape.stages * len(path.pace) + 1, np.int64)
    slowest = path.slowest * layout.wave * field.wave_bytes
    ceiling = min(ceiling, 1e15)
    usable = field.tables.usable_bytes
    bound = uniform_bound(table, shape.delays(field), shape.waves, slowest, path.tail_s, usable, ceiling, cuts)
    return float(bound), cuts


def play(field: Field, shape: Shape, cuts: NDArray[np.int64], bound: float) -> float:
    """Best value over the depths of run-ahead worth trying."""
    best = np.inf
    for live_limit in depths(field, shape, cuts, bound):
        best = min(best, field.judge.play(candidate(field, shape, cuts.tolist(), live_limit)))
        if best <= bound * (1 + 1e-9):
            break
    return best


def depths(field: Field, shape: Shape, cuts: NDArray[np.int64], bound: float) -> Iterator[int | None]:
    """Limits of live micro-batches to try: none, then what one round trip takes at the pace of the bound, as memory allows."""
    yield None
    if not field.rules.live_limit:
        return
    layout, p = shape.layout, len(cuts) - 1
    table = field.tables.table(layout.kind, layout.tp, layout.dp, layout.mode).packed
    rooms = [room_for(table, field.tables.usable_bytes, cuts[i], cuts[i + 1]) * p // (p - i) for i in range(p)]
    most, pace = min(*rooms, shape.waves * p) if p > 1 else p, bound / shape.waves
    # Slack of d waves at a hop lets it pass d + 1 waves per round trip between its two stages.
    seconds = table[1, cuts[1:]] - table[1, cuts[:-1]]
    trips = seconds[1:] + seconds[:-1] + shape.delays(field)[1:]
    slack = int(np.ceil(np.max(trips, initial=0.0) / pace)) - 1
    wanted = [slack * p, (slack - 1) * p, slack * p - p // 2]
    yield from dict.fromkeys(limit for limit in wanted if p < limit <= most)
    if p < most < slack * p:
        yield from dict.fromkeys((most, most // p * p) if most > 2 * p else (most,))


def candidate(field: Field, shape: Shape, cuts: list[int], live_limit: int | None) -> Candidate:
    """The shape with these cuts as a candidate."""
    layout, names = shape.layout, [domain.name for domain in field.problem.cluster.domains]
    stages = tuple(
        StageSketch(names[shape.path.domains[i // shape.stages]], (cuts[i], cuts[i + 1]), layout.tp, layout.dp)
        for i in range(len(cuts) - 1)
    )
    mode = layout.mode
    line = PipelineSketch(stages, shape.waves)
    return Candidate((line,), mode.micro_batch, mode.recompute, mode.sharding, live_limit, shape.path.relays)
