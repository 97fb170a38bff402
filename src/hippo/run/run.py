"""Starts a process for every worker, conducts the steps, watches that they live, and ends them all.

The launcher says when each step starts, out of band (pipes, never the network that is measured). It ends a run, and
every process of it, within the stated time when one dies or when nothing moves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any, Protocol

from hippo.emulate.emulation import Emulation
from hippo.errors import HippoError, InputError
from hippo.plan.plan import Plan
from hippo.run import checkpoint
from hippo.run.job import RunJob
from hippo.run.work import Work, Worker

LEAD_S = 0.02  # between the word and the start of a step, so that all hear it in time
GRACE_S = 3.0  # for processes to end by themselves
NEWS_S = 1.0  # for the end of a process to be seen of which its neighbours have told
START_S = 60.0  # more patience while processes start: on a busy machine Python and torch take their time to load
MOVING = {"met": "to meet for a move", "given": "to hand over layers", "taken": "to take layers over"}
PROGRAM = "hippo.run.process"
Row = tuple[int, int, int, float, float]  # kind, chunk, wave, start and end in seconds


class RunError(HippoError):
    """A run ended early: a process died, or nothing moved for the stated time."""


class WorkerPlace(Protocol):
    """Where processes of a domain run."""

    def command(self, domain: str, argv: list[str]) -> list[str]:
        """``argv`` such that it runs in the domain."""
        ...

    def interface(self, domain: str) -> str:
        """Network interface through which its processes talk."""
        ...


class Here:
    """This machine, without an emulated network."""

    def command(self, domain: str, argv: list[str]) -> list[str]:
        """As it is."""
        return argv

    def interface(self, domain: str) -> str:
        """The loopback."""
        return "lo"


@dataclass(frozen=True)
class Emulated:
    """Each domain is a network namespace of an emulated WAN."""

    emulation: Emulation

    def command(self, domain: str, argv: list[str]) -> list[str]:
        """``argv`` in the domain's namespace."""
        return self.emulation.command(domain, argv)

    def interface(self, domain: str) -> str:
        """The domain's one interface; ``UnknownNameError``: the emulation has no such domain."""
        return self.emulation.place(domain).interface

    def check(self, plan: Plan, *, source: str) -> None:
        """``InputError`` for a plan that names a domain which the emulation does not have."""
        known = self.emulation.domains
        for index, pipeline in enumerate(plan.pipelines):
            for place, stage in enumerate(pipeline.stages):
                if stage.domain not in known:
                    key = f"pipelines[{index}].stages[{place}].domain"
                    remedy = (
                        f"its domains are {', '.join(known)}; outside of it, hippo run --emulate makes the plan's own"
                    )
                    told = "is no domain of the emulation around"
                    raise InputError(told, source=source, key=key, value=stage.domain, remedy=remedy)


@dataclass(frozen=True)
class RunStep:
    """One step as it was."""

    number: int
    seconds: float  # from the word to the end of the last worker
    loss: float
    operations: tuple[tuple[Row, ...], ...] = ()  # of every worker, in the order they ran


@dataclass(frozen=True)
class Result:
    """A run as it was."""

    workers: tuple[Worker, ...]
    steps: tuple[RunStep, ...] = field(default=())


Watcher = Callable[[RunStep], None]


@dataclass(frozen=True)
class Saving:
    """Where checkpoints go, and how often."""

    folder: Path
    every: int = 10  # steps; the last step is always saved
    losses: tuple[float, ...] = ()  # of the steps before this run


def run(
    job: RunJob, *, place: WorkerPlace | None = None, watch: Watcher | None = None, saving: Saving | None = None
) -> Result:
    """Runs a job to its end.

    Raises
    ------
    RunError
        A process died or nothing moved for ``timeout_s``; all processes have ended.
    """
    work = job.work
    with tempfile.TemporaryDirectory(prefix="hippo-run-") as name:
        folder = Path(name)
        job.write(folder)
        with crew_of(work, folder, place or Here(), job.options.timeout_s) as crew:
            crew.gather("ready")
            steps: list[RunStep] = []
            first = job.options.first_step
            for number in range(first, first + job.options.steps):
                steps.append(crew.step(number))
                if watch is not None:
                    watch(steps[-1])
                if saving is not None and (number % saving.every == 0 or len(steps) == job.options.steps):
                    save(crew, saving, job, steps)
            crew.dismiss()
    return Result(work.workers, tuple(steps))


def save(crew: Crew, saving: Saving, job: RunJob, steps: Sequence[RunStep]) -> None:
    """A checkpoint of the step just done: it gets its name when every process has written its layers."""
    number = steps[-1].number
    hidden = checkpoint.begin(saving.folder, number)
    crew.say(save=str(hidden.resolve()))
    crew.gather("saved")
    losses = [*saving.losses, *(step.loss for step in steps)]
    checkpoint.commit(hidden, job.problem.model, number, losses, seed=job.options.seed)


@contextmanager
def crew_of(work: Work, folder: Path, place: WorkerPlace, timeout_s: float) -> Iterator[Crew]:
    """The processes of a plan, started; all have ended when the context is left."""
    crew = Crew(work, folder, timeout_s)
    try:
        for worker in work.workers:
            crew.start(worker, place)
        yield crew
    finally:
        crew.end()


class Crew:
    """The processes of a run."""

    def __init__(self, work: Work, folder: Path, timeout_s: float) -> None:
        self._work, self._folder, self._timeout_s = work, folder, timeout_s
        self._processes: list[subprocess.Popen[str]] = []
        self._heard: SimpleQueue[tuple[int, dict[str, Any] | None]] = SimpleQueue()
        self._waits: dict[int, str] = {}

    def start(self, worker: Worker, place: WorkerPlace) -> None:
        """Starts the process of a worker."""
        argv = [sys.executable, "-m", PROGRAM, str(self._folder), str(worker.rank)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": place.interface(worker.domain), "OMP_NUM_THREADS": "1"}
        with open(self._folder / f"log-{worker.rank}", "w") as log:
            process = subprocess.Popen(
                place.command(worker.domain, argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        self._processes.append(process)
        assert process.stdout is not None
        Thread(target=self._listen, args=(worker.rank, process.stdout), daemon=True).start()

    def _listen(self, rank: int, stream: IO[str]) -> None:
        with suppress(ValueError, OSError):  # the launcher closed it
            for line in stream:
                self._heard.put((rank, json.loads(line)))
        self._heard.put((rank, None))

    def say(self, **told: Any) -> None:
        """One line to every process."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(told) + "\n")
                process.stdin.flush()

    def gather(self, key: str) -> list[dict[str, Any]]:
        """A message with ``key`` from every worker, by rank; raises ``RunError`` when one ends or nothing moves."""
        found: dict[int, dict[str, Any]] = {}
        moved_s, patience_s = time.monotonic(), self._timeout_s + (START_S if key == "ready" else 0.0)
        while len(found) < len(self._processes):
            try:
                rank, told = self._heard.get(timeout=max(0.0, moved_s + patience_s - time.monotonic()))
            except Empty:
                raise RunError(self._stuck(key, found, patience_s)) from None
            if not (told or {}).get("beat"):  # whoever says that it waits does not move
                moved_s = time.monotonic()
            if told is None or "failed" in told:
                raise RunError(self._died(rank, told))
            if key in told:
                found[rank] = told
            elif "beat" in told:
                self._waits[rank] = told["beat"]
        return [found[rank] for rank in range(len(self._processes))]

    def step(self, number: int) -> RunStep:
        """Conducts one step; ``RunError`` where its loss is no number, before anything is saved."""
        at = time.monotonic() + LEAD_S
        self._waits.clear()
        self.say(go=number, at=at)
        told = self.gather("done")
        rows = tuple(tuple((int(k), int(c), int(w), s, e) for k, c, w, s, e in one["operations"]) for one in told)
        seconds = max(row[-1] for each in rows for row in each)
        loss = sum(one["loss"] for one in told)
        if not isfinite(loss):
            raise RunError(f"the loss of step {number} is {loss}. To fix: a lower --learning-rate, or --precision fp32")
        return RunStep(number, seconds, loss, rows)

    def dismiss(self) -> None:
        """Tells all to stop and waits for them."""
        self.say(stop=True)
        until = time.monotonic() + GRACE_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))

    def end(self) -> None:
        """Ends every process, whatever it is doing."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()

    def _worker(self, rank: int) -> str:
        worker = self._work.workers[rank]
        pipeline = f"pipeline {worker.pipeline}, " if len(self._work.plan.pipelines) > 1 else ""
        return f"rank {rank} ({pipeline}stage {worker.stage}, {worker.domain})"

    def _died(self, rank: int, told: Mapping[str, Any] | None) -> str:
        if told is not None:
            if (killed := self._killed()) is None:
                return f"{self._worker(rank)} failed: {told['failed']}"
            rank = killed
        try:
            code = self._processes[rank].wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return f"{self._worker(rank)} closed its line"
        kill = " (most often this machine ran out of memory)" if code == -9 else ""
        reason = f"was ended by signal {-code}{kill}" if code < 0 else f"ended with exit code {code}"
        last = last_line(self._folder / f"log-{rank}")
        return f"{self._worker(rank)} {reason}{': ' + last if last else ''}"

    def _killed(self) -> int | None:
        """A process that was ended by a signal: its neighbours find their connections broken, and may say so first."""
        until = time.monotonic() + NEWS_S
        while time.monotonic() < until:
            for rank, process in enumerate(self._processes):
                if (process.poll() or 0) < 0:
                    return rank
            time.sleep(0.01)
        return None

    def _stuck(self, key: str, found: Mapping[int, Any], patience_s: float) -> str:
        missing = [rank for rank in range(len(self._processes)) if rank not in found]
        told = [f"{self._worker(rank)} {self._waits[rank]}" for rank in missing if self._waits.get(rank)]
        silent = [self._worker(rank) for rank in missing if not self._waits.get(rank)]
        parts = [*told[:4], *([f"{_listed(silent)} said nothing"] if silent else [])]
        doing = {"ready": "to start", "saved": "to save", **MOVING}.get(key, "to end the step")
        return f"nothing moved for {patience_s:g} s while waiting for all processes {doing}: {'; '.join(parts)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def last_line(path: Path) -> str:
    """The last line of a log, cut short."""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
