"""Starts a process for every worker, conducts the steps, watches that they live, and ends them all.

The launcher says when each step starts, out of band (pipes, never the network that is measured). It ends a run, and
every process of it, within the stated time when one dies or when nothing moves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import mean
from threading import Thread
from typing import IO, Any, Protocol

from hippo.emulate.emulation import Emulation
from hippo.errors import InputError
from hippo.files import scratch
from hippo.plan.plan import Plan
from hippo.run.change import Changed, Changes, PlanChange, Planned, cut_off, under, without
from hippo.run.handover import hands
from hippo.run.job import RunJob, replicas_alone
from hippo.run.lost import LostError, RunError
from hippo.run.messages import MessageJoin, RunMessage
from hippo.run.move import LATE, LITTLE_REST_STEPS, MOST_REST_STEPS, MoveForecast, stopping, streaming
from hippo.run.network import RunNetwork
from hippo.run.saving import Saver, Saving
from hippo.run.version import Version
from hippo.run.work import Worker

LEAD_S = 0.02  # between the word and the start of a step, so that all hear it in time
MOST_LOST = 3  # times that processes fail or all wait, while a change is under way, before it is given up
MOST_TRIES = 8  # of a step, nobody having died, before the run ends: links may be too slow for the patience
LOOK_EVERY_S = 0.05  # for orders, while a step runs
STOPPED_S = 1.0  # by which a wait of the launcher is late where it was stopped itself
GRACE_S = 3.0  # for processes to end by themselves
ABORT_S = 10.0  # for processes to give a step up
STILL_S = 5.0  # since a process has last said that it waits, for it to be still there
NEWS_S = 1.0  # for the end of a process to be seen of which its neighbours have told
START_S = 60.0  # more patience while processes start: on a busy machine Python and torch take their time to load
PROGRAM = "hippo.run.process"
ANSWERS = frozenset(("prepared", "streams", "handed", "agreed", "done", "summed", "aborted", "saved"))
NOTHING_TOLD: Mapping[str, Any] = {"operations": (), "asked": (), "sent": (), "came": (), "team": (), "memory_bytes": 0}
"""Of a step, by a process that was lost before it could."""
Row = tuple[int, int, int, float, float]  # kind, chunk, wave, start and end in seconds


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
        for number, relay in enumerate(plan.relays):
            if relay.via not in known:
                key = f"relays[{number}].via"
                told, remedy = "is no domain of the emulation around", f"its domains are {', '.join(known)}"
                raise InputError(told, source=source, key=key, value=relay.via, remedy=remedy)
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
    asked: tuple[tuple[int, float], ...] = ()  # of every worker that asks: decisions, their CPU seconds
    messages: tuple[RunMessage, ...] = ()  # those of hippo's own channels: not NCCL's, nor torch's
    teams: tuple[tuple[tuple[int, float, float], ...], ...] = ()  # of every worker: bytes, begin, end in its tp group
    memory_bytes: tuple[int, ...] = ()  # that every process held at the end
    began_s: float = 0.0  # time.monotonic() of the word


@dataclass(frozen=True)
class RunStretch:
    """Steps under one plan."""

    job: RunJob
    steps: tuple[RunStep, ...]
    change: Changed | None = None  # that led here

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Its processes, by rank."""
        return self.job.work.workers


@dataclass(frozen=True)
class Result:
    """A run as it was."""

    stretches: tuple[RunStretch, ...]

    @property
    def steps(self) -> tuple[RunStep, ...]:
        """All of them."""
        return tuple(step for each in self.stretches for step in each.steps)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The processes that it ended with, by rank."""
        return self.stretches[-1].workers


Watcher = Callable[[RunStep], None]
CrewMaker = Callable[[Path, WorkerPlace, float], "Crew"]
"""Of a folder for the run, where its processes run, and the seconds without progress that end it."""


def run(
    job: RunJob,
    *,
    place: WorkerPlace | None = None,
    watch: Watcher | None = None,
    saving: Saving | None = None,
    changes: Changes | None = None,
    crew_of: CrewMaker | None = None,
) -> Result:
    """Runs a job to its end, under other plans from where ``changes`` says so; ``crew_of``: of which processes, where
    somebody looks at them or disturbs them.

    Raises
    ------
    RunError
        A process died or nothing moved for ``timeout_s``; all processes have ended.
    """
    with scratch("hippo-run-") as folder:
        crew, saver = (crew_of or Crew)(folder, place or Here(), job.options.timeout_s), None
        try:
            saver = None if saving is None else Saver(crew, saving)
            conductor = Conductor(job, crew, changes or Planned(), saver)
            first, last = job.options.first_step, job.options.first_step + job.options.steps - 1
            for number in range(first, last + 1):
                conductor.border(number - 1)
                step = conductor.step(number)
                if watch is not None:
                    watch(step)
                conductor.save(number, last=number == last)
            crew.dismiss(conductor.version.members)
            return conductor.result
        finally:
            crew.end()
            if saver is not None:
                saver.end()


@dataclass(frozen=True)
class _Coming:
    """A version that processes make ready for."""

    version: Version
    change: PlanChange
    began_s: float
    streams: bool = False  # layers go in the background
    forecast: MoveForecast | None = None  # None: no layers have to go
    flows: bool = False  # all have made ready, and the forecast is as of then

    def crew(self, now: Version) -> tuple[int, ...]:
        """Who hands over or gets layers: those who are there, and those who come."""
        return tuple(dict.fromkeys((*now.members, *self.version.members)))

    def preparing(self, now: Version) -> tuple[int, ...]:
        """Who makes ready: the same, and porters of what comes."""
        return tuple(dict.fromkeys((*self.crew(now), *self.version.everybody)))


class Conductor:
    """Says when each step starts, and under which plan."""

    def __init__(self, job: RunJob, crew: Crew, changes: Changes, saver: Saver | None = None) -> None:
        self.crew, self.version, self._changes, self._saver = crew, Version.first(job), changes, saver
        self._stretches: list[tuple[Version, Changed | None, list[RunStep]]] = [(self.version, None, [])]
        self._coming: _Coming | None = None
        self._fresh, self._numbered = 1 + max(self.version.everybody), 0
        self._lost: LostError | None = None  # in the step just made, after all had agreed
        self._era = self.version.era  # of whatever is prepared next: messages of what was given up may be under way
        self._step_s = inf  # of the last step
        self._beside = 0  # steps trained while layers stream
        self._broken_by: Counter[int] = Counter()  # orders under way as a process was lost
        self._idle: list[int] = []  # who leaves once all have entered the version that runs, or forgotten what came
        self._ask(self.version, self.version.everybody)
        crew.gather("prepared", self.version.everybody, number=0)

    @property
    def result(self) -> Result:
        """The run so far."""
        return Result(tuple(RunStretch(version.job, tuple(steps), led) for version, led, steps in self._stretches))

    def step(self, number: int) -> RunStep:
        """Conducts one step. Where a process is lost and whole replicas are left, those go on, with the whole batch: no
        weight has changed before all have agreed, so the step is made again."""
        tries = 0  # in which nobody died
        while True:
            try:
                self.crew.begin(number, self.version, partial(self._take, number - 1))
                break
            except LostError as error:
                tries += error.stuck
                if tries >= MOST_TRIES:
                    raise _slow(f"step {number} was begun", tries, error) from None
                self._go_on_without(error, number)
        found, lost = self.crew.finish(number, self.version)
        self._step_s = found.seconds
        self._stretches[-1][2].append(found)
        self._lost = lost  # all who are left have changed their weights: the step is told of before they go on
        return found

    def _go_on_without(self, error: LostError, number: int, *, over: bool = False) -> None:
        """The replicas that are left, under a plan of their own, without those that are lost meanwhile, too; ``error``
        where there is none. Where they cannot meet, messages go directly, and then one side goes on alone."""
        began_s, now, lost, direct = time.monotonic(), self.version, set(error.lost), False
        self._plan_without(now, lost, error)
        self.crew.forget(lost)
        lost |= self.crew.abort(number, [each for each in now.everybody if each not in lost])
        self._give_up_coming(lost, error, over=over)
        while True:
            self._leave(lost)
            plan = self._plan_without(now, lost, error)
            plan = replace(plan, relays=()) if direct else plan
            version = now.without(lost).following(under(now.job, plan), fresh=self._fresh)
            self._era += 1
            version = replace(version, number=self._numbered + 1, era=self._era)
            left = [each for each in now.members if each not in lost]
            try:
                self._ask(version, version.everybody)
            except (InputError, OSError) as full:
                raise RunError(f"{error}; the others cannot make ready: {full}") from None
            try:
                self.crew.gather("prepared", version.everybody, number=version.number)
                if self._moves(version):  # nobody else has what they need, but they may need it cut otherwise
                    self.crew.say(version.members, hand=version.number)
                    self.crew.gather("handed", version.members, number=version.number)
                break
            except LostError as other:
                through = other.stuck and bool(plan.relays)  # a link to a domain that hands on may be dead
                gone = other.lost if not other.stuck else set() if through else self._cut_off(now, lost)
                if not gone and not through:
                    raise
                direct = direct or through
                lost |= gone
                now = replace(now, porters={**version.porters, **now.porters})  # those that were begun are tried once
                self.crew.forget(gone)
                self.crew.say([each for each in version.everybody if each not in lost], forget=version.number)
        there = [*left, *now.without(lost).porters.values()]
        self._dismiss([each for each in there if each not in version.everybody])
        seconds = time.monotonic() - began_s
        found = Changed(0, number - 1, {}, 0.0, 0.0, seconds, 0, seconds, str(error))
        self._went_over(version, found)

    def _cut_off(self, now: Version, lost: Collection[int]) -> set[int]:
        """Processes that do not go on where replicas cannot meet any more: those of the smaller side."""
        ranks = cut_off(now.job, [now.members.index(each) for each in lost if each in now.members])
        return {now.members[rank] for rank in ranks} - {*lost}

    def _plan_without(self, now: Version, lost: Collection[int], error: LostError) -> Plan:
        plan = without(now.job, [now.members.index(each) for each in lost if each in now.members])
        gone = {domain for domain, process in now.porters.items() if process in lost}
        if plan is not None and gone:
            plan = replace(plan, relays=tuple(each for each in plan.relays if each.via not in gone))
        if plan is None:
            if self._saver is not None:
                self._saver.salvage(lost)
            raise error
        return plan

    def _give_up_coming(self, lost: Collection[int], error: LostError, *, over: bool) -> None:
        """Those who are lost, and whoever was to come: what was under way is asked for again where it was one of those
        who are there that was lost, or a step, and nobody; ``over``: it was being gone over to."""
        now = self.version
        if (coming := self._coming) is None:
            return
        self.crew.forget({*coming.version.everybody} - {*now.everybody})
        self._coming = None
        which = coming.change.order or -(coming.change.after_step or 0)  # those planned beforehand have no number
        self._broken_by[which] += error.failed or not lost
        theirs = bool({*lost} & {*now.everybody}) or not (lost or over)
        if theirs and self._broken_by[which] < MOST_LOST:
            self._changes.again(coming.change)
        else:
            self._changes.gave_up(coming.change, str(error))

    def save(self, number: int, *, last: bool = False) -> None:
        """A checkpoint of the step just made, where one is due; that of the last step is on the disk afterwards. Where
        a process is lost meanwhile, those that are left write it."""
        self._settle(number)
        saver = self._saver
        if saver is None or not saver.is_due(number, last=last):
            return
        while True:
            try:
                saver.finish()
                if saver.last != number:
                    saver.begin(self.version, number, [step.loss for step in self.result.steps])
                if last:
                    saver.finish()
                return
            except LostError as error:
                saver.forget(number)
                self._go_on_without(error, number + 1)

    def _settle(self, done: int) -> None:
        """Goes on without who was lost in the step that is done; those who are left agree, where they train alone."""
        tries = 0  # in which nobody died
        while (lost := self._lost) is not None:
            self._lost = None
            tries += lost.stuck
            if tries >= MOST_TRIES:
                raise _slow(f"what replicas agree on after step {done} was summed", tries, lost)
            self._go_on_without(lost, done + 1)
            try:
                self.crew.agree(done, self.version)
            except LostError as error:
                self._lost = error

    def _leave(self, processes: Collection[int]) -> None:
        if self._saver is not None:
            self._saver.leaves(processes)

    def _dismiss(self, processes: Collection[int]) -> None:
        self._leave(processes)
        self.crew.dismiss(processes)

    def border(self, done: int) -> None:
        """Between two steps: takes what was asked for, and goes over where that is due and all have made ready. Where a
        process is lost meanwhile, the plan before is still whole."""
        self._settle(done)
        try:
            self._pass(done)
        except LostError as error:
            self._go_on_without(error, done + 1, over=True)

    def _pass(self, done: int) -> None:
        ended_s = time.monotonic()
        if self._saver is not None:
            self._saver.poll()
        if self._is_entered:
            self._leave(self._idle)
            self.crew.forget(self._idle)  # one that hangs holds nobody up
            self._idle = []
        self._take(done)
        coming = self._coming
        if coming is None:
            return
        after, crew = coming.change.after_step, coming.preparing(self.version)
        ready = self.crew.said("prepared", crew, number=coming.version.number)
        if ready and coming.streams and not coming.flows:
            since_s = self.crew.last_said_s("prepared", crew)
            forecast = self._forecast(coming.version, coming.change, since_s=since_s)
            coming = self._coming = replace(coming, forecast=forecast, flows=True)
        told = self.crew.streams(self.version.members, coming.version.number)
        why = self._changes.unwanted(coming.change)
        if broken := next((one["broken"] for one in told if one["broken"]), ""):
            why = f"layers could not be sent: {broken}"
        patience_s = self.crew.patience_s("prepared")
        late = not ready and time.monotonic() > coming.began_s + patience_s
        if why or late:
            if ready or late:  # nobody waits for who is dismissed
                self._give_up(coming, why or f"not all processes could make ready within {patience_s:g} s")
        elif (done >= after) if after is not None else ready and self._nearly_there(coming, told):
            if self._saver is not None and self._saver.under_way is not None:
                if after is None:
                    return  # who writes a checkpoint may be one who leaves
                self._saver.finish()
            self._go_over(coming, done, ended_s)

    def _take(self, done: int) -> None:
        """Lets processes make ready for what is asked for, where nothing is under way: at a border, or beside the step
        that runs, so that the next border is that of going over."""
        if self._coming is None and self._is_entered:
            change = self._changes.due(done, self.version.job)
            if change is not None and change.background and not self._stretches[-1][2]:
                self._changes.again(change)  # nothing is known yet of what steps leave
            elif change is not None:
                self._prepare(change)

    @property
    def _is_entered(self) -> bool:
        """Whether processes are in the version that runs: they enter it with its first step, and what comes after is
        made ready by who they are then."""
        return self.version.number == 0 or bool(self._stretches[-1][2])

    def _nearly_there(self, coming: _Coming, told: Sequence[Mapping[str, Any]]) -> bool:
        """Whether what is still to send of layers that stream is little for a standstill."""
        if not coming.streams:
            return True
        if len(told) < len(self.version.members):  # somebody has not ended a step since
            return False
        self._beside += 1
        assert coming.forecast is not None, "something streams"
        most = MOST_REST_STEPS if self._beside >= coming.forecast.steps else LITTLE_REST_STEPS
        return all(one["left_s"] <= most * self._step_s for one in told)

    def _give_up(self, coming: _Coming, why: str) -> None:
        """The run goes on as it is; who was to come leaves: a step later, when nobody waits for them any more."""
        now = self.version
        self.crew.say(now.everybody, forget=coming.version.number)
        came = [process for process in coming.version.everybody if process not in now.everybody]
        self._idle += [process for process in came if process in self.crew.processes]
        self._coming = None
        self._era += 1
        self._changes.gave_up(coming.change, why)

    def _prepare(self, change: PlanChange) -> None:
        version = self.version.following(under(self.version.job, change.plan), fresh=self._fresh)
        version = replace(version, number=self._numbered + 1, era=self._era)
        moves = self._moves(version)
        streams, forecast = change.background and moves, self._forecast(version, change) if moves else None
        self._beside = 0
        coming = self._coming = _Coming(version, change, time.monotonic(), streams, forecast)
        try:
            self._ask(version, coming.preparing(self.version), background=streams, warms=True)
        except (InputError, OSError) as error:  # a disk is full, or no process can be started
            self._give_up(coming, f"processes cannot make ready: {error}")

    def _moves(self, new: Version) -> bool:
        """Whether layers have to go from one process to another."""
        cluster = new.job.problem.cluster
        return bool(hands(self.version.job.work, new.job.work, cluster, self.version.kept(new)))

    def _forecast(self, new: Version, change: PlanChange, *, since_s: float = inf) -> MoveForecast:
        """What a move should take, by the steps that had ended when it began to flow; inf: it does not yet."""
        old, network = self.version, RunNetwork.around(new.job.problem.cluster)
        if not change.background:
            return stopping(old, new, network)
        every = self._stretches[-1][2]
        steps = [step for step in every if step.began_s + step.seconds <= since_s] or every[:1]
        step_s = mean(step.seconds for step in (steps[1:] or steps)[-LATE:])  # without the first, on cold connections
        count = None if change.after_step is None else max(1, change.after_step - steps[-1].number)
        first = None if since_s == inf else min(1.0, max(0.0, 1.0 - (since_s - every[-1].began_s) / step_s))
        return streaming(old, new, network, step_s=step_s, steps=count, first=first)

    def _ask(self, version: Version, crew: Sequence[int], **ways: bool) -> None:
        """Lets processes make ready for a version; those that are new start."""
        self._numbered, self._fresh = version.number, max(self._fresh, 1 + max(version.everybody))
        version.write(self.crew.folder)
        for process, domain in version.domains.items():
            if process not in self.crew.processes:
                rank = version.rank(process)
                self.crew.start(process, domain, None if rank is None else version.job.work.workers[rank])
        after = None if version.number == 0 else self.version.number
        self.crew.say(crew, prepare=version.number, after=after, **ways)

    def _go_over(self, coming: _Coming, done: int, ended_s: float) -> None:
        crew, new = coming.crew(self.version), coming.version
        try:
            told = self.crew.gather("prepared", coming.preparing(self.version), number=new.number)
        except LostError as error:
            if not error.stuck:
                raise
            self._give_up(coming, str(error))  # who of those that train is silent, the next step finds
            return
        if new.job.options.outer_late:  # others are asked from now on
            self.crew.agree(done, self.version, now=True)
        ready_s = max(each["heard_s"] for each in told)
        sent, began_s = 0, ready_s if coming.streams else time.monotonic()
        forecast = coming.forecast
        if forecast is not None:
            self.crew.say(crew, hand=new.number)
            sent = sum(each["sent"] for each in self.crew.gather("handed", crew, number=new.number))
        measured_s = time.monotonic() - began_s
        leave = [process for process in self.version.everybody if process not in new.everybody]
        self._dismiss(leave)
        found = Changed(
            coming.change.order,
            done,
            {} if forecast is None else forecast.wan_bytes,
            0.0 if forecast is None else forecast.seconds,
            measured_s,
            time.monotonic() - ended_s,
            sent,
            ready_s - coming.began_s,
            background=coming.streams,
            predicted_stopped_s=0.0 if forecast is None else forecast.stopped_s,
            asked=coming.change.asked,
            warmed_bytes=sum(each["warmed"] for each in told),
        )
        self._coming = None
        self._went_over(new, found)

    def _went_over(self, version: Version, found: Changed) -> None:
        self.version = version
        self._stretches.append((version, found, []))
        self._changes.changed(found, version.job)


def _slow(what: str, tries: int, error: LostError) -> LostError:
    told = f"{what} {tries} times: {error}. A message may take longer than --timeout"
    return LostError(told, error.lost, stuck=True)


class Crew:
    """The processes of a run, by number."""

    def __init__(self, folder: Path, place: WorkerPlace, timeout_s: float) -> None:
        self.folder, self._place, self._timeout_s = folder, place, timeout_s
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self._workers: dict[int, Worker] = {}  # what each was when it started, for messages
        self._domains: dict[int, str] = {}
        self._heard: SimpleQueue[tuple[int, dict[str, Any] | None]] = SimpleQueue()
        self._told: dict[str, dict[int, dict[str, Any]]] = {}
        self._waits: dict[int, tuple[str, float]] = {}  # for what (empty: it works), and when that was told
        self._broken: dict[int, str] = {}  # who could not end a step, and why
        self._loss, self._began_s = 0.0, 0.0
        self._joined = MessageJoin()

    def start(self, number: int, domain: str, worker: Worker | None) -> None:
        """Starts a process in a domain; ``worker``: what it is, for messages; None: a porter."""
        argv = [sys.executable, "-m", PROGRAM, str(self.folder), str(number)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": self._place.interface(domain), "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"log-{number}", "w") as log:
            process = subprocess.Popen(
                self._place.command(domain, argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        self.processes[number], self._domains[number] = process, domain
        if worker is not None:
            self._workers[number] = worker
        assert process.stdout is not None
        Thread(target=self._listen, args=(number, process.stdout), daemon=True).start()

    def _listen(self, number: int, stream: IO[str]) -> None:
        with suppress(ValueError, OSError):  # the launcher closed it
            for line in stream:
                self._heard.put((number, json.loads(line) | {"heard_s": time.monotonic()}))
        self._heard.put((number, None))

    def say(self, whom: Iterable[int], **told: Any) -> None:
        """One line to each of these processes."""
        for number in whom:
            stdin = self.processes[number].stdin
            assert stdin is not None
            with suppress(BrokenPipeError):
                stdin.write(json.dumps(told) + "\n")
                stdin.flush()

    def said(self, key: str, whom: Sequence[int], *, number: int | None = None) -> bool:
        """Whether all of them have said so by now; raises ``RunError`` where one has ended."""
        while not self._heard.empty():
            self._note(*self._heard.get())
        return all(self._has(key, each, number) for each in whom)

    def last_said_s(self, key: str, whom: Sequence[int]) -> float:
        """When the last of them said so, who all have (``time.monotonic()``)."""
        return max(float(self._told[key][each]["heard_s"]) for each in whom)

    def gather(
        self,
        key: str,
        whom: Sequence[int],
        *,
        number: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[dict[str, Any]]:
        """A message with ``key`` from each, in their order; with ``number`` such a one; ``meanwhile`` is done again and
        again until they have come. Raises ``RunError`` when a process ends or nothing moves."""
        moved_s, patience_s = time.monotonic(), self.patience_s(key)
        while not all(self._has(key, each, number) for each in whom):
            left_s = max(0.0, moved_s + patience_s - time.monotonic())
            if meanwhile is not None:
                meanwhile()
            look_s = left_s if meanwhile is None else min(left_s, LOOK_EVERY_S)
            looked_s = time.monotonic()
            try:
                process, told = self._heard.get(timeout=look_s)
            except Empty:
                if time.monotonic() > looked_s + look_s + STOPPED_S:  # it was this process that stood still
                    moved_s = time.monotonic()
                if time.monotonic() < moved_s + patience_s:
                    continue
                raise self._stuck(key, whom, number, patience_s) from None
            if not (told or {}).get("beat"):  # whoever says that it waits does not move
                moved_s = time.monotonic()
            self._note(process, told)
        found = self._told[key]
        return [found.pop(each) for each in whom]

    def _has(self, key: str, process: int, number: int | None) -> bool:
        told = self._told.get(key, {}).get(process)
        return told is not None and number in (None, told[key])

    def _note(self, process: int, told: dict[str, Any] | None) -> None:
        if process not in self.processes:  # dismissed
            return
        if told is None or "failed" in told:
            raise self._died(process, told)
        if "broken" in told:  # whoever broke it has died, or dies: nobody else ends a step
            if (killed := self._killed()) is None:
                self._broken.setdefault(process, str(told["broken"]))
                return
            raise self._died(killed, None)
        if "beat" in told:
            self._waits[process] = told["beat"], told["heard_s"]
            return
        for key in ANSWERS & told.keys():
            self._told.setdefault(key, {})[process] = told

    def streams(self, whom: Sequence[int], number: int) -> list[dict[str, Any]]:
        """How far layers are that stream towards a version, as those have told who have."""
        told = self._told.get("streams", {})
        return [told[each]["streams"] for each in whom if each in told and told[each]["streams"]["version"] == number]

    def begin(self, number: int, version: Version, meanwhile: Callable[[], None] | None = None) -> None:
        """Conducts a step up to where all have agreed on gradients, ``meanwhile`` looks what else there is to do;
        ``RunError`` where its loss is no number."""
        at = self._began_s = time.monotonic() + LEAD_S
        self._waits.clear()
        self._broken.clear()
        self._workers |= dict(zip(version.members, version.job.work.workers, strict=True))
        self.say(version.members, go=number, at=at, version=version.number)
        agreed = self.gather("agreed", version.members, number=number, meanwhile=meanwhile)
        self._loss = sum(one["loss"] for one in agreed)
        if not isfinite(self._loss):
            told = f"the loss of step {number} is {self._loss}"
            raise RunError(f"{told}. To fix: a lower --learning-rate, or --precision fp32")

    def finish(self, number: int, version: Version) -> tuple[RunStep, LostError | None]:
        """Lets all change their weights: the step is made. Who is lost meanwhile tells nothing of it (nobody, where a
        link is dead over which replicas that train alone agree); ``LostError`` where nobody is left. What such replicas
        agree on is used if nothing is lost."""
        self.say(version.members, update=number)
        lost: LostError | None = None
        while True:
            left = [each for each in version.members if lost is None or each not in lost.lost]
            try:
                heard = dict(zip(left, self.gather("done", left, number=number), strict=True))
                break
            except LostError as error:
                fresh, known = error.lost, frozenset[int]() if lost is None else lost.lost
                if lost is not None and fresh <= known:  # who has heard that it is given up, and does not end
                    fresh = frozenset(each for each in left if not self._has("done", each, number))
                if (gone := known | fresh) >= {*version.members}:
                    raise
                lost = LostError(str(error if lost is None else lost), gone, stuck=error.stuck and not gone)
                self.forget(fresh)  # so that what becomes of the others is told of them
                self.say([each for each in left if each not in gone], **{"break": number})  # sums with who is lost
        if lost is None and not all(one["whole"] for one in heard.values()):  # a connection broke, and nobody died
            lost = LostError("a connection broke while replicas agreed on parameters", (), stuck=True)
        if lost is None and replicas_alone(version.job.plan) > 1:
            self.say(version.members, use=number)
        told = [heard.get(each, NOTHING_TOLD) for each in version.members]
        rows = tuple(tuple((int(k), int(c), int(w), s, e) for k, c, w, s, e in one["operations"]) for one in told)
        seconds = max((row[-1] for each in rows for row in each), default=0.0)
        asked = tuple((int(one["asked"][0]), float(one["asked"][1])) for one in told if one["asked"])
        messages = self._joined(told, version.members, self._domains)
        memory = tuple(one["memory_bytes"] for one in told)
        teams = tuple(tuple((int(size), begin, end) for size, begin, end in one["team"]) for one in told)
        return RunStep(number, seconds, self._loss, rows, asked, messages, teams, memory, self._began_s), lost

    def agree(self, number: int, version: Version, *, now: bool = False) -> None:
        """Lets replicas that train alone end the sum that is to be used after a step, or ``now``, and use it once all
        have it."""
        if replicas_alone(version.job.plan) > 1:
            self._waits.clear()
            self._broken.clear()
            self._told.pop("summed", None)  # of a sum that was given up
            self.say(version.members, outer=number, version=version.number, now=now)
            self.gather("summed", version.members, number=number)
            self.say(version.members, use=number)

    def abort(self, number: int, whom: Sequence[int]) -> set[int]:
        """A step is given up by all of these; those that do not answer are ended, and told. Whoever had agreed already
        agrees anew."""
        lost: set[int] = set()
        self._told.pop("aborted", None)
        self.say(whom, abort=number)
        until = time.monotonic() + ABORT_S
        while True:
            left = [each for each in whom if each not in lost and not self._has("aborted", each, number)]
            if not left:
                self._told.pop("agreed", None)
                return lost
            try:
                process, told = self._heard.get(timeout=max(0.0, until - time.monotonic()))
                if "broken" not in (told or {}):
                    self._note(process, told)
            except LostError as error:
                gone = set(error.lost)
            except Empty:
                gone = set(left)
            else:
                continue
            lost |= gone
            self.forget(gone)

    def forget(self, whom: Iterable[int]) -> None:
        """Ends these at once."""
        for number in whom:
            if number in self.processes:
                self.processes[number].kill()
                self._end(number)

    def dismiss(self, whom: Iterable[int]) -> None:
        """Tells these to stop and waits for them."""
        gone = list(whom)
        self.say(gone, stop=True)
        until = time.monotonic() + GRACE_S
        for number in gone:
            with suppress(subprocess.TimeoutExpired):
                self.processes[number].wait(max(0.1, until - time.monotonic()))
            self._end(number)

    def end(self) -> None:
        """Ends every process, whatever it is doing."""
        for process in self.processes.values():
            process.kill()
        for number in list(self.processes):
            self._end(number)

    def _end(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _worker(self, number: int) -> str:
        worker = self._workers.get(number)
        if worker is None:
            return f"who hands messages on in {self._domains[number]}"
        several = len({each.pipeline for each in self._workers.values()}) > 1
        pipeline = f"pipeline {worker.pipeline}, " if several else ""
        return f"rank {worker.rank} ({pipeline}stage {worker.stage}, {worker.domain})"

    def _died(self, number: int, told: Mapping[str, Any] | None) -> LostError:
        if told is not None:
            if (killed := self._killed()) is None:
                return LostError(f"{self._worker(number)} failed: {told['failed']}", {number}, failed=True)
            number = killed
        try:
            code = self.processes[number].wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return LostError(f"{self._worker(number)} closed its line", {number})
        kill = " (most often this machine ran out of memory)" if code == -9 else ""
        reason = f"was ended by signal {-code}{kill}" if code < 0 else f"ended with exit code {code}"
        last = last_line(self.folder / f"log-{number}")
        return LostError(f"{self._worker(number)} {reason}{': ' + last if last else ''}", {number})

    def _killed(self) -> int | None:
        """A process that was ended by a signal: its neighbours find their connections broken, and may say so first."""
        until = time.monotonic() + NEWS_S
        while time.monotonic() < until:
            for number, process in self.processes.items():
                if (process.poll() or 0) < 0:
                    return number
            time.sleep(0.01)
        return None

    def patience_s(self, key: str) -> float:
        """Seconds in which something moves where processes are to say ``key``."""
        return self._timeout_s + (START_S if key == "prepared" else 0.0)

    def _stuck(self, key: str, whom: Sequence[int], number: int | None, patience_s: float) -> LostError:
        """Who waits says so every second: whoever has stopped to is as silent as one that never did."""
        missing, since_s = [each for each in whom if not self._has(key, each, number)], time.monotonic() - STILL_S
        waits = {
            each: wait[0] for each in missing if (wait := self._waits.get(each, ("", 0.0)))[0] and wait[1] >= since_s
        }
        silent = [self._worker(each) for each in missing if each not in waits]
        parts = [f"{self._worker(each)} {told}" for each, told in waits.items()][:4]
        parts += [f"{_listed(silent)} said nothing"] if silent else []
        doing = {"prepared": "to make ready", "saved": "to save", "handed": "to hand over layers"}
        what = doing.get(key, "to end the step")
        broken = [f"{self._worker(each)} broke off: {why}" for each, why in self._broken.items()][:1]
        told = f"nothing moved for {patience_s:g} s while waiting for all processes {what}: {'; '.join(parts + broken)}"
        lost = [each for each in missing if each not in waits and each not in self._broken]
        return LostError(told, lost, stuck=True)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def last_line(path: Path) -> str:
    """The last line of a log, cut short."""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
