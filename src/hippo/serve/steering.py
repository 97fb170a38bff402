"""What keeps plans of running jobs right while links move: a method of ``hippo watch``, asked about runs that go on.

Measurements are cut into epochs of one length. In each a method is asked about the plan of each running job that takes
orders for it, as ``hippo watch`` asks (``network.worlds.asking``): once every link that told in the epoch before has
told in this one, at the latest a tenth of it in; and again in the same epoch where a link has collapsed or come back
since. How far a move is and how long the run still takes are the run's own words.

A method answers in a thread of its own and holds up nobody. One that breaks gives way to ``receding_horizon``; one
that is late is not asked again before it has answered, which is dropped, and its job's plan is kept meanwhile. Letters:
L epochs, E links.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo import first_use
from hippo.dynamics.forecast import HORIZONS, Telemetry, forecast
from hippo.errors import InfeasibleError, InputError
from hippo.front_door.networks import OURS, method_named
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.move import STOPPED, STREAMING
from hippo.network.rules.view import How, Method, levers_alone
from hippo.network.why.story import StoryEntry
from hippo.network.worlds.asking import AnswerTold, EpochAnswer, RunStands, Terms, answered, view_of
from hippo.network.worlds.judge import scenario_of
from hippo.network.worlds.play import DEFAULT_FORECAST, telemetry_of
from hippo.network.worlds.world import World
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import Plan
from hippo.problem.cluster import Cluster
from hippo.problem.links import base_latency
from hippo.problem.problem import Problem
from hippo.serve.actuators.placing import held_part, renumbered
from hippo.serve.records import CANCEL, LEVER, MOVE, LinkPoint
from hippo.serve.store import plan_id

OFF = "none"
"""In place of a method: plans are left alone."""
RULE = "receding_horizon"
EPOCH_S = 300.0
WAITS = 0.1
"""Of an epoch, for links that told in the epoch before."""
SUDDEN = 2.0
"""A link that carries so many times less or more than when the method was last asked is not waited with."""
BEFORE, MOST_EPOCHS, MOST_VALUES = 64, 512, 2_000_000
"""Epochs of measurements with which a method begins, and after which it begins anew with what runs; values that are
kept of all links: where there are many, it begins anew sooner."""
LEFT_EPOCHS = 64
"""That a run is taken to go on for where it does not say."""
MOST_OTHERS, MOST_LETTERS = 4, 400
LATE_S, BEGINS_LATE_S = 60.0, 900.0
MOST_AT_ONCE = 2
"""Methods that think at once: more of them would only take the process from each other, and from who asks it."""

Floats = NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True)
class SteeringTerms:
    """Who is asked about plans, and how often."""

    method: str = OURS
    epoch_s: float = EPOCH_S


@dataclass(frozen=True)
class SteeredRun:
    """A running job that takes orders for its plan."""

    job: str
    place: Mapping[str, Any]  # with the plan's id
    document: Callable[[str], Mapping[str, Any]]  # of a plan, by its id
    ordered: bool = False  # an order is not answered yet
    arrived: float | None = None  # share of the move under way; None: there is none
    stands: bool = False  # training stands still for it
    left_s: float | None = None  # until it ends, at its pace
    step_s: float | None = None  # measured


@dataclass(frozen=True, eq=False)
class PlanAnswer:
    """What is to be done about a job's plan."""

    job: str
    act: str  # LEVER, MOVE, CANCEL; empty: it is kept
    epoch: int  # of the method's
    policy: str
    decided: bool  # False: nothing was due
    before: str  # plan's id
    document: Mapping[str, Any] | None = None  # of the plan that is to run
    way: str = ""  # stop or background
    lever: str = ""
    why: Mapping[str, Any] | None = None
    step_s: float | None = None  # that is to be expected
    pace: float = 1.0  # of the job's steps in that: measured over predicted


class LinkEpochs:
    """What links were measured to carry in each epoch: the last value in it, NaN where none came."""

    def __init__(self, cluster: Cluster, epoch_s: float, origin_s: float) -> None:
        self.epoch_s, self.origin_s = epoch_s, origin_s
        self.pairs = [(each.source, each.destination) for each in cluster.links]
        self._at = {pair: at for at, pair in enumerate(self.pairs)}
        self.most = min(MOST_EPOCHS, max(2 * BEFORE, MOST_VALUES // max(1, len(self.pairs)) - BEFORE))
        self._rows: dict[int, Floats] = {}  # (3, E): bytes/s, seconds, when
        self._lock = Lock()

    def of(self, time_s: float) -> int:
        """The epoch of a time."""
        return floor((time_s - self.origin_s) / self.epoch_s + 1e-9)

    def add(self, points: Iterable[LinkPoint]) -> None:
        """Measurements that have come."""
        with self._lock:
            for each in points:
                if (at := self._at.get((each.source, each.destination))) is None:
                    continue
                row = self._rows.setdefault(self.of(each.time_s), np.full((3, len(self.pairs)), np.nan))
                if not each.time_s < row[2, at]:
                    late_s = row[1, at] if each.latency_s is None else each.latency_s
                    row[:, at] = each.bytes_per_s, late_s, each.time_s
            for old in [each for each in self._rows if each <= max(self._rows) - self.most - BEFORE]:
                del self._rows[old]

    def first(self) -> int | None:
        """The earliest epoch that is known."""
        with self._lock:
            return min(self._rows, default=None)

    def window(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Bytes/s and seconds, (L, E) each, of the epochs from one to another, both included."""
        nothing = np.full((3, len(self.pairs)), np.nan)
        with self._lock:
            rows = np.stack([self._rows.get(each, nothing).copy() for each in range(first, last + 1)])
        return rows[:, 0], rows[:, 1]


class PlanPilot:
    """Asks one method about the plan of one job. What is asked runs in a thread, and nothing else meanwhile."""

    def __init__(self, run: SteeredRun, method: Method, links: LinkEpochs) -> None:
        self.job, self.plan, self.method, self.links = run.job, str(run.place["plan"]), method, links
        self.done, self.began_s, self.late = Event(), 0.0, False
        self.found: PlanAnswer | None = None
        self.error: Exception | None = None
        self.asks = False
        self.held = ""  # why it asks no more
        self.epoch = -1  # that was asked about last
        self.saw: Floats | None = None  # (E,) bytes/s of links as they were then
        self.move: tuple[int, int] | None = None  # under way: target, phase where it streams
        self._place, self._document = run.place, run.document
        self._first = -1  # epoch from which the method counts
        self._problem: Problem  # on the devices that the job has
        self._whole: Cluster
        self._cache: PlanCache | None = None
        self._terms = Terms(0.0)
        self._told = AnswerTold(method)
        self._ids: dict[str, int] = {}  # configurations of plans by their ids
        self._should_s = self._pace = 1.0  # a step of what runs when it was last asked; measured over that

    @property
    def begun(self) -> bool:
        """Whether the method has begun."""
        return self._cache is not None

    def ask(self, run: SteeredRun, epoch: int, news: Callable[[], None]) -> None:
        """Begin to ask about an epoch."""
        self.done, self.began_s, self.asks, self.late = Event(), time.monotonic(), True, False
        self.found, self.error, self.epoch = None, None, epoch
        before, now = self.links.window(epoch - 1, epoch)[0]
        self.saw = np.where(np.isfinite(now), now, before)
        done = self.done

        def think() -> None:
            try:
                self.found = self._answer(run, epoch)
            except Exception as error:  # whatever breaks in a method must not break the service
                self.error = error
            done.set()
            news()

        Thread(target=think, name=f"plan of {self.job}", daemon=True).start()

    def ordered(self, act: str, plan: str, way: str) -> None:
        """What was answered has become an order; what is given up is waited for."""
        self.move = None
        if act != CANCEL and plan in self._ids:
            self.move = self._ids[plan], STREAMING if way == How.BACKGROUND.value else STOPPED

    def runs(self, plan: str) -> bool:
        """Whether it knows the plan that runs now."""
        if plan == self.plan or plan in self._ids:
            self.plan = plan
            return True
        return False

    def give_way(self, method: Method) -> None:
        """Another method decides from now on, and begins."""
        self.method, self._cache, self.epoch, self.move = method, None, -1, None

    # ---------------------------------------------------------------------------------------------------- in a thread
    def _answer(self, run: SteeredRun, epoch: int) -> PlanAnswer:
        if self._cache is not None and epoch - self._first >= self.links.most and not run.ordered:
            self._cache = None
        if self._cache is None:
            return self._begin(run, epoch)
        told, cache = self._measured(epoch), self._cache
        running, now = self._ids[self.plan], RunStands(_epochs(run.left_s, self.links.epoch_s), self._ids[self.plan])
        if run.ordered and self.move is not None:
            phase = STOPPED if run.stands else self.move[1]
            now = replace(now, target=self.move[0], phase=phase, arrived=run.arrived or 0.0)
        view = view_of(cache, self._terms, self.links.epoch_s, told, self._forecast(told), now)
        answer = answered(self.method, view)
        return self._said(answer, running, run)

    def _begin(self, run: SteeredRun, epoch: int) -> PlanAnswer:
        """Plans are made, and the method says where it would begin; the run is where it is."""
        problem, plan = plan_from_document(self._document(self.plan), source=f"plan {self.plan}")
        first_use.prepare_moving(self.method.name)
        self._whole, known = problem.cluster, self.links.first()
        self._problem = problem = replace(problem, cluster=held_part(problem.cluster, self._place))
        self._first = max(epoch - BEFORE, epoch if known is None else known)
        told = self._measured(epoch)
        aim = problem.objective
        setting = scenario_of(_last(self._world(epoch), told), weights=(aim.w_eff, aim.w_util, aim.w_cost))
        cache, terms = setting.cache.copy(), setting.terms
        now = RunStands(_epochs(run.left_s, self.links.epoch_s))
        answer = answered(self.method, view_of(cache, terms, self.links.epoch_s, told, self._forecast(told), now))
        self._told = AnswerTold(self.method)
        self._told.of(answer)
        mine = renumbered(plan, self._whole, problem.cluster)
        if (running := cache.add(mine, origin="running")) is None:
            told_of = "its plan does not fit the devices that it has"
            raise InputError(told_of, source=self.job, key="plan", value=self.plan, remedy="plan it anew")
        self._cache, self._terms, self._ids = cache, terms, {self.plan: running}
        self._should_s = _step_s(cache, running, answer)
        return PlanAnswer(self.job, "", answer.view.epoch, self.method.name, False, self.plan)

    def _said(self, answer: EpochAnswer, running: int, run: SteeredRun) -> PlanAnswer:
        cache, action, view = answer.view.cache, answer.action, answer.view
        entry = self._told.of(answer)
        should_s, before_s = _step_s(cache, running, answer), self._should_s
        if run.step_s is not None and 0.0 < before_s < np.inf:
            self._pace = run.step_s / before_s  # the last steps went over links as they were then
        self._should_s = should_s
        found = PlanAnswer(self.job, "", view.epoch, self.method.name, entry is not None, self.plan)
        if entry is None or action.how is How.KEEP:
            return found
        why = {"cause": _cause(entry), "epoch": view.epoch}
        why |= {"reasons": [each.document() for each in entry.reasons]}
        if action.how is How.CANCEL:
            return replace(found, act=CANCEL, why=why)
        chosen = cache.configurations[action.target]
        there = renumbered(chosen.plan, self._problem.cluster, self._whole)
        document = plan_to_document(replace(self._problem, cluster=self._whole), there)
        self._ids[plan_id(document)] = action.target
        alone = levers_alone(cache, running, action)
        way = How.BACKGROUND.value if action.how is How.BACKGROUND else How.STOP.value
        others = [index for index in _quickest(cache, answer) if index != action.target][:MOST_OTHERS]
        if running not in others:
            others = [running, *others[: MOST_OTHERS - 1]]
        why |= {"alternatives": [self._other(cache, each, answer, running) for each in others]}
        expected_s = _step_s(cache, action.target, answer) * self._pace
        return replace(
            found,
            act=LEVER if alone else MOVE,
            document=document,
            way=way,
            lever=chosen.lever,
            why=why,
            step_s=expected_s if np.isfinite(expected_s) else None,
            pace=self._pace,
        )

    def _other(self, cache: PlanCache, index: int, answer: EpochAnswer, running: int) -> dict[str, Any]:
        """What else could run, and what a step of it would take now."""
        each, step_s = cache.configurations[index], _step_s(cache, index, answer) * self._pace
        lever = "as it runs" if index == running else each.lever or each.origin
        told = _held(each.plan)
        return {**told, "lever": lever, "step_s": step_s if np.isfinite(step_s) else None}

    def _world(self, epoch: int) -> World:
        """What was measured since the method's first epoch, as values that a run gets through."""
        problem, at = self._problem, {pair: at for at, pair in enumerate(self.links.pairs)}
        links, (rate, late) = problem.cluster.links, self.links.window(self._first, epoch)
        mine = [at.get((each.source, each.destination), -1) for each in links]
        lacks = np.full((len(rate), 1), np.nan)
        rate, late = (np.concatenate([each, lacks], axis=1)[:, mine] for each in (rate, late))  # -1: not of the site
        goodput, overhead_s = np.array([(each.goodput, each.overhead_s) for each in links]).reshape(-1, 2).T
        told = np.isfinite(rate)
        rows = np.maximum.accumulate(np.where(np.isfinite(late), np.arange(len(late))[:, None], -1), axis=0)
        known = np.where(rows >= 0, np.take_along_axis(late, np.maximum(rows, 0), axis=0), np.nan) + overhead_s
        known = np.where(np.isfinite(known), known, base_latency(problem.cluster))
        compute = np.ones((len(rate), len(problem.cluster.domains)))
        rate = np.where(told, rate * goodput, 0.0)
        return World("served", "served", problem, self.links.epoch_s, rate, known, compute, told)

    def _measured(self, epoch: int) -> Telemetry:
        return telemetry_of(self._world(epoch))

    def _forecast(self, told: Telemetry) -> Any:
        cluster = self._problem.cluster
        return forecast(told, cluster, self.links.epoch_s, method=DEFAULT_FORECAST, horizons=HORIZONS)


class Steering:
    """The plans of all jobs: who is asked when, and what was answered. ``make``: a method by its name."""

    late_s: float | None = LATE_S  # None: whoever is late is waited for

    def __init__(
        self,
        terms: SteeringTerms,
        cluster: Cluster,
        origin_s: float,
        *,
        make: Callable[[str], Method] = method_named,
    ) -> None:
        self.terms, self.links, self._make = terms, LinkEpochs(cluster, terms.epoch_s, origin_s), make
        self.tell: Callable[[str], None] = lambda told: None
        self.news: Callable[[], None] = lambda: None
        self.pilots: dict[str, PlanPilot] = {}

    def turn(self, now_s: float, runs: Mapping[str, SteeredRun], *, holds: bool = False) -> list[PlanAnswer]:
        """What has been answered, and ask whoever is due, those first that wait longest; ``holds``: nobody is, and what
        was asked before does not count. Nobody is asked about a job in one domain, which uses no link."""
        runs = {name: run for name, run in runs.items() if len(run.place["domains"]) > 1}
        for name in [each for each in self.pilots if each not in runs]:
            del self.pilots[name]
        found: list[PlanAnswer] = []
        for name, run in runs.items():
            pilot, plan = self.pilots.get(name), str(run.place["plan"])
            if pilot is not None and pilot.asks:
                answer = self._taken(pilot)
                found += [answer] if answer is not None and answer.before == plan and not holds else []
            if pilot is None or not (pilot.asks or pilot.runs(plan)):
                pilot = self.pilots[name] = PlanPilot(run, self._method(self.terms.method), self.links)
            if not run.ordered:
                pilot.move = None
        room = MOST_AT_ONCE - sum(each.asks and not each.late for each in self.pilots.values())
        for pilot in sorted(self.pilots.values(), key=lambda each: each.began_s):
            if room > 0 and not holds and not pilot.asks and self._due(pilot, runs[pilot.job], now_s):
                pilot.ask(runs[pilot.job], self.links.of(now_s), self.news)
                room -= 1
        return found

    def ordered(self, job: str, act: str, plan: str, way: str) -> None:
        """An answer has become an order."""
        if job in self.pilots:
            self.pilots[job].ordered(act, plan, way)

    def _taken(self, pilot: PlanPilot) -> PlanAnswer | None:
        """What a pilot has answered; None: nothing that counts."""
        limit_s = self.late_s and (self.late_s if pilot.begun else BEGINS_LATE_S)
        if not pilot.done.is_set():
            if limit_s and not pilot.late and time.monotonic() - pilot.began_s > limit_s:
                pilot.late = True
                self.tell(f"{pilot.method.name} took more than {limit_s:g} s; the plan of {pilot.job} is kept")
            return None
        pilot.asks = False
        if pilot.error is not None:
            self._broke(pilot, pilot.error)
            return None
        if pilot.late:
            self.tell(f"{pilot.method.name} has answered about {pilot.job} too late, which is dropped")
            return None
        return pilot.found

    def _broke(self, pilot: PlanPilot, error: Exception) -> None:
        name, told = pilot.method.name, f"{type(error).__name__}: {error}"[:200]
        if isinstance(error, InfeasibleError):
            return  # nothing can run now: it is asked again in the next epoch
        if isinstance(error, InputError) or name == RULE:
            pilot.held = told
            self.tell(f"the plan of {pilot.job} is left as it is: {told}")
            return
        self.tell(f"{name} broke over the plan of {pilot.job} ({told}); {RULE} decides")
        pilot.give_way(self._method(RULE))

    def _method(self, name: str) -> Method:
        """By its name; the rule, where there is no policy."""
        try:
            found = self._make(name)
        except InputError as error:
            if name == RULE:
                raise
            self.tell(f"{error} Going on with {RULE}.")
            return self._make(RULE)
        if hasattr(found, "clock"):
            found.clock = time.thread_time  # a service does other things meanwhile
        return found

    def _due(self, pilot: PlanPilot, run: SteeredRun, now_s: float) -> bool:
        """Whether an epoch has not been asked about yet, or a link has collapsed or come back since."""
        if pilot.held or (run.ordered and (pilot.move is None or run.arrived is None)):
            return False
        epoch = self.links.of(now_s)
        rate = self.links.window(epoch - 1, epoch)[0]
        come = np.isfinite(rate[1])
        if epoch == pilot.epoch:
            if pilot.saw is None or not pilot.begun:
                return False
            both = come & np.isfinite(pilot.saw)
            new, old = rate[1, both], pilot.saw[both]
            return bool(((new > SUDDEN * old) | (old > SUDDEN * new)).any())
        if not come.any() and self.links.first() is None:
            return False
        waits = np.isfinite(rate[0]) & ~come
        waited_s = now_s - self.links.origin_s - epoch * self.terms.epoch_s
        return bool(come.any() and not waits.any()) or waited_s > WAITS * self.terms.epoch_s


def _epochs(left_s: float | None, epoch_s: float) -> int:
    """That a run goes on for, this one included."""
    return LEFT_EPOCHS if left_s is None else max(1, ceil(left_s / epoch_s - 1e-9))


def _last(world: World, told: Telemetry) -> World:
    """The last epoch alone, as it is told."""
    rate, late = told.bandwidth_bytes_per_s[-1:], told.latency_s[-1:]
    fresh = np.ones_like(rate, dtype=np.bool_)
    return replace(world, bandwidth_bytes_per_s=rate, latency_s=late, compute=told.compute[-1:], told=fresh)


def _step_s(cache: PlanCache, index: int, answer: EpochAnswer) -> float:
    """Of a configuration, as links are believed to be now."""
    now = answer.view.forecast
    return float(cache.step_time_s(index, now.bandwidth_bytes_per_s[:1], now.latency_s[:1], now.compute[:1])[0])


def _quickest(cache: PlanCache, answer: EpochAnswer) -> list[int]:
    """Configurations by their steps now."""
    return sorted(range(len(cache)), key=lambda index: _step_s(cache, index, answer))


def _cause(entry: StoryEntry) -> str:
    """What happened first and what is done, without the figures in brackets; all of it stands among the reasons."""
    done = [each for each in entry.reasons if each.kind in ("lever_pulled", "moved", "cancelled")]
    told = dict.fromkeys(each.sentence() for each in (*entry.reasons[:1], *done))
    return " ".join(re.sub(r" \([^()]*\)", "", each) for each in told)[:MOST_LETTERS]


def _held(plan: Plan) -> dict[str, Any]:
    """GPUs of each domain of a plan."""
    found = dict.fromkeys(plan.domains, 0)
    for line in plan.pipelines:
        for stage in line.stages:
            found[stage.domain] += len(stage.devices)
    return {"domains": list(found), "gpus": list(found.values())}
