"""The figures of a replay: completion, queueing, utilisation, deadlines, fairness; per user and per size.

Completion is finish less arrival, queueing is completion less the time on devices, both over the jobs that ran.

Fairness is Jain's index (Jain, Chiu, Hawe, A quantitative measure of fairness and discrimination for resource
allocation in shared computer systems, DEC TR-301, 1984) over users: (sum x)^2 / (users sum x^2), where x is a user's
service over need, the mean over its jobs of duration / completion: 1 for who never waits, towards 0 for who waits
long. The index is 1 if all users fare alike and 1 / users if one alone is served.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.ledger import Ledger
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JobGroup:
    """Some jobs of a replay: those of one user or of one size."""

    name: str
    jobs: int
    device_s: float  # duration times devices, asked for
    mean_completion_s: float
    p50_completion_s: float
    p95_completion_s: float
    mean_queueing_s: float
    mean_slowdown: float  # completion / duration, each at least 10 s (bounded slowdown)


@dataclass(frozen=True)
class ReplayFigures:
    """Keys of ``hippo jobs replay --json``; nan where no job ran."""

    policy: str
    jobs: int  # that ran
    refused: int
    mean_completion_s: float
    p50_completion_s: float
    p95_completion_s: float
    p99_completion_s: float
    weighted_completion_s: float  # mean, each job counted 1 + its priority times; negative priorities as 0
    mean_queueing_s: float
    makespan_s: float  # from the first arrival to the last finish
    utilization: float  # see ``utilization``
    deadline_jobs: int  # that have a deadline
    deadline_misses: int  # of them, those that ended after it or never (refused jobs)
    bounded_jobs: int  # that serve within a bound on the latency to their clients
    beyond_bound: float  # share of the time on devices of those that ran in which their clients were farther; nan: none
    fairness: float
    mean_slowdown: float
    preemptions: int
    failures: int  # of jobs, by broken nodes
    moved_gb: float
    egress_gb: float  # from domain to domain: what is moved, and what jobs over several domains exchange
    events: int
    users: tuple[JobGroup, ...]  # most device time first
    sizes: tuple[JobGroup, ...]  # by devices


SLOWDOWN_FLOOR_S = 10.0
"""Shorter jobs count as this long in slowdowns (Feitelson, Metrics for parallel job scheduling, 2001)."""


CPU = "cpu"
"""The kind of device that does not count in utilization beside others."""

_LEAST_S = 1e-9  # shorter times count as this long in fairness


def figures(ledger: Ledger, workload: JobWorkload, site: JobSite) -> ReplayFigures:
    """The figures of a replay."""
    ran = ledger.ran
    completion_s = (ledger.finish_s - workload.arrival_s)[ran]
    queueing_s = completion_s - ledger.run_s[ran]
    asked = np.isfinite(workload.deadline_s)
    start_s = float(workload.arrival_s[0]) if len(workload) else 0.0
    makespan_s = float(ledger.finish_s[ran].max() - start_s) if ran.any() else float("nan")
    weight = 1.0 + np.maximum(workload.priority[ran], 0)
    bounded = np.isfinite(workload.latency_bound_s)
    served_s = float(ledger.run_s[bounded & ran].sum())
    p50, p95, p99 = _percentiles(completion_s, (50, 95, 99))
    return ReplayFigures(
        policy=ledger.policy,
        jobs=int(ran.sum()),
        refused=len(ledger.refused),
        mean_completion_s=_mean(completion_s),
        p50_completion_s=p50,
        p95_completion_s=p95,
        p99_completion_s=p99,
        weighted_completion_s=float(weight @ completion_s / weight.sum()) if ran.any() else float("nan"),
        mean_queueing_s=_mean(queueing_s),
        makespan_s=makespan_s,
        utilization=utilization(ledger.busy_device_s / makespan_s, workload, site) if makespan_s > 0 else float("nan"),
        deadline_jobs=int(asked.sum()),
        deadline_misses=int((~(ledger.finish_s[asked] <= workload.deadline_s[asked])).sum()),
        bounded_jobs=int(bounded.sum()),
        beyond_bound=float(ledger.late_s[bounded & ran].sum()) / served_s if served_s > 0 else float("nan"),
        fairness=fairness(completion_s, workload.duration_s[ran], workload.user[ran]),
        mean_slowdown=_mean(slowdown(completion_s, workload.duration_s[ran])),
        preemptions=int(ledger.preemptions.sum()),
        failures=int(ledger.failures.sum()),
        moved_gb=float(ledger.moved_gb.sum()),
        egress_gb=float(ledger.link_gb.sum() - np.trace(ledger.link_gb)),
        events=ledger.events,
        users=_groups(ledger, workload, workload.user, workload.users),
        sizes=_sizes(ledger, workload),
    )


def utilization(busy_devices: Floats, workload: JobWorkload, site: JobSite) -> float:
    """Share of the capacity of the pools that count which is held, devices by their speed (``busy_devices`` (P,): mean
    number held)."""
    chosen = counted(workload, site)
    speed = np.array([pool.speed for pool in site.pools])
    capacity = float((speed * [pool.devices for pool in site.pools])[chosen].sum())
    return float((busy_devices * speed)[chosen].sum()) / capacity if capacity > 0 else 0.0


def counted(workload: JobWorkload, site: JobSite) -> NDArray[np.bool_]:
    """(P,) the pools that count in utilization: as in a load, no CPU cores beside other devices; nor pools on which no
    job of the workload could run."""
    wanted = {workload.device_kinds[each] for each in np.unique(workload.runs_on)}
    least_gb = float(workload.memory_gb.min(initial=np.inf))
    open_to = [any(not kinds or pool.kind in kinds for kinds in wanted) for pool in site.pools]
    used = np.array([may and pool.memory_gb >= least_gb for pool, may in zip(site.pools, open_to, strict=True)])
    no_cpu = used & np.array([pool.kind != CPU for pool in site.pools])
    return no_cpu if no_cpu.any() else used


def fairness(completion_s: Floats, duration_s: Floats, user: NDArray[np.int64]) -> float:
    """Jain's index over users, see the top of the file; nan without jobs."""
    if not len(user):
        return float("nan")
    served = np.minimum(np.maximum(duration_s, _LEAST_S) / np.maximum(completion_s, _LEAST_S), 1.0)
    jobs = np.bincount(user)
    share = np.bincount(user, weights=served)[jobs > 0] / jobs[jobs > 0]
    share = share / share.max()  # squares of very small ones would vanish
    return float(share.sum() ** 2 / (len(share) * (share**2).sum()))


def slowdown(completion_s: Floats, duration_s: Floats) -> Floats:
    """Completion over duration, both taken as at least ``SLOWDOWN_FLOOR_S``."""
    return np.maximum(completion_s, SLOWDOWN_FLOOR_S) / np.maximum(duration_s, SLOWDOWN_FLOOR_S)


def _sizes(ledger: Ledger, workload: JobWorkload) -> tuple[JobGroup, ...]:
    sizes, size = np.unique(workload.devices, return_inverse=True)
    groups = _groups(ledger, workload, size.reshape(-1), [str(each) for each in sizes])
    return tuple(sorted(groups, key=lambda group: int(group.name)))


def _groups(
    ledger: Ledger, workload: JobWorkload, group: NDArray[np.int64], names: Iterable[str]
) -> tuple[JobGroup, ...]:
    """Groups in which a job ran, most device time first."""
    words = tuple(names)
    ran = np.flatnonzero(ledger.ran)
    ran = ran[np.argsort(group[ran], kind="stable")]
    found = []
    for jobs in np.split(ran, np.flatnonzero(np.diff(group[ran])) + 1) if len(ran) else []:
        completion_s, duration_s = ledger.finish_s[jobs] - workload.arrival_s[jobs], workload.duration_s[jobs]
        p50, p95 = _percentiles(completion_s, (50, 95))
        found.append(
            JobGroup(
                name=words[group[jobs[0]]],
                jobs=len(jobs),
                device_s=float(duration_s @ workload.devices[jobs]),
                mean_completion_s=_mean(completion_s),
                p50_completion_s=p50,
                p95_completion_s=p95,
                mean_queueing_s=_mean(completion_s - ledger.run_s[jobs]),
                mean_slowdown=_mean(slowdown(completion_s, duration_s)),
            )
        )
    return tuple(sorted(found, key=lambda each: -each.device_s))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _percentiles(values: Floats, shares: tuple[int, ...]) -> list[float]:
    return [float(each) for each in np.percentile(values, shares)] if len(values) else [float("nan")] * len(shares)
