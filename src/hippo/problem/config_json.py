"""Models from a Hugging Face ``config.json``.

``model_type`` says which architecture, or else ``architectures``: gpt2, the llama family (llama, mistral, ministral,
phi3, granite, smollm3), gemma 1 to 3 (text), olmo2, qwen2, qwen3, mixtral, qwen3_moe, glm4_moe, deepseek_v2,
deepseek_v3 and kimi_k2, which is deepseek_v3 under another name. Windows of attention are passed over: it is costed
over the whole sequence. Old and new spellings of a key are both read. Sizes must be there; everything else defaults to
what the configuration class of ``transformers`` 5.23 does. Parameter counts equal those of ``transformers`` exactly
(``tests/problem/test_config_json.py`` asks it on the meta device); multi-token prediction modules, which it does not
build either, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError, UnknownNameError
from hippo.problem.model import Attention, Experts, FeedForward, LatentAttention, Layer, LayerKind, Model
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
)
"""Keys that some architecture reads."""

_MISSING = object()


def model_from_config(document: object, *, source: str, name: str) -> Model:
    """The model that a ``config.json`` describes.

    Raises
    ------
    InputError
        An unknown architecture, a nested (multimodal) configuration, a missing, misspelt or impossible size.
    """
    table = open_table(document, source=source)
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
    bias = table.flag("attention_bias", default=False)
    mlp_bias = table.flag("mlp_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, kv_heads=kv_heads)
    return _dense(table, name, attention, _feed_forward(table, bias=mlp_bias), max_seq=max_seq, tied=tied)


def _mistral(table: Table, name: str, *, kv_heads: int | None = None, max_seq: int = 4096) -> Model:
    """Mistral (arXiv 2310.06825), Ministral and Phi-3 (arXiv 2404.14219): without biases, whatever the file says."""
    return _dense(table, name, _attention(table, kv_heads=kv_heads), _feed_forward(table), max_seq=max_seq)


def _qwen2(table: Table, name: str) -> Model:
    """Qwen2 and Qwen2.5 (arXiv 2407.10671): biases on queries, keys and values only."""
    attention = _attention(table, qkv_bias=True, kv_heads=32)
    return _dense(table, name, attention, _feed_forward(table), max_seq=32768)


def _qwen3(table: Table, name: str) -> Model:
    """Qwen3, dense (arXiv 2505.09388): norms on queries and keys."""
    bias = table.flag("attention_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=True, kv_heads=32, head_dim=128)
    return _dense(table, name, attention, _feed_forward(table), max_seq=32768)


def _mixtral(table: Table, name: str) -> Model:
    """Mixtral (arXiv 2401.04088): every block is a mixture of experts of the full width."""
    experts = _experts(table, "intermediate_size", default_per_token=2)
    feed_forward = FeedForward(experts.width, gated=True, experts=experts)
    return _dense(table, name, _attention(table, kv_heads=8), feed_forward, max_seq=131072)


def _qwen3_moe(table: Table, name: str) -> Model:
    """Qwen3, mixture of experts: ``mlp_only_layers`` and ``decoder_sparse_step`` say which blocks are dense."""
    bias = table.flag("attention_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=True, kv_heads=4)
    experts = _experts(table, "moe_intermediate_size", default_per_token=8)
    sparse = FeedForward(experts.width, gated=True, experts=experts)
    step = table.integer("decoder_sparse_step", default=1, most=MAX_BLOCKS)
    dense_layers = _dense_layers(table)
    is_sparse = [
        index not in dense_layers and (index + 1) % step == 0
        for index in range(_size(table, "num_hidden_layers", most=MAX_BLOCKS))
    ]
    hidden = _size(table, "hidden_size", most=MAX_HIDDEN)
    dense = sparse if all(is_sparse) else _feed_forward(table, default=6144)
    blocks = tuple(_block(hidden, attention, sparse if mixed else dense) for mixed in is_sparse)
    return _model(table, name, blocks, max_seq=_positions(table, 32768))


def _gemma(
    table: Table, name: str, *, kv_heads: int, qk_norm: bool = False, norms: int = 4, max_seq: int = 8192
) -> Model:
    """Gemma 1 to 3 (arXiv 2403.08295, 2408.00118, 2503.19786), text alone: tied head, from 2 on four norms."""
    bias = table.flag("attention_bias", default=False)
    attention = _attention(table, qkv_bias=bias, out_bias=bias, qk_norm=qk_norm, kv_heads=kv_heads, head_dim=256)
    block = replace(_block(_size(table, "hidden_size", most=MAX_HIDDEN), attention, _feed_forward(table)), norms=norms)
    blocks = _size(table, "num_hidden_layers", most=MAX_BLOCKS)
    return _model(table, name, (block,) * blocks, max_seq=_positions(table, max_seq), tied=True)


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


def _with_shared_experts(
    table: Table, name: str, attention: Attention, *, shared: int, first_dense: int, max_seq: int
) -> Model:
    """Some dense blocks, then blocks with experts that all tokens share; numbers are defaults for absent keys."""
    if table.flag("mlp_bias", default=False):
        table.refuse("mlp_bias", "is not supported beside experts", "give a model without biases there", value=True)
    experts = _experts(table, "moe_intermediate_size", default_per_token=8, names=("n_routed_experts",))
    always = table.integer("n_shared_experts", default=shared, least=0, most=MAX_EXPERTS)
    experts = Experts(experts.count, experts.per_token, experts.width, always)
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
        "qwen3_moe": _qwen3_moe,
        "mistral": partial(_mistral, kv_heads=8, max_seq=131072),
        "ministral": partial(_mistral, kv_heads=8, max_seq=131072),
        "phi3": _mistral,
        "gemma": partial(_gemma, kv_heads=16, norms=2),
        "gemma2": partial(_gemma, kv_heads=4),
        "gemma3_text": partial(_gemma, kv_heads=4, qk_norm=True, max_seq=131072),
        "olmo2": _olmo2,
        "granite": _llama,
        "smollm3": partial(_llama, kv_heads=4, max_seq=32768, tied=True),
        "glm4_moe": _glm4_moe,
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
        "Qwen3MoeForCausalLM": "qwen3_moe",
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


def _dense_layers(table: Table) -> frozenset[int]:
    layers = table.items("mlp_only_layers", default=(), most=MAX_BLOCKS)
    if any(isinstance(layer, bool) or not isinstance(layer, int) for layer in layers):
        table.refuse("mlp_only_layers", "must be a list of layer indices", "write whole numbers from 0")
    return frozenset(layer for layer in layers if isinstance(layer, int))


def _dense(
    table: Table, name: str, attention: Attention, feed_forward: FeedForward, *, max_seq: int, tied: bool = False
) -> Model:
    """A model of equal blocks."""
    block = _block(_size(table, "hidden_size", most=MAX_HIDDEN), attention, feed_forward)
    blocks = _size(table, "num_hidden_layers", most=MAX_BLOCKS)
    return _model(table, name, (block,) * blocks, max_seq=_positions(table, max_seq), tied=tied)


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
