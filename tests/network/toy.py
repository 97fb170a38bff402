"""A trivial world in the shape of the real one: the option whose feature is highest pays most, now and for good."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hippo.learn.randomness import numbers, words
from hippo.network.env.env import TimeStep
from hippo.network.observation.features import CONTEXT, EDGES, NODES, OPTIONS, Observation

M, K = 4, 2


class ToyEnvs:
    """``size`` runs of ``length`` decisions; an option's first feature is its reward, the second its first cost."""

    def __init__(self, size: int, seed: int, length: int = 6) -> None:
        self.size, self.length, self.rng = size, length, np.random.default_rng(seed)
        self.clock = self.rng.integers(length, size=size)
        self._draw()

    def _draw(self) -> None:
        self.options = self.rng.random((self.size, M, OPTIONS)).astype(np.float32)
        self.mask = self.rng.random((self.size, M)) < 0.7
        self.mask[:, 0] = True

    def reset(self) -> Observation:
        return self._seen()

    def _seen(self) -> Observation:
        w = self.size
        return Observation(
            nodes=np.zeros((w, K, NODES), np.float32),
            edges=np.zeros((w, K, K, EDGES), np.float32),
            node_mask=np.ones((w, K), bool),
            context=np.zeros((w, CONTEXT), np.float32),
            options=self.options.copy(),
            option_nodes=np.zeros((w, M, K), np.float32),
            option_edges=np.zeros((w, M, K, K), np.float32),
            option_mask=self.mask.copy(),
        )

    def step(self, actions: np.ndarray) -> TimeStep:
        rows = np.arange(self.size)
        assert self.mask[rows, actions].all()
        reward = self.options[rows, actions, 0] - 1.0
        costs = np.stack([self.options[rows, actions, 1], np.zeros(self.size), np.zeros(self.size)], 1)
        self.clock += 1
        done = self.clock >= self.length
        self.clock[done] = 0
        epochs = self.rng.integers(1, 4, size=self.size)
        self._draw()
        return TimeStep(self._seen(), reward, done, costs.astype(np.float32), epochs, reward)

    def state(self) -> dict[str, Any]:
        return {
            "clock": self.clock.copy(),
            "options": self.options,
            "mask": self.mask,
            "rng": words(self.rng.bit_generator.state),
        }

    def restore(self, state: dict[str, Any]) -> Observation:
        self.clock, self.options, self.mask = state["clock"].copy(), state["options"], state["mask"]
        self.rng.bit_generator.state = numbers(state["rng"])
        return self._seen()


class ToyPolicy(nn.Module):
    """Scores each option by itself; one value for all."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(OPTIONS, 8), nn.Tanh(), nn.Linear(8, 1))
        self.value, self.costs = nn.Linear(OPTIONS, 1), nn.Linear(OPTIONS, 3)

    def forward(self, seen: Observation) -> tuple[Tensor, Tensor, Tensor]:
        mean = seen.options.mean(1)  # type: ignore[attr-defined]
        return self.score(seen.options)[..., 0], self.value(mean)[:, 0], self.costs(mean)


def toy_policy(seed: int = 0) -> ToyPolicy:
    torch.manual_seed(seed)
    return ToyPolicy()
