"""A3C: the actor-critic of Mnih et al. (2016), asynchronous.

Every worker takes a copy of the shared network, plays windows with it, works out a gradient on the copy, and steps the
shared network with that at once, without waiting for the others: by then the network may have moved on. Only a copy and
a step are done by one worker at a time: Adam's moments, written by two at once, made first steps ten thousand times too
long. Workers are threads. One seed gives one run only with one worker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import torch
from torch import nn

from hippo.jobs.train.critic import loss
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments
from hippo.jobs.train.settings import Settings

Play = Callable[[KeyPolicy, int], Moments]
"""Plays the windows of a seed with a policy."""


def update(
    policy: KeyPolicy, optimizer: torch.optim.Optimizer, play: Play, settings: Settings, seeds: Sequence[int]
) -> dict[str, float]:
    """One gradient per seed, by several workers; the figures of it."""

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
