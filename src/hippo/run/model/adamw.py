"""AdamW (Loshchilov and Hutter 2019), its state beside each weight, so that a layer can be saved or moved whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from hippo.run.model.weights import Weight

Tensor = torch.Tensor


@dataclass(frozen=True)
class Rates:
    """Settings of the optimizer."""

    learning: float = 1e-3
    first: float = 0.9
    second: float = 0.95
    decay: float = 0.01
    epsilon: float = 1e-8


@dataclass(frozen=True, eq=False)
class Moments:
    """State of one weight: master copy (the value itself where it is precise enough) and both moments."""

    master: Tensor
    first: Tensor
    second: Tensor


def moments(weight: Weight) -> Moments:
    """The state at the start."""
    value = weight.value.detach()
    precise = weight.total.dtype == value.dtype
    return Moments(value if precise else value.to(weight.total.dtype), *(torch.zeros_like(weight.total) for _ in "12"))


@torch.no_grad()
def update(pairs: Iterable[tuple[Weight, Moments]], step: int, rates: Rates) -> None:
    """One step (the first is 1) with the summed gradients, which are cleared."""
    first, second = 1 - rates.first**step, 1 - rates.second**step
    for weight, state in pairs:
        gradient = weight.total
        state.first.lerp_(gradient, 1 - rates.first)
        state.second.mul_(rates.second).addcmul_(gradient, gradient, value=1 - rates.second)
        state.master.mul_(1 - rates.learning * rates.decay)
        state.master.addcdiv_(
            state.first, (state.second / second).sqrt_().add_(rates.epsilon), value=-rates.learning / first
        )
        if state.master.dtype != weight.value.dtype:
            weight.value.detach().copy_(state.master)
        gradient.zero_()
