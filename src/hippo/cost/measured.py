"""Measured layers in place of formulas: what a profile says about the layers of a problem under a layout.

A measured row is the whole layer on one device: tensor-parallel collectives and recomputation are in its seconds. Not
in it are the gathers of fully sharded parameters, which are added, and what happens once per step. Layouts without rows
take endless time. N layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.cost.memory import weight_bytes
from hippo.cost.stage import Layout
from hippo.problem.problem import Problem
from hippo.problem.profile import ProfileRow

ENDLESS_S = 1e30
"""Seconds of a layer that was not measured: never chosen, and sums of it can still be subtracted."""

Floats = NDArray[np.float64]
Key = tuple[int, int, str]  # tp, micro-batch, recomputation


@dataclass(frozen=True, eq=False)
class MeasuredCosts:
    """Rows of the problem's GPU by layout, one per layer."""

    rows: Mapping[Key, tuple[ProfileRow, ...]]  # each (N,)
    precision: str
    num_layers: int

    @classmethod
    def of(cls, problem: Problem) -> MeasuredCosts | None:
        """What the problem's profile holds; None without a profile. Layouts that miss a layer are left out."""
        profile, layers = problem.profile, problem.model.layers
        if profile is None:
            return None
        found: dict[Key, dict[int | str | None, ProfileRow]] = {}
        for row in profile.rows:
            if row.gpu == problem.cluster.gpu.name:
                same = found.setdefault((row.tp, row.micro_batch, row.recompute), {})
                same[row.layer_kind if row.layer_index is None else row.layer_index] = row
        whole = {
            key: tuple(one for i, layer in enumerate(layers) if (one := same.get(i, same.get(layer.kind.value))))
            for key, same in found.items()
        }
        complete = {key: rows for key, rows in whole.items() if len(rows) == len(layers)}
        return cls(complete, profile.precision, len(layers))

    @property
    def layouts(self) -> frozenset[tuple[int, int]]:
        """The (tp, micro-batch) pairs that were measured."""
        return frozenset((tp, micro_batch) for tp, micro_batch, _ in self.rows)

    @cached_property
    def marks(self) -> tuple[tuple[int, ...], ...]:
        """(N,) equal for layers that measure the same in every layout."""
        columns = zip(*self.rows.values(), strict=True) if self.rows else [()] * self.num_layers
        known: dict[tuple[float, ...], int] = {}
        return tuple(tuple(known.setdefault(_figures(row), len(known)) for row in column) for column in columns)

    def seconds(self, layout: Layout) -> Floats:
        """(N, 3) forward, backward, weight gradient of one micro-batch; endless where nothing was measured."""
        rows = self._of(layout)
        if rows is None:
            return np.full((self.num_layers, 3), ENDLESS_S)
        return np.array([(row.forward_s, row.backward_s, row.weight_gradient_s or 0.0) for row in rows])

    def activation_bytes(self, layout: Layout, start: int, stop: int, *, otherwise: float) -> float:
        """Bytes that one micro-batch leaves on a device in layers [start, stop); ``otherwise``: not measured."""
        rows = self._of(layout)
        return otherwise if rows is None else sum(row.activation_bytes for row in rows[start:stop])

    def output_bytes(self, layout: Layout, layer: int, whole: float) -> float | None:
        """Bytes that one lane hands on after a layer, per micro-batch; None: not measured.

        Devices may hold the activation in full or a share each: shares are put together until they make ``whole``
        bytes. A micro-batch without rows is scaled from one that has some.
        """
        near = self._near(layout.tp, layout.micro_batch)
        if near is None:
            return None
        (tp, micro_batch, _), rows = near
        scale = layout.micro_batch / micro_batch
        held = rows[layer].output_bytes * scale
        return max(held, min(tp * held, whole))

    def parameters(self, tp: int) -> Floats | None:
        """(N,) parameters that one device holds of every layer at this width; None: nothing was measured."""
        near = self._near(tp, 1)
        if near is None:
            return None
        (other, _, _), rows = near
        return np.array([row.parameter_bytes for row in rows]) / weight_bytes(self.precision) * (other / tp)

    def _of(self, layout: Layout) -> tuple[ProfileRow, ...] | None:
        if layout.cp > 1 or layout.ep > 1 or layout.precision != self.precision:
            return None
        return self.rows.get((layout.tp, layout.micro_batch, layout.recompute))

    def _near(self, tp: int, micro_batch: int) -> tuple[Key, tuple[ProfileRow, ...]] | None:
        """The rows of this width, else of the nearest; among them of the micro-batch, else of the nearest."""

        def distance(key: Key) -> tuple[float, float, str]:
            return abs(np.log(key[0] / tp)), abs(np.log(key[1] / micro_batch)), key[2]

        best = min(self.rows, key=distance, default=None)
        return None if best is None else (best, self.rows[best])


def _figures(row: ProfileRow) -> tuple[float, ...]:
    seconds = row.forward_s, row.backward_s, row.weight_gradient_s or 0.0
    return (*seconds, row.parameter_bytes, row.activation_bytes, row.output_bytes)
