"""Decisions taken in many worlds at once, kept for an update.

A *share* is a part of the worlds with random numbers of its own: what happens in it depends on the policy alone, not on
which process runs it beside which others.

Letters: T decisions in a row, W worlds of a share, G costs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hippo.learn.advantage import advantages
from hippo.learn.ppo import Evaluated, choice
from hippo.learn.randomness import numbers, words
from hippo.learn.settings import Ppo
from hippo.network.env.env import TimeStep
from hippo.network.observation.features import Observation

Floats = NDArray[np.float32]


class Envs(Protocol):
    """Worlds that run side by side."""

    def reset(self) -> Observation:
        """First observation, of new runs."""
        ...

    def step(self, actions: NDArray[np.int64]) -> TimeStep:
        """One decision in each world."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that what comes depends on, as arrays, numbers and words."""
        ...

    def restore(self, state: dict[str, Any]) -> Observation:
        """Goes on from such a state; what is seen there."""
        ...


class Decisions(NamedTuple):
    """Decisions of a share, (T, W) each."""

    observation: Observation  # arrays (T, W, ...)
    action: NDArray[np.int64]
    log_prob: Floats
    rewards: Floats  # (T, W, 1 + G)
    values: Floats  # (T + 1, W, 1 + G)
    done: NDArray[np.bool_]
    epochs: NDArray[np.int64]

    @property
    def decisions(self) -> int:
        """T x W."""
        return int(self.action.size)


class Share:
    """A part of the worlds: its environments, its random numbers, what was last seen."""

    def __init__(self, envs: Envs, rng: np.random.Generator) -> None:
        self.envs, self.rng, self.seen = envs, rng, envs.reset()

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"envs": self.envs.state(), "rng": words(self.rng.bit_generator.state)}

    def restore(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.rng.bit_generator.state = numbers(state["rng"])
        self.seen = self.envs.restore(state["envs"])


def tensors(observation: Observation) -> Observation:
    """The same observation as tensors, sharing memory."""
    return Observation(*(torch.from_numpy(np.ascontiguousarray(each)) for each in observation))  # type: ignore[arg-type]


def evaluate(policy: nn.Module, observation: Any, action: Tensor) -> Evaluated:
    """The upper agent's view of decisions: how likely, how undecided, what it expects of reward and costs."""
    logits, value, costs = policy(observation)[:3]
    log_probs, entropy = choice(logits, observation.option_mask)
    values = torch.cat([value.reshape(-1, 1), costs], dim=1)
    return Evaluated(log_probs.gather(1, action[:, None])[:, 0], entropy, values)


@torch.no_grad()
def decide(policy: nn.Module, observation: Observation, rng: np.random.Generator | None) -> tuple[Any, Any, Any]:
    """Actions (W,), their log probabilities (W,), values (W, 1 + G). Without random numbers: the argmax action."""
    seen = tensors(observation)
    logits, value, costs = policy(seen)[:3]
    log_probs = choice(logits, seen.option_mask)[0].numpy()  # type: ignore[arg-type]
    action = log_probs.argmax(1) if rng is None else drawn(log_probs, rng)
    values = torch.cat([value.reshape(-1, 1), costs], dim=1).numpy()
    return action, np.take_along_axis(log_probs, action[:, None], 1)[:, 0], values


def drawn(log_probs: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """One draw per row: where a uniform number falls among the summed probabilities."""
    summed = np.exp(log_probs, dtype=np.float64).cumsum(1)
    point = rng.random(len(log_probs)) * summed[:, -1]
    return np.asarray((summed > point[:, None]).argmax(1), dtype=np.int64)


def collect(policy: nn.Module, share: Share, steps: int) -> Decisions:
    """``steps`` decisions in each world of the share; leaves it ready for the next."""
    worlds = len(share.seen.context)
    seen = Observation(*(np.zeros((steps, *each.shape), each.dtype) for each in share.seen))
    shape = (steps, worlds)
    action, log_prob = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    done, epochs = np.zeros(shape, bool), np.zeros(shape, np.int64)
    rewards: list[Any] = []
    values: list[Any] = []
    for step in range(steps):
        for kept, now in zip(seen, share.seen, strict=True):
            kept[step] = now
        action[step], log_prob[step], expected = decide(policy, share.seen, share.rng)
        values.append(expected)
        came = share.envs.step(action[step])
        rewards.append(np.concatenate([np.asarray(came.reward)[:, None], came.costs], axis=1))
        done[step], epochs[step], share.seen = came.done, came.epochs, came.observation
    values.append(decide(policy, share.seen, None)[2])
    return Decisions(seen, action, log_prob, np.stack(rewards).astype(np.float32), np.stack(values), done, epochs)


def valued(roll: Decisions, settings: Ppo) -> tuple[Floats, Floats]:
    """Advantages and returns of a roll, (T, W, 1 + G)."""
    return advantages(
        roll.rewards, roll.values, done=roll.done, epochs=roll.epochs, gamma=settings.gamma, lam=settings.gae_lambda
    )
