"""The model to train: a sequence of layers that are never cut.

Layer 0 is the embedding, then the blocks, the last layer is the head. Parameter formulas: facts of the Hugging
Face implementations, checked against ``transformers`` on the meta device in ``tests/problem/test_model.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property


class LayerKind(str, Enum):
    """What a layer is; one profile row or one cost per (kind, shape)."""

    EMBEDDING = "embedding"
    BLOCK = "block"
    HEAD = "head"


@dataclass(frozen=True)
class Attention:
    """Self-attention of one block. ``latent`` is None except for multi-head latent attention (DeepSeek).

    With ``linear`` it is linear attention: ``heads`` and ``head_dim`` are of its values, ``kv_heads`` of its keys.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    wide_qk_norm: bool = False  # norms over all heads together (OLMo 2), not over each
    latent: LatentAttention | None = None
    window: int | None = None  # tokens that one sees, itself among them; None: all before it
    chunked: bool = False  # the window does not slide: the sequence is cut into chunks of its length (Llama 4)
    sinks: bool = False  # a learned logit per head that takes attention from the tokens (gpt-oss)
    output_gate: bool = False  # gates as wide as the queries, computed with them (Qwen3-Next)
    linear: LinearAttention | None = None

    def within(self, seq: int) -> Attention:
        """The attention as sequences of ``seq`` tokens meet it: a window that holds them all is none."""
        if self.window is None or self.window < seq:
            return self
        return replace(self, window=None, chunked=False)

    def seen(self, seq: int) -> float:
        """Tokens that one of ``seq`` sees on average, half of the causal square's edge where nothing bounds it.

        Of a window of w tokens, the first w see w / 2 and the others w: w - w^2 / (2 seq).
        """
        if self.window is None or self.window >= seq:
            return seq / 2
        if not self.chunked:
            return self.window - self.window**2 / (2 * seq)
        whole, rest = divmod(seq, self.window)
        return (whole * self.window**2 + rest**2) / (2 * seq)


@dataclass(frozen=True)
class LinearAttention:
    """The gated delta rule with a short convolution before it (Yang et al. 2024, arXiv 2412.06464; Qwen3-Next).

    With ``state_space`` it is the scan of Mamba-2 (Dao and Gu 2024, arXiv 2405.21060), which is linear attention with a
    decay: heads are its values, groups its keys, and the size of a key that of its state.
    """

    key_head_dim: int
    conv: int  # tokens that the convolution sees
    chunk: int = 64  # tokens that kernels take at a time
    state_space: bool = False
    conv_bias: bool = False

    def channels(self, attention: Attention) -> int:
        """What the convolution sees of a token: queries, keys and values."""
        return 2 * attention.kv_heads * self.key_head_dim + attention.heads * attention.head_dim

    def steps(self, attention: Attention) -> int:
        """What is projected besides queries, keys, values and gates: step sizes, and decays of the delta rule."""
        return attention.heads * (1 if self.state_space else 2)


@dataclass(frozen=True)
class LatentAttention:
    """Ranks and head sizes of multi-head latent attention (DeepSeek-V3, section 2.1.1)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class Experts:
    """Mixture of experts of one block: ``count`` routed experts of width ``width``, ``per_token`` active."""

    count: int
    per_token: int
    width: int
    shared: int = 0  # shared experts, each of width ``width``
    shared_width: int | None = None  # total width of the shared experts where it is not shared * width
    router_bias: int = 0  # parameters of a learned router bias
    latent: int | None = None  # width that tokens are projected to for the routed experts (Nemotron 3 Super)
    shared_gate: bool = False  # a learned gate of one value per token on the shared experts (Qwen2-MoE)

    @property
    def all_shared_width(self) -> int:
        """Width of the shared experts together."""
        return self.shared * self.width if self.shared_width is None else self.shared_width

    def token_width(self, hidden: int) -> int:
        """Width of a token where it meets the routed experts, and on its way there and back."""
        return hidden if self.latent is None else self.latent


@dataclass(frozen=True)
class FeedForward:
    """Feed-forward network of one block: dense (``experts`` None) or mixture of experts."""

    width: int
    gated: bool
    bias: bool = False  # of the dense network, or of every expert
    experts: Experts | None = None

    def parameters_of(self, hidden: int, width: int) -> int:
        """Parameters of one network of this form and ``width``."""
        matrices = 3 if self.gated else 2
        return matrices * hidden * width + self.bias * ((matrices - 1) * width + hidden) * (width > 0)


@dataclass(frozen=True)
class Layer:
    """Unit of the model that is never cut. Equal layers compare equal: costs are computed once per distinct layer.

    A block of a hybrid model (Nemotron-H) is attention or a feed-forward network alone, with one norm.
    """

    kind: LayerKind
    hidden: int
    vocab: int = 0  # embedding and head; of a block: it predicts one more token, with the head's matrix
    positions: int = 0  # learned position embeddings, embedding only
    attention: Attention | None = None  # block only
    feed_forward: FeedForward | None = None  # block only
    norm_bias: bool = False  # LayerNorm (weight and bias) instead of RMSNorm
    tied: bool = False  # head only: shares its matrix with the embedding
    norms: int = 2  # block only: as wide as hidden; Gemma has them behind attention and feed-forward, too
    embedding_norm: bool = False  # embedding only: a LayerNorm follows it (BLOOM)

    @property
    def parts(self) -> int:
        """Attention and feed-forward network: 2 in most blocks, 1 in those of a hybrid model, 0 elsewhere."""
        return (self.attention is not None) + (self.feed_forward is not None)

    @cached_property
    def attention_parameters(self) -> int:
        """Parameters of the attention, without norms."""
        if self.attention is None:
            return 0
        att, h = self.attention, self.hidden
        if att.latent is not None:
            return _latent_attention_parameters(h, att)
        if att.linear is not None:
            return _linear_attention_parameters(h, att, att.linear)
        queries, keys = att.heads * att.head_dim, att.kv_heads * att.head_dim
        inner = queries * (2 if att.output_gate else 1) + 2 * keys
        total = h * inner + queries * h + inner * att.qkv_bias + h * att.out_bias + att.heads * att.sinks
        return total + 2 * att.head_dim * att.qk_norm + (queries + keys) * att.wide_qk_norm

    @cached_property
    def expert_parameters(self) -> int:
        """Parameters of the routed experts of this layer (0 for a dense layer); these are split by ep."""
        ff = self.feed_forward
        if ff is None or ff.experts is None:
            return 0
        return ff.experts.count * ff.parameters_of(ff.experts.token_width(self.hidden), ff.experts.width)

    @cached_property
    def feed_forward_parameters(self) -> int:
        """Parameters of the feed-forward network: dense, or router, routed and shared experts."""
        ff, h = self.feed_forward, self.hidden
        if ff is None:
            return 0
        if ff.experts is None:
            return ff.parameters_of(h, ff.width)
        router = h * (ff.experts.count + ff.experts.shared_gate) + ff.experts.router_bias
        router += 2 * h * (ff.experts.latent or 0)
        return self.expert_parameters + router + ff.parameters_of(h, ff.experts.all_shared_width)

    @cached_property
    def parameters(self) -> int:
        """All parameters stored by this layer; a tied head stores only its final norm."""
        norm = self.hidden * (2 if self.norm_bias else 1)
        if self.kind is LayerKind.EMBEDDING:
            return (self.vocab + self.positions + 2 * self.embedding_norm) * self.hidden
        if self.kind is LayerKind.HEAD:
            return norm + (0 if self.tied else self.vocab * self.hidden)
        joins = 2 * self.hidden**2 + 3 * norm if self.vocab else 0  # of the next token's embedding and what came before
        return self.attention_parameters + self.feed_forward_parameters + self.norms * norm + joins

    @cached_property
    def active_parameters(self) -> int:
        """Parameters one token passes through (of the routed experts, ``per_token``)."""
        ff = self.feed_forward
        if ff is None or ff.experts is None:
            return self.parameters
        idle = ff.experts.count - ff.experts.per_token
        return self.parameters - self.expert_parameters // ff.experts.count * idle


def _latent_attention_parameters(hidden: int, attention: Attention) -> int:
    """Down- and up-projections of queries, keys and values with their norms; biases where they project from hidden."""
    latent, heads = attention.latent, attention.heads
    assert latent is not None
    q_dim, rank = latent.qk_nope_head_dim + latent.qk_rope_head_dim, latent.q_lora_rank
    if rank is None:
        queries = hidden * heads * q_dim
    else:
        queries = hidden * rank + rank * attention.qkv_bias + rank + rank * heads * q_dim
    compressed_dim = latent.kv_lora_rank + latent.qk_rope_head_dim
    compressed = hidden * compressed_dim + compressed_dim * attention.qkv_bias + latent.kv_lora_rank
    expanded = latent.kv_lora_rank * heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return queries + compressed + expanded + heads * latent.v_head_dim * hidden + hidden * attention.out_bias


def _linear_attention_parameters(hidden: int, attention: Attention, linear: LinearAttention) -> int:
    """Queries, keys, values and output gates; step and decay per value head; convolution, norm, projection back.

    Of Mamba-2 each head has a rate, a bias of its step and a weight of what passes by; the norm is of all heads.
    """
    values = attention.heads * attention.head_dim
    inner = linear.channels(attention) + values + linear.steps(attention)
    projections = hidden * inner + values * hidden + inner * attention.qkv_bias + hidden * attention.out_bias
    of_heads = (3 if linear.state_space else 2) * attention.heads
    norm = values if linear.state_space else attention.head_dim
    return projections + of_heads + (linear.conv + linear.conv_bias) * linear.channels(attention) + norm


@dataclass(frozen=True)
class Model:
    """A large language model as a sequence of layers: embedding, blocks, head."""

    name: str
    hidden: int
    vocab: int
    max_seq: int
    layers: tuple[Layer, ...]
    source: str = ""

    @property
    def num_layers(self) -> int:
        """Number of layers N, embedding and head included; cuts are indices in [1, N)."""
        return len(self.layers)

    @property
    def num_blocks(self) -> int:
        """Number of transformer blocks."""
        return len(self.layers) - 2

    @cached_property
    def distinct_layers(self) -> tuple[Layer, ...]:
        """Every sort of layer once, in order of first appearance."""
        return tuple(dict.fromkeys(self.layers))

    @cached_property
    def parameters(self) -> int:
        """All parameters, tied matrices counted once."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters one token passes through."""
        return sum(layer.active_parameters for layer in self.layers)

    @cached_property
    def has_linear_attention(self) -> bool:
        """Whether some block has linear attention."""
        return any(layer.attention is not None and layer.attention.linear is not None for layer in self.distinct_layers)

    @property
    def tied(self) -> bool:
        """Whether the head shares the embedding's matrix."""
        return self.layers[-1].tied


def with_next_tokens(model: Model, modules: int = 1) -> Model:
    """The model with modules that predict one more token each (DeepSeek-V3, section 2.2): a block before the head.

    Of a hybrid model, attention and a feed-forward network (Nemotron 3: the last of each kind).
    """
    *layers, head = model.layers
    module: tuple[Layer, ...] = (replace(layers[-1], vocab=model.vocab),)
    if layers[-1].parts == 1:
        full = (each for each in reversed(layers) if each.attention is not None and each.attention.linear is None)
        module = (next(full), *module)
    return replace(model, layers=(*layers, *module * modules, head))


def gpt_model(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    vocab: int,
    seq: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    ffn: int | None = None,
    gated: bool = False,
    bias: bool | None = None,
    tied: bool | None = None,
    norm_bias: bool | None = None,
    learned_positions: bool | None = None,
    embedding_norm: bool = False,
    experts: Experts | None = None,
    source: str = "",
) -> Model:
    """A model of ``layers`` equal blocks from the sizes that tables print.

    Not ``gated`` means GPT-2's form (biases, LayerNorm, learned positions, tied head); ``gated`` means Llama's
    (no biases, RMSNorm, rotary positions, untied head). Each of the four can be set on its own.
    ``ffn`` defaults to 4 x ``hidden``, ``kv_heads`` to ``heads``, ``head_dim`` to ``hidden // heads``.
    """
    gpt2_form = not gated
    bias, tied = (gpt2_form if flag is None else flag for flag in (bias, tied))
    norm_bias, learned_positions = (gpt2_form if flag is None else flag for flag in (norm_bias, learned_positions))
    attention = Attention(heads, kv_heads or heads, head_dim or hidden // heads, qkv_bias=bias, out_bias=bias)
    feed_forward = FeedForward(ffn or 4 * hidden, gated, bias=bias, experts=experts)
    block = Layer(LayerKind.BLOCK, hidden, attention=attention, feed_forward=feed_forward, norm_bias=norm_bias)
    positions = seq if learned_positions else 0
    first = Layer(LayerKind.EMBEDDING, hidden, vocab=vocab, positions=positions, embedding_norm=embedding_norm)
    last = Layer(LayerKind.HEAD, hidden, vocab=vocab, norm_bias=norm_bias, tied=tied)
    return Model(name, hidden, vocab, seq, (first, *(block,) * layers, last), source)
