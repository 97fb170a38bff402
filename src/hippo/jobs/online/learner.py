"""What an online loop needs of a policy that learns, and of its guard.

A action choices (the candidates of a moment, then none), n jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine import world as c
from hippo.jobs.engine.opening import Opening, open_world
from hippo.jobs.engine.play import STRIDE, run
from hippo.jobs.learned.past import size_class
from hippo.jobs.learned.state import KeyMemory
from hippo.jobs.learned.state import LearnedSetup as Starts
from hippo.jobs.learned.weights import KeyWeights, packed, prior, unpacked, untrained
from hippo.jobs.online.log import KnownJob, SiteState, Transition
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.learn.weights import Form

Floats = NDArray[np.float64]
W = TypeVar("W")
Replayed = TypeVar("Replayed", contravariant=True)
ENOUGH = 20
"""Jobs of one class of size that are enough to guess from."""
LEAST_S = 60.0
"""Guessed where nobody has run yet."""
GOLDEN = 0.6180339887498949
"""Its multiples, without their whole parts, spread evenly over 0 to 1 however many they are."""


@dataclass(frozen=True, eq=False)
class JobHistory:
    """Jobs that came last, and the decisions.

    Of a job that has not ended, or left without having ended, the duration is a guess (``guessed_s``).
    """

    workload: JobWorkload  # (n,) by arrival, on the loop's clock, with durations
    ended: NDArray[np.bool_]  # (n,) whose duration is known
    finish_s: Floats  # (n,) when they were gone, as measured; inf: not yet
    now_s: float
    transitions: tuple[Transition, ...] = ()
    states: tuple[SiteState, ...] = ()  # of the site, where it does not stand still

    @property
    def price(self) -> Floats:
        """(n,) what a second of each job in the system counts."""
        return np.ones(len(self.workload))

    def finishes(self, policy: OnlinePolicy[Any]) -> Floats:
        """(n,) when these jobs would have ended, had a policy decided."""
        return policy.finishes(self.workload)

    def older(self, jobs: int) -> Self:
        """All but the last so many jobs, and the decisions and states before the first of those came."""
        keep = np.arange(len(self.workload)) < len(self.workload) - jobs
        until_s = self.workload.arrival_s[~keep].min(initial=np.inf)
        return replace(
            self,
            workload=self.workload.take(keep),
            ended=self.ended[keep],
            finish_s=self.finish_s[keep],
            transitions=tuple(each for each in self.transitions if each.time_s < until_s),
            states=tuple(each for each in self.states if each.time_s < until_s),
        )


class OnlinePolicy(Protocol[Replayed]):
    """Says what it would have done: what it is asked about is a workload on a queue's site, a whole scene elsewhere."""

    def finishes(self, replayed: Replayed, /) -> Floats:
        """(n,) when the jobs would have ended on the site, empty at first, had this policy decided."""
        ...


class ChoosingPolicy(OnlinePolicy[JobWorkload], Protocol):
    """Decides on what a queue's moments show."""

    def probabilities(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> Floats:
        """(A,) of the choices of a moment; 0 where ``mask`` forbids."""
        ...


class OnlineLearner(Protocol[W]):
    """Policies of one family, by their weights. Frozen data: it goes to another process."""

    def policy(self, weights: W) -> OnlinePolicy[Any]:
        """The policy of these weights."""
        ...

    def update(self, weights: W, history: JobHistory) -> W:
        """Better ones, it is hoped; new arrays."""
        ...

    def packed(self, weights: W) -> bytes:
        """As the bytes of a file."""
        ...

    def unpacked(self, content: bytes, source: str) -> W:
        """From the bytes of a file; ``InputError`` (names ``source``) where they are damaged or of another shape."""
        ...


def history_of(
    known: tuple[KnownJob, ...],
    attained_s: Mapping[str, float],
    *,
    now_s: float,
    transitions: tuple[Transition, ...] = (),
    states: tuple[SiteState, ...] = (),
) -> JobHistory:
    """The history of these jobs, by arrival; ``attained_s``: work that jobs in the system have had."""
    workload = JobWorkload.of(each.job for each in known)
    ran_s = np.array([np.nan if each.ran_s is None else each.ran_s for each in known])
    finish_s = np.array([np.inf if each.finish_s is None else each.finish_s for each in known])
    had_s = np.array([attained_s.get(each.job.name, 0.0) for each in known])
    ended = np.isfinite(ran_s)
    duration_s = guessed_s(ran_s, had_s, workload.devices)
    return JobHistory(replace(workload, duration_s=duration_s), ended, finish_s, now_s, transitions, states)


def guessed_s(ran_s: Floats, attained_s: Floats, devices: NDArray[np.int64], *, least: float = LEAST_S) -> Floats:
    """(n,) what jobs ran, and a guess where that is nan: drawn from what like jobs run that ran longer than it has,
    ``least`` where nobody did. Units are the caller's: seconds, or shares of what was told.

    Alike are jobs of its class of size, if ``ENOUGH`` of them have ended; else all are. Those that have not ended count
    as survivors. Drawn, evenly over the distribution, and not its mean: what is compared is cut off now, and a mean in
    place of many short jobs and few very long ones would keep them all there until then.
    """
    ended, kind = np.isfinite(ran_s), size_class(devices)
    lived_s, found = np.where(ended, ran_s, attained_s), ran_s.copy()
    for each in np.unique(kind[~ended]):
        asked = np.flatnonzero(~ended & (kind == each))
        like = kind == each if ended[kind == each].sum() >= ENOUGH else np.ones(len(kind), bool)
        share: Floats = GOLDEN * np.arange(1.0, len(asked) + 1.0) % 1.0
        found[asked] = _drawn_s(lived_s[like], ended[like], attained_s[asked], share, least)
    return np.maximum(found, 1e-3)


def _drawn_s(lived_s: Floats, ended: NDArray[np.bool_], longer_than_s: Floats, share: Floats, least: float) -> Floats:
    """Durations above ``longer_than_s`` (m,) at shares (m,) of those that jobs (n,) suggest (Kaplan and Meier 1958).

    Beyond the longest that has ended nothing is known: twice as long as anybody ran.
    """
    order = np.lexsort((~ended, lived_s))  # at one time, ends come before survivors
    times_s, ends = lived_s[order], ended[order]
    at_risk = len(times_s) - np.arange(len(times_s))
    survive = np.cumprod(np.where(ends, 1.0 - 1.0 / at_risk, 1.0))
    had = np.searchsorted(times_s, longer_than_s, side="right")
    target = np.where(had > 0, survive[had - 1], 1.0) * (1.0 - share)
    at = np.searchsorted(-survive, -target, side="left")
    at = np.maximum(at, had)
    beyond_s = max(2.0 * float(times_s[-1]), least)
    drawn_s: Floats = np.where(at < len(times_s), times_s[np.minimum(at, len(times_s) - 1)], beyond_s)
    return drawn_s


INDEX = Form("policy of an online loop", {}, "give one that the loop wrote")
STILL = 1e6  # the past counts so many times, so that what comes does not move it


@dataclass(frozen=True, eq=False)
class Index:
    """What was learned. ``past``: on a clock that ends where it is used; see ``Learner.past`` of ``jobs.learned``."""

    weights: KeyWeights
    past: JobWorkload


@dataclass(frozen=True, eq=False)
class IndexPolicy:
    """The policy of an ``Index`` on a site."""

    index: Index
    site: JobSite
    settings: ReplayRules
    frozen: bool = False

    def opened(self, workload: JobWorkload) -> Opening:
        """A world under it, before the first arrival."""
        past = self.index.past if len(self.index.past) else None
        starts = Starts(weights=self._weights(), past=past)
        opening = open_world(workload, self.site, LEARNED, self.settings, learner=starts)
        self._still(opening.world.learned)
        return opening

    def memory(self, workload: JobWorkload) -> KeyMemory:
        """What ranks jobs of a workload, before the first arrival."""
        opening = self.opened(workload)
        return opening.world.learned

    def finishes(self, workload: JobWorkload) -> Floats:
        """(n,) when the jobs end; inf where the site refuses one."""
        world = self.opened(workload).world
        while run(world, STRIDE):
            pass
        return np.where(world.mark[:, c.STATUS] == c.DONE, world.job[:, c.FINISH], np.inf)

    def _weights(self) -> KeyWeights:
        weights = self.index.weights
        if not self.frozen:
            return weights
        return weights._replace(keep=np.ones_like(weights.keep), pseudo=STILL * weights.pseudo)

    def _still(self, memory: KeyMemory) -> None:
        if self.frozen:
            memory.history.deaths[:] *= STILL
            memory.history.exposed[:] *= STILL


@dataclass(frozen=True, eq=False)
class IndexLearner:
    """Updates refill the tables from recent history, and the prior of jobs of which nothing is known."""

    site: JobSite
    settings: ReplayRules
    most_jobs: int = 2000
    frozen: bool = False

    def first(self, past: JobWorkload, networks: KeyWeights | None = None) -> Index:
        """Of jobs whose durations are known. Without ``networks``: the estimate from the tables alone."""
        weights = untrained() if networks is None else networks
        return Index(weights._replace(prior=prior(past.duration_s)), past)

    def policy(self, weights: Index) -> IndexPolicy:
        """As it serves."""
        return IndexPolicy(weights, self.site, self.settings, self.frozen)

    def update(self, weights: Index, history: JobHistory) -> Index:
        """From the jobs that came last and have ended."""
        rows = np.flatnonzero(history.ended)[-self.most_jobs :]
        past = history.workload.take(rows)
        past = replace(past, arrival_s=past.arrival_s - past.arrival_s[0], deadline_s=np.full(len(past), np.inf))
        # as if long ago: every one of them has ended, none is a survivor
        span_s = float(past.duration_s.max())
        past = replace(past, arrival_s=np.append(past.arrival_s[:-1], past.arrival_s[-1] + span_s))
        return Index(weights.weights._replace(prior=prior(past.duration_s)), past)

    def packed(self, weights: Index) -> bytes:
        """The bytes of a file: the networks as a file of their own, and the columns of the past."""
        past = weights.past
        columns: dict[str, Any] = {name: getattr(past, name) for name in ("arrival_s", "duration_s", "devices", "user")}
        networks = np.frombuffer(packed(weights.weights), np.uint8)
        return INDEX.packed({"networks": networks, "users": np.array(past.users), **columns})

    def unpacked(self, content: bytes, source: str) -> Index:
        """Raises ``InputError`` when it is something else, damaged, or of another shape."""
        stored, _ = INDEX.unpacked(content, source)
        try:
            networks = stored["networks"].tobytes()
            columns = {name: stored[name] for name in ("arrival_s", "duration_s", "devices", "user")}
            past = JobWorkload.of_columns(columns, users=tuple(stored["users"].tolist()))
        except (KeyError, ValueError, TypeError, IndexError):
            raise INDEX.wrong(source) from None
        return Index(unpacked(networks, source), past)
