"""Who may decide: a new policy only if replays say so, the guard when measurements say so.

What is compared are the seconds that jobs spend in the system, of all that are there: replays go on until every job has
ended, measurements up to now. So nobody looks good by leaving long jobs aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.online.learner import JobHistory, OnlinePolicy
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Margins:
    """What is allowed, and on how many jobs it is judged."""

    worse: float = 0.05
    """Share of the guard's mean time in the system by which the policy that serves may be above it."""
    better: float = 0.01
    """Share by which a new policy must be below the one that serves."""
    judged_jobs: int = 500
    """Jobs that came last, on which policies are compared; the ones before fill the site, and teach."""
    watched_jobs: int = 1000
    """Jobs that came last, on which measurements are held against the guard; few of them make false alarms."""
    history_jobs: int = 4000
    """Jobs that are replayed."""

    def __post_init__(self) -> None:
        for key in ("worse", "better"):
            if not 0 <= getattr(self, key) < 10:
                remedy = "write a share from 0 on, .05 for 5 %"
                raise InputError("no such margin", source="margins", key=key, value=getattr(self, key), remedy=remedy)
        for key in ("judged_jobs", "watched_jobs"):
            if not 1 <= getattr(self, key) < self.history_jobs:
                problem, remedy = "no jobs before those", f"write 1 to {self.history_jobs - 1}, or more history_jobs"
                raise InputError(problem, source="margins", key=key, value=getattr(self, key), remedy=remedy)


@dataclass(frozen=True)
class ReplayVerdict:
    """Seconds in the system per judged job (``time_in_system``), and what follows."""

    new_s: float
    present_s: float  # of whoever serves, replayed too
    guard_s: float
    accepted: bool
    why: str


@dataclass(frozen=True)
class Watch:
    """What was measured, against the guard's replay of the same arrivals."""

    measured_s: float
    guard_s: float
    fallen: bool  # never while fewer than half as many jobs as are watched have come since the policy serves
    back: bool = False  # replays say that the policy is no worse than the guard by more than the margin
    why: str = ""  # of ``fallen``


@dataclass(frozen=True)
class TwoQueueGuard:
    """Tiresias' two queues. Candidates of a moment stand in its order, so it takes the first that is allowed.

    ``stops``: whether jobs are stopped for others; else it is first come first served, past what does not fit.
    """

    site: JobSite
    settings: ReplayRules
    stops: bool = True

    def probabilities(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> Floats:
        """1 for the first choice that is allowed."""
        chances = np.zeros(len(mask))
        chances[int(np.argmax(mask))] = 1.0
        return chances

    def finishes(self, workload: JobWorkload) -> Floats:
        """When the jobs end under two queues; inf where the site refuses one."""
        policy = replace(TWO_QUEUE, preempts=self.stops)
        found = play(workload, self.site, policy, self.settings).finish_s
        return np.where(np.isfinite(found), found, np.inf)


def time_in_system(
    workload: JobWorkload, finish_s: Floats, *, jobs: int, until_s: float = np.inf, price: Floats | None = None
) -> float:
    """Job-seconds spent waiting or running since the first of the last ``jobs`` jobs came, per such job.

    Of all jobs, older ones that are still there included: whoever leaves long jobs aside pays for each second. Seconds
    after ``until_s`` do not count. ``price`` (n,): what a second of each counts.
    """
    from_s = workload.arrival_s[-jobs:][0]
    here_s = np.maximum(np.minimum(finish_s, until_s) - np.maximum(workload.arrival_s, from_s), 0.0)
    return float((here_s if price is None else here_s * price).sum() / min(jobs, len(workload)))


def replayed_s(
    policies: Sequence[OnlinePolicy[Any]], guard: OnlinePolicy[Any], history: JobHistory, jobs: int
) -> list[float]:
    """Time in the system of the last so many jobs under each, and under the guard at the end, of jobs that it ends: a
    site may refuse jobs, all policies alike."""
    own_s = history.finishes(guard)
    found = {id(guard): own_s}
    for each in policies:
        try:
            found[id(each)] = own_s if each is guard else history.finishes(each)
        except Exception:  # whatever breaks in a policy: it ends no job
            found[id(each)] = np.full(len(own_s), np.inf)
    ran = np.isfinite(own_s)
    workload, price = history.workload.take(ran), history.price[ran]
    return [time_in_system(workload, found[id(each)][ran], jobs=jobs, price=price) for each in (*policies, guard)]


def judge(
    new: OnlinePolicy[Any],
    present: OnlinePolicy[Any],
    guard: OnlinePolicy[Any],
    history: JobHistory,
    margins: Margins,
) -> ReplayVerdict:
    """Whether ``new`` may serve: better than ``present``, and hardly worse than ``guard``, on the last jobs."""
    new_s, present_s, guard_s = replayed_s((new, present), guard, history, margins.judged_jobs)
    if not new_s <= (1 + margins.worse) * guard_s:  # nan is not better
        return ReplayVerdict(new_s, present_s, guard_s, False, "replayed worse than the guard")
    if not new_s <= (1 - margins.better) * present_s:
        return ReplayVerdict(new_s, present_s, guard_s, False, "replayed no better than the policy that serves")
    return ReplayVerdict(new_s, present_s, guard_s, True, "replayed better")


def watch(
    guard: OnlinePolicy[Any],
    history: JobHistory,
    margins: Margins,
    *,
    since_s: float = -np.inf,
    policy: OnlinePolicy[Any] | None = None,
) -> Watch:
    """Whether the jobs that came last fare worse than under the guard, by more than the margin.

    Of the last ``watched_jobs`` those count that came while the present policy served (from ``since_s`` on). The guard
    replays the whole history from an empty site; a job that left without having ended (``log.Left``) leaves its replay
    then at the latest. What was in the system before the history began is missing in its
    replay, so the watch errs to the guard's side.

    ``policy``: that one is replayed beside the guard, too, whoever serves; worse by more than the margin is as bad as
    measured.
    """
    served = int(np.sum(history.workload.arrival_s >= since_s))
    jobs, until_s = min(margins.watched_jobs, served), history.now_s
    found = Watch(np.nan, np.nan, False)
    if jobs:
        workload, price = history.workload, history.price
        measured_s = time_in_system(workload, history.finish_s, until_s=until_s, jobs=jobs, price=price)
        own_s = history.finishes(guard)
        own_s = np.where(history.ended, own_s, np.minimum(own_s, history.finish_s))
        guard_s = time_in_system(workload, own_s, until_s=until_s, jobs=jobs, price=price)
        fallen = 2 * jobs >= margins.watched_jobs and measured_s > (1 + margins.worse) * guard_s
        found = Watch(measured_s, guard_s, fallen, why=_worse("measured", measured_s, guard_s) if fallen else "")
    if policy is None or not len(history.workload):
        return found
    mine_s, guard_s = replayed_s((policy,), guard, history, margins.judged_jobs)
    if mine_s <= (1 + margins.worse) * guard_s:
        return replace(found, back=True)
    return replace(found, fallen=True, why=found.why or _worse("replayed", mine_s, guard_s))


def _worse(how: str, own_s: float, guard_s: float) -> str:
    return f"{how} {own_s:.0f} s, the guard would have had {guard_s:.0f} s"
