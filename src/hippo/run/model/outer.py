"""The outer optimizer of local SGD (DiLoCo, Douillard et al. 2023, arXiv 2311.08105, algorithm 1).

Replicas train alone for H steps of AdamW. Then the mean over the replicas of what each has moved since the last outer
step is a gradient, which SGD with Nesterov momentum takes from where all began. Where the mean comes in late (while
replicas train on), what a replica has done since it told its difference is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from hippo.run.model.stage import Part

Tensor = torch.Tensor
At = tuple[int, str]  # layer, name of the weight


@dataclass(frozen=True)
class OuterRates:
    """Settings of the outer optimizer; the paper's."""

    learning: float = 0.7
    momentum: float = 0.9


@dataclass(frozen=True, eq=False)
class Outer:
    """State of one seat: where all replicas began, the momentum, and what it had when it told its difference."""

    part: Part
    rates: OuterRates = OuterRates()
    start: dict[At, Tensor] = field(default_factory=dict)
    velocity: dict[At, Tensor] = field(default_factory=dict)
    told: dict[At, Tensor] = field(default_factory=dict)

    @classmethod
    @torch.no_grad()
    def new(cls, part: Part, rates: OuterRates = OuterRates()) -> Outer:
        """All replicas begin here."""
        found = cls(part, rates)
        for at, master in found.masters():
            found.start[at] = master.clone()
            found.velocity[at] = torch.zeros_like(master)
        return found

    def masters(self) -> Iterator[tuple[At, Tensor]]:
        """Every weight in full precision, once."""
        for layer, states in self.part.states.items():
            for name, state in states.items():
                yield (layer, name), state.master

    @torch.no_grad()
    def differences(self) -> Iterator[tuple[At, Tensor]]:
        """What the replica has moved since the last outer step, against the direction of learning; it is told now."""
        for at, master in self.masters():
            self.told[at] = master.clone()
            yield at, self.start[at] - master

    @torch.no_grad()
    def step(self, mean: Mapping[At, Tensor]) -> None:
        """The outer step with the mean of all differences."""
        for at, master in self.masters():
            velocity = self.velocity[at].mul_(self.rates.momentum).add_(mean[at])
            self.start[at].sub_(mean[at] + self.rates.momentum * velocity, alpha=self.rates.learning)
            master.sub_(self.told[at]).add_(self.start[at])
            value = self.part.weights[at[0]][at[1]].value
            if value.dtype != master.dtype:
                value.detach().copy_(master)
