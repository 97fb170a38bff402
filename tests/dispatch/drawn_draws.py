"""Weights and draws for tests."""

from __future__ import annotations

import numpy as np

from hippo.dispatch.dispatch import Draws
from hippo.dispatch.network import DispatchWeights, follower
from hippo.schedule.problem import ScheduleProblem


def random_weights(seed: int, *, trust: float = 0.0) -> DispatchWeights:
    """A network that does whatever."""
    rng = np.random.default_rng(seed)
    return DispatchWeights(
        *(rng.normal(0, 0.3, each.shape).astype(np.float32) for each in follower()[:-1]), np.float32([trust])
    )


def lazy_weights() -> DispatchWeights:
    """Waits whenever it may, else runs W."""
    weights = DispatchWeights(*(each.copy() for each in follower(0.0)))
    weights.last_bias[2:] = 1.0, 2.0
    return weights


def random_draws(problem: ScheduleProblem, seed: int) -> Draws:
    """Factors from .7 to 1.3."""
    rng, count = np.random.default_rng(seed), problem.ranks * problem.micro_batches
    operations, messages, ranks = (rng.uniform(0.7, 1.3, n) for n in (3 * count, 2 * count, problem.ranks))
    return operations.astype(np.float32), messages.astype(np.float32), ranks.astype(np.float32)
