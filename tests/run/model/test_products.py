"""Gradients made by hand, at once or later, are those of autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from hippo.problem.model import Model
from hippo.run.model.layers import LayerContext, WeightGradients, loss, run
from hippo.run.model.stage import Part, StageSettings, sequences
from hippo.run.model.weights import TensorSplit, initial

from ..worlds import GPT2, LLAMA, SEQ

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def tokens(model: Model, count: int = 2) -> torch.Tensor:
    return sequences(0, 0, count, seq=SEQ, vocab=model.vocab)


def by_autograd(model: Model, given: torch.Tensor) -> tuple[float, dict[tuple[int, str], torch.Tensor]]:
    """The loss and every gradient by plain operations and autograd alone, from the same first values."""
    leaves = {
        (layer, name): one.value.detach().clone().requires_grad_()
        for layer in range(model.num_layers)
        for name, one in initial(model, layer, seed=0, split=TensorSplit(), dtype=torch.float64).items()
    }

    def linear(layer: int, name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, leaves[layer, name], leaves.get((layer, f"{name}.bias")))

    def norm(layer: int, name: str, x: torch.Tensor) -> torch.Tensor:
        scale, bias = leaves[layer, name], leaves.get((layer, f"{name}.bias"))
        if bias is None:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * scale
        return functional.layer_norm(x, scale.shape, scale, bias, 1e-5)

    x = functional.embedding(given[:, :-1], leaves[0, "matrix"])
    rotary = (0, "positions") not in leaves
    if not rotary:
        x = x + leaves[0, "positions"][:SEQ]
    for layer in range(1, model.num_layers - 1):
        x = x + attention(model, layer, norm(layer, "before_attention", x), linear, rotary)
        y = norm(layer, "before_feed_forward", x)
        up = linear(layer, "up", y)
        wide = functional.silu(linear(layer, "gate", y)) * up if (layer, "gate") in leaves else gelu(up)
        x = x + linear(layer, "down", wide)
    last = model.num_layers - 1
    matrix = leaves[0, "matrix"] if model.tied else leaves[last, "matrix"]
    logits = norm(last, "norm", x) @ matrix.t()
    found = functional.cross_entropy(logits.flatten(0, 1), given[:, 1:].flatten())
    found.backward()
    return found.item(), {key: leaf.grad for key, leaf in leaves.items() if leaf.grad is not None}


def gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def attention(model: Model, layer: int, x: torch.Tensor, linear, rotary: bool) -> torch.Tensor:
    """Attention head by head, with the whole square of scores."""
    att = model.layers[layer].attention
    b, s, d = x.shape[0], SEQ, att.head_dim
    q, k, v = (linear(layer, name, x).view(b, s, -1, d) for name in ("query", "key", "value"))
    mask = torch.ones(s, s, dtype=torch.bool).tril()
    heads = []
    for head in range(att.heads):
        group = head * att.kv_heads // att.heads
        one, two = q[:, :, head], k[:, :, group]
        if rotary:
            one, two = turned(one), turned(two)
        scores = (one @ two.transpose(1, 2) / d**0.5).masked_fill(~mask, float("-inf"))
        heads.append(scores.softmax(-1) @ v[:, :, group])
    return linear(layer, "out", torch.cat(heads, dim=-1))


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions as complex numbers."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half], x[..., half:])
    angle = torch.arange(SEQ)[:, None] * 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    done = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([done.real, done.imag], dim=-1)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_gradients_are_those_of_autograd(model: Model, recompute: bool):
    given = tokens(model)
    part = Part.new(model, [(0, model.num_layers)], StageSettings(2 * SEQ, dtype=torch.float64, recompute=recompute))
    output = part.forward((0, 0), None, given)
    part.backward((0, 0), None)
    part.weight((0, 0))
    wanted, gradients = by_autograd(model, given)
    assert float(output) == pytest.approx(wanted, rel=1e-12)
    checked = 0
    for layer, weights in part.weights.items():
        for name, one in weights.items():
            if (layer, name) in gradients:
                torch.testing.assert_close(one.total, gradients[layer, name], **EXACT)
                checked += 1
    assert checked == len(gradients)


def test_weight_gradients_wait_until_they_are_asked_for():
    part = Part.new(GPT2, [(0, GPT2.num_layers)], StageSettings(2 * SEQ, dtype=torch.float64))
    part.forward((0, 0), None, tokens(GPT2))
    part.backward((0, 0), None)
    assert not part.weights[2]["up"].total.any()
    assert part.weights[2]["before_attention"].total.any()
    heard: list[int] = []
    part.weight((0, 0), heard.append)
    assert part.weights[2]["up"].total.any()
    assert heard == [5, 4, 3, 2, 1, 0]


def test_chunks_hand_over_what_the_whole_computes():
    given = tokens(LLAMA)
    settings = StageSettings(2 * SEQ, dtype=torch.float64)
    whole = Part.new(LLAMA, [(0, 6)], settings)
    parts = [Part.new(LLAMA, [cut], settings) for cut in ((0, 2), (2, 5), (5, 6))]
    expected = whole.forward((0, 0), None, given)
    one = parts[0].forward((0, 0), None, given)
    two = parts[1].forward((0, 0), one, None)
    assert float(parts[2].forward((0, 0), two, given)) == float(expected)
    back = parts[1].backward((0, 0), parts[2].backward((0, 0), None))
    parts[0].backward((0, 0), back)
    whole.backward((0, 0), None)
    for part in (*parts, whole):
        part.weight((0, 0))
    for part in parts:
        for layer, weights in part.weights.items():
            for name, one_weight in weights.items():
                torch.testing.assert_close(one_weight.total, whole.weights[layer][name].total, **EXACT)


def test_bf16_sums_gradients_in_fp32():
    part = Part.new(GPT2, [(0, 6)], replace(StageSettings(2 * SEQ), dtype=torch.bfloat16))
    for wave in range(2):
        part.forward((0, wave), None, tokens(GPT2))
        part.backward((0, wave), None)
        part.weight((0, wave))
    totals = {one.total.dtype for weights in part.weights.values() for one in weights.values()}
    assert totals == {torch.float32}
    before = part.weights[1]["up"].value.clone()
    part.finish(1)
    assert not torch.equal(part.weights[1]["up"].value, before)
    assert part.weights[1]["up"].value.dtype is torch.bfloat16


def test_layers_of_a_frame_alone():
    """The two functions of a layer may be asked directly."""
    ledger = WeightGradients()
    first = initial(GPT2, 0, seed=0, split=TensorSplit(), dtype=torch.float64)
    hidden = run(LayerContext(GPT2.layers[0], ledger), first, tokens(GPT2)[:, :-1])
    assert hidden.shape == (2, SEQ, GPT2.hidden)
    head = initial(GPT2, 5, seed=0, split=TensorSplit(), dtype=torch.float64) | {"matrix": first["matrix"]}
    total = loss(LayerContext(GPT2.layers[5], ledger), head, hidden, tokens(GPT2)[:, 1:])
    assert total.ndim == 0
