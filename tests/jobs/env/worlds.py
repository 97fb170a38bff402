"""Small sites and workloads."""

from __future__ import annotations

import numpy as np

from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.workload import JobWorkload


def small_site() -> JobSite:
    """Two domains of 4 and 8 devices, the second twice as fast."""
    return site([DevicePool("a", "gpu", 1, 4), DevicePool("b", "gpu", 2, 4, speed=2.0)], bandwidth_bytes_per_s=1e9)


LONG = 60.0
"""So that jobs cross the border between two queues."""


def drawn(seed: int, jobs: int = 60, *, apart_s: float = 300.0) -> JobWorkload:
    """Jobs of 1 to 8 devices, some long, of four users."""
    rng = np.random.default_rng(seed)
    columns = {
        "arrival_s": np.cumsum(rng.exponential(LONG * apart_s, jobs)),
        "duration_s": LONG * rng.lognormal(6.5, 1.5, jobs),
        "devices": 2 ** rng.integers(0, 4, jobs),
        "user": rng.integers(0, 4, jobs),
        "kind": rng.integers(0, 4, jobs),
    }
    return JobWorkload.of_columns(columns, users=("u", "v", "w", "x"))
