"""What one domain can do, as arrays that bounds are computed from: prefix sums over the layers, one table per layout.

Letters: N layers. A prefix ``x`` has shape (N + 1,) and layers [start, stop) cost ``x[stop] - x[start]``. Everything
here is read off ``cost.cost_model``; ``tests/planners/exact/test_search.py`` holds the tables against it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.cost.collectives import Fabric
from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout, StageCost, StageMemory
from hippo.problem.cluster import Domain
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
Each = TypeVar("Each")


@dataclass(frozen=True)
class Mode:
    """What all stages of a plan share."""

    micro_batch: int  # sequences per rank and micro-batch at the pipeline's first stage
    recompute: str
    sharding: str


@dataclass(frozen=True, eq=False)
class LayerTable:
    """Prefix sums of one layout; ``live`` micro-batches of layers [a, b) fit when
    ``kept + live * activation + max(workspace[a], workspace[b - 1]) <= usable``."""

    forward_s: Floats  # (N + 1,) per wave
    total_s: Floats  # (N + 1,) forward, backward and weight gradient per wave
    trip_s: Floats  # (N + 1,) what a wave's round trip takes: without the weight gradient where that may come later
    kept_bytes: Floats  # (N + 1,)
    activation_bytes: Floats  # (N + 1,) of one micro-batch
    workspace_bytes: Floats  # (N,) with the reserved bytes
    once_s: Floats  # (N + 1,) synchronisation inside the domain and optimizer, per step
    once_fixed_s: float  # the part that does not grow with the layers
    hop_s: float  # least delay of one message between two stages of the domain
    share: Floats  # (N + 1,) of the model's gradient bytes

    @property
    def _least_workspace(self) -> Floats:
        """(N,) no more than any stage with the layer needs, and never less for a longer stage: that of the least layer,
        and of the last one."""
        least = np.full(len(self.workspace_bytes), self.workspace_bytes.min())
        least[:-1] = self.workspace_bytes[1:-1].min(initial=np.inf) if len(least) > 2 else least[:-1]
        least[-1] = self.workspace_bytes[-1]
        return np.asarray(np.minimum(least, self.workspace_bytes.max()))

    @cached_property
    def fused(self) -> Floats:
        """``packed`` where the backward is one operation: all of it lies on the round trip."""
        table = self.packed.copy()
        table[8] = table[1]
        return table

    @cached_property
    def packed(self) -> Floats:
        """(9, N + 1) as the kernels of ``bounds`` take it: seconds, bytes, once per step, shares, the round trip."""
        size = len(self.total_s)
        fixed = np.full(size, self.once_fixed_s)
        rows = (self.forward_s, self.total_s, self.kept_bytes, self.activation_bytes)
        return np.stack([*rows, np.append(self._least_workspace, 0.0), self.once_s, fixed, self.share, self.trip_s])


@dataclass(frozen=True, eq=False)
class Tables:
    """All layouts of one problem, each built when asked for."""

    problem: Problem
    model: CostModel
    split: bool = True  # weight gradients may come later than their input gradients
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, problem: Problem, *, split: bool = False) -> Tables:
        """Tables with a cost model of their own; ``split``: see the field."""
        return cls(problem, CostModel(problem), split)

    def shared(self, key: Hashable, make: Callable[[], Each]) -> Each:
        """What ``make`` says of the problem's domains and layers, not of its links: asked for once."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]  # type: ignore[return-value]

    @property
    def usable_bytes(self) -> float:
        """Bytes of one GPU that a plan may use."""
        return self.model.usable_memory_bytes()

    @cached_property
    def wave_bytes_per_sequence(self) -> float:
        """Bytes one sequence sends over a cut, each way (the least, where a profile says that cuts differ)."""
        name = self.problem.cluster.domains[0].name
        layout = self._layout(1, 1, Mode(1, "none", "none"))
        return min(self._per_layer(lambda i: self.model.stage(name, i, i + 1, layout).output_bytes))

    @cached_property
    def gradient_bytes(self) -> float:
        """Gradients of one replica of the whole model."""
        name = self.problem.cluster.domains[0].name
        layers = self.problem.model.num_layers
        return self.model.stage(name, 0, layers, self._layout(1, 1, Mode(1, "none", "none"))).gradient_bytes

    @cached_property
    def share(self) -> Floats:
        """(N + 1,) prefix sums of every layer's share of the gradient bytes."""
        parameters = np.array([layer.parameters for layer in self.problem.model.layers], dtype=np.float64)
        return _prefix(parameters / parameters.sum())

    @cached_property
    def blocks_share(self) -> float:
        """Share of the gradient bytes that lies in blocks where these are all alike, else 0: bounds on what agrees
        while others work take the bytes of a layer to grow with its seconds."""
        alike = len(set(self.problem.model.layers[1:-1])) == 1
        return float(self.share[-2] - self.share[1]) if alike else 0.0

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Domains of equal size and fabric share a number."""
        known: dict[object, int] = {}
        return tuple(known.setdefault(_kind(domain), len(known)) for domain in self.problem.cluster.domains)

    @cached_property
    def examples(self) -> tuple[Domain, ...]:
        """One domain of each kind."""
        first = {kind: index for index, kind in reversed(list(enumerate(self.kinds)))}
        return tuple(self.problem.cluster.domains[first[kind]] for kind in range(len(first)))

    def _layout(self, tp: int, dp: int, mode: Mode) -> Layout:
        precision = self.problem.workload.precision
        return Layout(tp, dp, mode.micro_batch, recompute=mode.recompute, sharding=mode.sharding, precision=precision)

    def times(self, kind: int, tp: int, dp: int, mode: Mode) -> tuple[Floats, Floats, Floats]:
        """Prefix sums (N + 1,) of seconds per wave: forward, everything, and what a round trip takes."""
        gathered = mode.sharding in ("full", "hybrid") and dp > 1
        key = ("times", kind, tp, dp if gathered else 1, mode.micro_batch, mode.recompute, gathered)
        if key not in self._cache:
            plain = mode if gathered else Mode(mode.micro_batch, mode.recompute, "none")
            seconds = self.model.layer_seconds(self.examples[kind].name, self._layout(tp, dp if gathered else 1, plain))
            total = _prefix(seconds.sum(axis=1))
            trip = _prefix(seconds[:, :2].sum(axis=1)) if self.split else total
            self._cache[key] = (_prefix(seconds[:, 0]), total, trip)
        return self._cache[key]  # type: ignore[return-value]

    def table(self, kind: int, tp: int, dp: int, mode: Mode) -> LayerTable:
        """Everything about one layout; see ``LayerTable``."""
        key = ("table", kind, tp, dp, mode)
        if key not in self._cache:
            forward, total, trip = self.times(kind, tp, dp, mode)
            once, fixed = self.once(kind, tp, dp, mode.sharding)
            lane_bytes = mode.micro_batch * self.wave_bytes_per_sequence
            name, size = self.examples[kind].name, lane_bytes / tp
            hop = min(self.model.p2p_seconds(name, size, same_node=near) for near in (True, False))
            self._cache[key] = LayerTable(
                forward,
                total,
                trip,
                self.kept(kind, tp, dp, mode.sharding),
                self.activation(kind, tp, mode),
                self._workspace(kind, tp, dp, mode),
                once,
                fixed,
                hop,
                self.share,
            )
        return self._cache[key]  # type: ignore[return-value]

    def kept(self, kind: int, tp: int, dp: int, sharding: str) -> Floats:
        """Prefix sums (N + 1,) of weights, gradients and optimizer state of one rank."""
        key = ("kept", kind, tp, dp, sharding)
        if key not in self._cache:
            layout = self._layout(tp, dp, Mode(1, "none", sharding))
            memories = self._per_layer(lambda i: self._memory(kind, i, layout))
            self._cache[key] = _prefix(
                np.array([m.weights_bytes + m.gradients_bytes + m.optimizer_bytes for m in memories])
            )
        return self._cache[key]  # type: ignore[return-value]

    def _workspace(self, kind: int, tp: int, dp: int, mode: Mode) -> Floats:
        """Workspace and reserved bytes (N,) of a stage of one layer."""
        gathered = mode.sharding in ("full", "hybrid") and dp > 1
        key = ("workspace", kind, tp, mode.micro_batch, gathered)
        if key not in self._cache:
            layout = self._layout(tp, dp if gathered else 1, Mode(mode.micro_batch, "none", mode.sharding))
            memories = self._per_layer(lambda i: self._memory(kind, i, layout))
            self._cache[key] = np.array([m.workspace_bytes + m.reserved_bytes for m in memories])
        return self._cache[key]  # type: ignore[return-value]

    def activation(self, kind: int, tp: int, mode: Mode) -> Floats:
        """Prefix sums (N + 1,) of what one micro-batch leaves on a rank."""
        key = ("activation", kind, tp, mode.micro_batch, mode.recompute)
        if key not in self._cache:
            layout = self._layout(tp, 1, mode)
            memories = self._per_layer(lambda i: self._memory(kind, i, layout))
            self._cache[key] = _prefix(np.array([m.activation_bytes for m in memories]))
        return self._cache[key]  # type: ignore[return-value]

    def once(self, kind: int, tp: int, dp: int, sharding: str) -> tuple[Floats, float]:
        """Seconds once per step as prefix plus a constant: the cost model's are affine in the layers."""
        key = ("once", kind, tp, dp, sharding)
        if key not in self._cache:
            name, layout = self.examples[kind].name, self._layout(tp, dp, Mode(1, "none", sharding))
            count = self.problem.model.num_layers
            single = self._per_layer(lambda i: _once(self.model.stage(name, i, i + 1, layout)))
            fixed = (sum(single) - _once(self.model.stage(name, 0, count, layout))) / max(1, count - 1)
            self._cache[key] = (_prefix(np.array(single) - fixed), fixed)
        return self._cache[key]  # type: ignore[return-value]

    def profiled_recompute(self, tp: int, micro_batch: int) -> tuple[str, ...]:
        """Degrees of recomputation that the problem's profile has rows for."""
        profile = self.problem.profile
        assert profile is not None
        rows = (row for row in profile.rows if (row.tp, row.micro_batch) == (tp, micro_batch))
        return tuple(dict.fromkeys(row.recompute for row in rows))

    def _memory(self, kind: int, layer: int, layout: Layout) -> StageMemory:
        return self.model.memory(self.examples[kind].name, layer, layer + 1, layout, live=1)

    def _per_layer(self, value: Callable[[int], Each]) -> list[Each]:
        """``value(i)`` for every layer, computed once per distinct layer."""
        known: dict[int, Each] = {}
        out = []
        for position, which in enumerate(self.model.distinct[1].tolist()):
            if which not in known:
                known[which] = value(position)
            out.append(known[which])
        return out


def divisors(number: int) -> list[int]:
    """Divisors of a positive integer, increasing."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _kind(domain: Domain) -> object:
    return domain.nodes, Fabric.of(domain)


def _once(cost: StageCost) -> float:
    return cost.sync_s + cost.optimizer_s + cost.fixed_s


def _prefix(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])
