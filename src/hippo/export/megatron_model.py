"""A model as flags of Megatron-LM. Sizes and forms that its flags cannot say are named.

Flags: ``megatron/training/arguments.py`` and ``TransformerConfig`` of Megatron Core 0.16 to 0.20.
"""

from __future__ import annotations

from itertools import groupby

from hippo.problem.model import Attention, FeedForward, Layer, LayerKind, Model
from hippo.problem.workload import Workload

Flags = list[str]

ROUTER = (
    "Routing of experts (score function, groups, losses) is not part of a plan: Megatron-LM's defaults stand until you "
    "add flags such as --moe-router-score-function."
)


def unsaid(model: Model) -> list[str]:
    """What Megatron-LM's flags cannot say of the model, in sentences without a full stop."""
    found = []
    first, blocks = model.layers[0], [layer for layer in model.distinct_layers if layer.kind is LayerKind.BLOCK]
    if first.embedding_norm:
        found.append(f"Megatron-LM has no norm behind the embedding ({model.name})")
    if len({layer.attention for layer in blocks}) > 1:
        found.append("Megatron-LM has one kind of attention for all blocks")
    for attention, feed_forward in ((layer.attention, layer.feed_forward) for layer in blocks):
        assert attention is not None
        assert feed_forward is not None
        if attention.out_bias != feed_forward.bias:
            found.append(
                "Megatron-LM has biases on both the attention's output and the feed-forward network, or neither"
            )
    return list(dict.fromkeys(found))


def model_flags(model: Model, workload: Workload) -> Flags:
    """Sizes, positions, norms, biases, attention, experts."""
    first, last = model.layers[0], model.layers[-1]
    block = model.layers[1]
    attention, feed_forward = block.attention, _widest(model)
    assert attention is not None
    positions = "learned_absolute" if first.positions else "rope"
    flags = [
        f"--num-layers {model.num_blocks}",
        f"--hidden-size {model.hidden}",
        f"--ffn-hidden-size {feed_forward.width}",
        *_attention(attention, model),
        f"--seq-length {workload.seq}",
        f"--max-position-embeddings {max(first.positions or model.max_seq, workload.seq)}",
        f"--position-embedding-type {positions}",
        f"--normalization {'LayerNorm' if block.norm_bias else 'RMSNorm'}",
    ]
    flags += ["--swiglu"] * feed_forward.gated
    flags += ["--disable-bias-linear"] * (not feed_forward.bias)
    flags += ["--add-qkv-bias"] * (attention.qkv_bias and not feed_forward.bias)
    flags += ["--untie-embeddings-and-output-weights"] * (not last.tied)
    return flags + _experts(model)


def _attention(attention: Attention, model: Model) -> Flags:
    flags = [f"--num-attention-heads {attention.heads}"]
    latent = attention.latent
    if latent is not None:
        flags += ["--multi-latent-attention", f"--kv-lora-rank {latent.kv_lora_rank}"]
        flags += [f"--q-lora-rank {latent.q_lora_rank}"] * (latent.q_lora_rank is not None)
        flags += [f"--qk-head-dim {latent.qk_nope_head_dim}", f"--qk-pos-emb-head-dim {latent.qk_rope_head_dim}"]
        return [*flags, f"--v-head-dim {latent.v_head_dim}", "--qk-layernorm"]
    if attention.kv_heads != attention.heads:
        flags += ["--group-query-attention", f"--num-query-groups {attention.kv_heads}"]
    flags += [f"--kv-channels {attention.head_dim}"] * (attention.head_dim * attention.heads != model.hidden)
    return flags + ["--qk-layernorm"] * attention.qk_norm


def _experts(model: Model) -> Flags:
    """Which blocks are mixtures of experts, and of how many."""
    found = [layer.feed_forward.experts for layer in _blocks(model) if layer.feed_forward is not None]
    sparse = [experts for experts in found if experts is not None]
    if not sparse:
        return []
    experts = sparse[0]
    flags = [
        f"--num-experts {experts.count}",
        f"--moe-router-topk {experts.per_token}",
        f"--moe-ffn-hidden-size {experts.width}",
        "--moe-token-dispatcher-type alltoall",
    ]
    if experts.all_shared_width:
        flags.append(f"--moe-shared-expert-intermediate-size {experts.all_shared_width}")
    if len(sparse) < len(found):
        runs = groupby(int(experts is not None) for experts in found)
        pattern = "+".join(f"[{kind}]*{len(list(run))}" for kind, run in runs)
        flags.append(f"--moe-layer-freq '({pattern})'")
    return flags


def _blocks(model: Model) -> tuple[Layer, ...]:
    return model.layers[1:-1]


def _widest(model: Model) -> FeedForward:
    """The dense feed-forward network where there is one: its width is the model's."""
    found = [layer.feed_forward for layer in _blocks(model) if layer.feed_forward is not None]
    return next((each for each in found if each.experts is None), found[0])
