"""Models from a Hugging Face ``config.json``.

``model_type`` says which architecture, or else ``architectures``: gpt2, the llama family (llama, mistral, ministral,
phi3, granite, smollm3), llama4 (text), gemma 1 to 3 (text), olmo2, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe,
qwen3_next, gpt_oss, glm4_moe, nemotron_h, deepseek_v2, deepseek_v3 and kimi_k2, which is deepseek_v3 under another
name. Old and new spellings of a key are both read. Sizes must be there; everything else defaults to what the
configuration class of ``transformers`` 5.24 does, windows of attention as well. Parameter counts equal those of
``transformers`` exactly (``tests/problem/test_config_json.py`` asks it on the meta device); multi-token prediction
modules, which it does not build either, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError, UnknownNameError
from hippo.problem.model import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    LayerKind,
    LinearAttention,
    Model,
)
from hippo.problem.table import Table, open_table

MAX_BLOCKS = 2048
"""Most transformer blocks; the deepest published models have about a thousand (DeepNet, arXiv 2203.00555)."""

MAX_HIDDEN = 1 << 20
MAX_WIDTH = 1 << 24
MAX_VOCAB = 1 << 27
MAX_HEADS = 1 << 16
MAX_EXPERTS = 1 << 16
MAX_POSITIONS = 1 << 31

_KEYS = (
    *("model_type", "architectures", "text_config", "vocab_size", "tie_word_embeddings", "add_cross_attention"),
    *("hidden_size", "n_embd", "intermediate_size", "n_inner", "moe_intermediate_size", "num_hidden_layers", "n_layer"),
    *("num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"),
    *("max_position_embeddings", "n_positions", "n_ctx", "num_experts", "num_local_experts", "n_routed_experts"),
    *("num_experts_per_tok", "n_shared_experts", "mlp_only_layers", "decoder_sparse_step", "first_k_dense_replace"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "use_qk_norm"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    *("sliding_window_pattern", "_sliding_window_pattern"),
    *("no_rope_layers", "no_rope_layer_interval", "attention_chunk_size", "moe_layers", "interleave_moe_layer_step"),
    *("intermediate_size_mlp", "shared_expert_intermediate_size", "qkv_bias", "full_attention_interval"),
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    *("linear_conv_kernel_dim", "hybrid_override_pattern", "layers_block_type", "ssm_state_size", "mamba_num_heads"),
    *("mamba_head_dim", "n_groups", "mamba_n_groups", "conv_kernel", "mamba_d_conv", "chunk_size", "mamba_chunk_size"),
    *("use_bias", "use_conv_bias", "mamba_conv_bias", "moe_latent_size", "moe_shared_expert_intermediate_size"),
    *("n_group",),  # of routing: read by nobody, and no misspelling of n_groups
)
"""Keys that some architecture reads."""

_TEXT_PART: Mapping[str, str] = MappingProxyType({"llama4": "llama4_text", "gemma3": "gemma3_text"})
"""Models of text and images whose language model is read from ``text_config``: what sees images is left out."""

_SLIDING, _CHUNKED, _LINEAR, _FULL = "sliding_attention", "chunked_attention", "linear_attention", "full_attention"

_MISSING = object()


def model_from_config(document: object, *, source: str, name: str) -> Model:
    """The model that a ``config.json`` describes.

    Raises
    ------
    InputError
        An unknown architecture, a nested (multimodal) configuration, a missing, misspelt or impossible size.
    """
    table = open_table(document, source=source)
    kind = table.values.get("model_type")
    if isinstance(kind, str) and kind in _TEXT_PART and table.has("text_config"):
        inner = table.table("text_config", known=None)
        table = replace(inner, values={"model_type": _TEXT_PART[kind], **inner.values})
    read = _READERS[_architecture(table)]
    table.refuse_misspelt(_KEYS)  # other keys are passed over, as there are hundreds
    return read(table, name)


def _architecture(table: Table) -> str:
    if isinstance(table.values.get("text_config"), dict):
        table.refuse(
            "text_config",
            "a configuration of several models, with the language model nested in it, is not supported",
            "give a config.json that holds the language model's keys at the top",
            value="{...}",
        )
    if table.has("model_type"):
        kind = table.text("model_type")
        if kind not in _READERS:
            raise UnknownNameError("architecture", kind[:60], _READERS, source=table.source, key="model_type")
        return str(kind)
    classes = table.items("architectures", default=())
    known = [_CLASSES[each] for each in classes if isinstance(each, str) and each in _CLASSES]
    if known:
        return known[0]
    if classes:
        raise UnknownNameError("architecture", str(classes[0])[:60], _CLASSES, source=table.source, key="architectures")
    raise InputError(
        "no 'model_type' says which architecture this is",
        source=table.source,
        key="model_type",
        remedy=f"write model_type, one of {', '.join(sorted(_READERS))}",
    )


# ------------------------------------------------------------------------------------------------------- architectures
def _gpt2(table: Table, name: str) -> Model:
    """GPT-2 (Radford et al. 2019): LayerNorm, biases, learned positions, tied head unless told otherwise."""
    if table.flag("add_cross_attention", default=False):
        table.refuse("add_cross_attention", "an encoder-decoder is not supported", "give a decoder-only model")
    hidden = _size(table, "n_embd", "hidden_size", most=MAX_HIDDEN)
    heads = _size(table, "n_head", "num_attention_heads", most=MAX_HEADS)
    head_dim = _divide(table, _name(table, "n_embd", "hidden_size"), hidden, heads)
    attention = Attention(heads, heads, head_dim, qkv_bias=True, out_bias=True)
    width = _size(table, "n_inner", default=4 * hidden, most=MAX_WIDTH)
    block = _block(hidden, attention, FeedForward(width, gated=False, bias=True), norm_bias=True)
    blocks = _size(table, "n_layer", "num_hidden_layers", most=MAX_BLOCKS)
    positions = _size(table, "n_positions", "max_position_embeddings", "n_ctx", default=1024, most=MAX_POSITIONS)
    return _model(table, name, (block,) * blocks, max_seq=positions, learned_positions=True, tied=True)


def _llama(table: Table, name: str, *, kv_heads: int | None = None, max_seq: int = 2048, tied: bool = False) -> Model:
    """Llama 1 to 3 (arXiv 2302.13971, 2407.21783), and those alike; keywords: their defaults for absent keys."""
    return _dense(table, name, _llama_attention(table, kv_heads), _llama_network(table), max_seq=max_seq, tied=tied)


def _llama_attention(table: Table, kv_heads: int | None) -> Attention:
    bias = table.flag("attention_bias", default=False)
    return _attention(table, qkv_bias=bias, out_bias=bias, kv_heads=kv_heads)


def _llama_network(table: Table) -> FeedForward:
    return _feed_forward(table, bias=table.flag("mlp_bias", default=False))


def _smollm3(table: Table, name: str) -> Model:
    """SmolLM3: as Llama; where windows are used, blocks without rotary positions have one."""
    window = _window(table) if _windows_are_used(table) else None
    rotary = _rotary_blocks(table)
    attentions = _windowed(table, _llama_attention(table, 4), window, lambda block: not rotary[block])
    return _dense(table, name, attentions, _llama_network(table), max_seq=32768, tied=True)


def _llama4(table: Table, name: str) -> Model:
    """Llama 4 (Meta 2025), text alone: chunks of attention where positions are rotary; an expert that all share.

    The norms of its queries and keys have no weights.
    """
    bias, rotary = table.flag("attention_bias", default=False), _rotary_blocks(table)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, kv_heads=8, head_dim=128)
    chunk = _window(table, "attention_chunk_size", default=8192)
    attentions = _windowed(table, attention, chunk, lambda block: rotary[block], kind=_CHUNKED)
    experts = replace(_experts(table, "intermediate_size", default_per_token=1), shared=1)
    sparse = FeedForward(experts.width, gated=True, experts=experts)
    step = table.integer("interleave_moe_layer_step", default=1, most=MAX_BLOCKS)
    listed = table.values.get("moe_layers") is not None
    mixed = _indices(table, "moe_layers") if listed else range(step - 1, len(attentions), step)
    dense = sparse
    if not set(range(len(attentions))) <= set(mixed):
        dense = FeedForward(_size(table, "intermediate_size_mlp", default=16384, most=MAX_WIDTH), gated=True)
    networks = [sparse if block in mixed else dense for block in range(len(attentions))]
    return _blocks(table, name, attentions, networks, max_seq=131072)


def _gpt_oss(table: Table, name: str) -> Model:
    """gpt-oss (arXiv 2508.10925): windows in every second block, sinks, biases in attention, router and experts."""
    bias = table.flag("attention_bias", default=True)
    attention = replace(_attention(table, qkv_bias=bias, out_bias=bias, kv_heads=8, head_dim=64), sinks=True)
    window, experts = _window(table, default=128), _experts(table, "intermediate_size", default_per_token=4)
    experts = replace(experts, router_bias=experts.count)
    network = FeedForward(experts.width, gated=True, bias=True, experts=experts)
    attentions = _windowed(table, attention, window, lambda block: block % 2 == 0)
    return _dense(table, name, attentions, network, max_seq=131072)


def _mistral(
    table: Table, name: str, *, kv_heads: int | None = None, max_seq: int = 4096, window: int | None = None
) -> Model:
    """Mistral (arXiv 2310.06825), Ministral and Phi-3 (arXiv 2404.14219): without biases, whatever the file says."""
    attentions = _windowed(table, _attention(table, kv_heads=kv_heads), _window(table, default=window))
    return _dense(table, name, attentions, _feed_forward(table), max_seq=max_seq)


def _qwen2(table: Table, name: str) -> Model:
    """Qwen2 and Qwen2.5 (arXiv 2407.10671): biases on queries, keys and values only."""
    attention = _attention(table, qkv_bias=True, kv_heads=32)
    return _dense(table, name, _late_windows(table, attention), _feed_forward(table), max_seq=32768)


def _qwen3(table: Table, name: str) -> Model:
    """Qwen3, dense (arXiv 2505.09388): norms on queries and keys."""
    bias = table.flag("attention_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=True, kv_heads=32, head_dim=128)
    return _dense(table, name, _late_windows(table, attention), _feed_forward(table), max_seq=32768)


def _mixtral(table: Table, name: str) -> Model:
    """Mixtral (arXiv 2401.04088): every block is a mixture of experts of the full width."""
    experts = _experts(table, "intermediate_size", default_per_token=2)
    feed_forward = FeedForward(experts.width, gated=True, experts=experts)
    attentions = _windowed(table, _attention(table, kv_heads=8), _window(table))
    return _dense(table, name, attentions, feed_forward, max_seq=131072)


def _qwen2_moe(table: Table, name: str) -> Model:
    """Qwen1.5-MoE and Qwen2-57B-A14B (arXiv 2407.10671): a gated expert that all tokens share."""
    attention = _attention(table, qkv_bias=table.flag("qkv_bias", default=True), kv_heads=16)
    window = _window(table, default=4096) if _windows_are_used(table) else None
    last = table.integer("max_window_layers", default=28, least=0)
    attentions = _windowed(table, attention, window, lambda block: block % 2 == 0 and block < last)
    return _mixed(table, name, attentions, default_per_token=4, default_width=5632, default_shared=5632)


def _qwen3_moe(table: Table, name: str) -> Model:
    """Qwen3, mixture of experts (arXiv 2505.09388)."""
    bias = table.flag("attention_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=True, kv_heads=4)
    window = _window(table, default=4096) if _windows_are_used(table) else None
    return _mixed(table, name, _windowed(table, attention, window), default_per_token=8, default_width=6144)


def _qwen3_next(table: Table, name: str) -> Model:
    """Qwen3-Next (Qwen 2025): the gated delta rule in three of four blocks, gated attention in the others."""
    bias = table.flag("attention_bias", default=False)
    full = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=True, kv_heads=2, head_dim=256)
    full = replace(full, output_gate=True)
    values = _size(table, "linear_num_value_heads", default=32, most=MAX_HEADS)
    keys = _size(table, "linear_num_key_heads", default=16, most=MAX_HEADS)
    if values % keys:
        table.refuse("linear_num_key_heads", f"does not divide linear_num_value_heads ({values})", "write a divisor")
    key_dim = _size(table, "linear_key_head_dim", default=128, most=MAX_WIDTH)
    value_dim = _size(table, "linear_value_head_dim", default=128, most=MAX_WIDTH)
    rule = LinearAttention(key_dim, conv=_size(table, "linear_conv_kernel_dim", default=4, most=MAX_WIDTH))
    linear = Attention(values, keys, value_dim, linear=rule)
    every = table.integer("full_attention_interval", default=4, most=MAX_BLOCKS)
    kinds = _kinds(table, lambda block: _LINEAR if (block + 1) % every else _FULL, known=(_LINEAR, _FULL))
    attentions = [linear if kind == _LINEAR else full for kind in kinds]
    return _mixed(table, name, attentions, default_per_token=10, default_width=5632, default_shared=512)


def _mixed(
    table: Table,
    name: str,
    attentions: Sequence[Attention],
    *,
    default_per_token: int,
    default_width: int,
    default_shared: int | None = None,
) -> Model:
    """Qwen's mixtures: ``mlp_only_layers`` and ``decoder_sparse_step`` say which blocks are dense.

    ``default_shared``: width of the gated expert that all tokens share where the file is silent; None: none.
    """
    experts = _experts(table, "moe_intermediate_size", default_per_token=default_per_token)
    if default_shared is not None:
        width = _size(table, "shared_expert_intermediate_size", default=default_shared, most=MAX_WIDTH)
        experts = replace(experts, shared=1, shared_width=width, shared_gate=True)
    sparse = FeedForward(experts.width, gated=True, experts=experts)
    step = table.integer("decoder_sparse_step", default=1, most=MAX_BLOCKS)
    dense_layers = _indices(table, "mlp_only_layers")
    is_sparse = [index not in dense_layers and (index + 1) % step == 0 for index in range(len(attentions))]
    dense = sparse if all(is_sparse) else _feed_forward(table, default=default_width)
    networks = [sparse if mixed else dense for mixed in is_sparse]
    return _blocks(table, name, attentions, networks, max_seq=32768)


def _gemma(
    table: Table, name: str, *, kv_heads: int, qk_norm: bool = False, full_every: int = 1, max_seq: int = 8192
) -> Model:
    """Gemma 1 to 3 (arXiv 2403.08295, 2408.00118, 2503.19786), text alone: tied head, from 2 on four norms.

    ``full_every``: of so many blocks the last has no window; 1: none has one (Gemma 1).
    """
    bias = table.flag("attention_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm, kv_heads=kv_heads, head_dim=256)
    attentions, norms = (attention,) * _size(table, "num_hidden_layers", most=MAX_BLOCKS), 2
    if full_every > 1:
        every = _size(table, "sliding_window_pattern", "_sliding_window_pattern", default=full_every, most=MAX_BLOCKS)
        window, norms = _window(table, default=4096), 4
        attentions = _windowed(table, attention, window, lambda block: (block + 1) % every > 0)
    return _dense(table, name, attentions, _feed_forward(table), max_seq=max_seq, tied=True, norms=norms)


def _olmo2(table: Table, name: str) -> Model:
    """OLMo 2 (arXiv 2501.00656): norms on all queries and all keys, and behind attention and feed-forward."""
    bias = table.flag("attention_bias", default=False)
    attention = replace(_attention(table, qkv_bias=bias, out_bias=bias), wide_qk_norm=True)
    return _dense(table, name, attention, _feed_forward(table), max_seq=2048)


def _deepseek_v2(table: Table, name: str) -> Model:
    """DeepSeek-V2 (arXiv 2405.04434): latent attention; the first blocks dense, the others with shared experts."""
    return _with_shared_experts(table, name, _latent_attention(table), shared=2, first_dense=0, max_seq=2048)


def _deepseek_v3(table: Table, name: str) -> Model:
    """DeepSeek-V3 (arXiv 2412.19437) and Kimi K2 (arXiv 2507.20534): as DeepSeek-V2, with other defaults."""
    return _with_shared_experts(table, name, _latent_attention(table), shared=1, first_dense=3, max_seq=4096)


def _glm4_moe(table: Table, name: str) -> Model:
    """GLM-4.5 (arXiv 2508.06471): grouped attention with DeepSeek's blocks of experts."""
    bias, norm = table.flag("attention_bias", default=False), table.flag("use_qk_norm", default=False)
    attention = _attention(table, qkv_bias=bias, qk_norm=norm, kv_heads=8)
    return _with_shared_experts(table, name, attention, shared=1, first_dense=1, max_seq=131072)


def _nemotron_h(table: Table, name: str) -> Model:
    """Nemotron-H and Nemotron 3 (arXiv 2504.03624, 2512.20848): each block is Mamba-2, attention or a network alone."""
    if table.flag("mlp_bias", default=False):
        table.refuse(
            "mlp_bias", "is not supported in this architecture", "give a model without biases there", value=True
        )
    hidden, kinds = _size(table, "hidden_size", default=4096, most=MAX_HIDDEN), _hybrid_kinds(table)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "M": lambda: {"attention": _mamba2(table)},
        "*": lambda: {"attention": _hybrid_attention(table)},
        "-": lambda: {"feed_forward": FeedForward(_size(table, "intermediate_size", default=21504), gated=False)},
        "E": lambda: {"feed_forward": _hybrid_experts(table)},
    }
    blocks = {kind: Layer(LayerKind.BLOCK, hidden, norms=1, **parts[kind]()) for kind in dict.fromkeys(kinds)}
    made = _model(table, name, tuple(blocks[kind] for kind in kinds), max_seq=_positions(table, 4096))
    return replace(made, layers=(*made.layers[:-1], replace(made.layers[-1], tied=False)))  # its class ties nothing


_HYBRID_KINDS: Mapping[str, str] = MappingProxyType(
    {
        **{"linear_attention": "M", "mamba": "M", "moe": "E", "mlp": "-", "full_attention": "*", "attention": "*"},
    }
)
"""Letters of ``hybrid_override_pattern`` for the words of ``layers_block_type``."""


def _hybrid_kinds(table: Table) -> str:
    """A letter for each block: M Mamba-2, * attention, - a network, E experts."""
    if table.values.get("hybrid_override_pattern") is None:
        key = _name(table, "layers_block_type", "layer_types")
        words = table.items(key, most=MAX_BLOCKS)
        for each in words:
            if each not in _HYBRID_KINDS:
                told = "names a block that this architecture does not have"
                table.refuse(key, told, f"write {' or '.join(_HYBRID_KINDS)}", value=each)
        pattern = "".join(_HYBRID_KINDS[str(each)] for each in words)
    else:
        key, pattern = "hybrid_override_pattern", str(table.text("hybrid_override_pattern"))
    if not pattern or len(pattern) > MAX_BLOCKS or set(pattern) - set("M*-E"):
        told = f"must be 1 to {MAX_BLOCKS} of the letters M, *, - and E"
        table.refuse(key, told, "write a letter for each block", value=pattern[:60])
    blocks = table.integer("num_hidden_layers", default=len(pattern), most=MAX_BLOCKS)
    if blocks != len(pattern):
        told = f"names {len(pattern)} blocks, but num_hidden_layers is {blocks}"
        table.refuse(key, told, "write one for each of num_hidden_layers", value=pattern[:60])
    return pattern


def _mamba2(table: Table) -> Attention:
    heads = _size(table, "mamba_num_heads", default=128, most=MAX_HEADS)
    key = _name(table, "n_groups", "mamba_n_groups")
    groups = table.integer(key, default=8, most=MAX_HEADS)
    if heads % groups:
        table.refuse(key, f"does not divide mamba_num_heads ({heads})", "write a divisor")
    scan = LinearAttention(
        key_head_dim=_size(table, "ssm_state_size", default=128),
        conv=_size(table, "conv_kernel", "mamba_d_conv", default=4),
        chunk=_size(table, "chunk_size", "mamba_chunk_size", default=128),
        state_space=True,
        conv_bias=table.flag(_name(table, "use_conv_bias", "mamba_conv_bias"), default=True),
    )
    size, bias = _size(table, "mamba_head_dim", default=64), table.flag("use_bias", default=False)
    return Attention(heads, groups, size, qkv_bias=bias, out_bias=bias, linear=scan)


def _hybrid_attention(table: Table) -> Attention:
    heads = _size(table, "num_attention_heads", default=32, most=MAX_HEADS)
    window = _window(table)
    return Attention(heads, _kv_heads(table, heads, 8), _size(table, "head_dim", default=128), window=window)


def _hybrid_experts(table: Table) -> FeedForward:
    """Networks without gates; with ``moe_latent_size`` routed experts work on narrower tokens (LatentMoE)."""
    experts = _experts(table, "moe_intermediate_size", default_per_token=2, names=("n_routed_experts",))
    shared = _size(table, "moe_shared_expert_intermediate_size", default=7688)
    latent = None if table.values.get("moe_latent_size") is None else _size(table, "moe_latent_size")
    experts = replace(experts, shared=1, shared_width=shared, latent=latent)
    return FeedForward(experts.width, gated=False, experts=experts)


def _with_shared_experts(
    table: Table, name: str, attention: Attention, *, shared: int, first_dense: int, max_seq: int
) -> Model:
    """Some dense blocks, then blocks with experts that all tokens share; numbers are defaults for absent keys."""
    if table.flag("mlp_bias", default=False):
        table.refuse("mlp_bias", "is not supported beside experts", "give a model without biases there", value=True)
    experts = _experts(table, "moe_intermediate_size", default_per_token=8, names=("n_routed_experts",))
    always = table.integer("n_shared_experts", default=shared, least=0, most=MAX_EXPERTS)
    experts = replace(experts, shared=always)
    sparse = FeedForward(experts.width, gated=True, experts=experts)
    hidden = _size(table, "hidden_size", most=MAX_HIDDEN)
    blocks = _size(table, "num_hidden_layers", most=MAX_BLOCKS)
    dense_blocks = min(table.integer("first_k_dense_replace", default=first_dense, least=0), blocks)
    dense = _feed_forward(table) if dense_blocks else sparse
    layers = (_block(hidden, attention, dense),) * dense_blocks
    layers += (_block(hidden, attention, sparse),) * (blocks - dense_blocks)
    return _model(table, name, layers, max_seq=_positions(table, max_seq))


_READERS: Mapping[str, Callable[[Table, str], Model]] = MappingProxyType(
    {
        "gpt2": _gpt2,
        "llama": _llama,
        "qwen2": _qwen2,
        "qwen3": _qwen3,
        "mixtral": _mixtral,
        "qwen2_moe": _qwen2_moe,
        "qwen3_moe": _qwen3_moe,
        "qwen3_next": _qwen3_next,
        "gpt_oss": _gpt_oss,
        "llama4_text": _llama4,
        "mistral": partial(_mistral, kv_heads=8, max_seq=131072, window=4096),
        "ministral": partial(_mistral, kv_heads=8, max_seq=131072, window=4096),
        "phi3": _mistral,
        "gemma": partial(_gemma, kv_heads=16),
        "gemma2": partial(_gemma, kv_heads=4, full_every=2),
        "gemma3_text": partial(_gemma, kv_heads=4, qk_norm=True, full_every=6, max_seq=131072),
        "olmo2": _olmo2,
        "granite": _llama,
        "smollm3": _smollm3,
        "glm4_moe": _glm4_moe,
        "nemotron_h": _nemotron_h,
        "deepseek_v2": _deepseek_v2,
        "deepseek_v3": _deepseek_v3,
        "kimi_k2": _deepseek_v3,
    }
)

_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "GPT2LMHeadModel": "gpt2",
        "LlamaForCausalLM": "llama",
        "Qwen2ForCausalLM": "qwen2",
        "Qwen3ForCausalLM": "qwen3",
        "MixtralForCausalLM": "mixtral",
        "Qwen2MoeForCausalLM": "qwen2_moe",
        "Qwen3MoeForCausalLM": "qwen3_moe",
        "Qwen3NextForCausalLM": "qwen3_next",
        "GptOssForCausalLM": "gpt_oss",
        "Llama4ForCausalLM": "llama4_text",
        "MistralForCausalLM": "mistral",
        "MinistralForCausalLM": "ministral",
        "Phi3ForCausalLM": "phi3",
        "GemmaForCausalLM": "gemma",
        "Gemma2ForCausalLM": "gemma2",
        "Gemma3ForCausalLM": "gemma3_text",
        "Olmo2ForCausalLM": "olmo2",
        "GraniteForCausalLM": "granite",
        "SmolLM3ForCausalLM": "smollm3",
        "Glm4MoeForCausalLM": "glm4_moe",
        "NemotronHForCausalLM": "nemotron_h",
        "DeepseekV2ForCausalLM": "deepseek_v2",
        "DeepseekV3ForCausalLM": "deepseek_v3",
    }
)


# --------------------------------------------------------------------------------------------------------------- parts
def _attention(
    table: Table,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: bool = False,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> Attention:
    """Grouped-query attention; ``kv_heads`` and ``head_dim`` are the class's defaults for absent keys."""
    hidden = _size(table, "hidden_size", most=MAX_HIDDEN)
    heads = _size(table, "num_attention_heads", most=MAX_HEADS)
    groups = _kv_heads(table, heads, kv_heads)
    if head_dim is None and not table.has("head_dim"):
        head_dim = _divide(table, "hidden_size", hidden, heads)
    size = _size(table, "head_dim", default=head_dim, most=MAX_WIDTH)
    return Attention(heads, groups, size, qkv_bias=qkv_bias, out_bias=out_bias, qk_norm=qk_norm)


def _kv_heads(table: Table, heads: int, default: int | None) -> int:
    """Absent: the class's ``default``, where there is one; null: as many as heads."""
    key = "num_key_value_heads"
    absent = table.values.get(key, _MISSING) is _MISSING
    groups = table.integer(key, default=default if absent and default is not None else heads, most=MAX_HEADS)
    if heads % groups and absent:
        told = f"is missing, and its default in transformers, {groups}, does not divide num_attention_heads ({heads})"
        raise InputError(told, source=table.source, key=table.key(key), remedy=f"write a divisor of {heads}")
    if heads % groups:
        table.refuse(key, f"does not divide num_attention_heads ({heads})", f"write a divisor of {heads}")
    return int(groups)


def _latent_attention(table: Table) -> Attention:
    bias = table.flag("attention_bias", default=False)
    rank = None if table.values.get("q_lora_rank", 1536) is None else _size(table, "q_lora_rank", default=1536)
    latent = LatentAttention(
        q_lora_rank=rank,
        kv_lora_rank=_size(table, "kv_lora_rank", default=512),
        qk_nope_head_dim=_size(table, "qk_nope_head_dim", default=128),
        qk_rope_head_dim=_size(table, "qk_rope_head_dim", default=64),
        v_head_dim=_size(table, "v_head_dim", default=128),
    )
    heads = _size(table, "num_attention_heads", most=MAX_HEADS)
    head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    groups = _kv_heads(table, heads, None)  # no weight depends on them
    return Attention(heads, groups, head_dim, qkv_bias=bias, out_bias=bias, latent=latent)


def _feed_forward(table: Table, *, bias: bool = False, default: int | None = None) -> FeedForward:
    return FeedForward(_size(table, "intermediate_size", default=default, most=MAX_WIDTH), gated=True, bias=bias)


def _experts(table: Table, width_key: str, *, default_per_token: int, names: Sequence[str] = ()) -> Experts:
    names = (*names, "num_local_experts", "num_experts")
    count = _size(table, *names, most=MAX_EXPERTS)
    per_token = table.integer("num_experts_per_tok", default=min(default_per_token, count), most=MAX_EXPERTS)
    if per_token > count:
        table.refuse("num_experts_per_tok", f"exceeds the {count} experts", f"write at most {count}")
    return Experts(count, per_token, _size(table, width_key, most=MAX_WIDTH))


def _indices(table: Table, key: str) -> frozenset[int]:
    layers = table.items(key, default=(), most=MAX_BLOCKS)
    if any(isinstance(layer, bool) or not isinstance(layer, int) for layer in layers):
        table.refuse(key, "must be a list of layer indices", "write whole numbers from 0")
    return frozenset(layer for layer in layers if isinstance(layer, int))


def _window(table: Table, key: str = "sliding_window", *, default: int | None = None) -> int | None:
    """Tokens that one sees; null: all."""
    found = table.integer(key, default=default, most=MAX_POSITIONS) if table.values.get(key, 0) is not None else None
    return None if found is None else int(found)


def _windows_are_used(table: Table) -> bool:
    return bool(table.flag("use_sliding_window", default=False))


def _windowed(
    table: Table,
    attention: Attention,
    window: int | None,
    here: Callable[[int], bool] = lambda block: True,
    *,
    kind: str = _SLIDING,
) -> tuple[Attention, ...]:
    """The attention of every block: with ``window`` where ``layer_types``, or else ``here``, says so."""
    narrow = replace(attention, window=window, chunked=kind == _CHUNKED) if window is not None else attention
    kinds = _kinds(table, lambda block: kind if here(block) else _FULL, known=(kind, _FULL))
    return tuple(narrow if each == kind else attention for each in kinds)


def _late_windows(table: Table, attention: Attention) -> tuple[Attention, ...]:
    """Qwen's windows, which only ``use_sliding_window`` turns on: from block ``max_window_layers`` on."""
    window = _window(table, default=4096) if _windows_are_used(table) else None
    first = table.integer("max_window_layers", default=28, least=0)
    return _windowed(table, attention, window, lambda block: block >= first)


def _kinds(table: Table, usual: Callable[[int], str], *, known: Sequence[str]) -> tuple[str, ...]:
    """What sort of attention every block has: as ``layer_types`` says, or else ``usual``."""
    blocks = _size(table, "num_hidden_layers", most=MAX_BLOCKS)
    if table.values.get("layer_types") is None:
        return tuple(usual(block) for block in range(blocks))
    given = table.items("layer_types", most=MAX_BLOCKS)
    if len(given) != blocks:
        told = f"holds {len(given)} entries for {blocks} blocks"
        table.refuse("layer_types", told, "write one for each of num_hidden_layers", value=len(given))
    for each in given:
        if each not in known:
            told = "names attention that this architecture is not known to have"
            table.refuse("layer_types", told, f"write {' or '.join(known)}", value=each)
    return tuple(str(each) for each in given)


def _rotary_blocks(table: Table) -> tuple[bool, ...]:
    """Which blocks have rotary positions: 1 in ``no_rope_layers``, or else all but every fourth."""
    blocks = _size(table, "num_hidden_layers", most=MAX_BLOCKS)
    every = table.integer("no_rope_layer_interval", default=4, most=MAX_BLOCKS)
    given = table.items("no_rope_layers", default=(), most=MAX_BLOCKS) or [(i + 1) % every > 0 for i in range(blocks)]
    if any(each not in (0, 1) for each in given):
        table.refuse("no_rope_layers", "must be a list of 0 and 1", "write 1 for blocks with rotary positions, else 0")
    if len(given) < blocks:
        told = f"holds {len(given)} entries for {blocks} blocks"
        table.refuse("no_rope_layers", told, "write one for each of num_hidden_layers", value=len(given))
    return tuple(bool(each) for each in given)


def _dense(
    table: Table,
    name: str,
    attention: Attention | Sequence[Attention],
    feed_forward: FeedForward,
    *,
    max_seq: int,
    tied: bool = False,
    norms: int = 2,
) -> Model:
    """A model whose blocks have equal feed-forward networks."""
    blocks = _size(table, "num_hidden_layers", most=MAX_BLOCKS)
    attentions = (attention,) * blocks if isinstance(attention, Attention) else attention
    return _blocks(table, name, attentions, (feed_forward,) * blocks, max_seq=max_seq, tied=tied, norms=norms)


def _blocks(
    table: Table,
    name: str,
    attentions: Sequence[Attention],
    networks: Sequence[FeedForward],
    *,
    max_seq: int,
    tied: bool = False,
    norms: int = 2,
) -> Model:
    """A model of blocks with these attentions and feed-forward networks."""
    hidden = _size(table, "hidden_size", most=MAX_HIDDEN)
    blocks = tuple(
        replace(_block(hidden, attention, network), norms=norms)
        for attention, network in zip(attentions, networks, strict=True)
    )
    return _model(table, name, blocks, max_seq=_positions(table, max_seq), tied=tied)


def _block(hidden: int, attention: Attention, feed_forward: FeedForward, *, norm_bias: bool = False) -> Layer:
    return Layer(LayerKind.BLOCK, hidden, attention=attention, feed_forward=feed_forward, norm_bias=norm_bias)


def _model(
    table: Table,
    name: str,
    blocks: tuple[Layer, ...],
    *,
    max_seq: int,
    learned_positions: bool = False,
    tied: bool = False,
) -> Model:
    hidden, norm_bias = blocks[0].hidden, blocks[0].norm_bias
    vocab = _size(table, "vocab_size", most=MAX_VOCAB)
    tied = table.flag("tie_word_embeddings", default=tied)
    first = Layer(LayerKind.EMBEDDING, hidden, vocab=vocab, positions=max_seq if learned_positions else 0)
    last = Layer(LayerKind.HEAD, hidden, vocab=vocab, norm_bias=norm_bias, tied=tied)
    return Model(name, hidden, vocab, max_seq, (first, *blocks, last), source=table.source)


def _positions(table: Table, default: int) -> int:
    return _size(table, "max_position_embeddings", default=default, most=MAX_POSITIONS)


def _name(table: Table, *names: str) -> str:
    """The spelling of a key that the file uses; the first when it has none."""
    return next((name for name in names if table.has(name)), names[0])


def _size(table: Table, *names: str, default: int | None = None, most: int = MAX_WIDTH) -> int:
    """A positive whole number under the first of ``names`` that is there; required without a ``default``."""
    key = _name(table, *names)
    extra: dict[str, Any] = {} if default is None else {"default": default}
    return int(table.integer(key, most=most, **extra))


def _divide(table: Table, key: str, hidden: int, heads: int) -> int:
    if hidden % heads:
        table.refuse(key, f"is not a multiple of the {heads} attention heads", "correct one of them, or give head_dim")
    return hidden // heads
