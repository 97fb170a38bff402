"""The four algorithms of the key network's policy gradient: PPO, A2C, A3C and REINFORCE.

All step on moments of noise (``rollout``), worth their credit against what the critic expected: returns of deviation 1,
advantages of mean 0.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments
from hippo.jobs.train.settings import Gradient, KeyTraining
from hippo.learn.ppo import Batch, minibatches, normalised
from hippo.learn.ppo import update as ppo_update


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


def ppo(
    policy: KeyPolicy,
    optimizer: torch.optim.Optimizer,
    moments: Moments,
    settings: KeyTraining,
    seed: int,
) -> dict[str, float]:
    """Several passes, the ratio clipped (Schulman et al. 2017); the figures of the update."""
    target = returns(moments)
    with torch.no_grad():
        before = policy.evaluate(moments.features, moments.push)
    batch = Batch(
        moments.features, moments.push, before.log_prob, advantage(before.values[:, 0], target), target[:, None]
    )
    order = minibatches([len(target)], settings.ppo, [np.random.default_rng(seed)])
    found = ppo_update(policy.evaluate, optimizer, batch, settings=settings.ppo, order=order)
    return {"value": found.value, "kl": found.kl, "clipped": found.clipped, "minibatches": found.minibatches}


def a2c(
    policy: KeyPolicy,
    optimizer: torch.optim.Optimizer,
    moments: Moments,
    settings: KeyTraining,
    seed: int,
    *,
    critic: bool = True,
) -> dict[str, float]:
    """The synchronous actor-critic (Mnih et al. 2016): one step on the moments of all windows together.

    Nothing is drawn: ``seed`` is not used.
    """
    found = loss(policy, moments, settings.gradient, critic=critic)
    optimizer.zero_grad()
    found.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(policy.parameters(), settings.gradient.max_grad_norm)
    optimizer.step()
    return {"loss": float(found.detach()), "grad_norm": float(norm)}


Play = Callable[[KeyPolicy, int], Moments]
"""Plays the windows of a seed with a policy."""


def a3c(
    policy: KeyPolicy, optimizer: torch.optim.Optimizer, play: Play, settings: KeyTraining, seeds: Sequence[int]
) -> dict[str, float]:
    """The asynchronous actor-critic (Mnih et al. 2016): one gradient per seed, by several workers.

    Every worker takes a copy of the shared network, plays windows with it, works out a gradient on the copy, and steps
    the shared network with that at once, without waiting for the others: by then the network may have moved on. Only a
    copy and a step are done by one worker at a time: Adam's moments, written by two at once, made first steps ten
    thousand times too long. Workers are threads. One seed gives one run only with one worker.
    """

    alone = Lock()

    def work(seed: int) -> tuple[float, int]:
        with alone:
            own = copy.deepcopy(policy)
        moments = play(own, seed)
        found = loss(own, moments, settings.gradient)
        own.zero_grad()
        found.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(own.parameters(), settings.gradient.max_grad_norm)
        with alone:
            for shared, each in zip(policy.parameters(), own.parameters(), strict=True):
                shared.grad = each.grad
            optimizer.step()
        return float(found.detach()), len(moments.push)

    with ThreadPoolExecutor(settings.gradient.workers) as workers:
        found = list(workers.map(work, seeds))
    return {"loss": sum(each for each, _ in found) / len(found), "moments": float(sum(each for _, each in found))}


reinforce = partial(a2c, critic=False)
"""REINFORCE (Williams 1992): no critic; the mean credit of the batch is the baseline."""
