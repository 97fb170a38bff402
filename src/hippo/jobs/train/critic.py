"""What moments were worth against what the critic expected: returns of deviation 1, advantages of mean 0."""

from __future__ import annotations

import torch
from torch import Tensor

from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments
from hippo.jobs.train.settings import Gradient
from hippo.learn.ppo import normalised


def returns(moments: Moments) -> Tensor:
    """Credits (N,) over their deviation: windows differ by orders of magnitude."""
    return moments.credit / (moments.credit.std(correction=0) + 1e-8)


def advantage(expected: Tensor, target: Tensor) -> Tensor:
    """(N,) of mean 0 and deviation 1."""
    return normalised(target - expected)


def loss(policy: KeyPolicy, moments: Moments, gradient: Gradient, *, critic: bool = True) -> Tensor:
    """The actor-critic's loss (Mnih et al. 2016): likelihood times advantage, squared error, entropy.

    Without ``critic`` the advantage is the return less its mean over the batch (Williams 1992).
    """
    target = returns(moments)
    now = policy.evaluate(moments.features, moments.push)
    expected = now.values[:, 0] if critic else torch.zeros_like(target)
    found = -(now.log_prob * advantage(expected.detach(), target)).mean() - gradient.entropy * now.entropy.mean()
    return found + gradient.value * (expected - target).square().mean() if critic else found
