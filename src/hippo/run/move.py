"""A run goes on under another plan: layers move with all that the optimizer knows of them, and nothing is lost.

The processes of the new plan start while those of the old one still train. At the end of a step both meet, layers are
handed over (stop and copy), the old processes end and the new ones go on with the next step. Whatever fails in between
ends both; the last checkpoint is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from hippo.errors import InputError
from hippo.plan.plan import Plan
from hippo.run.handover import BEFORE, hands, predicted_s, wan_bytes
from hippo.run.job import RunJob
from hippo.run.run import Crew, Here, Result, RunError, RunStep, Saving, Watcher, WorkerPlace, crew_of, save
from hippo.run.work import Work


@dataclass(frozen=True)
class Then:
    """The plan under which a run goes on, and the last step under the one before."""

    plan: Plan
    after_step: int


@dataclass(frozen=True)
class PlanMove:
    """A move as it was. Seconds on the launcher's clock."""

    after_step: int
    wan_bytes: Mapping[tuple[str, str], float]  # by pair of domains
    predicted_s: float  # of handing over
    measured_s: float  # from the word to the last layer in place
    stopped_s: float  # from the end of the last step under the old plan until the new one can go on
    sent_bytes: int  # between all processes, those of one domain too


@dataclass(frozen=True)
class PlanMoved:
    """A run with a move in it."""

    before: Result
    after: Result
    move: PlanMove

    @property
    def whole(self) -> Result:
        """All steps; the processes of the new plan."""
        return Result(self.after.workers, (*self.before.steps, *self.after.steps))


def check_then(job: RunJob, then: Then, *, source: str) -> None:
    """``InputError`` for a move that cannot be made."""
    first, last = job.options.first_step, job.options.first_step + job.options.steps - 1
    if not first <= then.after_step < last:
        remedy = f"give a step from {first} to {last - 1}, or more --steps"
        raise InputError("is not within the run", source=source, value=then.after_step, remedy=remedy)
    if "local_sgd" in (job.plan.sync.method, then.plan.sync.method):
        remedy = "give plans whose replicas agree on gradients every step"
        raise InputError("replicas that train alone cannot be moved yet", source=source, remedy=remedy)
    old, new = works(job, after(job, then))
    hands(old, new, job.problem.cluster)


def after(job: RunJob, then: Then) -> RunJob:
    """The job under the new plan."""
    options, done = job.options, then.after_step - job.options.first_step + 1
    return replace(
        job,
        plan=then.plan,
        options=replace(options, first_step=then.after_step + 1, steps=options.steps - done, resume_from=None),
    )


def works(job: RunJob, new: RunJob) -> tuple[Work, Work]:
    """Both plans as processes."""
    return job.work, new.work


def run_then(
    job: RunJob,
    then: Then,
    *,
    place: WorkerPlace | None = None,
    watch: Watcher | None = None,
    saving: Saving | None = None,
) -> PlanMoved:
    """Runs a job to its end, its last steps under another plan.

    Raises
    ------
    RunError
        A process died or nothing moved for ``timeout_s``; all processes have ended.
    """
    where, new = place or Here(), after(job, then)
    old_work, new_work = works(job, new)
    log = _Log(job, watch, saving)
    with TemporaryDirectory(prefix="hippo-run-") as one, TemporaryDirectory(prefix="hippo-run-") as two:
        folder = Path(two)
        job.write(Path(one))
        new.write(folder)
        (folder / BEFORE).mkdir()
        job.write(folder / BEFORE)
        with crew_of(old_work, Path(one), where, job.options.timeout_s) as old:
            old.gather("ready")
            with crew_of(new_work, folder, where, job.options.timeout_s) as young:
                ready = _Gathering((young, "ready"))
                for number in range(job.options.first_step, then.after_step + 1):
                    log.step(old, number)
                stopped_s = time.monotonic()
                ready.wait()
                measured_s, sent = _hand_over(old, young, folder)
                stopped_s = time.monotonic() - stopped_s
                old.dismiss()
                for number in range(then.after_step + 1, job.options.first_step + job.options.steps):
                    log.step(young, number)
                young.dismiss()
    moved, expected_s = expected(job, new)
    done = then.after_step - job.options.first_step + 1
    move = PlanMove(then.after_step, moved, expected_s, measured_s, stopped_s, sent)
    return PlanMoved(
        Result(old_work.workers, tuple(log.steps[:done])), Result(new_work.workers, tuple(log.steps[done:])), move
    )


def expected(job: RunJob, new: RunJob) -> tuple[Mapping[tuple[str, str], float], float]:
    """Bytes over the WAN by pair of domains, and the seconds that they should take."""
    old_work, new_work = works(job, new)
    cluster, wide = job.problem.cluster, 8 if job.options.precision == "fp64" else 4
    moved = wan_bytes(old_work, new_work, hands(old_work, new_work, cluster), number_bytes=wide)
    return moved, predicted_s(cluster, moved)


def _hand_over(old: Crew, young: Crew, folder: Path) -> tuple[float, int]:
    """Seconds from the word to the last layer in place, and bytes sent."""
    for crew in (old, young):
        crew.say(move=True, meet=str(folder))
    _Gathering((old, "met"), (young, "met")).wait()
    began_s = time.monotonic()
    young.say(move=True, take=True)
    old.say(move=True, give=True)
    given, _ = _Gathering((old, "given"), (young, "taken")).wait()
    return time.monotonic() - began_s, sum(one["given"] for one in given)


class _Gathering:
    """What several crews answer, each heard in a thread of its own: the first that fails is told at once."""

    def __init__(self, *asked: tuple[Crew, str]) -> None:
        self._heard: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._count = len(asked)
        for place, (crew, key) in enumerate(asked):
            Thread(target=self._listen, args=(place, crew, key), daemon=True).start()

    def _listen(self, place: int, crew: Crew, key: str) -> None:
        try:
            self._heard.put((place, crew.gather(key)))
        except RunError as error:
            self._heard.put((place, error))

    def wait(self) -> list[list[dict[str, Any]]]:
        """All answers, in the order in which they were asked for, or the first ``RunError``."""
        found: dict[int, list[dict[str, Any]]] = {}
        while len(found) < self._count:
            place, told = self._heard.get()
            if isinstance(told, RunError):
                raise told
            found[place] = told
        return [found[place] for place in sorted(found)]


class _Log:
    """Steps as they are made, told and saved."""

    def __init__(self, job: RunJob, watch: Watcher | None, saving: Saving | None) -> None:
        self._job, self._watch, self._saving = job, watch, saving
        self.steps: list[RunStep] = []

    def step(self, crew: Crew, number: int) -> None:
        """One step."""
        self.steps.append(crew.step(number))
        if self._watch is not None:
            self._watch(self.steps[-1])
        saving = self._saving
        if saving is not None and (number % saving.every == 0 or len(self.steps) == self._job.options.steps):
            save(crew, saving, self._job, self.steps)
