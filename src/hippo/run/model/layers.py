"""What the layers compute: embedding, block (GPT-2's or Llama's form), head with the loss.

Letters: b sequences, s tokens of each, h hidden, d head size. Matrices lie in tensor-parallel parts; norms, biases of
outputs, embedding and head are whole on every rank of a team.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from hippo.problem.model import Layer, LayerKind
from hippo.run.model.products import Ledger, look_up, product
from hippo.run.model.tensor_parallel import Alone, Team, enter, leave
from hippo.run.model.weights import Split, Weight

Tensor = torch.Tensor
Weights = Mapping[str, Weight]
EPSILON = 1e-5
ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class Frame:
    """What a layer needs besides its weights and its input."""

    layer: Layer
    ledger: Ledger
    split: Split = Split()
    team: Team = Alone()
    rotary: bool = False  # positions by rotation of queries and keys


def run(frame: Frame, weights: Weights, given: Tensor) -> Tensor:
    """Output (b, s, h) of an embedding (given tokens (b, s)) or a block (given (b, s, h))."""
    if frame.layer.kind is LayerKind.EMBEDDING:
        return _embedding(frame, weights, given)
    after = given + _attention(frame, weights, _norm(frame, weights, "before_attention", given))
    return after + _feed_forward(frame, weights, _norm(frame, weights, "before_feed_forward", after))


def loss(frame: Frame, weights: Weights, given: Tensor, targets: Tensor) -> Tensor:
    """Sum of the cross entropies of the tokens (b, s) that follow; ``weights`` hold the head's matrix."""
    logits = product(_norm(frame, weights, "norm", given), weights["matrix"], frame.ledger)
    if logits.dtype is not torch.float64:
        logits = logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def _embedding(frame: Frame, weights: Weights, tokens: Tensor) -> Tensor:
    output = look_up(tokens, weights["matrix"], frame.ledger)
    if "positions" in weights:
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        output = output + look_up(places, weights["positions"], frame.ledger)
    return _norm(frame, weights, "norm", output) if "norm" in weights else output


def _norm(frame: Frame, weights: Weights, name: str, given: Tensor) -> Tensor:
    scale, bias = weights[name].value, weights.get(f"{name}.bias")
    if bias is None:
        return functional.rms_norm(given, scale.shape, scale, EPSILON)
    return functional.layer_norm(given, scale.shape, scale, bias.value, EPSILON)


def _linear(frame: Frame, weights: Weights, name: str, given: Tensor) -> Tensor:
    output, bias = product(given, weights[name], frame.ledger), weights.get(f"{name}.bias")
    return output if bias is None else output + bias.value


def _attention(frame: Frame, weights: Weights, given: Tensor) -> Tensor:
    attention, (b, s, _) = frame.layer.attention, given.shape
    assert attention is not None
    d, inner = attention.head_dim, enter(given, frame.team)
    query, key, value = (
        _linear(frame, weights, name, inner).view(b, s, -1, d).transpose(1, 2) for name in ("query", "key", "value")
    )
    if attention.qk_norm:
        query, key = (_norm(frame, weights, f"{n}.norm", each) for n, each in (("query", query), ("key", key)))
    if frame.rotary:
        query, key = _rotated(query), _rotated(key)
    key, value = (_for_queries(frame, each) for each in (key, value))
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    output = leave(product(mixed.transpose(1, 2).reshape(b, s, -1), weights["out"], frame.ledger), frame.team)
    return output + weights["out.bias"].value if "out.bias" in weights else output


def _for_queries(frame: Frame, given: Tensor) -> Tensor:
    """Keys or values (b, g, s, d) of the rank's own queries, one per query head."""
    attention, size = frame.layer.attention, frame.split.size
    assert attention is not None
    own = attention.heads // size
    if attention.kv_heads % frame.split.parts == 0:
        return given.repeat_interleave(own // given.shape[1], dim=1)
    heads = torch.arange(frame.split.index * own, (frame.split.index + 1) * own, device=given.device)
    return given[:, heads // (attention.heads // attention.kv_heads)]


def _rotated(given: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021) of (b, heads, s, d): halves of the head are turned against each other."""
    s, half = given.shape[2], given.shape[3] // 2
    rates = ROTARY_BASE ** (-torch.arange(half, device=given.device, dtype=torch.float64) / half)
    angle = torch.arange(s, device=given.device, dtype=torch.float64)[:, None] * rates
    cosine, sine = angle.cos().to(given.dtype), angle.sin().to(given.dtype)
    one, two = given[..., :half], given[..., half : 2 * half]
    return torch.cat([one * cosine - two * sine, two * cosine + one * sine, given[..., 2 * half :]], dim=-1)


def _feed_forward(frame: Frame, weights: Weights, given: Tensor) -> Tensor:
    inner = enter(given, frame.team)
    up = _linear(frame, weights, "up", inner)
    if "gate" in weights:
        wide = functional.silu(_linear(frame, weights, "gate", inner)) * up
    else:
        wide = functional.gelu(up, approximate="tanh")
    output = leave(product(wide, weights["down"], frame.ledger), frame.team)
    return output + weights["down.bias"].value if "down.bias" in weights else output
