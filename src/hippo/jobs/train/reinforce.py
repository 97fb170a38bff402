"""REINFORCE (Williams 1992): no critic; the mean credit of the batch is the baseline."""

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
    found = loss(policy, moments, settings.gradient, critic=False)
    optimizer.zero_grad()
    found.backward()  # type: ignore[no-untyped-call]
    actor = [each for name, each in policy.named_parameters() if not name.startswith("critic")]
    norm = nn.utils.clip_grad_norm_(actor, settings.gradient.max_grad_norm)
    optimizer.step()
    return {"loss": float(found.detach()), "grad_norm": float(norm)}
