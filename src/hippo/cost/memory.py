"""Bytes a rank keeps, as training software allocates them: weights, gradients, optimizer state, activations, more.

Activations are listed by what frees them (``kept``): Korthikanti et al. 2022, section 4, with the module names of
Megatron-LM's ``--recompute-modules``. Letters: T tokens of a micro-batch on a rank, h hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hippo.cost.calibration import Calibration
from hippo.cost.kernels import WIDE
from hippo.cost.stage import Layout, StageMemory
from hippo.problem.cluster import Gpu
from hippo.problem.model import Attention, Experts, FeedForward, Layer, LayerKind
from hippo.problem.runtimes import ACROSS, SELECTIVE, recomputed_modules
from hippo.problem.workload import Workload

LIST_GATHERED = 1e9
"""Parameters that DeepSpeed lets stand whole at a time (``stage3_max_live_parameters``)."""
WEIGHT_BYTES = {"fp32": 4.0}
Part = tuple[frozenset[str], float]
"""Modules each of which frees the bytes when it is computed again, and the bytes."""


def weight_bytes(precision: str) -> float:
    """Bytes of one stored weight (fp8 training keeps 16-bit weights)."""
    return WEIGHT_BYTES.get(precision, 2.0)


def rank_parameters(layer: Layer, layout: Layout) -> float:
    """Parameters of the layer on one rank before any data-parallel sharding."""
    dense = layer.parameters - layer.expert_parameters
    return dense / layout.tp + layer.expert_parameters / (layout.expert_tp * layout.ep)


def state_shards(layout: Layout) -> tuple[float, float, float]:
    """Ranks over which (weights, gradients, optimizer state) are sharded.

    Sharded gradients of a pipeline are whole until the last micro-batch, which alone is followed by their reduction.
    """
    inside, world = layout.dp * layout.cp, max(layout.replicas, layout.dp) * layout.cp
    if layout.sharding == "none":
        return 1.0, 1.0, 1.0
    if layout.sharding == "optimizer":
        return 1.0, 1.0, float(inside)
    if layout.sharding == ACROSS:
        return 1.0, 1.0, float(world)
    if layout.sharding == "gradients":
        return 1.0, 1.0 if layout.num_stages > 1 else float(inside), float(inside)
    ranks = float(world if layout.sharding == "full" else inside)
    return ranks, ranks, ranks


def state_bytes(layers: tuple[Layer, ...], layout: Layout, workload: Workload) -> tuple[float, float, float]:
    """Bytes of (weights, gradients, optimizer state) on one rank.

    In a pipeline a tied head has a copy of the embedding's matrix (Megatron-LM, DeepSpeed), and full sharding leaves
    16-bit weights whole from the first micro-batch to the last, with fp32 sums of gradients, as torchtitan does not
    gather and reduce for each (``reshard_after_forward``, ``unsharded_accumulated_grad``). Gradients summed in fp32 are
    all there is in Megatron-LM, which drops each 16-bit gradient as soon as it is added; DeepSpeed keeps them until the
    backward pass has ended. An fp16 optimizer holds an fp32 copy of the gradients.
    """
    experts = sum(layer.expert_parameters for layer in layers) / (layout.expert_tp * layout.ep)
    parameters = held_parameters(layers, layout) - experts
    piped, software = layout.num_stages > 1, workload.software
    weight, summed = weight_bytes(layout.precision), workload.gradient_bytes_per_parameter
    gradient = summed + (weight if software.late_sums and summed > weight else 0.0)
    optimizer = max(0.0, workload.state_bytes_per_parameter - weight - summed)
    optimizer += 4.0 if layout.precision == "fp16" else 0.0
    w, g, o = (
        # Of the ranks that share the rest, one in ep x etp / tp has the same experts.
        parameters / shards
        + experts / (max(1.0, shards * layout.tp / (layout.expert_tp * layout.ep)) if shards > 1 else 1)
        for shards in state_shards(layout)
    )
    whole = parameters + experts if piped and layout.sharding in ("full", "hybrid") else 0.0
    return w * weight + whole * weight, g * gradient + whole * 4.0, o * optimizer


def held_parameters(layers: tuple[Layer, ...], layout: Layout) -> float:
    """Parameters on one rank, a tied head's copy of the embedding's matrix among them where there is a pipeline."""
    copies = sum(layer.vocab * layer.hidden for layer in layers if layer.tied) if layout.num_stages > 1 else 0
    return sum(rank_parameters(layer, layout) for layer in layers) + copies / layout.tp


def activation_bytes(layer: Layer, layout: Layout, workload: Workload) -> float:
    """Bytes that one micro-batch leaves on a rank between forward and backward of the layer.

    ``selective`` recomputation gives up what is cheap to repeat: the unfused attention core (Megatron-LM), every second
    product and elementwise results (PyTorch, with ``flash2``), results of norms, of experts' activation functions and
    what latent attention projects up (Megatron-LM's modules, with ``tuned``).
    """
    if layer.kind is not LayerKind.BLOCK or layout.recompute == "full":
        # The input alone: of the block that is computed again, of the embedding's dropout, of the head's norm.
        return _wide(layout) * _outer(layout, workload) * layer.hidden
    freed = _freed(layout, workload)
    left = sum(size for modules, size in kept(layer, layout, workload) if not modules & freed)
    half = layout.recompute == "selective" and workload.software.attention == "flash2"
    return left * (0.5 if half else 1.0)


def activations_bytes(layers: tuple[Layer, ...], layout: Layout, workload: Workload) -> float:
    """``activation_bytes`` of all layers of a rank."""
    return sum(activation_bytes(layer, each, workload) for layer, each in with_layouts(layers, layout))


def with_layouts(layers: tuple[Layer, ...], layout: Layout) -> Iterator[tuple[Layer, Layout]]:
    """Each layer of a rank with the layout that it has: some blocks may be computed again whole, and others not."""
    again = layout.blocks_again(sum(layer.kind is LayerKind.BLOCK for layer in layers))
    if again is None:
        yield from ((layer, layout) for layer in layers)
        return
    whole, plain = replace(layout, recompute="full"), replace(layout, recompute="none")
    for layer in layers:
        yield layer, whole if again > 0 else plain
        again -= layer.kind is LayerKind.BLOCK


def again_bytes(layer: Layer, layout: Layout, workload: Workload) -> float:
    """Bytes of the layer that stand for a while when its backward pass computes them again."""
    if layer.kind is not LayerKind.BLOCK or layout.recompute == "none":
        return 0.0
    return sum(size for _, size in kept(layer, layout, workload)) - activation_bytes(layer, layout, workload)


def _freed(layout: Layout, workload: Workload) -> frozenset[str]:
    """Modules that are computed again."""
    if layout.recompute != "selective":
        return recomputed_modules(layout.recompute)
    if workload.software.attention == "unfused":
        return frozenset({"core_attn"})
    return SELECTIVE


def kept(layer: Layer, layout: Layout, workload: Workload) -> tuple[Part, ...]:
    """What a block's forward pass leaves for its backward pass where nothing is computed again.

    Inputs of norms and matrix products (Korthikanti et al. 2022, eq. 2); at 8 and 4 bit the products keep their inputs
    in 8 bit. Dropout (in models with LayerNorm biases) keeps a byte a value.
    """
    wide, narrow, outer, h = _wide(layout), _narrow(layout), _outer(layout, workload), layer.hidden
    masks = 2.0 if layer.norm_bias else 0.0
    found: list[Part] = [(frozenset(), layer.parts * outer * h * (wide + masks / 2))]  # what norms read
    if layer.attention is not None:
        found += [
            (frozenset({"layernorm"}), outer * h * narrow),
            *_attention(layer.attention, layout, workload, dropout=masks > 0),
        ]
    ff = layer.feed_forward
    if ff is not None and ff.experts is None:
        found.append((frozenset({"layernorm", "mlp"}), outer * h * narrow))
        found += _network(ff, ff.width, _tokens(layout, workload) / layout.tp, layout, modules={"mlp"})
    elif ff is not None and ff.experts is not None:
        found.append((frozenset({"layernorm"}), outer * h * wide))  # read by router, dispatch and shared experts
        found += _mixture(ff, ff.experts, h, layout, workload)
    return tuple(found)


def _attention(att: Attention, layout: Layout, workload: Workload, *, dropout: bool) -> Iterator[Part]:
    """Queries, keys, values and the result; latent, linear and unfused attention keep other things.

    Fused attention of the flash-attn package works with the batch first: its result stands once as it leaves the
    kernel and once as the next product reads it (Transformer Engine, PyTorch); cuDNN takes any order. The unfused core
    keeps the softmax, with dropout its result and mask, too (5 a s^2 b). Linear attention keeps queries, keys and
    values before and behind the convolution, the gates, the result, what norm and gates give, and of each chunk the
    square that solves it; states are computed again (flash-linear-attention). Mamba-2's one kernel keeps what goes into
    it alone, and computes what lies behind the convolution again (mamba_split_conv1d_scan_combined of mamba_ssm).
    """
    wide, tokens, nothing = _wide(layout), _tokens(layout, workload) / layout.tp, frozenset[str]()
    result, lat, linear = att.heads * att.head_dim, att.latent, att.linear
    if linear is not None:
        channels = linear.channels(att)
        inner = channels if linear.state_space else 2.0 * channels + linear.chunk * att.heads
        yield nothing, tokens * wide * (inner + 2.0 * result)
        yield frozenset({"layernorm"}), tokens * wide * result
        return
    if lat is None:
        gates = 2.0 * att.output_gate
        normed = (att.heads + att.kv_heads) * att.head_dim if att.qk_norm else 0
        yield nothing, tokens * wide * ((2.0 + gates) * result + 2.0 * att.kv_heads * att.head_dim + normed)
    else:
        # The latent vectors and their norms' results; queries, keys and values are projected up from them
        # (DeepSeek-V3, section 3.2.3).
        ranks, qk = (lat.q_lora_rank or 0) + lat.kv_lora_rank, lat.qk_nope_head_dim + lat.qk_rope_head_dim
        result = att.heads * lat.v_head_dim
        yield nothing, _outer(layout, workload) * wide * (ranks + lat.qk_rope_head_dim) + tokens * wide * result
        up = _outer(layout, workload) * _narrow(layout) * ranks + tokens * wide * att.heads * (2 * qk + lat.v_head_dim)
        yield frozenset({"mla_up_proj"}), up
    if workload.software.attention == "flash2":
        yield nothing, tokens * wide * result
    if workload.software.attention == "unfused":
        square = tokens * workload.seq * att.heads
        yield frozenset({"core_attn"}), square * (2 * wide + 1 if dropout else wide)


def _network(
    ff: FeedForward,
    width: float,
    tokens: float,
    layout: Layout,
    *,
    modules: set[str],
    act: frozenset[str] = frozenset(),
) -> Iterator[Part]:
    """Results of the first product(s), and of the activation function, which the last product reads."""
    yield frozenset(modules), tokens * width * _wide(layout) * (2 if ff.gated else 1)
    yield frozenset({*modules, *act}), tokens * width * _narrow(layout)


def _mixture(ff: FeedForward, experts: Experts, h: int, layout: Layout, workload: Workload) -> Iterator[Part]:
    """A copy of each token for each of its experts, on the fullest rank; the router's scores; shared experts.

    The tp ranks of a group bring their own share of the tokens; an expert that is cut over ``etp`` ranks has on each
    all copies that these bring.
    """
    share = _tokens(layout, workload) / layout.tp
    copies = share * experts.per_token * workload.routing.skew(layout.ep, experts) * layout.expert_tp
    yield frozenset({"moe"}), _outer(layout, workload) * experts.count * 8.0  # scores and their softmax, fp32
    yield frozenset({"moe"}), copies * experts.token_width(h) * _narrow(layout)
    inner = experts.width / layout.expert_tp
    yield from _network(ff, inner, copies, layout, modules={"moe"}, act=frozenset({"moe_act"}))
    if experts.all_shared_width:
        yield from _network(ff, experts.all_shared_width, share, layout, modules={"moe", "shared_experts"})


def _wide(layout: Layout) -> float:
    return 4.0 if layout.precision == "fp32" else 2.0


def _narrow(layout: Layout) -> float:
    return _wide(layout) if layout.precision in WIDE else 1.0


def _tokens(layout: Layout, workload: Workload) -> float:
    return layout.micro_batch * workload.seq / layout.cp


def _outer(layout: Layout, workload: Workload) -> float:
    """Tokens that norms and dropouts of one rank see."""
    return _tokens(layout, workload) / (layout.tp if layout.sequence_parallel else 1)


def workspace_bytes(layers: tuple[Layer, ...], layout: Layout, workload: Workload) -> float:
    """Largest temporary: logits with what the loss makes of them, one block computed again; and gathered parameters.

    A block that predicts a further token leaves the fp32 result of its own loss beside the logits.
    """
    vocab = max((layer.vocab for layer in layers if layer.kind is LayerKind.HEAD), default=0)
    further = sum(layer.vocab > 0 for layer in layers if layer.kind is LayerKind.BLOCK)
    logits = (workload.software.logit_bytes + 4.0 * further) * _tokens(layout, workload) * vocab / layout.tp
    blocks = {each for each in with_layouts(layers, layout) if each[0].kind is LayerKind.BLOCK}
    again = max((again_bytes(*each, workload) for each in blocks), default=0.0)
    gathered = 0.0
    if layout.sharding in ("full", "hybrid") and layout.num_stages == 1:
        # Two layers' weights and one layer's gradients are whole at a time; one by one, so many as DeepSpeed lets live.
        held = max(rank_parameters(layer, layout) for layer in set(layers))
        gathered = 3 * (min(held, LIST_GATHERED) if workload.software.list_gathers else held)
    return max(logits, again) + gathered * weight_bytes(layout.precision)


def stage_memory(
    layers: tuple[Layer, ...], layout: Layout, workload: Workload, gpu: Gpu, calibration: Calibration
) -> StageMemory:
    """Memory of a rank that holds these layers, without any micro-batch in flight."""
    weights, gradients, optimizer = state_bytes(layers, layout, workload)
    return StageMemory(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activation_bytes=activations_bytes(layers, layout, workload),
        live_micro_batches=0.0,
        workspace_bytes=workspace_bytes(layers, layout, workload) if layers else 0.0,
        reserved_bytes=calibration.context_bytes + calibration.reserved_share * gpu.memory_bytes,
    )


def library_bytes(family: str, *, deterministic: bool = False, grouped: bool = False) -> float:
    """What cuBLAS and Transformer Engine take from the allocator for themselves, by family of the GPU.

    PyTorch gives each of two cuBLAS handles (forward, backward) 32 MiB on Hopper and later and 8 MiB before
    (``getChosenWorkspaceSize``), or the 32 MiB of ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` that deterministic runs need;
    Transformer Engine's own products take 32 or 4 MiB, its grouped ones that on four streams
    (``get_cublas_workspace_size_bytes``).
    """
    old = family in ("volta", "ampere")
    own = 4.0 if old else 32.0
    return 2.0**20 * (2 * (8.0 if old and not deterministic else 32.0) + own * (5 if grouped else 1))
