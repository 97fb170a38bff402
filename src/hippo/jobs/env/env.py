"""A queue of jobs, one answer at a time: which candidate starts now, or none.

An episode is a workload on a site, empty at first, until every job has ended. An instant of the engine at which some
job could start is a moment: the agent is shown up to M jobs that could, starts one, is shown who is left, and so on,
until it answers "none" or nobody could start; then time goes on. A job that does not fit may start by force: jobs that
rank behind it in Tiresias' two queues are stopped, worst first, as the engine does. So whoever always takes the first
candidate plays exactly the policy ``two_queue``; that is the guard of online learning.

Where the job runs is the engine's rule (where its data lie, then the fastest, then the fullest pool). Letters:
M candidates (jobs that could start now), F numbers of each, C of the whole queue. An answer is a candidate, or M: none
of them for now.

The reward is minus the jobs in the system, integrated over time. Summed over an episode in which every job ends, that
is minus the sum of all completion times (Little 1961); so whoever earns most has the least mean completion time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.opening import open_world
from hippo.jobs.engine.play import ledger
from hippo.jobs.env import moment
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

MOST_CANDIDATES = 16
"""M, where nobody asks for another number."""
CANDIDATE_FEATURES = (
    *("attained", "waited", "devices", "level", "by_force"),
    *("train", "preprocess", "predict", "deploy", "priority", "has_deadline", "slack"),
    *("estimate", "has_estimate", "data_far", "user_share"),
    *("user_ended", "user_duration", "size_ended", "size_duration", "one"),
)
"""F. Logarithms of 1 + seconds are divided by 10, of counts by 8; the last five but one say what ended jobs have shown,
of the same user and of the same size: how many, and the mean of the logarithm of their durations."""
CONTEXT_FEATURES = (
    *("waiting", "running", "free", "largest_free", "wanted", "stoppable"),
    *("day_sin", "day_cos", "to_come", "one"),
)
"""C. ``free``, ``largest_free`` (of one pool) and ``stoppable`` (held by jobs past their first level) are shares of the
site's devices; ``to_come`` is 1 always (a queue that lives does not know its last job), ``one`` too."""
LARGEST = 20.0
"""No number that is seen is larger, or smaller than minus this."""
F, C = len(CANDIDATE_FEATURES), len(CONTEXT_FEATURES)


class QueueObservation(NamedTuple):
    """Of one moment. Candidates stand in the order of Tiresias' two queues; rows of nobody are zero."""

    candidates: NDArray[np.float32]  # (M, F)
    context: NDArray[np.float32]  # (C,)
    mask: NDArray[np.bool_]  # (M + 1,) what may be answered

    def flat(self) -> NDArray[np.float32]:
        """(M F + C,) all but the mask."""
        return np.concatenate([self.candidates.ravel(), self.context])


def room(candidates: int) -> QueueObservation:
    """An observation of nothing, to be written into."""
    return QueueObservation(
        np.zeros((candidates, F), np.float32), np.zeros(C, np.float32), np.zeros(candidates + 1, np.bool_)
    )


def paid(job_seconds: float, *, scale_s: float) -> float:
    """For seconds that jobs have spent waiting or running, all together."""
    return -job_seconds / scale_s


def scale_of(workload: JobWorkload) -> float:
    """Seconds that make a reward of 1: the durations of the jobs that run, together. An episode in which nobody waits
    pays -1."""
    return float(np.sum(workload.duration_s)) if len(workload) else 1.0


Draw = Callable[[np.random.Generator], JobWorkload]


class QueueTimeStep(NamedTuple):
    """What an answer brought."""

    observation: QueueObservation  # nothing is allowed once the episode is over
    reward: float
    done: bool


class Queue:
    """Workload, site and clock; what both environments play on.

    Parameters
    ----------
    draw
        The workload of an episode.
    site, settings, slowdown
        As ``engine.play.play`` takes them.
    force
        Whether jobs may be stopped for others.
    """

    def __init__(
        self,
        draw: Draw,
        site: JobSite,
        *,
        settings: ReplayRules | None = None,
        slowdown: Slowdown | None = None,
        force: bool = True,
    ) -> None:
        self.draw, self.site, self.force = draw, site, force
        self.settings, self.slowdown = settings or ReplayRules(), slowdown

    def open(self, workload: JobWorkload) -> None:
        """Before the first arrival.

        Raises
        ------
        InputError
            The site can run none of the jobs.
        """
        opening = open_world(workload, self.site, TWO_QUEUE, self.settings, slowdown=self.slowdown)
        if len(opening.refused) == len(workload):
            why = opening.refused[0][1] if opening.refused else "it is empty"
            remedy = "give other jobs, or a larger site"
            raise InputError(f"no job of the workload can run: {why}", source="workload", remedy=remedy)
        self.opening, self.world, self.workload = opening, opening.world, workload
        runs = np.setdiff1d(np.arange(len(workload)), [job for job, _ in opening.refused])
        self.scale_s, self.at = scale_of(workload.take(runs)), np.zeros(3, np.int64)
        by_user, by_size = np.zeros((max(1, len(workload.users)), 2)), np.zeros((moment.SIZES, 2))
        self.past = np.zeros(len(workload), np.bool_), by_user, by_size

    @property
    def now_s(self) -> float:
        """The clock."""
        return float(self.world.clock[c.NOW])

    @property
    def may_wait(self) -> bool:
        """Whether something will happen by itself."""
        coming = self.world.tally[c.ARRIVED] < len(self.workload)
        return bool(coming or self.world.tally[c.N_RUNNING] > 0)

    def turn(self, who: moment.Asked, jobs: NDArray[np.int64]) -> float:
        """Start the jobs (P,) of ``who``, -1: none, and go on to the next moment; what that pays."""
        return paid(moment.turn(self.world, who, jobs, self.force, self.at, self.past), scale_s=self.scale_s)

    def seen(self, who: moment.Asked, each: int) -> QueueObservation:
        """Candidates of one of ``who`` as they are seen."""
        found, way = who.found[each], who.way[each]
        kind, seen = self.workload.kind, room(len(found))
        self.at[moment.COUNT] = who.count[each]
        pool = int(who.pool[each])
        moment.describe(self.world, self.at, pool, found, way, kind, self.past, seen.candidates, seen.context)
        seen.mask[: self.at[moment.COUNT]] = True
        return seen


class QueueEnv:
    """One agent that answers for the whole site; see the top of the file.

    ``queue``: what it plays on; ``candidates``: M; ``seed``: of the workloads until ``reset`` is given one.
    """

    def __init__(self, queue: Queue, *, candidates: int = MOST_CANDIDATES, seed: int = 0) -> None:
        if candidates < 2:
            remedy = "write 2 or more"
            raise InputError("too few", source="environment", key="candidates", value=candidates, remedy=remedy)
        self.queue, self.size = queue, candidates
        self.rng = np.random.default_rng(seed)
        self._who, self._owed = moment.asked([-1], candidates), 0.0

    def reset(self, seed: int | None = None, workload: JobWorkload | None = None) -> QueueObservation:
        """The first moment of a workload (None: one that is drawn)."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.queue.open(self.queue.draw(self.rng) if workload is None else workload)
        self._who.count[:], self._who.within[:] = 0, False
        came = self._turn(-1)
        self._owed = came.reward  # jobs may wait for nodes that are down, before anything can be answered
        return came.observation

    def step(self, answer: int) -> QueueTimeStep:
        """Carry out an answer: a candidate that the mask allows, or M for none."""
        count = self.queue.at[moment.COUNT]
        assert answer < count or (answer == self.size and self.queue.may_wait), "masked"
        came, owed = self._turn(int(self.found[answer]) if answer < count else -1), self._owed
        self._owed = 0.0
        return came._replace(reward=came.reward + owed)

    def ledger(self) -> Ledger:
        """The account of an episode that is over."""
        return ledger(self.queue.opening, "environment")

    @property
    def found(self) -> NDArray[np.int64]:
        """Candidates (M,) of this moment, as many as the mask allows."""
        return self._who.found[0]

    def _turn(self, job: int) -> QueueTimeStep:
        reward = self.queue.turn(self._who, np.array([job]))
        seen, over = self.queue.seen(self._who, 0), bool(self.queue.at[moment.OVER])
        seen.mask[self.size] = not over and self.queue.may_wait
        return QueueTimeStep(seen, reward, over)


@dataclass(frozen=True, eq=False)
class Cuts:
    """Draws workloads.

    Parameters
    ----------
    traces
        Cut from, each as often as the others.
    site
        The load is one of this site.
    jobs
        In a row, of every cut.
    load
        Least and most; arrivals are stretched to a load drawn between them. None: as they are.
    """

    traces: tuple[JobWorkload, ...]
    site: JobSite
    jobs: int = 400
    load: tuple[float, float] | None = (0.6, 1.1)

    def __post_init__(self) -> None:
        if not self.traces or min(len(trace) for trace in self.traces) < self.jobs:
            shortest = min((len(trace) for trace in self.traces), default=0)
            remedy = f"ask for cuts of at most {shortest} jobs, or give a longer trace"
            raise InputError("a trace is shorter than a cut", source="cuts", key="jobs", value=self.jobs, remedy=remedy)

    def draw(self, rng: np.random.Generator) -> JobWorkload:
        """One cut; its clock starts at its first arrival."""
        trace = self.traces[int(rng.integers(len(self.traces)))]
        first = int(rng.integers(len(trace) - self.jobs + 1))
        cut = trace.take(np.arange(first, first + self.jobs)).part(0.0, 1.0)
        found = cut.load(self.site)
        if self.load is None or not np.isfinite(found):
            return cut
        return cut.stretched(found / rng.uniform(*self.load))
