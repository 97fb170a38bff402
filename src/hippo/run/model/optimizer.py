"""AdamW (Loshchilov and Hutter 2019), its state beside each weight, so that a layer can be saved or moved whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.optim.adamw import adamw

from hippo.run.model.weights import Weight

Tensor = torch.Tensor


@dataclass(frozen=True)
class AdamRates:
    """Settings of the optimizer."""

    learning: float = 1e-3
    first: float = 0.9
    second: float = 0.95
    decay: float = 0.01
    epsilon: float = 1e-8


@dataclass(frozen=True, eq=False)
class AdamState:
    """State of one weight: master copy (the value itself where it is precise enough) and both moments."""

    master: Tensor
    first: Tensor
    second: Tensor


def moments(weight: Weight) -> AdamState:
    """The state at the start."""
    value = weight.value.detach()
    precise = weight.total.dtype == value.dtype
    return AdamState(
        value if precise else value.to(weight.total.dtype), *(torch.zeros_like(weight.total) for _ in "12")
    )


@torch.no_grad()
def update(pairs: Iterable[tuple[Weight, AdamState]], step: int, rates: AdamRates) -> None:
    """One step (the first is 1) with the summed gradients, which are cleared."""
    weights, states = zip(*pairs, strict=True)
    advance(states, [weight.total for weight in weights], step, rates)
    for weight, state in zip(weights, states, strict=True):
        if state.master.dtype != weight.value.dtype:
            weight.value.detach().copy_(state.master)
        weight.total.zero_()


@torch.no_grad()
def advance(states: Sequence[AdamState], gradients: Sequence[Tensor], step: int, rates: AdamRates) -> None:
    """States of a step (the first is 1) later. Each number follows from its own gradient alone, so who is told the
    gradients of a part of a weight makes the same state of it."""
    adamw(
        [state.master for state in states],
        list(gradients),
        [state.first for state in states],
        [state.second for state in states],
        [],
        [torch.tensor(step - 1.0) for _ in states],  # it counts before it uses them
        foreach=False,
        amsgrad=False,
        maximize=False,
        beta1=rates.first,
        beta2=rates.second,
        lr=rates.learning,
        weight_decay=rates.decay,
        eps=rates.epsilon,
    )
