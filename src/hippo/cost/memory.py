"""Bytes a rank keeps: weights, gradients, optimizer state, activations (Korthikanti et al. 2022, section 4), more."""

from __future__ import annotations

from hippo.cost.stage import Layout
from hippo.problem.model import Layer, LayerKind
from hippo.problem.workload import Workload

WEIGHT_BYTES = {"fp32": 4.0}


def weight_bytes(precision: str) -> float:
    """Bytes of one stored weight (fp8 training keeps 16-bit weights)."""
    return WEIGHT_BYTES.get(precision, 2.0)


def rank_parameters(layer: Layer, layout: Layout) -> float:
    """Parameters of the layer on one rank before any data-parallel sharding."""
    dense = layer.parameters - layer.expert_parameters
    return dense / layout.tp + layer.expert_parameters / (layout.tp * layout.ep)


def state_shards(layout: Layout) -> tuple[float, float, float]:
    """Ranks over which (weights, gradients, optimizer state) are sharded."""
    inside, world = layout.dp * layout.cp, max(layout.replicas, layout.dp) * layout.cp
    if layout.sharding == "none":
        return 1.0, 1.0, 1.0
    if layout.sharding == "optimizer":
        return 1.0, 1.0, float(inside)
    if layout.sharding == "gradients":
        return 1.0, float(inside), float(inside)
    ranks = float(world if layout.sharding == "full" else inside)
    return ranks, ranks, ranks


def activation_bytes(layer: Layer, layout: Layout, seq: int, *, flash: bool) -> float:
    """Bytes that one micro-batch leaves on a rank between forward and backward of the layer."""
    tokens, h, tp = layout.micro_batch * seq / layout.cp, layer.hidden, layout.tp
    wide = 4.0 if layout.precision == "fp32" else 2.0
    split = tp if layout.sequence_parallel else 1
    if layer.kind is not LayerKind.BLOCK:
        return wide * tokens * h / split
    if layout.recompute == "full":
        return wide * tokens * h / split
    att, ff = layer.attention, layer.feed_forward
    outside = tokens * h * (4 * wide + 2) / split  # inputs of norms and of both halves, two dropout masks
    heads = att.heads * att.head_dim if att else 0
    keys = 2 * att.kv_heads * att.head_dim if att else 0
    attention = wide * tokens * (2 * heads + keys) / tp
    quadratic = (2 * wide + 1) * tokens * seq * (att.heads if att else 0) / tp
    attention += 0.0 if flash or layout.recompute == "selective" else quadratic
    width = 0.0 if ff is None else float(ff.width if ff.experts is None else ff.experts.width * ff.experts.per_token)
    return outside + attention + wide * tokens * width * (3 if ff is not None and ff.gated else 2) / tp


def workspace_bytes(layers: tuple[Layer, ...], layout: Layout, seq: int) -> float:
    """Largest temporary: fp32 logits of the head, or the gathered parameters of a layer."""
    tokens = layout.micro_batch * seq / layout.cp
    logits = max((8.0 * tokens * la.vocab / layout.tp for la in layers if la.kind is LayerKind.HEAD), default=0.0)
    gathered = 0.0
    if layout.sharding in ("full", "hybrid"):
        gathered = 2 * 2.0 * max(rank_parameters(la, layout) for la in layers)
    return logits + gathered


def state_bytes(layers: tuple[Layer, ...], layout: Layout, workload: Workload) -> tuple[float, float, float]:
    """Bytes of (weights, gradients, optimizer state) on one rank."""
    parameters = sum(rank_parameters(layer, layout) for layer in layers)
    weight, gradient = weight_bytes(layout.precision), workload.gradient_bytes_per_parameter
    optimizer = max(0.0, workload.state_bytes_per_parameter - weight - gradient)
    w, g, o = state_shards(layout)
    return parameters * weight / w, parameters * gradient / g, parameters * optimizer / o
