"""Observations drawn at random, and agents that answer them."""

from typing import Any

import numpy as np
import torch

from hippo.network.observation.features import CONTEXT, EDGES, NODES, OPTIONS, Observation
from hippo.network.train.upper_network import GlobalAgent, NetworkConfig


def drawn(worlds: int = 5, domains: int = 9, options: int = 6, *, seed: int = 0, fewest: int = 2) -> Any:
    """Networks of ``fewest`` to ``domains`` domains, padded; most pairs linked."""
    rng = np.random.default_rng(seed)
    count = rng.integers(fewest, domains + 1, size=worlds)
    count[-1] = domains
    mask = np.arange(domains) < count[:, None]
    linked = mask[:, :, None] & mask[:, None] & ~np.eye(domains, dtype=bool)
    linked &= rng.random((worlds, domains, domains)) < 0.8
    edges = rng.normal(size=(worlds, domains, domains, EDGES)) * linked[..., None]
    edges[..., 0] = linked
    by_edge = rng.random((worlds, options, domains, domains)) * linked[:, None]
    allowed = rng.random((worlds, options)) < 0.7
    allowed[:, 0] = True
    fields = (
        rng.normal(size=(worlds, domains, NODES)) * mask[..., None],
        edges,
        mask,
        rng.normal(size=(worlds, CONTEXT)),
        rng.normal(size=(worlds, options, OPTIONS)) * allowed[..., None],
        rng.random((worlds, options, domains)) * mask[:, None],
        by_edge,
        allowed,
    )
    return Observation(*(torch.tensor(each, dtype=None if each.dtype == bool else torch.float32) for each in fields))  # type: ignore[arg-type]


def stirred(encoder: str, *, hidden: int = 16) -> GlobalAgent:
    """An agent whose last layers are not near zero."""
    torch.manual_seed(3)
    agent = GlobalAgent(NetworkConfig(encoder=encoder, hidden=hidden))
    with torch.no_grad():
        for each in agent.parameters():
            each.add_(torch.randn_like(each) * 0.1)
    return agent
