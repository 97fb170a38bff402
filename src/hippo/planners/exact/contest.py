"""Shapes in a contest for the least bound over all cuts: none is settled further than that takes.

Letters: S shapes, L layouts of a kind, W ways to join, n domains per group of the longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.cost.money import rent_usd_per_s
from hippo.planners.exact.bounds import Courses, Entries, Sorts, Standing, settle
from hippo.planners.exact.field import Field
from hippo.planners.exact.ways import Way

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False)
class Contest:
    """Shapes of one kind on some ways, the least rough bound first."""

    field: Field
    sorts: Sorts
    courses: Courses
    entries: Entries
    standing: Standing
    begun: int = 0  # shapes that were looked at

    @classmethod
    def of(cls, field: Field, kind: int, ways: list[Way], rough: Floats, keys: Ints) -> Contest:
        """``rough`` (S,) and ``keys`` (S, 3) from ``exact_uniform.shapes``."""
        if field.problem.uniform_cuts:  # those that no equal cuts have stay out
            stages = np.array([way.span for way in ways])[keys[:, 1]] * keys[:, 2]
            fit = stages <= field.problem.model.num_layers - 2
            rough, keys = rough[fit], keys[fit]
        size = len(rough)
        standing = Standing(
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
        numbers = field.problem.workload.global_batch, field.rules.live_limit, field.tables.usable_bytes
        arrays = self.sorts, self.courses, self.entries, self.standing
        best, self.begun = settle(*arrays, self.begun, *numbers, field.wave_bytes, ceiling, found)
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


def courses(field: Field, ways: list[Way]) -> Courses:
    """The ways as the kernel takes them."""
    longest = max(way.span for way in ways)
    latency, pace, sync = (np.zeros((len(ways), *rest, longest)) for rest in ((3,), (3,), ()))
    for w, way in enumerate(ways):
        latency[w, :, : way.span] = way.before_s, way.after_s, way.down_s
        pace[w, :, : way.span] = way.before_pace, way.after_pace, way.down_pace
        sync[w, : way.span] = field.sync_s(way)
    return Courses(
        np.array([way.span for way in ways]),
        np.array([way.groups for way in ways]),
        np.array([field.splits(way) for way in ways]),
        latency,
        pace,
        np.array([way.slowest for way in ways], dtype=np.float64),
        np.array([field.tail_s(way) for way in ways], dtype=np.float64),
        sync,
    )


def _entries(field: Field, kind: int, ways: list[Way], rough: Floats, keys: Ints) -> Entries:
    """Shapes with their price by the objective; of the money, no more than its least egress."""
    if field.problem.objective.name != "cost":
        return Entries(keys, rough, np.ones(len(rough)), np.zeros(len(rough)))
    size, egress = (np.array(each) for each in ([w.size for w in ways], [field.least_egress_usd(w) for w in ways]))
    gpus = size[keys[:, 1]] * keys[:, 2] * field.layout_rows(kind).lane[keys[:, 0]]
    rent = np.array([rent_usd_per_s(field.problem.cluster.gpu, each) for each in gpus.tolist()])
    return Entries(keys, rough, rent, egress[keys[:, 1]])
