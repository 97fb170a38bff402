"""Load of others on a domain's GPUs and hosts: operations take longer, or a straggler holds a whole domain up.

The factor is on the length of operations: 1 undisturbed, 1.25 a quarter longer. T instants, K domains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.network.dynamics import ou
from hippo.problem.cluster import Dynamics

Floats = NDArray[np.float64]
SWING = 0.2
"""Load moves by +-20 % (spec A18)."""
SLOWEST = 2.5
"""Longest an operation takes on a straggling GPU. A judgement: thermal throttling halves a clock, a sick host less."""


def fluctuating(
    time_s: Floats, domains: int, rng: np.random.Generator, *, swing: float = SWING, tau_s: float = 1800.0
) -> Floats:
    """Factor (T, domains) of load that swings by +-``swing`` about its mean; standard deviation half of the swing."""
    moving = Dynamics(swing=swing, sigma=0.5 * swing, tau_s=tau_s)
    return 1.0 + ou.path(moving, time_s, domains, rng) if swing > 0 else np.ones((len(time_s), domains))


def straggling(
    time_s: Floats, domains: int, rng: np.random.Generator, *, per_day: float, length_s: float, slowest: float = SLOWEST
) -> Floats:
    """Factor (T, domains): now and then a domain has a straggler, for an exponential while of mean ``length_s``.

    All of a domain's stages wait for it, so the factor is the domain's; drawn evenly from 1.2 to ``slowest``.
    """
    factor = np.ones((len(time_s), domains))
    for domain in range(domains):
        now = float(time_s[0])
        while per_day > 0:
            now += rng.exponential(86400.0 / per_day)
            if now > time_s[-1]:
                break
            until = now + rng.exponential(length_s)
            factor[(time_s >= now) & (time_s < until), domain] = rng.uniform(1.2, slowest)
            now = until
    return factor
