"""What the layers compute: embedding, block (GPT-2's or Llama's form), head with the loss.

Letters: b sequences, s tokens of each, h hidden, d head size. Matrices lie in tensor-parallel parts; norms, biases of
outputs, embedding and head are whole on every rank of a team.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional

from hippo.problem.model import Layer, LayerKind
from hippo.run.model.weights import TensorSplit, Weight

# ----------------------------------------------------------------------------------------------------- tensor parallel
# The ends of a tensor-parallel region (Shoeybi et al. 2019, section 3): columns first, then rows, one sum each way.
#
# ``enter`` passes on what every rank holds and sums its gradient; ``leave`` sums what the ranks computed and passes
# its gradient on.

Tensor = torch.Tensor


class Team(Protocol):
    """Ranks that share matrices."""

    @property
    def size(self) -> int:
        """How many they are."""
        ...

    def sum(self, tensor: Tensor) -> None:
        """Replaces the tensor by the sum over the ranks."""
        ...


class NoTeam:
    """A team of one."""

    size = 1

    def sum(self, tensor: Tensor) -> None:
        """Nothing to add."""


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, team: Team) -> Tensor:
        """As it is."""
        ctx.team = team
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The sum."""
        total = gradients[0].contiguous().clone()
        ctx.team.sum(total)
        return total, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, team: Team) -> Tensor:
        """The sum."""
        total = given.contiguous().clone()
        team.sum(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """As it is."""
        return gradients[0], None


def enter(given: Tensor, team: Team) -> Tensor:
    """The same values; their gradient is summed over the team."""
    if team.size == 1:
        return given
    return _Enter.apply(given, team)  # type: ignore[no-any-return, no-untyped-call]


def leave(given: Tensor, team: Team) -> Tensor:
    """The sum over the team; its gradient is passed on as it is."""
    if team.size == 1:
        return given
    return _Leave.apply(given, team)  # type: ignore[no-any-return, no-untyped-call]


# ------------------------------------------------------------------------------------------------------------ products
# Matrix products whose weight gradients are made by hand: at once, or later (the W of split backwards).
#
# Autograd makes the gradient of the input only. What the weight's gradient needs, the input x (n, k) and the gradient
# of the output (n, r), is noted in a ledger; ``settle`` adds x^T times it to the sum. Embeddings likewise.


class WeightGradients:
    """What one pass of one wave owes to the weights, in the order in which the backward pass met them."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Weight, Tensor, Tensor]] = []  # layer, weight, input or tokens, gradient
        self.layer = 0  # that runs forward now

    def note(self, layer: int, weight: Weight, given: Tensor, gradient: Tensor) -> None:
        """Keeps what the gradient of a weight needs."""
        self.entries.append((layer, weight, given, gradient))

    def settle(self) -> None:
        """Adds everything to the sums of the weights."""
        for layer in dict.fromkeys(entry[0] for entry in self.entries):
            self.settle_layer(layer)
        self.entries.clear()

    @torch.no_grad()
    def settle_layer(self, layer: int) -> None:
        """Adds what is owed to one layer's weights."""
        for of, weight, given, gradient in self.entries:
            if of == layer:
                _add(weight, given, gradient)


def _add(weight: Weight, given: Tensor, gradient: Tensor) -> None:
    gradient = gradient.reshape(-1, gradient.shape[-1])
    if given.is_floating_point():
        flat = given.reshape(-1, given.shape[-1])
        if flat.dtype == weight.total.dtype:
            weight.total.addmm_(gradient.t(), flat)
        else:
            weight.total.add_(gradient.t() @ flat)
    else:
        weight.total.index_add_(0, given.reshape(-1), gradient.to(weight.total.dtype))


class _Product(torch.autograd.Function):
    """y = x W^T."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, value: Tensor, weight: Weight, ledger: WeightGradients) -> Tensor:
        """(.., r); ``value`` is the weight's own, so that autograd knows there is something to do."""
        ctx.save_for_backward(given)
        ctx.weight, ctx.ledger, ctx.layer = weight, ledger, ledger.layer
        return given @ value.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Gradient of the input; the weight's is noted."""
        (given,) = ctx.saved_tensors
        ctx.ledger.note(ctx.layer, ctx.weight, given, gradients[0])
        return gradients[0] @ ctx.weight.value, None, None, None


class _LookUp(torch.autograd.Function):
    """Rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, rows: Tensor, weight: Weight, ledger: WeightGradients) -> Tensor:
        """(.., h)."""
        ctx.weight, ctx.ledger, ctx.layer, ctx.rows = weight, ledger, ledger.layer, rows
        return value[rows]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The matrix's gradient is noted."""
        ctx.ledger.note(ctx.layer, ctx.weight, ctx.rows, gradients[0])
        return None, None, None, None


def product(given: Tensor, weight: Weight, ledger: WeightGradients) -> Tensor:
    """(.., k) times the transpose of a matrix (r, k): (.., r)."""
    return _Product.apply(given, weight.value, weight, ledger)  # type: ignore[no-any-return, no-untyped-call]


def look_up(rows: Tensor, weight: Weight, ledger: WeightGradients) -> Tensor:
    """Rows (..) of a matrix (n, h): (.., h)."""
    return _LookUp.apply(weight.value, rows, weight, ledger)  # type: ignore[no-any-return, no-untyped-call]


Weights = Mapping[str, Weight]
EPSILON = 1e-5
ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class LayerContext:
    """What a layer needs besides its weights and its input."""

    layer: Layer
    ledger: WeightGradients
    split: TensorSplit = TensorSplit()
    team: Team = NoTeam()
    rotary: bool = False  # positions by rotation of queries and keys


def run(frame: LayerContext, weights: Weights, given: Tensor) -> Tensor:
    """Output (b, s, h) of an embedding (given tokens (b, s)) or a block (given (b, s, h))."""
    if frame.layer.kind is LayerKind.EMBEDDING:
        return _embedding(frame, weights, given)
    after = given + _attention(frame, weights, _norm(frame, weights, "before_attention", given))
    return after + _feed_forward(frame, weights, _norm(frame, weights, "before_feed_forward", after))


def loss(frame: LayerContext, weights: Weights, given: Tensor, targets: Tensor) -> Tensor:
    """Sum of the cross entropies of the tokens (b, s) that follow; ``weights`` hold the head's matrix."""
    logits = product(_norm(frame, weights, "norm", given), weights["matrix"], frame.ledger)
    if logits.dtype is not torch.float64:
        logits = logits.float()
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def _embedding(frame: LayerContext, weights: Weights, tokens: Tensor) -> Tensor:
    output = look_up(tokens, weights["matrix"], frame.ledger)
    if "positions" in weights:
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        output = output + look_up(places, weights["positions"], frame.ledger)
    return _norm(frame, weights, "norm", output) if "norm" in weights else output


def _norm(frame: LayerContext, weights: Weights, name: str, given: Tensor) -> Tensor:
    scale, bias = weights[name].value, weights.get(f"{name}.bias")
    if bias is None:
        return functional.rms_norm(given, scale.shape, scale, EPSILON)
    return functional.layer_norm(given, scale.shape, scale, bias.value, EPSILON)


def _linear(frame: LayerContext, weights: Weights, name: str, given: Tensor) -> Tensor:
    output, bias = product(given, weights[name], frame.ledger), weights.get(f"{name}.bias")
    return output if bias is None else output + bias.value


def _attention(frame: LayerContext, weights: Weights, given: Tensor) -> Tensor:
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


def _for_queries(frame: LayerContext, given: Tensor) -> Tensor:
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


def _feed_forward(frame: LayerContext, weights: Weights, given: Tensor) -> Tensor:
    inner = enter(given, frame.team)
    up = _linear(frame, weights, "up", inner)
    if "gate" in weights:
        wide = functional.silu(_linear(frame, weights, "gate", inner)) * up
    else:
        wide = functional.gelu(up, approximate="tanh")
    output = leave(product(wide, weights["down"], frame.ledger), frame.team)
    return output + weights["down.bias"].value if "down.bias" in weights else output
