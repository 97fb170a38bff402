"""Outages: a link is gone for a while. Up and down times are exponential (an on/off process)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.network.dynamics.daily import DAY_S
from hippo.problem.cluster import Dynamics


def up(dynamics: Dynamics, time_s: NDArray[np.float64], links: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each link is up at the instants, (T, links); all are up at the start."""
    alive = np.ones((len(time_s), links), dtype=bool)
    if dynamics.outages_per_day <= 0:
        return alive
    mean_up_s, end = DAY_S / dynamics.outages_per_day, float(time_s[-1])
    for link in range(links):
        now = float(time_s[0]) + rng.exponential(mean_up_s)
        while now <= end:
            back = now + rng.exponential(dynamics.outage_s)
            alive[(time_s >= now) & (time_s < back), link] = False
            now = back + rng.exponential(mean_up_s)
    return alive
