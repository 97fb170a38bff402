"""What one layer costs one rank per micro-batch: seconds of forward, backward, weight gradient and communication.

The kernels of a pass are summed (roofline each), the CPU must launch them in time, and collectives that computation
does not hide are added. Letters: T tokens of the micro-batch on one rank, h hidden, s sequence, a heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from hippo.cost.collectives import (
    CollectiveGroup,
    Fabric,
    all_gather_s,
    all_reduce_s,
    moved_s,
    ring_pass_s,
    same_experts,
    token_exchange_s,
)
from hippo.cost.kernels import WIDE, Kernels
from hippo.cost.memory import rank_parameters, state_shards
from hippo.cost.stage import Layout
from hippo.problem.model import Attention, Experts, FeedForward, Layer, LayerKind, LinearAttention
from hippo.problem.routing import Routing
from hippo.problem.runtimes import CONTEXT_WAYS, SELECTIVE, recomputed_modules
from hippo.problem.workload import Software

Product = tuple[float, float, float, float]  # rows m, columns n, inner dimension k, how many

ATTENTION_KERNELS = 14  # launches of the forward pass of one block's attention in Megatron-LM
FORWARD_KERNELS = 26  # with the feed-forward network's
BACKWARD_KERNELS = 44  # of its backward pass without recomputation
COLLECTIVE_KERNELS = 2  # launches that one collective adds (copies, events, the collective itself)


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and one micro-batch on one rank."""

    forward_s: float
    backward_s: float  # input gradient and recomputation
    weight_s: float
    communication_s: float  # of the three: exposed communication
    flops: float  # model FLOPs of one dp lane, forward and backward


@dataclass(frozen=True)
class LayerSetting:
    """Everything a layer's time depends on besides the layer."""

    kernels: Kernels
    fabric: Fabric
    layout: Layout
    seq: int
    software: Software = Software()
    gradient_bytes: float = 2.0
    routing: Routing = Routing()
    context_ways: tuple[str, ...] = CONTEXT_WAYS  # in which parts of a sequence may meet

    @property
    def unfused(self) -> bool:
        """Whether the attention core runs as single kernels that store the square of scores."""
        return self.software.attention == "unfused"

    def fused_experts(self, layer: Layer) -> bool:
        """Whether experts are one kernel with their sorting: such kernels are of microscaled numbers and gated."""
        gated = layer.feed_forward is not None and layer.feed_forward.gated
        return gated and self.software.fused_experts and self.kernels.precision in ("mxfp8", "nvfp4")

    def skew(self, experts: Experts) -> float:
        """Tokens of the fullest rank of experts over the mean."""
        return self.routing.skew(self.layout.ep, experts)

    @property
    def tokens(self) -> float:
        """Tokens T of one micro-batch on one rank."""
        return self.layout.micro_batch * self.seq / self.layout.cp

    @property
    def norm_tokens(self) -> float:
        """Tokens that norms, dropouts and residual adds of one rank see."""
        return self.tokens / (self.layout.tp if self.layout.sequence_parallel else 1)


def layer_time(layer: Layer, setting: LayerSetting) -> LayerTime:
    """Seconds of one layer, see ``LayerTime``."""
    kernels = setting.kernels
    products, grouped = matrices(layer, setting), expert_matrices(layer, setting)
    wide = layer.kind is LayerKind.HEAD
    every = products + grouped
    forward = sum(kernels.gemm_s(m, n, k, count=c, wide=wide) for m, n, k, c in every)
    backward = sum(kernels.gemm_s(m, k, n, count=c, wide=wide) for m, n, k, c in every)
    weight = sum(kernels.gemm_s(k, n, m, count=c, wide=wide) for m, n, k, c in every)
    if not wide:
        forward += sum(kernels.quantise_s(c * m * k) + kernels.quantise_s(c * k * n) for m, n, k, c in products)
        backward += sum(kernels.quantise_s(c * m * n) for m, n, _, c in products)
        if not setting.fused_experts(layer):  # experts' weights are many, and are cast once a step
            forward += sum(kernels.quantise_s(c * m * k) for m, n, k, c in grouped)
            backward += sum(kernels.quantise_s(c * m * n) for m, n, _, c in grouped)
    core, core_back = core_seconds(layer, setting)
    eager = 1.0 if setting.software.fused_elementwise else kernels.calibration.eager_traffic
    elementwise = kernels.memory_s(elementwise_bytes(layer, setting)) * eager
    sorting = kernels.memory_s(permutation_bytes(layer, setting))
    again = _recomputed_s(layer, setting, (forward, core, elementwise, sorting))
    elementwise += sorting
    forward, backward = forward + core + elementwise, backward + core_back + 1.5 * elementwise
    weight += kernels.memory_s(accumulation_bytes(layer, setting))
    communication = tensor_communication_s(layer, setting, beside=forward)
    return _assemble(layer, setting, (forward, backward, weight), again, communication)


def _assemble(
    layer: Layer,
    setting: LayerSetting,
    gpu: tuple[float, float, float],
    again: float,
    communication: float,
) -> LayerTime:
    """Launch floors, collectives and parameter gathers on top of the kernels' seconds."""
    forward, backward, weight = gpu
    calibration, repeated = setting.kernels.calibration, _repeated_share(layer, setting)
    full, serial = repeated == 1.0, calibration.checkpoint_serial * repeated
    if setting.software.blocking_launches:
        serial = 1.0
    launches = calibration.launch_s * launch_share(layer, setting)
    collectives = communication_launches(layer, setting) * calibration.launch_s
    first = FORWARD_KERNELS * launches + collectives
    then = BACKWARD_KERNELS * launches + collectives + first * repeated
    forward = overlapped(forward + communication, first, serial)
    back = backward + again + communication * (2 if full else 1)
    stretch = overlapped(back + weight, then, serial) / max(back + weight, 1e-12)
    back, weight = back * stretch, weight * stretch
    gather, back_gather = sharding_seconds(layer, setting)
    exposed = calibration.exposed_fsdp if setting.software.overlap_dp else 1.0
    forward_wait = max(gather - forward, exposed * gather)
    back_wait = max(back_gather - back - weight, exposed * back_gather)
    core_flops = attention_flops(layer, setting)
    lanes = setting.layout.tp * setting.layout.cp
    mean = replace(setting, routing=Routing())  # the work of all ranks, not of the fullest
    products = matrices(layer, mean) + expert_matrices(layer, mean)
    flops = 3 * lanes * (sum(2.0 * m * n * k * c for m, n, k, c in products) + core_flops)
    share = back / max(back + weight, 1e-12)
    return LayerTime(
        forward + forward_wait,
        back + back_wait * share,
        weight + back_wait * (1 - share),
        communication * (3 if full else 2) + forward_wait + back_wait,
        flops,
    )


def _repeated_share(layer: Layer, setting: LayerSetting) -> float:
    """Share of the launches of a forward pass that whole parts of a block, computed again, repeat."""
    recompute = setting.layout.recompute
    if layer.kind is not LayerKind.BLOCK or recompute == "none":
        return 0.0
    network = _own_modules(layer, recompute) & {"mlp", "moe"}
    return 1.0 if recompute == "full" else (1.0 - ATTENTION_KERNELS / FORWARD_KERNELS) * bool(network)


def _own_modules(layer: Layer, recompute: str) -> frozenset[str]:
    """The modules of a list that this block has: a dense network is no mixture."""
    ff = layer.feed_forward
    other = {"mlp"} if ff is None or ff.experts is not None else {"moe", "moe_act", "shared_experts"}
    return recomputed_modules(recompute) - other


def overlapped(gpu_s: float, launch_s: float, serial: float) -> float:
    """Seconds of a pass whose kernels the CPU launches ahead of the GPU: the longer of the two.

    Recomputation saves and restores the random state of the GPU, which the CPU waits for: ``serial`` of the launches
    then stand in line with the kernels.
    """
    return max(gpu_s + serial * launch_s, launch_s)


def matrices(layer: Layer, setting: LayerSetting) -> list[Product]:
    """Matrix products of the forward pass of one rank."""
    tp, tokens, h = setting.layout.tp, setting.tokens, layer.hidden
    if layer.kind is LayerKind.EMBEDDING:
        return []
    if layer.kind is LayerKind.HEAD:
        return [(tokens, layer.vocab / tp, h, 1)]
    further: list[Product] = [(tokens, h, 2 * h / tp, 1), (tokens, layer.vocab / tp, h, 1)] if layer.vocab else []
    return _attention_matrices(layer, tokens, tp) + _feed_forward_matrices(layer, setting) + further


def _attention_matrices(layer: Layer, tokens: float, tp: int) -> list[Product]:
    att, h = layer.attention, layer.hidden
    if att is None:
        return []
    if att.linear is not None:
        values, steps = att.heads * att.head_dim, att.linear.steps(att)
        inner, apart = att.linear.channels(att) + values, [(tokens, steps / tp, h, 1.0)]
        if att.linear.state_space:  # one product (mamba_ssm)
            inner, apart = inner + steps, []
        return [(tokens, inner / tp, h, 1), *apart, (tokens, h, values / tp, 1)]
    if att.latent is None:
        queries, keys = att.heads * att.head_dim, max(att.kv_heads, tp) * att.head_dim
        inner = queries * (2 if att.output_gate else 1) + 2 * keys
        return [(tokens, inner / tp, h, 1), (tokens, h, queries / tp, 1)]
    lat = att.latent
    q_dim = lat.qk_nope_head_dim + lat.qk_rope_head_dim
    rank = lat.q_lora_rank or h
    down = [] if lat.q_lora_rank is None else [(tokens, float(rank), float(h), 1.0)]
    return [
        *down,
        (tokens, att.heads * q_dim / tp, rank, 1),
        (tokens, lat.kv_lora_rank + lat.qk_rope_head_dim, h, 1),
        (tokens, att.heads * (lat.qk_nope_head_dim + lat.v_head_dim) / tp, lat.kv_lora_rank, 1),
        (tokens, h, att.heads * lat.v_head_dim / tp, 1),
    ]


def _feed_forward_matrices(layer: Layer, setting: LayerSetting) -> list[Product]:
    ff, h, tp, tokens = layer.feed_forward, layer.hidden, setting.layout.tp, setting.tokens
    if ff is None:
        return []
    wide = 2 if ff.gated else 1
    if ff.experts is None:
        return [(tokens, wide * ff.width / tp, h, 1), (tokens, h, ff.width / tp, 1)]
    shared = ff.experts.all_shared_width
    router: Product = (tokens, ff.experts.count, h, 1)
    further: list[Product] = [(tokens, 1, h, 1)] * ff.experts.shared_gate
    if (latent := ff.experts.latent) is not None:  # whole on every rank: few bytes, and sequences are split there
        further += [(setting.norm_tokens, latent, h, 1), (setting.norm_tokens, h, latent, 1)]
    return [router, *further] + ([(tokens, wide * shared / tp, h, 1), (tokens, h, shared / tp, 1)] if shared else [])


def expert_matrices(layer: Layer, setting: LayerSetting) -> list[Product]:
    """Products of the routed experts of one rank, all experts of a sort in one grouped call.

    An expert that is cut over ``etp`` ranks works on all tokens that these bring, each its share of the tp ranks'.
    """
    ff, tp, etp = layer.feed_forward, setting.layout.tp, setting.layout.expert_tp
    if ff is None or ff.experts is None:
        return []
    h = ff.experts.token_width(layer.hidden)
    local = max(1.0, ff.experts.count / setting.layout.ep)
    got, wide = setting.skew(ff.experts) * setting.tokens * etp / tp * ff.experts.per_token, 2 if ff.gated else 1
    each = got / local
    return [(each, wide * ff.experts.width / etp, h, local), (each, h, ff.experts.width / etp, local)]


def permutation_bytes(layer: Layer, setting: LayerSetting) -> float:
    """Bytes moved to sort copies of tokens by expert and to add up what comes back (16-bit activations).

    Biases of what experts give are weighed and added by eager kernels, one expert after the other, and the pieces
    joined (``TEGroupedMLP._apply_bias`` of Megatron Core): three writings and three readings of each copy more.
    """
    ff = layer.feed_forward
    if ff is None or ff.experts is None:
        return 0.0
    passes = 2.0 if setting.fused_experts(layer) else setting.kernels.calibration.permutation_passes
    width = ff.experts.token_width(layer.hidden)
    copies = setting.skew(ff.experts) * setting.norm_tokens * ff.experts.per_token
    return copies * (4.0 * passes + 12.0 * ff.bias) * width


def attention_flops(layer: Layer, setting: LayerSetting) -> float:
    """FLOP of the causal attention core of one rank, forward: half of the full square, less under a window.

    Of the gated delta rule: its products on chunks of tokens (Yang et al. 2024, arXiv 2412.06464, section 3.3; as the
    reference in ``transformers`` does them). By chunk, whole squares: keys with keys and with queries, two triangular
    systems, the chunk's values; by token: the state is read for keys and for queries and written. Of Mamba-2 (Dao and
    Gu 2024, section 6) keys with queries once for each group, the chunk's values, the state read and written.
    """
    att = layer.attention
    if att is None:
        return 0.0
    if att.linear is not None:
        key, value, chunk = att.linear.key_head_dim, att.head_dim, min(att.linear.chunk, setting.seq)
        each = att.heads * (6 * key * value + chunk * (5 * key + 3 * value))
        if att.linear.state_space:
            each = att.heads * (4 * key * value + 2 * chunk * value) + att.kv_heads * 2 * chunk * key
        return setting.tokens * each / setting.layout.tp
    dims = 2 * att.head_dim
    if att.latent is not None:
        dims = att.latent.qk_nope_head_dim + att.latent.qk_rope_head_dim + att.latent.v_head_dim
    return setting.tokens * 2 * att.seen(setting.seq) * att.heads * dims / setting.layout.tp


def core_seconds(layer: Layer, setting: LayerSetting) -> tuple[float, float]:
    """Seconds of the attention core, forward and backward; context parallel exchange of keys and values included."""
    att, kernels, layout = layer.attention, setting.kernels, setting.layout
    if att is None:
        return 0.0, 0.0
    if setting.unfused and att.linear is None:  # it computes the whole square, whatever a window leaves of it
        heads = layout.micro_batch * att.heads / layout.tp
        forward = kernels.unfused_attention_s(heads, setting.seq / layout.cp, setting.seq, att.head_dim)
        return forward, 2 * forward
    flops, tuned = attention_flops(layer, setting), setting.software.attention == "tuned"
    forward, backward = kernels.fused_attention_s(flops, tuned), kernels.fused_attention_s(2.5 * flops, tuned)
    if att.linear is not None:  # plans that split its sequence are refused
        moved = kernels.memory_s(setting.tokens / layout.tp * _linear_bytes(att, att.linear))
        return max(forward, moved), max(backward, 2.5 * moved)
    if layout.cp == 1:
        return forward, backward
    found = [context_seconds(att, setting, way, (forward, backward)) for way in context_ways(att, setting)]
    return min(found, key=sum)


def context_ways(att: Attention, setting: LayerSetting) -> list[str]:
    """Ways in which the parts of a sequence can meet here: heads must divide to be exchanged for tokens."""
    ranks = setting.layout.tp * setting.layout.cp
    divide = att.heads % ranks == 0 and (att.latent is not None or att.kv_heads % ranks == 0)
    return [way for way in setting.context_ways if way != "alltoall" or divide] or ["ring"]


def context_way(layer: Layer, setting: LayerSetting) -> str:
    """The quickest way for the attention of a layer."""
    att = layer.attention
    if att is None or setting.layout.cp == 1:
        return setting.context_ways[0]
    alone = core_seconds(layer, replace(setting, layout=replace(setting.layout, cp=1)))
    core = alone[0] / setting.layout.cp, alone[1] / setting.layout.cp
    return min(context_ways(att, setting), key=lambda way: sum(context_seconds(att, setting, way, core)))


def context_seconds(att: Attention, setting: LayerSetting, way: str, core: tuple[float, float]) -> tuple[float, float]:
    """Seconds of an attention core of so many, forward and backward, with what its ranks exchange (16 bit).

    ``ring``: keys and values go from rank to rank while those before are worked on, gradients beside them on the way
    back (Liu et al. 2023, arXiv 2310.01889); between nodes a rank has its own share of the network alone. ``gather``:
    all keys and values come first (Llama 3, section 3.3.2), gradients are scattered. ``alltoall``: each rank gets all
    tokens of some heads and gives its results back (DeepSpeed-Ulysses, arXiv 2309.14509). Pieces are dealt so that the
    causal mask leaves all ranks as much.
    """
    layout, fabric, calibration = setting.layout, setting.fabric, setting.kernels.calibration
    group = CollectiveGroup(layout.cp, layout.tp)
    if att.latent is None:
        queries, pairs = att.heads * att.head_dim, 2 * max(att.kv_heads, layout.tp) * att.head_dim
        results = queries
    else:
        each = att.latent.qk_nope_head_dim + att.latent.qk_rope_head_dim
        queries, results = att.heads * each, att.heads * att.latent.v_head_dim
        pairs = queries + results
    token_bytes = 2.0 * setting.tokens / layout.tp
    if way == "ring":
        seconds = ring_pass_s(token_bytes * pairs, group, fabric, calibration)
        return max(core[0], seconds), max(core[1], 2 * seconds)
    if way == "gather":
        seconds = all_gather_s(token_bytes * pairs * layout.cp, group, fabric, calibration)
        return core[0] + seconds, core[1] + 2 * seconds
    there = token_exchange_s(token_bytes * (queries + pairs), 1, group, fabric, calibration, once=False)
    back = token_exchange_s(token_bytes * results, 1, group, fabric, calibration, once=False)
    return core[0] + there + back, core[1] + there + back


def _linear_bytes(att: Attention, linear: LinearAttention) -> float:
    """Bytes per token that the chunked kernels of linear attention move (16 bit), forward.

    Of the gated delta rule by head, kernels of flash-linear-attention, each reading its inputs from memory: products
    of keys (key in, square out), its inverse (square in and out), what keys and values become by it (key, value, square
    in, key, value out), states (two keys, a value in, a value and a state a chunk out), results (query, key, value,
    state in, value out). Of Mamba-2, kernels of mamba_ssm: states of chunks (value in, 32-bit state out), handed on
    (in, out), results (value, state in, value out), and by group keys twice, queries twice and the chunk's square out
    and in.
    """
    key, value, chunk = linear.key_head_dim, att.head_dim, linear.chunk
    if linear.state_space:
        return 2.0 * (att.heads * (3 * value + 8 * key * value / chunk) + att.kv_heads * (4 * key + 2 * chunk))
    return 2.0 * att.heads * (7 * key + 6 * value + 4 * chunk + 2 * key * value / chunk)


def elementwise_bytes(layer: Layer, setting: LayerSetting) -> float:
    """Bytes that elementwise kernels of the forward pass move on one rank (16-bit activations)."""
    h, tp = layer.hidden, setting.layout.tp
    if layer.kind is LayerKind.EMBEDDING:
        return 4.0 * setting.norm_tokens * h
    if layer.kind is LayerKind.HEAD:
        return 4.0 * setting.norm_tokens * h + 12.0 * setting.tokens * layer.vocab / tp
    norms = layer.norms * 4.0 + layer.parts * 7.0  # norms (read, write), bias-dropout-adds (two reads, a write, a mask)
    inner = 0.0 if layer.attention is None else _attention_traffic(layer.attention) / tp
    return setting.norm_tokens * h * norms + setting.tokens * (inner + _activation_width(layer.feed_forward) / tp)


def _attention_traffic(att: Attention) -> float:
    """Bytes per token that elementwise kernels move beside the attention core."""
    wide = att.heads * att.head_dim
    if att.linear is not None:
        # The convolution (read, write); the norm behind the core and its gate (two reads, a write).
        return 4.0 * att.linear.channels(att) + 6.0 * wide
    # Rotary or bias on queries and keys, transposes; a gate is applied to what the core gives (two reads, a write).
    return (8.0 + 6.0 * att.output_gate) * wide


def accumulation_bytes(layer: Layer, setting: LayerSetting) -> float:
    """Bytes moved to add one micro-batch's weight gradients to the sum: read the new, read and write the sum.

    Fully sharded, the sum is of the rank's own shard: the reduce-scatter brings just that.
    """
    shards = state_shards(setting.layout)[0]
    return rank_parameters(layer, setting.layout) / shards * (2.0 + 2.0 * max(setting.gradient_bytes, 4.0))


def _activation_width(ff: FeedForward | None) -> float:
    """Bytes per token that the activation function moves: it reads one (gated: two) and writes one width."""
    if ff is None:
        return 0.0
    width = ff.width if ff.experts is None else ff.experts.width * ff.experts.per_token
    return (6.0 if ff.gated else 4.0) * width


def _recomputed_s(layer: Layer, setting: LayerSetting, forward: tuple[float, float, float, float]) -> float:
    """Seconds of forward work (products, core, elementwise, sorting) repeated before the backward pass; see ``memory``.

    Tokens are sorted again with whole blocks and whole mixtures alone; networks meet their tp ranks again. Elementwise
    work counts whole, whichever of it a module repeats.
    """
    products, core, elementwise, sorting = forward
    if layer.kind is not LayerKind.BLOCK or setting.layout.recompute == "none":
        return 0.0
    if setting.layout.recompute == "full":
        return products + core + elementwise + sorting
    if recomputed_modules(setting.layout.recompute):
        modules = _own_modules(layer, setting.layout.recompute)
        again = products * _share_of(layer, modules) + (core if "core_attn" in modules else 0.0)
        again += elementwise if modules & {"layernorm", "mlp", "moe", "moe_act", "shared_experts"} else 0.0
        exchange = expert_exchange_s(layer, setting)
        if modules & {"mlp", "moe"} and _tensor_sums(layer, setting) == layer.parts:
            again += (tensor_communication_s(layer, setting) - exchange) / layer.parts
        return again + (sorting + exchange if "moe" in modules else 0.0)
    if setting.unfused:
        return core
    return elementwise + products * (0.5 if setting.software.attention == "flash2" else _share_of(layer, SELECTIVE))


def _share_of(layer: Layer, modules: frozenset[str]) -> float:
    """Share of the block's products that these modules repeat, by the parameters that a token passes through."""
    ff, latent, h = layer.feed_forward, layer.attention.latent if layer.attention else None, layer.hidden
    again = 0.0
    if latent is not None and layer.attention is not None and "mla_up_proj" in modules:
        heads, each = layer.attention.heads, latent.qk_nope_head_dim
        again += heads * latent.kv_lora_rank * (each + latent.v_head_dim)
        again += heads * (latent.q_lora_rank or 0) * (each + latent.qk_rope_head_dim)
    if ff is not None and ff.experts is None:
        again += ff.parameters_of(h, ff.width) if "mlp" in modules else 0
    elif ff is not None and ff.experts is not None:
        routed = ff.experts.per_token * ff.parameters_of(ff.experts.token_width(h), ff.experts.width)
        shared = ff.parameters_of(h, ff.experts.all_shared_width)
        again += routed if "moe" in modules else 0
        again += shared if modules & {"moe", "shared_experts"} else 0
    return min(1.0, again / layer.active_parameters)


def tensor_communication_s(layer: Layer, setting: LayerSetting, *, beside: float = inf) -> float:
    """Exposed seconds of tensor and expert parallel collectives of one forward pass (a backward pass has as many);
    ``beside`` as in ``expert_exchange_s``."""
    layout, fabric, calibration = setting.layout, setting.fabric, setting.kernels.calibration
    num_bytes = 2.0 * setting.tokens * layer.hidden
    times = _tensor_sums(layer, setting)
    exposed = setting.kernels.calibration.exposed_tp if setting.software.overlap_tp else 1.0
    total = times * all_reduce_s(num_bytes, CollectiveGroup(layout.tp), fabric, calibration) * exposed
    return total + expert_exchange_s(layer, setting, beside=beside)


def _tensor_sums(layer: Layer, setting: LayerSetting) -> int:
    """Sums of a forward pass over the tp ranks."""
    if layer.kind is not LayerKind.BLOCK:
        return 1
    layout, experts = setting.layout, layer.feed_forward.experts if layer.feed_forward else None
    apart = experts is not None and layout.expert_tp < layout.tp and not experts.all_shared_width
    return layer.parts - apart  # whole experts are sent each rank's share of the tokens as it lies there


def expert_exchange_s(layer: Layer, setting: LayerSetting, *, beside: float = inf) -> float:
    """Exposed seconds until tokens have reached their experts and their results are back (16 bit both ways).

    Ranks of a group lie as far apart as an expert is cut wide, and each brings its share of the tokens. Of what runs
    beside another micro-batch ``exposed_ep`` shows, and all that lasts longer than ``beside``, what that computes.
    """
    layout, calibration = setting.layout, setting.kernels.calibration
    experts = layer.feed_forward.experts if layer.feed_forward else None
    if experts is None or layout.ep == 1:
        return 0.0
    moved = setting.skew(experts) * 2.0 * setting.tokens * experts.token_width(layer.hidden) / layout.tp
    group = CollectiveGroup(layout.ep, layout.expert_tp)
    once = setting.software.dispatcher != "alltoall"
    seconds = 2 * token_exchange_s(moved, experts.per_token, group, setting.fabric, calibration, once=once)
    if setting.software.overlap_ep:
        return seconds * calibration.exposed_ep
    if layout.in_open is None:
        return seconds
    shown = max(calibration.exposed_ep * seconds, seconds - beside)
    return shown + layout.in_open * (seconds - shown)


def launch_share(layer: Layer, setting: LayerSetting) -> float:
    """Launches of this layer against a dense block's; a CUDA graph is one launch, whatever it holds."""
    graphs = setting.software.graphs
    if graphs == "full":
        return 0.0
    if layer.kind is not LayerKind.BLOCK:
        return 0.3
    calibration, ff = setting.kernels.calibration, layer.feed_forward
    attention = ATTENTION_KERNELS / FORWARD_KERNELS
    share = attention * (layer.attention is not None and graphs != "attention")
    if ff is None or ff.experts is None:
        return share + (1.0 - attention) * (ff is not None)
    if graphs == "none":
        share += 1.0 - attention
    if setting.fused_experts(layer):
        return share + calibration.expert_launches
    local = max(1.0, ff.experts.count / setting.layout.ep)
    each = 2.0 if setting.kernels.precision in WIDE else 10.0  # two products, their casts
    each = (each + 2.0 * ff.bias) / FORWARD_KERNELS  # its bias weighed and added, see permutation_bytes
    return share + calibration.expert_launches + calibration.expert_streams * each * local


def communication_launches(layer: Layer, setting: LayerSetting) -> float:
    """Launches that the collectives of one forward pass add."""
    if setting.layout.tp == 1 or setting.software.graphs == "full":
        return 0.0
    return COLLECTIVE_KERNELS * (float(layer.parts) if layer.kind is LayerKind.BLOCK else 1.0)


def sharding_seconds(layer: Layer, setting: LayerSetting) -> tuple[float, float]:
    """Seconds of collectives on the layer's parameters in the forward and in the backward pass (fully sharded).

    Forward gathers the parameters; backward gathers them again and scatters the gradients: in fp32 in PyTorch's FSDP,
    which keeps the parameters from a recomputation to the backward pass behind it, and in 16 bit in DeepSpeed's ZeRO-3
    of 2021, which lets them go between.
    """
    layout, calibration = setting.layout, setting.kernels.calibration
    if layout.sharding not in ("full", "hybrid"):
        return 0.0, 0.0
    group = CollectiveGroup(layout.dp * layout.cp, layout.tp)
    alike = same_experts(layout.dp * layout.cp * layout.tp, layout.expert_tp * layout.ep)
    experts = layer.expert_parameters / (layout.expert_tp * layout.ep)
    gather = all_gather_s(2.0 * (rank_parameters(layer, layout) - experts), group, setting.fabric, calibration)
    gather += moved_s(2.0 * experts, alike, setting.fabric, calibration)
    if not setting.software.list_gathers:
        return gather, 3 * gather
    gather = max(gather, list_copies_s(layer, setting))
    full = layer.kind is LayerKind.BLOCK and layout.recompute == "full"
    return gather, (3 if full else 2) * gather


def list_copies_s(layer: Layer, setting: LayerSetting) -> float:
    """Seconds the CPU needs to launch the copies that one gather of the layer's tensors needs, each tensor by itself.

    DeepSpeed's ZeRO-3 of 2021 gathers each weight into a list of one piece per rank (``_allgather_param`` in its
    partition_parameters.py), and PyTorch copies every piece with a kernel of its own (ProcessGroupNCCL).
    """
    tensors = max(1, len(matrices(layer, setting)) + len(expert_matrices(layer, setting)))
    return tensors * setting.layout.dp * setting.layout.cp * setting.kernels.calibration.launch_s
