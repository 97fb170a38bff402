"""What one layer costs one rank per micro-batch: seconds of forward, backward, weight gradient and communication."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.cost.collectives import Fabric, Group, all_gather_s, all_reduce_s, all_to_all_s
from hippo.cost.kernels import Kernels
from hippo.cost.stage import Layout
from hippo.problem.model import Layer, LayerKind


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and one micro-batch on one rank."""

    forward_s: float
    backward_s: float  # input gradient and recomputation
    weight_s: float
    communication_s: float  # of the three: exposed communication
    flops: float  # model FLOPs of one dp lane, forward and backward


@dataclass(frozen=True)
class Setting:
    """Everything a layer's time depends on besides the layer."""

    kernels: Kernels
    fabric: Fabric
    layout: Layout
    seq: int

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank."""
        return self.layout.micro_batch * self.seq / self.layout.cp

    @property
    def norm_tokens(self) -> float:
        """Tokens that norms, dropouts and residual adds of one rank see."""
        return self.tokens / (self.layout.tp if self.layout.sequence_parallel else 1)


def matrices(layer: Layer, setting: Setting) -> list[tuple[float, float, float, float]]:
    """Matrix products of the forward pass of one rank: (m, n, k, how many)."""
    tp, tokens, h = setting.layout.tp, setting.tokens, layer.hidden
    if layer.kind is LayerKind.EMBEDDING:
        return []
    if layer.kind is LayerKind.HEAD:
        return [(tokens, layer.vocab / tp, h, 1)]
    return _attention_matrices(layer, tokens, tp) + _feed_forward_matrices(layer, setting)


def _attention_matrices(layer: Layer, tokens: float, tp: int) -> list[tuple[float, float, float, float]]:
    att, h = layer.attention, layer.hidden
    if att is None:
        return []
    if att.latent is not None:
        lat = att.latent
        q_dim = lat.qk_nope_head_dim + lat.qk_rope_head_dim
        rank = lat.q_lora_rank or h
        down = [] if lat.q_lora_rank is None else [(tokens, rank, h, 1)]
        return [
            *down,
            (tokens, att.heads * q_dim / tp, rank, 1),
            (tokens, lat.kv_lora_rank + lat.qk_rope_head_dim, h, 1),
            (tokens, att.heads * (lat.qk_nope_head_dim + lat.v_head_dim) / tp, lat.kv_lora_rank, 1),
            (tokens, h, att.heads * lat.v_head_dim / tp, 1),
        ]
    queries, keys = att.heads * att.head_dim, max(att.kv_heads, tp) * att.head_dim
    return [(tokens, (queries + 2 * keys) / tp, h, 1), (tokens, h, queries / tp, 1)]


def _feed_forward_matrices(layer: Layer, setting: Setting) -> list[tuple[float, float, float, float]]:
    ff, h, tp, tokens = layer.feed_forward, layer.hidden, setting.layout.tp, setting.tokens
    if ff is None:
        return []
    wide = 2 if ff.gated else 1
    if ff.experts is None:
        return [(tokens, wide * ff.width / tp, h, 1), (tokens, h, ff.width / tp, 1)]
    experts, ep = ff.experts, setting.layout.ep
    local = max(1.0, experts.count / ep)
    each = tokens * experts.per_token / local
    shared = experts.shared_width if experts.shared_width is not None else experts.shared * experts.width
    products = [
        (tokens, experts.count, h, 1),
        (each, wide * experts.width / tp, h, local),
        (each, h, experts.width / tp, local),
    ]
    return products + ([(tokens, wide * shared / tp, h, 1), (tokens, h, shared / tp, 1)] if shared else [])


def attention_flops(layer: Layer, setting: Setting) -> float:
    """FLOP of the causal attention core of one rank, forward: half of the full square."""
    att = layer.attention
    if att is None:
        return 0.0
    dims = 2 * att.head_dim
    if att.latent is not None:
        dims = att.latent.qk_nope_head_dim + att.latent.qk_rope_head_dim + att.latent.v_head_dim
    return 2.0 * setting.tokens * setting.seq * att.heads * dims / setting.layout.tp / 2


def elementwise_bytes(layer: Layer, setting: Setting) -> float:
    """Bytes that elementwise kernels of the forward pass move on one rank (16-bit activations)."""
    h, tp = layer.hidden, setting.layout.tp
    if layer.kind is LayerKind.EMBEDDING:
        return 4.0 * setting.norm_tokens * h
    if layer.kind is LayerKind.HEAD:
        return 4.0 * setting.norm_tokens * h + 12.0 * setting.tokens * layer.vocab / tp
    norms = 2 * 4.0 + 2 * 6.0  # two norms (read, write), two residual adds with dropout (two reads, one write)
    ff = layer.feed_forward
    width = 0.0 if ff is None else float(ff.width if ff.experts is None else ff.experts.width * ff.experts.per_token)
    inner = (3 if ff is not None and ff.gated else 2) * 2.0 * width / tp
    return setting.norm_tokens * h * norms + setting.tokens * inner


def layer_time(layer: Layer, setting: Setting) -> LayerTime:
    """Seconds of one layer, see ``LayerTime``."""
    kernels, layout = setting.kernels, setting.layout
    products = matrices(layer, setting)
    forward_gemm = sum(count * kernels.gemm_s(m, n, k) for m, n, k, count in products)
    input_gemm = sum(count * kernels.gemm_s(m, k, n) for m, n, k, count in products)
    weight_gemm = sum(count * kernels.gemm_s(k, n, m) for m, n, k, count in products)
    core_flops = attention_flops(layer, setting)
    core = kernels.attention_s(core_flops)
    elementwise = kernels.memory_s(elementwise_bytes(layer, setting))
    forward = forward_gemm + core + elementwise
    backward = input_gemm + 2.5 * core + 2 * elementwise
    communication = tensor_communication_s(layer, setting)
    again = layer.kind is LayerKind.BLOCK and layout.recompute == "full"
    backward += forward + communication if again else 0.0
    gather = parameter_gather_s(layer, setting)
    model_flops = 3 * layout.tp * (sum(2.0 * m * n * k * c for m, n, k, c in products) + 2 * core_flops) * layout.cp
    return LayerTime(
        forward + communication + max(0.0, gather - forward),
        backward + communication + max(0.0, gather - backward),
        weight_gemm + max(0.0, gather - weight_gemm),
        communication * (3 if again else 2),
        model_flops,
    )


def tensor_communication_s(layer: Layer, setting: Setting) -> float:
    """Exposed seconds of tensor and expert parallel collectives of one forward pass (a backward pass has as many)."""
    layout, fabric, calibration = setting.layout, setting.fabric, setting.kernels.calibration
    num_bytes = 2.0 * setting.tokens * layer.hidden
    times = 2 if layer.kind is LayerKind.BLOCK else 1
    total = times * all_reduce_s(num_bytes, Group(layout.tp), fabric, calibration) * calibration.exposed_tp
    experts = layer.feed_forward.experts if layer.feed_forward else None
    if experts is not None and layout.ep > 1:
        group = Group(layout.ep, layout.tp)
        total += 2 * all_to_all_s(num_bytes * experts.per_token / layout.tp, group, fabric, calibration)
    return total


def parameter_gather_s(layer: Layer, setting: Setting) -> float:
    """Seconds to gather the sharded parameters of the layer once (fully sharded data parallel)."""
    layout = setting.layout
    if layout.sharding not in ("full", "hybrid"):
        return 0.0
    group = Group(layout.dp * layout.cp, layout.tp)
    return all_gather_s(2.0 * layer.parameters / layout.tp, group, setting.fabric, setting.kernels.calibration)
