"""The performance model of one problem: seconds, bytes and FLOP of any layers under any layout.

``CostModel(problem)`` is a value; times of distinct layers are computed once per (fabric, layout) and cached inside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.cost.calibration import CALIBRATION, Calibration
from hippo.cost.collectives import CollectiveGroup, Fabric, all_gather_s, moved_s, same_experts
from hippo.cost.kernels import Kernels
from hippo.cost.layers import LayerSetting, LayerTime, context_way, layer_time
from hippo.cost.measured import MeasuredCosts
from hippo.cost.memory import (
    held_parameters,
    rank_parameters,
    stage_memory,
    state_shards,
    weight_bytes,
    workspace_bytes,
)
from hippo.cost.stage import Layout, StageCost, StageMemory
from hippo.problem.model import Layer, LayerKind
from hippo.problem.problem import Problem
from hippo.problem.runtimes import CONTEXT_WAYS

Made = TypeVar("Made")


@dataclass(frozen=True)
class CostModel:
    """Costs of a problem's layers. Sums over layers are exact: a stage costs what its layers cost."""

    problem: Problem
    calibration: Calibration = CALIBRATION
    _cache: dict[Hashable, object] = field(default_factory=dict, compare=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What ``make`` says of this model's layers; asked for once under its key."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]  # type: ignore[return-value]

    @cached_property
    def distinct(self) -> tuple[tuple[Layer, ...], NDArray[np.int64]]:
        """Distinct layers (equal ones apart that were measured apart), and the position of each of N among them."""
        layers, position = self.problem.model.layers, dict[tuple[Layer, tuple[int, ...]], int]()
        marks = ((),) * len(layers) if self.measured is None else self.measured.marks
        index = [position.setdefault(key, len(position)) for key in zip(layers, marks, strict=True)]
        return tuple(layer for layer, _ in position), np.array(index, dtype=np.int64)

    @cached_property
    def measured(self) -> MeasuredCosts | None:
        """The problem's profile, which overrules formulas; None without one."""
        return MeasuredCosts.of(self.problem)

    @cached_property
    def fabrics(self) -> dict[str, Fabric]:
        """Fabric of every domain by name."""
        return {domain.name: Fabric.of(domain) for domain in self.problem.cluster.domains}

    def layer_seconds(self, domain: str, layout: Layout) -> NDArray[np.float64]:
        """Seconds (N, 3) of one micro-batch: forward, backward (input gradient, recomputation), weight gradient."""
        return self._tables(domain, layout)[:, :3]

    def chunk_seconds(self, domain: str, start: int, stop: int, layout: Layout) -> tuple[float, ...]:
        """Seconds of one micro-batch in layers [start, stop) of a chunk: forward, backward, weight gradient."""
        one = replace(layout, interleave=1)
        parts = [self.layer_seconds(domain, lay)[a:b].sum(axis=0) for a, b, lay in self._parts(start, stop, one)]
        return tuple(sum(parts[1:], parts[0]).tolist())

    def _parts(self, start: int, stop: int, layout: Layout) -> tuple[tuple[int, int, Layout], ...]:
        """Layers [start, stop) of a rank, apart where some blocks are computed again whole and others are not."""
        first, last = max(start, 1), self.problem.model.num_layers - 1
        again = layout.blocks_again(max(0, min(stop, last) - first))
        if again is None:
            return ((start, stop, layout),)
        border = min(first + again, stop)
        return (start, border, replace(layout, recompute="full")), (border, stop, replace(layout, recompute="none"))

    def stage(self, domain: str, start: int, stop: int, layout: Layout) -> StageCost:
        """Cost of layers [start, stop) on one stage; see ``StageCost`` for units."""
        parts = [(self._prefix(domain, lay), one, two) for one, two, lay in self._parts(start, stop, layout)]
        sums = sum(prefix[two] - prefix[one] for prefix, one, two in parts)
        forward, backward, weight, communication, flops = sums.tolist()
        workload = self.problem.workload
        whole = layout.micro_batch * workload.seq * self.problem.model.hidden * weight_bytes(layout.precision)
        output = None if self.measured is None else self.measured.output_bytes(layout, max(stop - 1, 0), whole)
        held = self._held(start, stop, layout)
        all_experts = sum(layer.expert_parameters for layer in self.problem.model.layers[start:stop])
        experts = all_experts / (layout.expert_tp * layout.ep)
        sync_s, optimizer_s = self._once_per_step(domain, held, experts, layout)
        measured = None if self.measured is None else held * layout.tp
        parameters = measured or sum(layer.parameters for layer in self.problem.model.layers[start:stop])
        return StageCost(
            forward_s=forward,
            backward_s=backward,
            weight_gradient_s=weight,
            output_bytes=whole if output is None else output,
            sync_s=sync_s,
            optimizer_s=optimizer_s,
            gradient_bytes=parameters * workload.gradient_bytes_per_parameter,
            parameter_bytes=parameters * weight_bytes(layout.precision),
            flops=flops,
            tp_s=communication,
            fixed_s=self.calibration.step_overhead_s,
        )

    def memory(self, domain: str, start: int, stop: int, layout: Layout, *, live: float) -> StageMemory:
        """Peak bytes of one rank that holds layers [start, stop) with ``live`` micro-batches in flight."""
        key = ("memory", self.distinct[1][start:stop].tobytes(), layout)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._memory(start, stop, layout)
        assert isinstance(found, StageMemory)
        return replace(found, live_micro_batches=live) if live else found

    def _memory(self, start: int, stop: int, layout: Layout) -> StageMemory:
        """``memory`` without any micro-batch in flight."""
        layers, workload = self.problem.model.layers[start:stop], self.problem.workload
        found = stage_memory(layers, layout, workload, self.problem.cluster.gpu, self.calibration)
        if self.measured is None or not layers:
            return found
        share = self._held(start, stop, layout) / held_parameters(layers, layout)
        activation, workspace = found.activation_bytes, found.workspace_bytes
        if layers[-1].kind is LayerKind.HEAD:  # logits may be among what was measured: not twice
            kept = self.measured.activation_bytes(layout, stop - 1, stop, otherwise=0.0)
            inner = workspace_bytes(layers[:-1], layout, workload) if layers[:-1] else 0.0
            workspace = max(inner, workspace - kept)
        return replace(
            found,
            weights_bytes=share * found.weights_bytes,
            gradients_bytes=share * found.gradients_bytes,
            optimizer_bytes=share * found.optimizer_bytes,
            activation_bytes=self.measured.activation_bytes(layout, start, stop, otherwise=activation),
            workspace_bytes=workspace,
        )

    def p2p_seconds(self, domain: str, num_bytes: float, *, same_node: bool) -> float:
        """Seconds to send ``num_bytes`` from one stage to the next inside a domain, one lane."""
        fabric, calibration = self.fabrics[domain], self.calibration
        if same_node:
            rate = fabric.intra_bytes_per_s * calibration.bus_efficiency_intra
            return num_bytes / rate + calibration.latency_intra_s
        share = fabric.inter_bytes_per_s * calibration.bus_efficiency_inter
        return num_bytes / share + fabric.inter_latency_s + calibration.latency_intra_s

    def usable_memory_bytes(self) -> float:
        """Bytes of one GPU that a plan may use."""
        return self.problem.cluster.gpu.memory_bytes

    def allowed_layouts(self) -> frozenset[tuple[int, int]] | None:
        """The (tp, micro-batch) pairs that a measured profile allows; None: any."""
        return None if self.measured is None else self.measured.layouts

    def _held(self, start: int, stop: int, layout: Layout) -> float:
        """Parameters of layers [start, stop) on one rank before any data-parallel sharding."""
        held = None if self.measured is None else self.measured.parameters(layout.tp)
        if held is not None:
            return float(held[start:stop].sum())
        return sum(rank_parameters(layer, layout) for layer in self.problem.model.layers[start:stop])

    def _kernels(self, precision: str) -> Kernels:
        return Kernels(self.problem.cluster.gpu, precision, self.calibration)

    def _tables(self, domain: str, layout: Layout) -> NDArray[np.float64]:
        """(N, 5): forward, backward, weight gradient, communication, FLOP of each layer; measured, else by formula."""
        if self.measured is None:
            return self._formulas(domain, layout)
        seconds = self.measured.seconds(layout)
        table = self._formulas(domain, layout)
        if layout.sharding in ("full", "hybrid"):  # gathers stay in no measured layer
            bare = self._formulas(domain, replace(layout, dp=1, sharding="none"))
            seconds = seconds + np.maximum(table[:, :3] - bare[:, :3], 0.0)
        return np.column_stack([seconds, np.zeros(len(seconds)), table[:, 4]])

    def _formulas(self, domain: str, layout: Layout) -> NDArray[np.float64]:
        """``_tables`` without the profile."""
        layout = _timed(layout)
        key = ("table", self.fabrics[domain], layout)
        table = self._cache.get(key)
        if table is None:
            setting = self._setting(domain, layout)
            layers, index = self.distinct
            table = np.array([_row(layer_time(layer, setting)) for layer in layers])[index]
            self._cache[key] = table
        assert isinstance(table, np.ndarray)
        return table

    def _setting(self, domain: str, layout: Layout) -> LayerSetting:
        workload, kernels = self.problem.workload, self._kernels(layout.precision)
        known = workload.software.context_way
        return LayerSetting(
            kernels,
            self.fabrics[domain],
            layout,
            workload.seq,
            workload.software,
            workload.gradient_bytes_per_parameter,
            workload.routing,
            (known,) if known else self.problem.rules.context_ways or CONTEXT_WAYS,
        )

    def context_ways(self, domain: str, layout: Layout) -> tuple[str, ...]:
        """(blocks,) the way in which the parts of a sequence meet in each block."""
        layers, index = self.distinct
        setting = self._setting(domain, layout)
        ways = [context_way(layer, setting) for layer in layers]
        return tuple(ways[kind] for kind in index[1:-1].tolist())

    def _prefix(self, domain: str, layout: Layout) -> NDArray[np.float64]:
        """(N + 1, 5): running sums of ``_tables``."""
        layout = _timed(layout)
        key = ("prefix", self.fabrics[domain], layout)
        sums = self._cache.get(key)
        if sums is None:
            sums = np.vstack([np.zeros((1, 5)), np.cumsum(self._tables(domain, layout), axis=0)])
            self._cache[key] = sums
        assert isinstance(sums, np.ndarray)
        return sums

    def _once_per_step(self, domain: str, parameters: float, experts: float, layout: Layout) -> tuple[float, float]:
        """Seconds of gradient synchronisation inside the domain, and of the optimizer with its parameter gather.

        Of the parameters on a rank those of ``experts`` are shared with one lane in ep alone.
        """
        fabric, calibration = self.fabrics[domain], self.calibration
        group = CollectiveGroup(layout.dp * layout.cp, layout.tp)
        alike = same_experts(layout.dp * layout.cp * layout.tp, layout.expert_tp * layout.ep)
        each = self.problem.workload.gradient_bytes_per_parameter
        shards = state_shards(layout)[2]
        apart = max(1.0, shards * layout.tp / (layout.expert_tp * layout.ep)) if shards > 1 else 1.0
        updated = (parameters - experts) / shards + experts / apart
        moved = updated * calibration.optimizer_bytes_per_parameter
        optimizer_s = self._kernels(layout.precision).memory_s(moved)
        if layout.sharding in ("full", "hybrid"):
            return 0.0, optimizer_s
        exposed = calibration.exposed_dp if self.problem.workload.software.overlap_dp else 1.0
        dense = parameters - experts

        def around(num_bytes: float) -> float:
            once = all_gather_s(dense * num_bytes, group, fabric, calibration)
            return (once + moved_s(experts * num_bytes, alike, fabric, calibration)) * exposed

        if layout.sharding == "none":
            return 2 * around(each), optimizer_s
        # Each rank needs the gradients of its shard: a reduce-scatter suffices (Rajbhandari et al. 2020, section 7).
        return around(each), optimizer_s + around(weight_bytes(layout.precision))


def _timed(layout: Layout) -> Layout:
    """The layout without what the seconds of a layer do not depend on, so that fewer tables are made."""
    gathered = layout.sharding in ("full", "hybrid")
    dp, sharding = (layout.dp, layout.sharding) if gathered else (1, "none")
    if (layout.dp, layout.sharding, layout.num_stages, layout.replicas, layout.interleave) == (dp, sharding, 1, 1, 1):
        return layout
    return replace(layout, dp=dp, sharding=sharding, num_stages=1, replicas=1, interleave=1)


def _row(time: LayerTime) -> tuple[float, float, float, float, float]:
    return time.forward_s, time.backward_s, time.weight_s, time.communication_s, time.flops
