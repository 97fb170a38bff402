"""A queue that lives, under a scheduler that decides for all jobs together: jobs, links and tenants are told as they
come, and time passes as it is told to.

It is the world of a replay, opened anew (``engine.carry``) for who is there whenever somebody comes, so a day that was
recorded and is told again leads to the decisions of its replay, one for one (``tests/jobs/joint/test_live.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from io import BytesIO
from typing import Any
from zlib import compress, decompress
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.engine.carry import carry
from hippo.jobs.engine.flows import network_moves, share
from hippo.jobs.engine.learned_keys import refresh
from hippo.jobs.engine.play import pass_time
from hippo.jobs.engine.running import others_take, progressed, stop, tenants_change, withdraw
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.copies import STILL
from hippo.jobs.joint.moment import JobPlace, Moment, Scheduler
from hippo.jobs.joint.play import opened, step
from hippo.jobs.joint.usable import NodeChange, taken_by_others
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]

LEVEL = 1
"""Of compression, of a world as bytes: a third more than the least size in a third of the time."""
SOME_DAY_S = 1e15
"""When links that live will move next, for rules that give up where they never will."""


@dataclass(frozen=True, eq=False)
class LinksNow:
    """What the links between K domains carry from a moment on."""

    time_s: float
    bandwidth_bytes_per_s: Floats  # (K, K) from, to; 0: nothing; inf on the diagonal
    latency_s: Floats  # (K, K) one way


@dataclass(frozen=True)
class TenantNow:
    """Others take devices of a node from a moment on (negative: give them back)."""

    time_s: float
    node: int  # counted through all pools
    devices: int


@dataclass(eq=False)
class LiveWorld:
    """See the top of the file. Times are seconds on one clock, of which the caller says what it counts from."""

    site: JobSite
    scheduler: Scheduler
    offers: OfferTable
    rules: ReplayRules = field(default_factory=ReplayRules)
    slowdown: Slowdown | None = None
    jobs: list[Job] = field(default_factory=list)  # who is there or is to come, by arrival; some may have ended
    moment: Moment | None = None  # of the world as it stands; None: nobody has come
    _links: list[LinksNow] = field(default_factory=list)  # the state that holds, and those to come
    _tenants: list[TenantNow] = field(default_factory=list)  # to come
    _owed: dict[int, int] = field(default_factory=dict)  # of pools of which jobs hold more: how many they may use

    def submit(self, jobs: Iterable[Job]) -> None:
        """Jobs come, each at its arrival, which is now or later.

        Raises
        ------
        InputError
            A job comes before what has been decided, has a name that is there, or trains what no offer is for.
        """
        come = sorted(jobs, key=lambda each: each.arrival_s)
        names = {each.name for each in self.jobs}
        for each in come:
            if each.arrival_s < self.now_s:
                problem, remedy = f"comes before {self.now_s:g} s, which is past", "let it come now"
                source = f"job {each.name!r:.60}"
                raise InputError(problem, source=source, key="arrival_s", value=each.arrival_s, remedy=remedy)
            if each.name in names:
                remedy = "give it another name"
                raise InputError("is there already", source="jobs", key="name", value=each.name, remedy=remedy)
        self._reopen([*(self.jobs[row] for row in self._there()), *come])

    def tell(self, *, links: Sequence[LinksNow] = (), tenants: Sequence[TenantNow] = ()) -> None:
        """Links move, others take devices: now or later."""
        if not self._links:
            rate, late = (np.array(each) for each in (self.site.bandwidth_bytes_per_s, self.site.latency_s))
            self._links = [LinksNow(-SOME_DAY_S, rate, late)]
        self._links += links
        self._tenants += tenants
        self._reopen([self.jobs[row] for row in self._there()])

    def let_use(self, usable: Mapping[int, int], now_s: float, *, stops: bool) -> list[int]:
        """Of some pools so many devices can be used from now on, the others are taken (``usable.taken_by_others``); for
        which that is news. Not ``stops``: nobody is stopped for it, and the rest is taken as it comes free, before
        anybody can be begun there. It is not packed, and is to be told again to a restored queue."""
        if self.moment is None:
            return []
        found = self._others(usable, stops=stops)
        told = [TenantNow(now_s, *each) for rows in found.values() for each in rows]
        if told:
            self.tell(tenants=told)
        return [pool for pool, rows in found.items() if rows]

    def take_owed(self) -> None:
        """What jobs held beyond what they may use, and has come free, is taken."""
        if self._owed and self.moment is not None:
            for rows in self._others(self._owed, stops=False).values():
                for node, devices in rows:
                    others_take(self.moment.world, node, devices)

    def _others(self, usable: Mapping[int, int], *, stops: bool) -> dict[int, list[NodeChange]]:
        """What others take and give back of each pool; what is missing then is owed."""
        assert self.moment is not None
        world = self.moment.world
        coming = [(each.node, each.devices) for each in self._tenants[int(world.tally[c.TENANT]) :]]
        found = {
            pool: taken_by_others(world, pool, count, coming=coming, stops=stops) for pool, count in usable.items()
        }
        self._owed = {pool: usable[pool] for pool, (_, short) in found.items() if short}
        return {pool: rows for pool, (rows, _) in found.items()}

    @property
    def now_s(self) -> float:
        """The last moment that was decided; before the first: no time yet."""
        return -np.inf if self.moment is None or not self.moment.world.tally[c.ARRIVED] else self.moment.now_s

    @property
    def next_s(self) -> float:
        """When something happens next by itself, if nothing is told; inf: never."""
        if self.moment is None:
            return np.inf
        world = self.moment.world
        if world.tally[c.N_DONE] == len(world.job):
            return self._told_next_s()
        arrived = int(world.tally[c.ARRIVED])
        comes = float(world.job[arrived, c.ARRIVAL]) if arrived < len(world.job) else np.inf
        due = float(world.due[world.heap[0]]) if world.tally[c.HEAP] > 0 else np.inf
        found = min(comes, due)
        return np.inf if found >= SOME_DAY_S else found

    def until(self, now_s: float) -> Iterator[Moment]:
        """Let time pass until now: each moment in which something happens, as the scheduler has decided it."""
        if self.moment is None:
            self._forget_before(now_s)
        while self.moment is not None and (
            self._goes_over(now_s) or (self.next_s <= now_s and step(self.moment.world))
        ):
            self.take_owed()
            self.scheduler.decide(self.moment)
            yield self.moment

    def _told_next_s(self) -> float:
        """When links move or others take devices next; inf: never."""
        assert self.moment is not None
        world = self.moment.world
        links = world.links.time_s[world.links.tally[c.STATE_NOW] + 1 :]
        others = world.tenant_s[world.tally[c.TENANT] :]
        found = min((float(each[0]) for each in (links, others) if len(each)), default=np.inf)
        return np.inf if found >= SOME_DAY_S else found

    def _goes_over(self, now_s: float) -> bool:
        """Whether links move or others take devices though all are done: a replay is over then, what lives is not."""
        assert self.moment is not None
        world, next_s = self.moment.world, self._told_next_s()
        if world.tally[c.N_DONE] < len(world.job) or next_s > now_s:
            return False
        at_s = max(next_s, self.moment.now_s)
        pass_time(world, at_s)
        network_moves(world, at_s)
        tenants_change(world, at_s)
        refresh(world, at_s)
        return True

    def _forget_before(self, time_s: float) -> None:
        """What links carried before the state that holds then tells nothing, where nobody has come."""
        past = sum(each.time_s <= time_s for each in self._links)
        self._links = self._links[max(0, past - 1) :]

    # what is reported of the site
    def place_of(self, name: str) -> JobPlace | None:
        """Where a job runs; None: it does not, or is a gang."""
        moment, row = self._found(name)
        if moment.world.mark[row, c.STATUS] != c.RUNNING or moment.world.mark[row, c.ELASTIC] == 0:
            return None
        return moment.running_at(row)

    def cancel(self, name: str, now_s: float) -> None:
        """A job that waits or runs leaves."""
        moment, row = self._at(name, now_s)
        withdraw(moment.world, row)
        share(moment.world)

    def progress(self, name: str, share_left: float, now_s: float) -> None:
        """How much of its work a running job has left, as a share of all; 0: it has ended."""
        moment, row = self._at(name, now_s)
        if moment.world.mark[row, c.STATUS] == c.RUNNING:
            progressed(moment.world, row, share_left * float(moment.world.job[row, c.DURATION]))

    def outlast(self, name: str, until_s: float, now_s: float) -> None:
        """A running job that was thought to end by ``until_s`` says that it has not ended: it goes on for longer."""
        moment, row = self._at(name, now_s)
        job = moment.world.job[row]
        if moment.world.mark[row, c.STATUS] == c.RUNNING and job[c.FINISH] <= until_s and job[c.RATE] > 0.0:
            progressed(moment.world, row, float(job[c.RATE]) * (until_s - moment.now_s) * 1.001)

    def fail(self, name: str, now_s: float) -> None:
        """A running job has stopped by itself: it waits again."""
        moment, row = self._at(name, now_s)
        if moment.world.mark[row, c.STATUS] == c.RUNNING:
            stop(moment.world, row, True)
            share(moment.world)

    def decide(self, now_s: float) -> Moment | None:
        """Let the scheduler look at this instant, though nothing was due; None: nobody is there."""
        if self.moment is None:
            return None
        self._let_be(now_s)
        refresh(self.moment.world, now_s)
        self.take_owed()
        self.scheduler.decide(self.moment)
        return self.moment

    def _at(self, name: str, now_s: float) -> tuple[Moment, int]:
        moment, row = self._found(name)
        self._let_be(now_s)
        return moment, row

    def _let_be(self, now_s: float) -> None:
        """It is ``now_s``, or just before something is due that has not happened yet."""
        assert self.moment is not None
        at_s = min(now_s, float(np.nextafter(self.next_s, -np.inf)))
        if at_s > self.moment.now_s:
            pass_time(self.moment.world, at_s)

    def _found(self, name: str) -> tuple[Moment, int]:
        assert self.moment is not None, "nobody has come"
        row = next((row for row, each in enumerate(self.jobs) if each.name == name), None)
        assert row is not None, f"no job {name}"
        return self.moment, row

    # a world as bytes
    def packed(self) -> bytes:
        """All that ``restore`` needs beside what this was made from and its jobs."""
        assert self.moment is not None
        told = {
            "site": self._site_mark(),
            "jobs": [each.name for each in self.jobs],
            "times": [[each.arrival_s, each.deadline_s] for each in self.jobs],
            "kinds": [list(each) for each in self.offers.kinds],
            "links": [
                [each.time_s, each.bandwidth_bytes_per_s.tolist(), each.latency_s.tolist()] for each in self._links
            ],
            "tenants": [[each.time_s, each.node, each.devices] for each in self._tenants],
            "rounds": self.moment.rounds[-1:],
        }
        out, words = BytesIO(), np.frombuffer(json.dumps(told).encode(), np.uint8)
        np.savez(out, told=words, **_state(self.moment))  # type: ignore[arg-type]  # no array is a flag
        return compress(out.getbuffer(), LEVEL)

    @staticmethod
    def names_in(content: bytes) -> list[str]:
        """Jobs of a packed world, by arrival."""
        with np.load(_unpacked(content), allow_pickle=False) as found:
            return list(json.loads(found["told"].tobytes())["jobs"])

    @staticmethod
    def kinds_in(content: bytes) -> list[TrainingKind]:
        """What the table of offers of a packed world was of, in its order: arrays name offers by their rows."""
        with np.load(_unpacked(content), allow_pickle=False) as found:
            return [TrainingKind(*each) for each in json.loads(found["told"].tobytes()).get("kinds", ())]

    def restore(self, content: bytes, jobs: Sequence[Job]) -> None:
        """Stand as the packed world did; ``jobs``: those of ``names_in``, which arrived when it says that they did.

        Raises
        ------
        InputError
            It was packed for another site, other offers or another version.
        """
        remedy = "let the service ask its actuators what runs"
        with np.load(_unpacked(content), allow_pickle=False) as found:
            told = json.loads(found["told"].tobytes())
            if told.get("site") != self._site_mark():
                raise InputError("was packed for another site", remedy=remedy)
            if "times" not in told:
                raise InputError("was packed by a version that did not say when jobs arrived", remedy=remedy)
            if self.kinds_in(content) != list(self.offers.kinds):
                raise InputError("was packed with other offers", remedy=remedy)
            came = zip(jobs, told["times"], strict=True)
            jobs = [replace(job, arrival_s=arrival_s, deadline_s=due_s) for job, (arrival_s, due_s) in came]
            self._links = [LinksNow(at, np.array(rate), np.array(late)) for at, rate, late in told["links"]]
            self._tenants = [TenantNow(*each) for each in told["tenants"]]
            self.jobs, self.moment = list(jobs), self._opened(list(jobs))
            mine = _state(self.moment)
            same = list(self.moment.workload.names) == told["jobs"]
            same &= found.keys() - {"told"} == mine.keys()
            if not same or any(found[name].shape != mine[name].shape for name in mine):
                raise InputError("was packed for another site, other offers or another version", remedy=remedy)
            for name, array in mine.items():
                array[...] = found[name]
            self.moment.rounds.extend(told["rounds"])

    def let_stop(self, stops: bool) -> None:
        """Whether the scheduler may stop and move who runs, from now on."""
        if stops != self.rules.stops:
            self.rules = replace(self.rules, stops=stops)
            if self.moment is not None:
                self.moment = replace(self.moment, sight=self.moment.sight._replace(stops=stops))

    def clear(self) -> None:
        """Nobody is there, and nothing was told."""
        self.jobs, self.moment, self._links, self._tenants, self._owed = [], None, [], [], {}

    def _site_mark(self) -> str:
        """Of domains, pools and links as they were bought: a world of another site is another world."""
        site = self.site
        told = (site.domains, site.pools, np.array(site.bandwidth_bytes_per_s).tolist())
        return sha256(repr((*told, np.array(site.latency_s).tolist())).encode()).hexdigest()[:16]

    @property
    def told_links(self) -> LinksNow | None:
        """What links were last told to carry."""
        return self._links[-1] if self._links else None

    def pass_to(self, now_s: float) -> None:
        """It is now, and nothing is decided."""
        self._let_be(now_s)

    def _there(self) -> list[int]:
        """Jobs that have not ended, by their number."""
        if self.moment is None:
            return list(range(len(self.jobs)))
        return np.flatnonzero(self.moment.world.mark[:, c.STATUS] < c.DONE).tolist()

    def _reopen(self, jobs: list[Job]) -> None:
        """Open a world for these jobs, which begin with those of the present one that are there."""
        before, kept = self.moment, self._there()
        if before is not None:
            self._links = self._links[int(before.world.links.tally[c.STATE_NOW]) :]
            self._tenants = self._tenants[int(before.world.tally[c.TENANT]) :]
        if not jobs and before is None:
            return
        if before is None:
            self._forget_before(jobs[0].arrival_s)
        moment = self._opened(jobs)
        if before is not None:
            of = np.full(len(jobs), -1, np.int64)
            of[: len(kept)] = kept
            users = {name: row for row, name in enumerate(before.workload.users)}
            carry(before.world, moment.world, of, np.array([users.get(name, -1) for name in moment.workload.users]))
            moment.world.links.tally[c.STATE_NOW] = 0
            for mine, old in zip(moment.sight.past, before.sight.past, strict=True):
                mine[:] = old
            moment = replace(moment, rounds=before.rounds, counts=before.counts)
        self.jobs, self.moment = jobs, moment

    def _opened(self, jobs: list[Job]) -> Moment:
        """The first moment of a world of these jobs."""
        workload, rules = JobWorkload.of(jobs), self.rules
        rest = {"offers": self.offers, "slowdown": self.slowdown, "tenants": self._taken()}
        world = opened(workload, self._site(), rules, **rest).world  # type: ignore[arg-type]
        return Moment.of(world, workload, self.site, self.offers, stops=rules.stops)

    def _site(self) -> JobSite:
        """The site with its links as they are, as they were told to become, and as they will be some day."""
        if not self._links:
            return self.site
        states = [*self._links, replace(self._links[-1], time_s=SOME_DAY_S)]
        times = np.array([each.time_s for each in states])
        carries = np.array([each.bandwidth_bytes_per_s for each in states])
        late = np.array([each.latency_s for each in states])
        return replace(self.site, history=LinkHistory(times, carries, "telemetry", late))

    def _taken(self) -> Tenants | None:
        if not self._tenants:
            return None
        rows = self._tenants
        return Tenants(
            np.array([each.time_s for each in rows]),
            np.array([each.node for each in rows]),
            np.array([each.devices for each in rows]),
        )


def _unpacked(content: bytes) -> BytesIO:
    try:
        return BytesIO(decompress(content))
    except ZlibError:
        remedy = "let the service ask its actuators what runs"
        raise InputError("was packed by another version", remedy=remedy) from None


def _state(moment: Moment) -> dict[str, NDArray[Any]]:
    """All that changes with time, by name."""
    return dict(_changing(moment.world)) | {f"past.{at}": each for at, each in enumerate(moment.sight.past)}


def _changing(world: Any, prefix: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays of a world that change, by name."""
    for name, value in zip(world._fields, world, strict=True):
        if name in STILL or name in ("segment", "segment_s"):
            continue
        if hasattr(value, "_fields"):
            yield from _changing(value, f"{prefix}{name}.")
        elif isinstance(value, np.ndarray):
            yield f"{prefix}{name}", value
