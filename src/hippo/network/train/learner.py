"""The upper agent's learner: a policy, its optimizer and multipliers, and one update after another.

Collect decisions in every share of the worlds; mix the advantages of reward and costs by the multipliers; PPO; one step
of the dual. Under several processes each has shares of its own and all learn the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hippo.learn.distributed import Place
from hippo.learn.ppo import Batch, Losses, minibatches, normalised, update
from hippo.learn.session import Learned
from hippo.network.observation.features import Observation
from hippo.network.train.multipliers import CONSTRAINTS, ascend, mixed, start
from hippo.network.train.rollout import Decisions, Share, collect, evaluate, valued
from hippo.network.train.settings import HiPpoSettings


class UpperLearner:
    """Owns what is learned. ``shares``: the worlds of this process."""

    def __init__(self, policy: nn.Module, shares: Sequence[Share], settings: HiPpoSettings, place: Place) -> None:
        self.policy, self.shares, self.settings, self.place = policy, shares, settings, place
        self.multipliers = start(settings.multipliers)
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=settings.ppo.learning_rate, eps=1e-5)
        worlds = sum(len(share.seen.context) for share in shares) * place.size
        self.steps = max(1, settings.ppo.steps_per_update // worlds)

    def learn(self, done: float) -> Learned:
        """One update; ``done``: share of the run that lies behind, which sets learning rate and entropy."""
        began = time.process_time()
        ppo = self.settings.ppo
        rate = _between(ppo.learning_rate, ppo.learning_rate_end, done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rolls = [collect(self.policy, share, self.steps) for share in self.shares]
        batch, figures = self._batch(rolls)
        losses = self._update(batch, rolls, _between(ppo.entropy, ppo.entropy_end, done))
        figures |= {f"ppo/{name}": float(value) for name, value in losses._asdict().items()}
        self.multipliers = ascend(
            self.multipliers, [figures[f"cost/{name}"] for name in CONSTRAINTS], self.settings.multipliers
        )
        figures |= {f"multiplier/{name}": float(mu) for name, mu in zip(CONSTRAINTS, self.multipliers, strict=True)}
        epochs = self._summed(float(sum(roll.epochs.sum() for roll in rolls)))
        return Learned(figures, int(epochs), time.process_time() - began)

    def state(self) -> tuple[Sequence[float], list[Any]]:
        """For a checkpoint."""
        return list(self.multipliers), [share.state() for share in self.shares]

    def restore(self, multipliers: Sequence[float], shares: Sequence[Any]) -> None:
        """From a checkpoint."""
        self.multipliers[:] = multipliers
        for share, state in zip(self.shares, shares, strict=True):
            share.restore(state)

    def _update(self, batch: Batch, rolls: Sequence[Decisions], entropy: float) -> Losses:
        """PPO on the batch; a process takes its part of every minibatch."""
        ppo = self.settings.ppo
        order = minibatches(
            [roll.decisions for roll in rolls],
            replace(ppo, minibatch=max(1, ppo.minibatch // self.place.size)),
            [share.rng for share in self.shares],
        )

        def judge(observation: Any, action: Tensor) -> Any:
            return evaluate(self.policy, observation, action)

        return update(
            judge,
            self.optimizer,
            batch,
            settings=ppo,
            order=order,
            entropy=entropy,
            together=self.place.together,
        )

    def _batch(self, rolls: Sequence[Decisions]) -> tuple[Batch, dict[str, float]]:
        """All decisions, share after share, with their advantages mixed; and the means that people look at."""
        found = [valued(roll, self.settings.ppo) for roll in rolls]
        advantage = np.concatenate([mixed(each, self.multipliers).reshape(-1) for each, _ in found])
        returns = np.concatenate([each.reshape(-1, each.shape[-1]) for _, each in found])
        observation = Observation(
            *(
                torch.from_numpy(np.concatenate([each.reshape(-1, *each.shape[2:]) for each in parts]))
                for parts in zip(*(roll.observation for roll in rolls), strict=True)
            )  # type: ignore[arg-type]
        )
        batch = Batch(
            observation,
            torch.from_numpy(np.concatenate([roll.action.reshape(-1) for roll in rolls])),
            torch.from_numpy(np.concatenate([roll.log_prob.reshape(-1) for roll in rolls])),
            normalised(torch.from_numpy(advantage), self.place.together),
            torch.from_numpy(returns),
        )
        return batch, self._means(rolls, returns)

    def _means(self, rolls: Sequence[Decisions], returns: Any) -> dict[str, float]:
        """Regret and costs per epoch, how well values say what comes, how often something is changed."""
        rewards = np.concatenate([roll.rewards.reshape(-1, roll.rewards.shape[-1]) for roll in rolls])
        epochs = self._summed(float(sum(roll.epochs.sum() for roll in rolls)))
        per_epoch = [self._summed(float(column.sum(dtype=np.float64))) / epochs for column in rewards.T]
        values = np.concatenate([roll.values[:-1, :, 0].reshape(-1) for roll in rolls])
        explained = 1.0 - float(np.var(returns[:, 0] - values) / max(1e-12, float(np.var(returns[:, 0]))))
        decisions = self._summed(float(sum(roll.decisions for roll in rolls)))
        kept = self._summed(float(sum((roll.action == 0).sum() for roll in rolls)))
        return {
            "reward": per_epoch[0],
            **{f"cost/{name}": each for name, each in zip(CONSTRAINTS, per_epoch[1:], strict=True)},
            "explained": explained,
            "kept": kept / decisions,
            "epochs_per_decision": epochs / decisions,
        }

    def _summed(self, value: float) -> float:
        return float(self.place.together.mean(torch.tensor(value, dtype=torch.float64))) * self.place.size


def _between(first: float, last: float, done: float) -> float:
    return first + (last - first) * min(max(done, 0.0), 1.0)
