"""What domains that lie differently share in one pipeline, and whether that can be done within a limit on some way.

A *family* is what all stages of a plan share: sequences of a wave, recomputation, sharding. A dynamic program
(``bounds.mixed_fits``) tells whether a step within a limit is possible. Letters: O options (layouts) of a family, N
layers, n domains, m waves; M as in ``lineups``.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field

import numpy as np
from numpy.typing import NDArray

from hippo.planners.effort import FIT_S, Effort
from hippo.planners.exact.bounds import Borders, Options, StepLimits, done_by, mixed_fits
from hippo.planners.exact.layouts import DomainLayout, in_chains
from hippo.planners.exact.lineups import Mixes, Steps
from hippo.planners.exact.space import Field, early_share
from hippo.planners.exact.ways import DomainWay, sent_pace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
