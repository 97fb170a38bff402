"""The dispatch policy in torch: the network that ships."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hippo.dispatch.features import CHOICES, FEATURES
from hippo.dispatch.network import DispatchWeights
from hippo.learn.ppo import Evaluated, choice


class SeenChoices(NamedTuple):
    """What a batch of decisions was taken on, N first."""

    seen: Tensor  # (N, FEATURES)
    mask: Tensor  # (N, 4)
    says: Tensor  # (N, 4) one for what the base would have done


class DispatchPolicy(nn.Module):
    """The actor; there is no critic (``learner`` says why)."""

    def __init__(self, weights: DispatchWeights) -> None:
        super().__init__()
        hidden = len(weights.first_bias)
        self.first, self.second = nn.Linear(FEATURES, hidden), nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, CHOICES)
        self.trust = nn.Parameter(torch.from_numpy(np.array(weights.trust)))
        self.take(weights)

    def take(self, weights: DispatchWeights) -> None:
        """Takes over weights; hidden layers that are all zero (the follower's) keep their random beginning."""
        with torch.no_grad():
            for layer, name in ((self.first, "first"), (self.second, "second"), (self.last, "last")):
                weight, bias = getattr(weights, name), getattr(weights, f"{name}_bias")
                if name == "last" or np.any(weight):
                    layer.weight.copy_(torch.from_numpy(np.array(weight.T)))
                    layer.bias.copy_(torch.from_numpy(np.array(bias)))
            self.trust.copy_(torch.from_numpy(np.array(weights.trust)))

    def weights(self) -> DispatchWeights:
        """The actor as the kernels take it."""
        arrays = []
        for layer in (self.first, self.second, self.last):
            arrays += [layer.weight.detach().numpy().T, layer.bias.detach().numpy()]
        arrays.append(self.trust.detach().numpy())
        return DispatchWeights(*(np.array(each, np.float32, order="C") for each in arrays))

    def scores(self, seen: SeenChoices) -> Tensor:
        """(N, 4), as ``dispatch.network.scores``."""
        hidden = torch.relu(self.second(torch.relu(self.first(seen.seen))))
        found: Tensor = self.last(hidden) + self.trust * seen.says
        return found

    def evaluate(self, seen: SeenChoices, action: Tensor) -> Evaluated:
        """For ``ppo.update``."""
        log_probs, entropy = choice(self.scores(seen), seen.mask)
        return Evaluated(log_probs.gather(1, action[:, None])[:, 0], entropy, log_probs.new_zeros(len(action), 0))
