"""How the ranks of a running pipeline decide what is next, and how its times are made to move. No torch.

``dispatch`` says who decides (``dispatch.rank``): the plan's order kept to, that order as a hint, or a policy (the one
that ships, or a file's) on the hint that suits it. Under the last two a backward is two operations, and micro-batches
run in order on every rank: sums of gradients are the same whatever is decided.

``noise`` stretches operations and messages by the draws of ``dispatch.noise.fluctuation``: those of step n belong to
the seed, the pipeline and n, in every process and in the simulator alike. A stand-in waits so much longer or shorter.
What takes time of its own (layers, real links) cannot be made shorter: it waits for what a factor has above 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hippo.dispatch.base import UNKNOWN, base_from
from hippo.dispatch.guard import settled
from hippo.dispatch.network import follower, policy_of
from hippo.dispatch.noise.fluctuation import Factors, Fluctuation, drawn
from hippo.dispatch.noise.presets import fluctuation_of
from hippo.dispatch.rank import ChoosingRank, OrderedRank, RankDispatch
from hippo.engine.program import FORWARD
from hippo.run.job import MOST_STEPS, RunJob
from hippo.run.work import Worker
from hippo.schedule.problem import ScheduleProblem
from hippo.simulate.ordering import ordering


def problem_of(job: RunJob, pipeline: int) -> ScheduleProblem:
    """A pipeline of a job, in seconds, as those who dispatch it see it."""
    return ordering(job.problem, job.plan, pipeline)


def rank_of(job: RunJob, worker: Worker) -> RankDispatch:
    """Who decides for a worker; errors as of ``dispatch.base.base_of``."""
    work, options = job.work, job.options
    schedule = work.schedules[worker.pipeline]
    if options.dispatch == "fixed":
        order = [(kind, wave) for kind, _, wave in schedule.rank(worker.stage).tolist()]
        return OrderedRank(order, fed=(worker.stage > 0, worker.stage < schedule.shape.stages - 1))
    problem = problem_of(job, worker.pipeline)
    if options.dispatch == "hint":
        return ChoosingRank(problem, worker.stage, base_from(problem, schedule, options.patience), follower())
    chosen = settled(problem, policy_of(options.dispatch), level_of(job))
    return ChoosingRank(problem, worker.stage, chosen.base, chosen.weights)


def level_of(job: RunJob) -> float:
    """How unsteady operations are, as steps before would have shown it."""
    return fluctuation_of(job.options.noise).deviation if job.options.noise else UNKNOWN


# --------------------------------------------------------------------------------------------------------------- noise
class StepNoise:
    """The draws of a pipeline's steps."""

    def __init__(self, problem: ScheduleProblem, fluctuation: Fluctuation, *, seed: int, pipeline: int) -> None:
        self._given = problem, fluctuation, (seed, pipeline)
        self._blocks = self._from_the_first()
        self._block, self._first = next(self._blocks), 1

    def of(self, step: int) -> Factors:
        """Of a step, from 1 on: (3 p m,), (2 p m,), (p,)."""
        if step < self._first:
            self._blocks = self._from_the_first()
            self._block, self._first = next(self._blocks), 1
        while step >= self._first + len(self._block.ranks):
            self._first += len(self._block.ranks)
            self._block = next(self._blocks)
        return Factors(*(each[step - self._first] for each in self._block))

    def _from_the_first(self) -> Iterator[Factors]:
        problem, fluctuation, seed = self._given
        return drawn(problem, fluctuation, samples=MOST_STEPS, rng=np.random.default_rng(seed))


class WorkerNoise:
    """What one worker feels of it; without draws nothing moves."""

    def __init__(self, noise: StepNoise | None = None, size: tuple[int, int] = (1, 1), stage: int = 0) -> None:
        """``size``: ranks and micro-batches."""
        self._noise, self._size, self._stage = noise, size, stage
        self._now: Factors | None = None

    def begin(self, step: int) -> None:
        """A step starts."""
        self._now = None if self._noise is None else self._noise.of(step)

    def operation(self, kind: int, wave: int) -> float:
        """How many times as long an operation takes."""
        if self._now is None:
            return 1.0
        p, m = self._size
        return float(self._now.operations[(kind * p + self._stage) * m + wave]) * float(self._now.ranks[self._stage])

    def message(self, kind: int, wave: int) -> float:
        """How many times as long the message takes that an operation of the worker waits for."""
        if self._now is None:
            return 1.0
        p, m = self._size
        source = self._stage - 1 if kind == FORWARD else self._stage + 1
        return float(self._now.messages[(kind * p + source) * m + wave])

    @contextmanager
    def stretching(self, kind: int, wave: int) -> Iterator[None]:
        """Around an operation that takes time of its own: waits for what its factor has above 1."""
        more = self.operation(kind, wave) - 1
        began_s = time.monotonic()
        yield
        if more > 0:
            time.sleep(more * (time.monotonic() - began_s))


def noise_of(job: RunJob, pipeline: int) -> StepNoise | None:
    """What stretches a pipeline of a job; None: nothing does."""
    if not job.options.noise:
        return None
    fluctuation = fluctuation_of(job.options.noise)
    return StepNoise(problem_of(job, pipeline), fluctuation, seed=job.options.seed, pipeline=pipeline)


def noise_for(job: RunJob, worker: Worker) -> WorkerNoise:
    """That of a worker."""
    pipeline = job.plan.pipelines[worker.pipeline]
    size = len(pipeline.stages), pipeline.num_micro_batches
    return WorkerNoise(noise_of(job, worker.pipeline), size, worker.stage)
