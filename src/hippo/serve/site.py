"""The queue that is served: the live world, what its jobs can run under, and how all stand before and after a decision.

Jobs are known to the world by their ids. Its clock counts from ``epoch_s``, so that times keep their last digits.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hippo.errors import HippoError, InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.running import withdraw
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.copies import WorldCopy
from hippo.jobs.joint.live import LinksNow, LiveWorld
from hippo.jobs.joint.moment import JobPlace, Moment, Scheduler
from hippo.jobs.joint.play import opened
from hippo.jobs.online.background import Background, Failed
from hippo.jobs.placement.models import training
from hippo.jobs.placement.offer_plans import offer_table
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_model
from hippo.serve.records import BEGIN, RESIZE, STOP

FIELDS = frozenset(each.name for each in fields(Job)) - {"name", "arrival_s", "ends_after", "user"}
"""What a submission may say of a job."""

DEEPEST = 20
"""Levels of lists and objects in what an actuator is to start."""
MOST_NEVER = 1000
"""Answers that ``why_never`` remembers."""

LAYOUT = ("dp", "tp", "pp")
"""Of a place: what its offer was, whatever number it has now."""

Standing = Mapping[str, tuple[Any, ...]]
"""Of each running job: stops before this run, offer and domains (a gang: -1 and its pool or set)."""


def _planned(cluster: Cluster, kind: TrainingKind) -> OfferTable | dict[str, Any]:
    """In the process beside: the table, or what is wrong. What ends the service is not its to hear: it ends with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(5)
    try:
        return offer_table(cluster, [kind])
    except InputError as error:
        return {key: getattr(error, key) for key in ("problem", "source", "key", "value", "remedy")}


@dataclass(frozen=True)
class JobChange:
    """What a decision means for one job."""

    job: str
    act: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None = None  # where its plan alone changes: the document of the one that is to run
    policy: str = ""  # who decided that
    step_s: float | None = None  # that is to be expected of it
    pace: float = 1.0  # of the job's steps in that: measured over predicted


@dataclass(eq=False)
class ServedSite:
    """A site, its queue and the table of offers, which grows with the kinds of training that come."""

    cluster: Cluster
    scheduler: Scheduler
    epoch_s: float
    rules: ReplayRules
    offers: OfferTable
    live: LiveWorld
    usable: dict[str, int] = field(default_factory=dict)  # GPUs of domains, where somebody has told
    _heeded: dict[str, float] = field(default_factory=dict)  # when the queue last heard of each of them
    _never: dict[tuple[Job, int], str] = field(default_factory=dict)  # what ``why_never`` found last
    _beside: list[Background] = field(default_factory=list)  # what is being planned

    @classmethod
    def of(cls, cluster: Cluster, scheduler: Scheduler, epoch_s: float, rules: ReplayRules | None = None) -> ServedSite:
        """Nobody is there yet."""
        site, terms = JobSite.of(cluster), rules or ReplayRules()
        live = LiveWorld(site, scheduler, OfferTable.none(), terms)
        return cls(cluster, scheduler, epoch_s, terms, OfferTable.none(), live)

    @property
    def devices(self) -> int:
        """Of all domains together."""
        return sum(each.devices for each in self.live.site.pools)

    # ------------------------------------------------------------------------------------------------ what comes
    def lacks(self, kind: TrainingKind) -> bool:
        """Whether it is not known yet what such training can run under."""
        return kind not in self.offers.kinds

    def planned(self, kind: TrainingKind) -> OfferTable:
        """What it can run under (seconds to minutes, in a process of its own, so that it holds up nobody; kept on the
        disk); ``InputError``: under nothing; ``HippoError``: its process died."""
        beside = Background("process")
        beside.start(_planned, self.cluster, kind)
        self._beside.append(beside)
        try:
            found = beside.take(patient=True)
        finally:
            self._beside.remove(beside)
        if isinstance(found, OfferTable):
            return found
        if isinstance(found, Failed):
            remedy = "look at the machine's memory, then submit it again"
            raise HippoError(f"planning {kind.model}: {found.reason.rstrip('.')}. To fix: {remedy}.")
        raise InputError(**found)

    def close(self) -> None:
        """What is being planned is given up."""
        for each in tuple(self._beside):
            each.end()

    def learn(self, table: OfferTable) -> None:
        """From now on jobs of these kinds can come."""
        known = [self.offers] if len(self.offers.kinds) else []
        self.offers = self.live.offers = OfferTable.joined([*known, table])

    def submit(self, jobs: Iterable[Job]) -> list[tuple[Job, str]]:
        """Jobs come; those that can never run are given back, with the reason."""
        told = self.timed(list(jobs))
        self.live.submit(told)
        assert self.live.moment is not None or not told
        return [] if self.live.moment is None else self._refused(told)

    def timed(self, jobs: list[Job], offers: OfferTable | None = None) -> list[Job]:
        """Elastic jobs with the seconds that they take at their reference; ``offers``: in place of the table."""
        offers = offers or self.offers
        elastic = [each for each in jobs if each.least > 0]
        if not elastic:
            return jobs
        pace = dict(zip(offers.kinds, offers.tokens_per_s.tolist(), strict=True))
        timed = JobWorkload.of(elastic).timed(pace)
        lasts = {timed.name(row): float(timed.duration_s[row]) for row in range(len(timed))}
        return [replace(each, duration_s=lasts[each.name]) if each.name in lasts else each for each in jobs]

    def _refused(self, jobs: list[Job]) -> list[tuple[Job, str]]:
        assert self.live.moment is not None
        world, names = self.live.moment.world, {each.name: row for row, each in enumerate(self.live.jobs)}
        wrong = [each for each in jobs if world.mark[names[each.name], c.STATUS] == c.REFUSED]
        return [(each, self.why_never(each) or "can never run here") for each in wrong]

    def why_never(self, job: Job, offers: OfferTable | None = None) -> str:
        """Why a job could never run here, were the site empty; empty: it could. ``offers``: in place of the table."""
        offers = offers or self.offers
        alike = replace(job, name="", user="", arrival_s=0.0, duration_s=1.0, estimate_s=None, deadline_s=None)
        key = alike, hash(offers.kinds)
        if (known := self._never.get(key)) is not None:
            return known
        refused = opened(JobWorkload.of([alike]), self.live.site, self.rules, offers=offers).refused
        if len(self._never) >= MOST_NEVER:
            self._never = {}
        found = self._never[key] = refused[0][1] if refused else ""
        return found

    def links(self, states: Iterable[LinksNow]) -> None:
        """Links move."""
        self.live.tell(links=list(states))

    def heed(self, now_s: float, *, stops: bool, trial: LiveWorld | None = None) -> None:
        """Let the queue (or one in which something is tried) go by what is ``usable``; not ``stops``: as far as nobody
        has to be stopped for it."""
        at_s, live = now_s - self.epoch_s, trial or self.live
        pools = live.site.pools
        told = {row: self.usable[pool.domain] for row, pool in enumerate(pools) if pool.domain in self.usable}
        for row in live.let_use(told, at_s, stops=stops):
            if live is self.live:
                self._heeded[pools[row].domain] = at_s

    def lost(self, domains: Iterable[str], moment: Moment) -> str:
        """Which of these has lost devices at this moment, in words; empty: none."""
        size = {pool.domain: pool.devices for pool in self.live.site.pools}
        for name in domains:
            if self._heeded.get(name) == moment.now_s and self.usable[name] < size[name]:
                return f"{self.usable[name]} of {size[name]} GPUs of {name} can be used"
        return ""

    # ------------------------------------------------------------------------------------------------ how all stand
    def standing(self) -> Standing:
        """How jobs run now."""
        return {} if self.live.moment is None else standing(self.live.moment)

    def place(self, moment: Moment, job: int) -> dict[str, Any] | None:
        """Where a job runs, for people and actuators; None: it does not."""
        world, names = moment.world, self.live.site.domains
        if world.mark[job, c.STATUS] != c.RUNNING:
            return None
        if world.mark[job, c.ELASTIC] == 0:
            held = dict[str, int]()
            piece = int(world.mark[job, c.PIECE])
            while piece >= 0:
                row = world.piece[piece]
                domain = names[int(world.pool[world.bin[row[c.PIECE_BIN], c.BIN_POOL], c.POOL_DOMAIN])]
                held[domain] = held.get(domain, 0) + int(row[c.PIECE_DEVICES])
                piece = int(row[c.PIECE_OF_JOB])
            return {"domains": list(held), "gpus": list(held.values()), "rate": float(world.job[job, c.RATE])}
        return self.described(moment, moment.running_at(job))

    def described(self, moment: Moment, place: JobPlace) -> dict[str, Any]:
        """An offer in its domains, and what a step of it should take as links are shared now."""
        offers, names = moment.offers, self.live.site.domains
        dp, tp, pp = offers.layout[place.offer].tolist()
        kind = int(offers.kind[place.offer])
        tokens = offers.kinds[kind].batch * offers.kinds[kind].seq
        gpus = offers.gpus[place.offer][: len(place.domains)].tolist()
        step_s = tokens / (float(offers.tokens_per_s[kind]) * place.rate) if place.rate > 0 else None
        return {
            "offer": place.offer - int(np.searchsorted(offers.kind, kind)),  # among those of its kind
            "domains": [names[domain] for domain in place.domains],
            "gpus": gpus,
            **dict(zip(LAYOUT, (dp, tp, pp), strict=True)),
            **{"rate": place.rate, "step_s": step_s},
        }

    def step_s(self, moment: Moment, name: str, place: Mapping[str, Any]) -> float | None:
        """What a step of an elastic job would take at a place over links as they are, alone on them."""
        row = next((row for row, each in enumerate(self.live.jobs) if each.name == name), None)
        if row is None or "offer" not in place or moment.world.mark[row, c.ELASTIC] == 0:
            return None
        offers, links, kind = moment.offers, moment.world.links, int(moment.world.mark[row, c.ROW])
        at = self.place_of(moment, row, place)
        hops = [(one, two) for pair in pairwise(at.domains) for one, two in (pair, pair[::-1])]
        rate = min((float(links.capacity[hop]) for hop in hops), default=np.inf)
        late = max((float(links.latency[hop]) for hop in hops), default=0.0)
        found = float(offers.rate_at(np.array([at.offer]), np.array([rate]), np.array([late]))[0])
        tokens = offers.kinds[kind].batch * offers.kinds[kind].seq
        return tokens / (float(offers.tokens_per_s[kind]) * found) if found > 0.0 else None

    def changes(self, before: Standing, places: Mapping[str, Any], moment: Moment) -> list[JobChange]:
        """What has been decided between two standings; ``places``: where jobs were before."""
        after, found = standing(moment), []
        row = {moment.workload.name(job): job for job in (*moment.running.tolist(), *moment.waiting.tolist())}
        for job in sorted(before.keys() | after.keys(), key=lambda name: (name not in before, row.get(name, -1))):
            if before.get(job) == after.get(job) or job not in row:
                continue
            if job in before and job in after and before[job][1:] == after[job][1:]:
                continue  # stopped and begun again where it was, at one moment: for who runs it nothing has changed
            there = self.place(moment, row[job])
            act = STOP if there is None else (RESIZE if job in before else BEGIN)
            found.append(JobChange(job, act, places.get(job), there))
        return found

    def until(self, now_s: float) -> Iterator[Moment]:
        """Let time pass, on the service's clock."""
        return self.live.until(now_s - self.epoch_s)

    def proposals(self, scheduler: Scheduler, without: Collection[str] = ()) -> list[JobChange]:
        """What a scheduler would do now, tried in a copy, where some jobs that wait are gone."""
        if self.live.moment is None:
            return []
        moment, places = self.live.moment, self.places()
        copy = replace(moment, world=WorldCopy.of(moment.world).copy)
        for job in copy.waiting.tolist() if without else ():
            if copy.workload.name(job) in without:
                withdraw(copy.world, job)
        before = standing(copy)
        scheduler.decide(copy)
        return self.changes(before, places, copy)

    def places(self) -> dict[str, Any]:
        """Where every running job is."""
        moment = self.live.moment
        if moment is None:
            return {}
        return {moment.workload.name(job): self.place(moment, job) for job in moment.running.tolist()}

    def carry_out(self, change: JobChange) -> bool:
        """Do in the queue what somebody said yes to; False: there is no room for it any more."""
        done = self._carried_out(change)
        self.live.take_owed()  # what came free may not be for whoever is put somewhere next
        return done

    def _carried_out(self, change: JobChange) -> bool:
        moment = self.live.moment
        assert moment is not None
        row = {moment.workload.name(job): job for job in (*moment.running.tolist(), *moment.waiting.tolist())}
        job = row.get(change.job)
        if job is None:
            return False
        if change.act == STOP:
            moment.pause(job)
            return True
        assert change.after is not None
        if moment.world.mark[job, c.ELASTIC] == 0:
            if change.act == RESIZE:
                moment.pause(job)
            return moment.start_in(job, [self.live.site.domains.index(name) for name in change.after["domains"]])
        place = self.place_of(moment, job, change.after)
        return moment.begin(job, place) if change.act == BEGIN else moment.resize(job, place)

    def has(self, name: str, told: Mapping[str, Any]) -> bool:
        """Whether the place of a job that is there, as ``described`` told it once, is one of this site and table."""
        moment, names = self.live.moment, self.live.site.domains
        row = next((row for row, each in enumerate(self.live.jobs) if each.name == name), None)
        if moment is None or row is None or not set(told["domains"]) <= set(names):
            return False
        if "offer" not in told:
            return True
        kind, offers = int(moment.world.mark[row, c.ROW]), moment.offers
        at = int(told["offer"]) + int(np.searchsorted(offers.kind, kind))
        if at >= len(offers.kind) or int(offers.kind[at]) != kind:
            return False
        same = [told.get(key) for key in LAYOUT] == offers.layout[at].tolist()
        return same and bool(list(told["gpus"]) == offers.gpus[at][: len(told["domains"])].tolist())

    def place_of(self, moment: Moment, job: int, told: Mapping[str, Any]) -> JobPlace:
        """A place as ``described`` tells it."""
        kind, names = int(moment.world.mark[job, c.ROW]), self.live.site.domains
        offer = int(told["offer"]) + int(np.searchsorted(moment.offers.kind, kind))
        domains = tuple(names.index(name) for name in told["domains"])
        return JobPlace(offer, domains, float(told["rate"]), int(sum(told["gpus"])))


def standing(moment: Moment) -> dict[str, tuple[Any, ...]]:
    """How each running job runs."""
    world, found = moment.world, {}
    for job in moment.running.tolist():
        mark = world.mark[job]
        stops = int(mark[c.STOPS] + mark[c.FAILED])
        where = tuple(world.part[job].tolist()) if mark[c.ELASTIC] else (int(mark[c.POOL]), int(mark[c.DOMAINS]))
        found[moment.workload.name(job)] = (stops, int(mark[c.OFFER]), *where)
    return found


def job_of(spec: Mapping[str, Any], name: str, owner: str, arrival_s: float) -> Job:
    """The job of a submission, checked.

    Raises
    ------
    InputError
        An unknown field, or a value that no job has.
    """
    unknown = sorted(spec.keys() - FIELDS - {"actuator", "run", "trace"})
    if unknown:
        remedy = f"leave it out, or write one of {', '.join(sorted(FIELDS))}"
        raise InputError("is unknown", source="job", key=unknown[0][:60], remedy=remedy)
    if _is_deep(spec.get("run")):
        deep = f"is nested deeper than {DEEPEST} levels"
        raise InputError(deep, source="job", key="run", remedy="put what is deeper in a file, and name that")
    told = {key: value for key, value in spec.items() if key in FIELDS and value is not None}
    if not told.get("tokens") and told.get("duration_s") is None:
        remedy = "write model, tokens and most (elastic training), or devices and duration_s (a gang)"
        raise InputError("says neither what it trains nor how long it lasts", source="job", remedy=remedy)
    if isinstance(told.get("runs_on"), list):
        told["runs_on"] = tuple(told["runs_on"])
    if told.get("tokens"):
        sizes = [told[key] for key in ("least", "most", "devices") if told.get(key)]
        if not sizes:
            raise InputError("is missing", source="job", key="most", remedy="say on how many GPUs it may run at most")
        told.setdefault("most", told.get("devices", sizes[-1]))
        told.setdefault("least", min(sizes[0], told["most"]) if isinstance(sizes[0], int) else sizes[0])
        told["devices"] = told["most"]
        if not told.get("batch") or not told.get("seq"):
            told = {**_usual(told), **told}
    for key, value in told.items():
        if key == "deadline_s" and isinstance(value, int | float) and not isinstance(value, bool):
            told[key] = arrival_s + value
    try:
        return Job(name=name, arrival_s=arrival_s, user=owner, **told)
    except TypeError as error:
        raise InputError(f"is no job: {error}", source="job", remedy="see POST /v1/jobs in docs/contracts.md") from None


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            each
            for one in level
            for each in (one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ())
        ]
    return bool(level)


def check_model(spec: Mapping[str, Any]) -> None:
    """``InputError`` where a submission trains what is no model."""
    if not spec.get("tokens") or not spec.get("model"):
        return
    try:
        load_model(str(spec["model"]))
    except InputError as error:
        where = "job" if error.source == "--model" else f"job: model: {error.source}"
        key = "model" if error.source == "--model" else error.key
        raise InputError(error.problem, source=where, key=key, value=error.value, remedy=error.remedy) from None


def _usual(told: Mapping[str, Any]) -> dict[str, int]:
    """Batch and sequence as models of its size usually have them."""
    if not told.get("model"):
        return {}
    usual = training(1, str(told["model"]))
    return {"batch": usual.global_batch, "seq": usual.seq}
