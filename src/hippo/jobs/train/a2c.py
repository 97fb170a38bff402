"""A2C: the actor-critic of Mnih et al. (2016), synchronous: one step on the moments of all windows together."""

from __future__ import annotations

import torch
from torch import nn

from hippo.jobs.train.critic import loss
from hippo.jobs.train.policy import KeyPolicy
from hippo.jobs.train.rollout import Moments
from hippo.jobs.train.settings import Settings


def update(
    policy: KeyPolicy, optimizer: torch.optim.Optimizer, moments: Moments, settings: Settings, seed: int
) -> dict[str, float]:
    """One update; the figures of it. Nothing is drawn: ``seed`` is not used."""
    found = loss(policy, moments, settings.gradient)
    optimizer.zero_grad()
    found.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(policy.parameters(), settings.gradient.max_grad_norm)
    optimizer.step()
    return {"loss": float(found.detach()), "grad_norm": float(norm)}
