"""Where the queue policy learns: stretches of a trace on a site, each with the jobs that came before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.learned.state import BinNotes, LearnedSetup
from hippo.jobs.learned.weights import KeyWeights
from hippo.jobs.policies.heuristics import SRTF
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.traces.load import load_trace
from hippo.jobs.train.settings import Windows
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]

MOST_PAST = 8000  # jobs before a window that its replays remember
PARTS = 2  # of the time that is validated on
JOB_BYTES = 104.0  # of a workload
REPLAY_BYTES = 1000.0  # of a job in a replay


@dataclass(frozen=True, eq=False)
class Window:
    """Jobs, those before them, and what they run on."""

    workload: JobWorkload
    past: JobWorkload | None
    site: JobSite
    rules: ReplayRules = ReplayRules()

    def play(self, weights: KeyWeights, notes: BinNotes | None = None) -> Floats:
        """When each job ends (n,) under the learned policy; refused jobs when they arrive."""
        found = play(self.workload, self.site, LEARNED, self.rules, learner=LearnedSetup(weights, self.past, notes))
        return np.where(np.isfinite(found.finish_s), found.finish_s, self.workload.arrival_s)

    def mean_completion_s(self, weights: KeyWeights) -> float:
        """Mean time from arrival to end."""
        return float(np.mean(self.play(weights) - self.workload.arrival_s))

    def limit_s(self) -> float:
        """The same of the clairvoyant who runs the job with the shortest remaining time."""
        found = play(self.workload, self.site, SRTF, self.rules)
        return float(np.nanmean(found.finish_s - self.workload.arrival_s))


@dataclass(frozen=True, eq=False)
class TraceWindows:
    """The part of a trace that is learned from, and the part that is validated on."""

    settings: Windows
    training: JobWorkload
    validation: JobWorkload
    site: JobSite

    def halves(self, load: float | None) -> tuple[Window, ...]:
        """The part that is learned from as a whole, from an empty past, and its second half."""
        jobs = len(self.training)
        return self._window(self.training, 0, jobs, load), self._window(self.training, jobs // 2, jobs, load)

    def synthetic(self, seed: int) -> tuple[Window, ...]:
        """Drawn jobs, ``drawn`` windows of them."""
        rules = ReplayRules(restart_s=self.settings.restart_s)
        return tuple(
            drawn(self.site, 2 * self.settings.jobs, np.random.default_rng([seed, number]), rules)
            for number in range(self.settings.drawn)
        )

    def validation_windows(self) -> tuple[Window, ...]:
        """What is validated on, at the first and the last of the loads."""
        if not len(self.validation):
            return ()
        both = JobWorkload.of_columns(_columns(self.training, self.validation), users=self.training.users)
        cuts = np.linspace(len(self.training), len(both), PARTS + 1).astype(int)
        loads = dict.fromkeys((self.settings.loads[0], self.settings.loads[-1]))
        return tuple(
            self._window(both, int(a), int(b), load) for a, b in zip(cuts, cuts[1:], strict=False) for load in loads
        )

    def _window(self, jobs: JobWorkload, first: int, last: int, load: float | None) -> Window:
        """Jobs ``first`` to ``last``, stretched to a load, after those before them."""
        chosen = _from_zero(jobs.take(np.arange(first, last)))
        past = _from_zero(jobs.take(np.arange(max(0, first - MOST_PAST), first))) if first else None
        if load is not None:
            found = chosen.load(self.site)
            chosen = chosen.stretched(found / load) if 0 < found < np.inf else chosen
        return Window(chosen, past, self.site, ReplayRules(restart_s=self.settings.restart_s))


def drawn(where: JobSite, jobs: int, generator: np.random.Generator, rules: ReplayRules) -> Window:
    """Jobs of users that no trace has: each has a usual duration, from minutes to days, and keeps to it closely or
    hardly; bursts of one to thirty alike. What is learned from one trace alone need not hold for the next."""
    users = int(generator.integers(2, 16))
    usual, spread = generator.uniform(np.log(60.0), np.log(1e5), users), generator.uniform(0.05, 2.0, users)
    length = np.ceil(generator.pareto(1.2, jobs)).clip(1, 30).astype(int)
    burst = np.repeat(np.arange(jobs), length)[:jobs]
    user = generator.integers(0, users, jobs)[burst]
    own = generator.normal(size=jobs)[burst] * 0.8 + generator.normal(size=jobs) * 0.6
    size = 2 ** generator.integers(0, 4, users)
    columns = {
        "arrival_s": np.sort(generator.uniform(0.0, 1e6, jobs))[burst] + generator.uniform(0.0, 60.0, jobs),
        "duration_s": np.exp(usual[user] + spread[user] * own).clip(1.0, 3e6),
        "devices": np.where(generator.random(jobs) < 0.8, 1, size[user]),
        "user": user,
    }
    found = JobWorkload.of_columns(columns, users=tuple(f"user-{number}" for number in range(users)))
    return Window(found.stretched(found.load(where)), None, where, rules)


def trace_windows(settings: Windows) -> TraceWindows:
    """The windows of a trace.

    Raises
    ------
    InputError
        No trace, one that cannot be read, or one with too few jobs.
    """
    if not settings.trace:
        remedy = "write windows: {trace: FILE} into the configuration, for instance a Philly trace"
        raise InputError("names no trace to learn from", source="windows", key="trace", value="", remedy=remedy)
    whole = load_trace(settings.trace, form=settings.format or None).workload
    pools = [DevicePool(f"domain-{k}", "gpu", settings.nodes, settings.per_node) for k in range(settings.domains)]
    training, validation = (
        whole.part(0.0, settings.last),
        whole.part(settings.last, max(settings.last, settings.validate)),
    )
    if len(training) < settings.jobs:
        remedy = "give a longer trace, or smaller windows"
        problem = f"has {len(training)} jobs to learn from, fewer than one window"
        raise InputError(problem, source=settings.trace, key="windows.jobs", value=settings.jobs, remedy=remedy)
    return TraceWindows(settings, training, validation, site(pools))


def _from_zero(jobs: JobWorkload) -> JobWorkload:
    return jobs.between(-np.inf, np.inf)


def _columns(one: JobWorkload, other: JobWorkload) -> dict[str, NDArray[np.float64] | NDArray[np.int64]]:
    """Two stretches of a trace, one after the other, as columns."""
    gap_s = one.arrival_s[-1] + 1.0 if len(one) else 0.0
    return {
        "arrival_s": np.concatenate([one.arrival_s, other.arrival_s + gap_s]),
        **{key: np.concatenate([getattr(one, key), getattr(other, key)]) for key in _KEPT},
    }


_KEPT = ("duration_s", "devices", "kind", "user", "priority")
