"""What traces do not tell, drawn: priorities, deadlines, kinds of job, data and where it lies.

Deadlines come in three classes of slack; 1.2, 2 and 10 times the duration are what Gavel's generator uses
(scheduler/utils.py). Ten minutes are added, without which a job of seconds would be late before anybody could see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hippo.errors import InputError
from hippo.jobs.job import KINDS, MOST_GB
from hippo.jobs.workload import Workload

SLACKS = ((0.2, 1.2), (0.5, 2.0), (0.3, 10.0))
"""(share of the jobs, slack): deadline = arrival + slack x duration + ``GRACE_S``."""

GRACE_S = 600.0

PRIORITIES = ((0.7, 0), (0.2, 1), (0.1, 2))
"""(share of the jobs, priority)."""

KIND_SHARES = (0.75, 0.12, 0.08, 0.05)
"""Of ``hippo.jobs.job.KINDS``: train, preprocess, predict, deploy."""

DATA_SIGMA = 1.0
"""Spread of the logarithm of a job's data (log-normal)."""


@dataclass(frozen=True)
class Mix:
    """What to draw."""

    deadlines: bool = False
    priorities: bool = False
    kinds: bool = False
    data_gb: float = 0.0  # mean over the jobs
    domains: tuple[str, ...] = ()  # where data may lie, each with the same chance

    def __post_init__(self) -> None:
        if not 0 <= self.data_gb <= MOST_GB:
            problem, remedy = f"must be from 0 to {MOST_GB:g}", "give GB, for instance 50"
            raise InputError(problem, source="--data-gb", value=self.data_gb, remedy=remedy)
        if self.data_gb > 0 and not self.domains:
            raise InputError("nobody says where data may lie", source="--data-gb", remedy="add --cluster")


def mixed(workload: Workload, mix: Mix, rng: np.random.Generator) -> Workload:
    """The same jobs with what the mix draws; the rest stays as it is."""
    n = len(workload)
    if mix.priorities:
        shares, values = zip(*PRIORITIES, strict=True)
        workload = replace(workload, priority=np.array(values, np.int64)[_drawn(shares, n, rng)])
    if mix.deadlines:
        shares, slacks = zip(*SLACKS, strict=True)
        slack = np.array(slacks)[_drawn(shares, n, rng)]
        workload = replace(workload, deadline_s=workload.arrival_s + slack * workload.duration_s + GRACE_S)
    if mix.kinds:
        assert len(KIND_SHARES) == len(KINDS)
        workload = replace(workload, kind=_drawn(KIND_SHARES, n, rng))
    if mix.data_gb > 0:
        data_gb = mix.data_gb * np.exp(DATA_SIGMA * rng.standard_normal(n) - 0.5 * DATA_SIGMA**2)
        data_at = rng.integers(len(mix.domains), size=n)
        workload = replace(workload, data_gb=np.round(data_gb, 3), data_at=data_at, domains=mix.domains)
    return workload


def _drawn(shares: Sequence[float], n: int, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rng.choice(len(shares), n, p=np.array(shares) / sum(shares)).astype(np.int64)
