"""Bytes a rank keeps: weights, gradients, optimizer state, activations (Korthikanti et al. 2022, section 4), more."""

from __future__ import annotations

from hippo.cost.kernels import WIDE
from hippo.cost.stage import Layout
from hippo.problem.model import Attention, Layer, LayerKind
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


def activation_bytes(layer: Layer, layout: Layout, seq: int, *, attention: str = "tuned") -> float:
    """Bytes that one micro-batch leaves on a rank between forward and backward of the layer.

    Selective recomputation gives up what is cheap to repeat: the unfused attention core (Megatron-LM), every second
    product and all elementwise results (PyTorch, with ``flash2``), results of norms and activation functions (today's
    Megatron-LM, with ``tuned``).
    """
    if layer.kind is not LayerKind.BLOCK or layout.recompute == "full":
        # The input alone: of the block that is computed again, of the embedding's dropout, of the head's norm.
        return _wide(layout) * _tokens(layout, seq) * layer.hidden / (layout.tp if layout.sequence_parallel else 1)
    selective = layout.recompute == "selective"
    if selective and attention == "flash2":
        return 0.5 * _linear_bytes(layer, layout, seq, results=False)
    stored = _linear_bytes(layer, layout, seq, results=not (selective and attention == "tuned"))
    return stored + (_square_bytes(layer, layout, seq) if attention == "unfused" and not selective else 0.0)


def _linear_bytes(layer: Layer, layout: Layout, seq: int, *, results: bool = True) -> float:
    """What grows with the tokens (Korthikanti et al. 2022, eq. 2): inputs of norms and matrix products.

    At 8 and 4 bit the products keep their inputs in 8 bit. ``results``: those of norms and activation functions too.
    """
    wide, tokens, h, tp = _wide(layout), _tokens(layout, seq), layer.hidden, layout.tp
    narrow = wide if layout.precision in WIDE else 1.0
    masks = 2.0 if layer.norm_bias else 0.0  # dropout, which models with LayerNorm biases use
    outside = layer.parts / 2 * (2 * wide + masks + (2 * narrow if results else 0.0))
    total = tokens * h * outside / (tp if layout.sequence_parallel else 1)
    att, ff = layer.attention, layer.feed_forward
    if att is not None:
        total += tokens * wide * _attention_width(att, results) / tp
    if ff is not None:
        width = ff.width
        if ff.experts is not None:
            width = ff.experts.width * ff.experts.per_token + ff.experts.all_shared_width
            copies = ff.experts.token_width(h) * ff.experts.per_token
            total += tokens * copies * narrow / (tp if layout.sequence_parallel else 1)
        total += tokens * width * (wide * (2 if ff.gated else 1) + (narrow if results else 0.0)) / tp
    return total


def _attention_width(att: Attention, results: bool) -> float:
    """Values per token that attention keeps: queries, keys, values and the result.

    Multi-head latent attention without ``results`` keeps the latent vectors and computes the rest again from them
    (DeepSeek-V3, section 3.2.3). Output gates are kept, and what they give. Linear attention keeps queries, keys and
    values before and behind the convolution, the gates, the result, what norm and gates give, and of each chunk the
    square that solves it; states are computed again (flash-linear-attention). Mamba-2's one kernel keeps what goes into
    it alone, and computes what lies behind the convolution again (mamba_split_conv1d_scan_combined of mamba_ssm).
    """
    lat, linear = att.latent, att.linear
    if linear is not None:
        values, channels = att.heads * att.head_dim, linear.channels(att)
        if linear.state_space:
            return channels + (3.0 if results else 2.0) * values
        return 2.0 * channels + (3.0 if results else 2.0) * values + linear.chunk * att.heads
    if lat is None:
        gates = 2.0 * att.output_gate
        return (2.0 + gates) * att.heads * att.head_dim + 2.0 * att.kv_heads * att.head_dim
    latents = (lat.q_lora_rank or 0) + lat.kv_lora_rank + lat.qk_rope_head_dim
    wide = att.heads * (2 * (lat.qk_nope_head_dim + lat.qk_rope_head_dim) + lat.v_head_dim)
    return latents + att.heads * lat.v_head_dim + (wide if results else 0.0)


def _square_bytes(layer: Layer, layout: Layout, seq: int) -> float:
    """What grows with the square of the sequence: softmax, its dropout and the mask of the unfused core (5 a s^2 b)."""
    heads = layer.attention.heads if layer.attention and layer.attention.linear is None else 0
    return (2 * _wide(layout) + 1) * _tokens(layout, seq) * seq * heads / layout.tp


def _wide(layout: Layout) -> float:
    return 4.0 if layout.precision == "fp32" else 2.0


def _tokens(layout: Layout, seq: int) -> float:
    return layout.micro_batch * seq / layout.cp


def workspace_bytes(layers: tuple[Layer, ...], layout: Layout, seq: int, *, attention: str = "tuned") -> float:
    """Largest temporary: logits (16 bit, fp32, their gradient), one block computed again, gathered parameters."""
    logits = 10.0 * _tokens(layout, seq) * max((la.vocab for la in layers if la.kind is LayerKind.HEAD), default=0)
    blocks = {layer for layer in layers if layer.kind is LayerKind.BLOCK}
    again = 0.0
    if layout.recompute == "full":
        again = max((_linear_bytes(layer, layout, seq) for layer in blocks), default=0.0)
    if attention == "unfused" and layout.recompute != "none":
        again += max((_square_bytes(layer, layout, seq) for layer in blocks), default=0.0)
    gathered = 0.0
    if layout.sharding in ("full", "hybrid"):  # two layers' weights and one layer's gradients are whole at a time
        gathered = 3 * weight_bytes(layout.precision) * max(rank_parameters(layer, layout) for layer in set(layers))
    return max(logits / layout.tp, again) + gathered


def state_bytes(layers: tuple[Layer, ...], layout: Layout, workload: Workload) -> tuple[float, float, float]:
    """Bytes of (weights, gradients, optimizer state) on one rank.

    Gradients summed in fp32 stand beside the 16-bit gradient; an fp16 optimizer holds an fp32 copy of the gradients.
    """
    all_experts = sum(layer.expert_parameters for layer in layers) / layout.tp
    parameters = sum(rank_parameters(layer, layout) for layer in layers) - all_experts / layout.ep
    experts = all_experts / min(layout.ep, layout.dp * layout.cp)  # published layouts may spread them over tp, too
    weight, summed = weight_bytes(layout.precision), workload.gradient_bytes_per_parameter
    gradient = summed + (weight if summed > weight else 0.0)
    optimizer = max(0.0, workload.state_bytes_per_parameter - weight - summed)
    optimizer += 4.0 if layout.precision == "fp16" else 0.0
    w, g, o = (
        parameters / shards + experts / max(1.0, shards / layout.ep)  # a lane in ep has the same experts
        for shards in state_shards(layout)
    )
    return w * weight, g * gradient, o * optimizer
