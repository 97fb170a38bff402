"""The key network in torch, as the kernels compute it, with its noise and with a critic.

Letters: N moments, F features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hippo.jobs.learned.features import FEATURES
from hippo.jobs.learned.state import MOST_PUSH
from hippo.jobs.learned.weights import KEY_UNITS, KeyWeights
from hippo.learn.ppo import Evaluated


class KeyPolicy(nn.Module):
    """Pushes (N,) of keys' logarithms: normal, with a mean that the features say and one deviation; and a critic."""

    def __init__(self, noise: float, units: int = KEY_UNITS) -> None:
        super().__init__()
        size = len(FEATURES)
        self.first, self.second, self.last = nn.Linear(size, units), nn.Linear(units, units), nn.Linear(units, 1)
        self.log_noise = nn.Parameter(torch.tensor(float(np.log(noise))))
        self.critic = nn.Sequential(nn.Linear(size, units), nn.Tanh(), nn.Linear(units, 1))
        with torch.no_grad():  # says nothing at first
            self.last.weight.zero_()
            self.last.bias.zero_()

    def forward(self, features: Tensor) -> Tensor:
        """Means (N,) of the pushes."""
        hidden = torch.relu(self.second(torch.relu(self.first(features))))
        push = self.last(hidden)[:, 0]
        return MOST_PUSH * torch.tanh(push / MOST_PUSH)

    def evaluate(self, features: Tensor, push: Tensor) -> Evaluated:
        """What the policy thinks of pushes (N,) that were given."""
        choice = torch.distributions.Normal(self(features), self.log_noise.exp())
        likely, chaos = choice.log_prob(push), choice.entropy()  # type: ignore[no-untyped-call]
        return Evaluated(likely, chaos, self.critic(features))

    @property
    def noise(self) -> float:
        """The deviation."""
        return float(self.log_noise.detach().exp())

    def into(self, weights: KeyWeights) -> KeyWeights:
        """The weights with this network's numbers in them."""
        return weights._replace(
            key_first=_kernel(self.first.weight.T),
            key_first_bias=_kernel(self.first.bias),
            key_second=_kernel(self.second.weight.T),
            key_second_bias=_kernel(self.second.bias),
            key_last=_kernel(self.last.weight[0]),
            key_last_bias=_kernel(self.last.bias),
        )

    def take(self, weights: KeyWeights) -> None:
        """The network of these weights."""
        with torch.no_grad():
            self.first.weight.copy_(torch.from_numpy(weights.key_first.T.copy()))
            self.first.bias.copy_(torch.from_numpy(weights.key_first_bias))
            self.second.weight.copy_(torch.from_numpy(weights.key_second.T.copy()))
            self.second.bias.copy_(torch.from_numpy(weights.key_second_bias))
            self.last.weight.copy_(torch.from_numpy(weights.key_last[None]))
            self.last.bias.copy_(torch.from_numpy(weights.key_last_bias))


def _kernel(values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(values.detach().numpy(), np.float32, order="C")
