"""A3C: the actor-critic of Mnih et al. (2016), asynchronous.

Every worker takes a copy of the shared network, plays windows with it, works out a gradient on the copy, and steps the
shared network with that at once, without a lock and without waiting for the others (Niu et al. 2011): by then the
network may have moved on. Workers are threads. One seed gives one run only with one worker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from hippo.agents.jobs.critic import loss
from hippo.agents.jobs.policy import KeyPolicy
from hippo.agents.jobs.rollout import Moments
from hippo.agents.jobs.settings import Settings

Play = Callable[[KeyPolicy, int], Moments]
"""Plays the windows of a seed with a policy."""


def update(
    policy: KeyPolicy, optimizer: torch.optim.Optimizer, play: Play, settings: Settings, seeds: Sequence[int]
) -> dict[str, float]:
    """One gradient per seed, by several workers; the figures of it."""

    def work(seed: int) -> tuple[float, int]:
        own = copy.deepcopy(policy)
        moments = play(own, seed)
        found = loss(own, moments, settings.gradient)
        own.zero_grad()
        found.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(own.parameters(), settings.gradient.max_grad_norm)
        for shared, each in zip(policy.parameters(), own.parameters(), strict=True):
            shared.grad = each.grad
        optimizer.step()
        return float(found.detach()), len(moments.push)

    _prepare(policy, optimizer)
    with ThreadPoolExecutor(settings.gradient.workers) as workers:
        found = list(workers.map(work, seeds))
    return {"loss": sum(each for each, _ in found) / len(found), "moments": float(sum(each for _, each in found))}


def _prepare(policy: KeyPolicy, optimizer: torch.optim.Optimizer) -> None:
    """A step of nothing, so that the moments of the optimizer are there before several workers look for them."""
    if not optimizer.state:
        for each in policy.parameters():
            each.grad = torch.zeros_like(each)
        optimizer.step()
