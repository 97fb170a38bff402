"""Multipliers: what a unit of each broken constraint costs, raised while it is broken and lowered while it is not.

Dual ascent on ``J(theta) - sum_i mu_i (J_i(theta) - limit_i)`` (docs/networks.md, "The gradient"; Ray et al.
2019, section 4.2). Letters: N decisions, G constraints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hippo.network.train.settings import Multipliers

CONSTRAINTS = ("bandwidth", "balance", "latency")
"""Order of costs: traffic below the bandwidth floor, imbalance of the domains, time lost to carrying changes out."""

Floats = NDArray[np.float64]


def start(settings: Multipliers) -> Floats:
    """Multipliers (G,) before anything was seen."""
    return np.full(len(CONSTRAINTS), settings.start if settings.enabled else 0.0)


def ascend(multipliers: Floats, means: Sequence[float] | Floats, settings: Multipliers) -> Floats:
    """One step of the dual: ``mu <- [mu + rate (mean cost - limit)]`` within 0 and the most.

    ``means`` (G,): mean of each cost per epoch over the decisions just taken.
    """
    if not settings.enabled:
        return np.zeros_like(multipliers)
    raised = multipliers + settings.rate * (np.asarray(means) - np.asarray(settings.limits))
    return np.asarray(np.clip(raised, 0.0, settings.most), dtype=np.float64)


def mixed(advantage: NDArray[np.float32], multipliers: Floats) -> NDArray[np.float32]:
    """``(A - sum_i mu_i A_i) / (1 + sum_i mu_i)``, (..., 1 + G) to (...): the division keeps the length of a step."""
    penalty = advantage[..., 1:] @ multipliers.astype(np.float32)
    return np.asarray((advantage[..., 0] - penalty) / np.float32(1.0 + multipliers.sum()), dtype=np.float32)
