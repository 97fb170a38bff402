"""PPO (Schulman et al. 2017) on moments of noise: several passes, the ratio clipped (``hippo.learn.ppo``)."""

from __future__ import annotations

import numpy as np
import torch

from hippo.jobs.train.critic import advantage, returns
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments
from hippo.jobs.train.settings import Settings
from hippo.learn import ppo


def update(
    policy: KeyPolicy, optimizer: torch.optim.Optimizer, moments: Moments, settings: Settings, seed: int
) -> dict[str, float]:
    """One update; the figures of it."""
    target = returns(moments)
    with torch.no_grad():
        before = policy.evaluate(moments.features, moments.push)
    batch = ppo.Batch(
        moments.features, moments.push, before.log_prob, advantage(before.values[:, 0], target), target[:, None]
    )
    order = ppo.minibatches([len(target)], settings.ppo, [np.random.default_rng(seed)])
    found = ppo.update(policy.evaluate, optimizer, batch, settings=settings.ppo, order=order)
    return {"value": found.value, "kl": found.kl, "clipped": found.clipped, "minibatches": found.minibatches}
