"""Ornstein-Uhlenbeck movement: B(t) = B_base (1 + eps(t)), eps clipped to +-``swing`` (spec A1).

``eps`` has mean 0, stationary standard deviation ``sigma`` and correlation ``exp(-dt / tau)`` between instants dt
apart: the exact discretisation, so the length of a step does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.problem.cluster import Dynamics

Floats = NDArray[np.float64]


def stationary(dynamics: Dynamics, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Independent draws of eps."""
    return np.clip(dynamics.sigma * rng.standard_normal(shape), -dynamics.swing, dynamics.swing)


def path(dynamics: Dynamics, time_s: Floats, links: int, rng: np.random.Generator) -> Floats:
    """One path of eps per link at the instants, (T, links); starts in the stationary state."""
    keep = np.exp(-np.diff(time_s, prepend=-np.inf) / dynamics.tau_s)[:, None]
    kick = dynamics.sigma * np.sqrt(1.0 - keep**2) * rng.standard_normal((len(time_s), links))
    eps = np.zeros((len(time_s), links))
    state = np.zeros(links)
    for instant in range(len(time_s)):
        state = keep[instant] * state + kick[instant]
        eps[instant] = state
    return np.clip(eps, -dynamics.swing, dynamics.swing)
