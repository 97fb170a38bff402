"""What traces do not tell, drawn on top of them: priorities, deadlines, kinds of job, data and where it lies.

``mixed`` draws for generated traces. Its deadlines come in three classes of slack; 1.2, 2 and 10 times the duration are
what Gavel's generator uses (scheduler/utils.py). Ten minutes are added, without which a job of seconds would be late
before anybody could see it.

``drawn`` draws deadlines and priorities as papers do, to learn from and to measure policies. Four ways; all draw per
job, from the generator that is given:

- ``gavel``: as above.
- ``chronus``: every job has a deadline of 1.1 to 2 times its duration, at least a minute: the ratios in the workload
  that Chronus (SoCC 2021) published with its code (``trace_job_Philly_SLO.csv``).
- ``calendar``: a day by which it is wanted, whatever it takes: production within 1 h to 24 h, normal within 4 h to 3
  days, the rest within 1 to 7 days (log-uniform), but no less than 1.2 times the duration.
- ``best_effort``: production 1.2 to 2, normal 1.5 to 10 times the duration (log-uniform), at least 10 and 30 minutes;
  three jobs in ten have none, as jobs without a guarantee in HiveD (OSDI 2020) and Chronus' mixed workload.

A deadline that is drawn from the duration tells of the duration. Every policy sees it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.job import KINDS, MOST_GB
from hippo.jobs.ledger import Ledger
from hippo.jobs.workload import JobWorkload

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


def mixed(workload: JobWorkload, mix: Mix, rng: np.random.Generator) -> JobWorkload:
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


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES = ((0.3, 0), (0.5, 1), (0.2, 2))
"""(share of the jobs, priority): the rest, normal, production."""
HOUR_S = 3600.0


@dataclass(frozen=True)
class Missed:
    """Of the jobs with a deadline, those that ended after it or never."""

    jobs: int  # with a deadline
    late: int
    share: float
    weighted: float  # share of the weight; a priority weighs twice as much as the next lower one


def drawn(workload: JobWorkload, setting: str, seed: int, *, estimates: float | None = None) -> JobWorkload:
    """The same jobs with priorities and deadlines of a setting (of ``SETTINGS``).

    ``estimates``: deviation of the logarithm of what submitters say a job takes against what it takes; None: they say
    nothing.
    """
    rng = np.random.default_rng(seed)
    found = SETTINGS[setting](workload, rng)
    if estimates is None:
        return replace(found, estimate_s=np.full(len(found), np.nan))
    noise = np.exp(estimates * rng.standard_normal(len(found)))
    return replace(found, estimate_s=found.duration_s * noise)


def missed(ledger: Ledger, workload: JobWorkload) -> Missed:
    """What a replay missed."""
    ends = np.isfinite(workload.deadline_s)
    late = ends & ~(ledger.finish_s <= workload.deadline_s)
    rank = np.unique(workload.priority, return_inverse=True)[1].reshape(-1)
    weight = 2.0**rank
    count = max(int(ends.sum()), 1)
    weighted = float(weight[late].sum() / max(weight[ends].sum(), 1e-9))
    return Missed(int(ends.sum()), int(late.sum()), int(late.sum()) / count, weighted)


def _gavel(workload: JobWorkload, rng: np.random.Generator) -> JobWorkload:
    return mixed(workload, Mix(deadlines=True, priorities=True), rng)


def _chronus(workload: JobWorkload, rng: np.random.Generator) -> JobWorkload:
    window_s = np.maximum(60.0, rng.uniform(1.1, 2.0, len(workload)) * workload.duration_s)
    return _with(workload, window_s, _classes(workload, rng))


def _calendar(workload: JobWorkload, rng: np.random.Generator) -> JobWorkload:
    priority = _classes(workload, rng)
    first, last = np.array([24.0, 4.0, 1.0])[priority], np.array([168.0, 72.0, 24.0])[priority]
    window_s = HOUR_S * np.exp(rng.uniform(np.log(first), np.log(last)))
    return _with(workload, np.maximum(window_s, 1.2 * workload.duration_s), priority)


def _best_effort(workload: JobWorkload, rng: np.random.Generator) -> JobWorkload:
    priority, n = _classes(workload, rng), len(workload)
    normal = np.exp(rng.uniform(np.log(1.5), np.log(10.0), n))
    slack = np.where(priority == 2, rng.uniform(1.2, 2.0, n), normal)
    window_s = np.maximum(np.where(priority == 2, 600.0, 1800.0), slack * workload.duration_s)
    return _with(workload, np.where(priority == 0, np.inf, window_s), priority)


def _classes(workload: JobWorkload, rng: np.random.Generator) -> Ints:
    shares, values = zip(*CLASSES, strict=True)
    return np.array(values, np.int64)[rng.choice(len(shares), len(workload), p=shares)]


def _with(workload: JobWorkload, window_s: Floats, priority: Ints) -> JobWorkload:
    return replace(workload, priority=priority, deadline_s=workload.arrival_s + window_s)


SETTINGS: Mapping[str, Callable[[JobWorkload, np.random.Generator], JobWorkload]] = {
    "gavel": _gavel,
    "chronus": _chronus,
    "calendar": _calendar,
    "best_effort": _best_effort,
}
"""How priorities and deadlines are drawn."""
