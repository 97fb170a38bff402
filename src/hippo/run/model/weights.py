"""Weights of the layers: their shapes, how tensor parallelism cuts them, their first values, their summed gradients.

First values depend on the seed and the layer alone: no cut of the model, and no tensor parallelism, changes them.
Letters: h hidden, a heads, g key-value heads, d head size, w width of the feed-forward network, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import torch

from hippo.problem.model import Layer, LayerKind, Model

Tensor = torch.Tensor
SPREAD = 0.02  # standard deviation of matrices at the start (GPT-2)


@dataclass(frozen=True)
class WeightForm:
    """One weight of a layer."""

    name: str
    shape: tuple[int, ...]  # whole, before tensor parallelism
    split: int | None = None  # dimension that tensor parallelism cuts; None: every rank holds all of it
    spread: float = SPREAD  # of the first values; 0: all ``start``
    start: float = 0.0
    partial: bool = False  # every rank holds all, and a gradient of its own heads only: summed over the ranks


@dataclass(frozen=True, eq=False)
class Weight:
    """A rank's share of a weight, with the gradient of the step so far."""

    form: WeightForm
    value: Tensor
    total: Tensor  # summed gradient


@dataclass(frozen=True)
class TensorSplit:
    """A rank's place in its tensor-parallel group, and the finest split among all replicas."""

    size: int = 1
    index: int = 0
    parts: int = 1


def forms(model: Model, index: int, parts: int = 1) -> tuple[WeightForm, ...]:
    """The weights of layer ``index``; ``parts``: the finest split of the plan, which key-value heads must follow.

    A tied head does not name the matrix, which is that of layer 0.
    """
    layer = model.layers[index]
    if layer.kind is LayerKind.EMBEDDING:
        return tuple(_embedding(layer))
    if layer.kind is LayerKind.HEAD:
        matrix = () if layer.tied else (WeightForm("matrix", (layer.vocab, layer.hidden)),)
        return (*_norm("norm", layer.hidden, layer.norm_bias), *matrix)
    return (*_attention(layer, model, parts), *_feed_forward(layer, model))


def _embedding(layer: Layer) -> Iterator[WeightForm]:
    yield WeightForm("matrix", (layer.vocab, layer.hidden))
    if layer.positions:
        yield WeightForm("positions", (layer.positions, layer.hidden))
    if layer.embedding_norm:
        yield from _norm("norm", layer.hidden, bias=True)


def _norm(name: str, size: int, bias: bool, *, partial: bool = False) -> Iterator[WeightForm]:
    yield WeightForm(name, (size,), spread=0.0, start=1.0, partial=partial)
    if bias:
        yield WeightForm(f"{name}.bias", (size,), spread=0.0, partial=partial)


def _attention(layer: Layer, model: Model, parts: int) -> Iterator[WeightForm]:
    att, h = layer.attention, layer.hidden
    assert att is not None
    a, g, d = att.heads, att.kv_heads, att.head_dim
    shared = g % parts > 0  # fewer heads than ranks somewhere: every rank holds all keys and values
    yield from _norm("before_attention", h, layer.norm_bias)
    for name, heads, whole in (("query", a, False), ("key", g, shared), ("value", g, shared)):
        yield WeightForm(name, (heads * d, h), None if whole else 0, partial=whole)
        if att.qkv_bias:
            yield WeightForm(f"{name}.bias", (heads * d,), None if whole else 0, spread=0.0, partial=whole)
    if att.qk_norm:
        yield from _norm("query.norm", d, bias=False, partial=True)
        yield from _norm("key.norm", d, bias=False, partial=True)
    yield WeightForm("out", (h, a * d), 1, spread=SPREAD / sqrt(2 * model.num_blocks))
    if att.out_bias:
        yield WeightForm("out.bias", (h,), spread=0.0)


def _feed_forward(layer: Layer, model: Model) -> Iterator[WeightForm]:
    ff, h = layer.feed_forward, layer.hidden
    assert ff is not None
    yield from _norm("before_feed_forward", h, layer.norm_bias)
    for name in ("gate", "up") if ff.gated else ("up",):
        yield WeightForm(name, (ff.width, h), 0)
        if ff.bias:
            yield WeightForm(f"{name}.bias", (ff.width,), 0, spread=0.0)
    yield WeightForm("down", (h, ff.width), 1, spread=SPREAD / sqrt(2 * model.num_blocks))
    if ff.bias:
        yield WeightForm("down.bias", (h,), spread=0.0)


def cut(form: WeightForm, whole: Tensor, split: TensorSplit) -> Tensor:
    """A rank's share of a whole weight."""
    if form.split is None or split.size == 1:
        return whole.clone()
    return whole.chunk(split.size, dim=form.split)[split.index].clone()


def joined(form: WeightForm, shares: list[Tensor]) -> Tensor:
    """The whole weight from the shares of all ranks of a tensor-parallel group."""
    return shares[0] if form.split is None else torch.cat(shares, dim=form.split)


def initial(
    model: Model, index: int, *, seed: int, split: TensorSplit, dtype: torch.dtype, device: str = "cpu"
) -> dict[str, Weight]:
    """The weights of a layer at the start of the training, by name; drawn on the CPU whatever the device."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
    found = {}
    for form in forms(model, index, split.parts):
        drawn = torch.empty(form.shape)
        if form.spread:
            drawn.normal_(0.0, form.spread, generator=generator)
        else:
            drawn.fill_(form.start)
        found[form.name] = weight(form, cut(form, drawn, split).to(device, dtype))
    return found


def weight(form: WeightForm, value: Tensor) -> Weight:
    """A weight with nothing summed yet; sums of half-precision gradients are fp32."""
    precise = torch.promote_types(value.dtype, torch.float32)
    return Weight(form, value.requires_grad_(), torch.zeros(value.shape, dtype=precise, device=value.device))
