"""The loop: what is reported, what links carry, what the scheduler decides, what is written down, what is carried out.

Everything that is decided in one turn is written in one transaction (decisions, orders, how jobs stand, the packed
queue) before anything of it is carried out; what could not be written is tried again, and nothing else happens until it
is. An order has a key of its own, and is told again with it until its actuator has answered, through a restart too. So
nothing that was acknowledged is lost, and nothing is done twice by an actuator that keeps to its side.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import permutations
from math import inf
from queue import Empty, SimpleQueue
from secrets import token_bytes
from threading import Event, RLock, Thread
from time import monotonic, sleep
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sql
from sqlalchemy.engine import Connection

import hippo
from hippo.errors import HippoError, InputError
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.live import LinksNow, LiveWorld
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.serve import records as r
from hippo.serve import tables as t
from hippo.serve.actuators.base import Actuator
from hippo.serve.backups import begun_after
from hippo.serve.bounds import StepBounds
from hippo.serve.domains import DomainNow, domains_written, gpus_of, holding, kept_words, younger
from hippo.serve.expected import LinkMinutes
from hippo.serve.guard import HeldScheduler
from hippo.serve.records import JobOrder, LinkPoint, Receipt, SeenJob, StoredDecision, StoredJob
from hippo.serve.site import LAYOUT, JobChange, ServedSite, job_of
from hippo.serve.steering import SteeredRun, Steering
from hippo.serve.store import (
    BEYOND,
    MOST_NAMES,
    Store,
    StoreError,
    decision_of_row,
    job_of_row,
    keep,
    kept,
    note,
    note_all,
    number_of,
    plan_kept,
    plan_of,
    set_jobs,
)
from hippo.serve.telemetry import checked, lately, looked, rolled, written
from hippo.serve.why import reasons
from hippo.serve.worker import ActuatorWorker

T = TypeVar("T")

OPEN, ANSWERED, NOT_DONE = "open", "done", "refused"
"""States of an order."""
QUEUE, CLOCK, TURN = "queue", "clock", "turn"
"""Names of what the store keeps: the packed queue, when the service's clock began, and the mark of the last turn."""
MOST_FAILURES = 3
"""Of a job, before it is given up."""
FADED_S = 3600.0
"""A failure is forgotten when the job has not failed again for so long."""
DENIED_S = 86_400.0
"""So long after it was proposed what somebody said no to is not proposed again, while its job stands as it did."""
STOP_AGAIN_S, STOP_AT_LEAST_S, MOST_STOPPED = 10.0, 600.0, 1000
"""Between two tries to stop what runs and should not, doubled each time up to the second; so many are remembered."""
STRAYS_S = 60.0
"""For so long at most nobody is begun beside runs that a restored store has never heard of, and that are to stop."""
RETRY_S = 1.0
TICK_S = 1e-6
ROLL_EVERY_S = 30.0
LOOK_EVERY_S = 1.0
NOTICE_EVERY_S = 5.0
LONGEST_REST_S = 0.25
"""After a turn that was as long or longer: who asks the service gets half of the process."""
SETTLED = 3
"""Steps after a decision that tell what it brought; the one before them goes through the change itself."""


@dataclass(frozen=True)
class LoopTerms:
    """How the loop goes round."""

    mode: str = r.OBSERVE
    actuator: str = "paper"
    """Carries out what is decided about jobs that name none."""
    every_s: float = 0.5
    """Between two turns in which nothing has happened."""
    stale_s: float = 60.0
    """Once links have been measured: without news for so long the service holds."""
    least_change: float = 0.02
    """A link that carries more or less by this share counts as moved."""
    gone_after_s: float = 5.0
    """A job that its actuator has not any more, so long after its last order was carried out, is lost."""


@dataclass(eq=False)
class LoopState:
    """What the loop says of itself."""

    turns: int = 0
    last_turn_s: float = 0.0
    turned_s: float = 0.0  # what turns took, all together
    holds: str = ""  # why it decides nothing, where it does not
    notice: str = ""  # what somebody should know
    unwritten: str = ""  # why what was decided cannot be written
    decisions: int = 0
    points: int = 0
    counts: Counter[str] = field(default_factory=Counter)


class ServeLoop:
    """See the top of the file. ``clock``: seconds since 1970, never back; ``wall``: what the machine's clock says,
    as those who measure go by theirs; ``notice``: what somebody should know, where there is something;
    ``steering``: who decides about plans of running jobs."""

    def __init__(
        self,
        store: Store,
        site: ServedSite,
        actuators: Sequence[Actuator],
        terms: LoopTerms,
        *,
        rule: Scheduler,
        clock: Callable[[], float],
        wall: Callable[[], float] | None = None,
        notice: Callable[[], str] = lambda: "",
        steering: Steering | None = None,
    ) -> None:
        self.store, self.site, self.terms, self._clock = store, site, terms, clock
        self._wall, self._notice, self._noticed_s = wall or clock, notice, 0.0
        self.steering = steering if any(getattr(each, "steers", False) for each in actuators) else None
        if self.steering is not None:
            self.steering.tell, self.steering.news = self.tell, self.wake
        self.mode, self.state, self.lock = terms.mode, LoopState(), RLock()
        self._held = HeldScheduler(site.scheduler, rule, self.tell)
        self.site.live.scheduler = self._held  # type: ignore[assignment]  # which names, summaries have no part in
        self._mark = f"{round(1e3 * site.epoch_s):x}"  # of the store, and of what was restored from it
        self._woken, self._ends = Event(), False
        self._told: list[str] = []  # sentences to be written down
        self._answers: SimpleQueue[tuple[JobOrder, Receipt]] = SimpleQueue()
        self._broke = False  # whether the last turn did
        self._took: deque[JobOrder] = deque()  # whose answers are written with this turn
        self._come: SimpleQueue[StoredJob] = SimpleQueue()  # taken in since the last turn
        self._cancels: SimpleQueue[str] = SimpleQueue()  # names of jobs that are to go
        self._least: SimpleQueue[tuple[int, float]] = SimpleQueue()  # bounds of decisions, found since the last turn
        self._bounds = StepBounds(site.cluster, lambda *pair: self._least.put(pair))
        self._domains_told: SimpleQueue[DomainNow] = SimpleQueue()  # since the last turn
        self._words: list[DomainNow] = []  # the last of each source about each domain, the oldest first
        self.domains: dict[str, DomainNow] = {}  # as they were told last
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="planning")
        self._planning: dict[TrainingKind, Future[Any]] = {}
        self._died: dict[TrainingKind, int] = {}  # how often the process that planned it did
        self._links: dict[tuple[str, str], LinkPoint] = {}  # measured since they were last looked at
        self._heard_of: dict[tuple[str, str], float] = {}  # when somebody who measures last said something of a link
        self._raised: dict[tuple[str, str], float] = {}  # to what runs raised links since that
        self._doubted: dict[tuple[str, str], float] = {}  # when that was taken back by who measures
        self.measured = LinkMinutes(site.cluster)
        self._heard_s: float | None = None  # monotonic time of the last points
        self._looks = False  # the queue was restored, or somebody lost what it ran on, and nobody has looked since
        self._moved = False
        self._jobs: dict[str, StoredJob] = {}  # who is not over
        self._keys: dict[str, tuple[str, float]] = {}  # key of each job's last order that was carried out, and when
        self._ran: dict[str, Mapping[str, Any]] = {}  # who ran when the queue was begun anew, and where
        self._open: dict[str, set[str]] = {}  # of each job, keys of orders that are not answered
        self._plans: dict[str, tuple[str, Mapping[str, Any]]] = {}  # of each job, the last that it was said to run
        self._steers: dict[str, str] = {}  # of these, those about its plan alone, and their acts
        self._failures: dict[str, tuple[int, float]] = {}  # of each job, and when it last failed
        self._refused: dict[str, float] = {}  # when a move of each job was last refused
        self._stopped: dict[str, tuple[float, int]] = {}  # who was stopped, when last, and how often again
        self._strays: dict[str, float] = {}  # who runs and is not in the store, and until when nobody is begun for it
        self._waits = False  # nobody is begun, for them
        self._looked: dict[str, float] = {}  # when it was last written down how a job goes on
        self._times: dict[str, float] = {}  # measured over predicted step, of each job
        self._measured: dict[str, tuple[int, list[float]]] = {}  # jobs whose last decision's outcome is being measured
        self._rolling: Future[int] | None = None
        self._roll_s = 0.0  # when next
        self._made_s = 0.0  # the last order
        self._inputs = -1, ""  # of which turn, and the hash of what its decisions go by
        self._unwritten: list[Callable[[Connection], Any]] = []
        self._turn: tuple[bytes, tuple[Callable[[Connection], Any], ...]] | None = None  # with its mark: being written
        self._due: deque[tuple[JobOrder, str]] = deque()  # orders that are handed on once they are written
        self._begin()
        self.workers = {
            each.name: ActuatorWorker(each, answered=lambda *pair: self._answered(*pair), news=self.wake)
            for each in actuators
        }
        self._again()
        self._thread: Thread | None = None

    # -------------------------------------------------------------------------------------------------- from outside
    def start(self) -> None:
        """Go round in a thread of its own."""
        self._thread = Thread(target=self._go_on, name="loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the turn, and go round no more."""
        self._ends = True
        self.wake()
        if self._thread is not None:
            self._thread.join()
        for worker in self.workers.values():
            worker.close()
        self._bounds.close()
        self.site.close()
        self._planner.shutdown(wait=False, cancel_futures=True)

    def wake(self) -> None:
        """Something has come: go round now."""
        self._woken.set()

    def points(self, points: Sequence[LinkPoint], *, heard: bool = True) -> None:
        """What links were measured to carry; already checked. What is old is history, and says nothing of now. Not
        ``heard``: who measures has not spoken."""
        young = [each for each in points if each.time_s >= self._clock() - self.terms.stale_s]
        self.state.points += len(points)
        if not young:
            return
        for each in young:
            pair = each.source, each.destination
            if heard:
                self._heard_of[pair] = self._clock()
                if each.bytes_per_s < (1.0 - self.terms.least_change) * self._raised.pop(pair, 0.0):
                    self._doubted[pair] = self._clock()
            if each.time_s >= self.measured.last_s.get(pair, -inf):
                late_s = (
                    self._links[pair].latency_s if each.latency_s is None and pair in self._links else each.latency_s
                )
                self._links[pair] = replace(each, latency_s=late_s)
        self.measured.add(young)
        if self.steering is not None:
            self.steering.links.add(young)
        self._heard_s, self._moved = monotonic() if heard else self._heard_s, True
        self.wake()

    def tell_domains(self, told: Iterable[DomainNow]) -> None:
        """How many GPUs of domains can be used; already checked, and on the disk."""
        for each in told:
            self._domains_told.put(each)
        self.wake()

    def come(self, job: StoredJob, new: bool = True) -> None:
        """A job has been taken in, and is on the disk."""
        if new:
            self._come.put(job)
            self.wake()

    def lacks(self, spec: Mapping[str, Any]) -> str:
        """What a submission lacks for its actuator, in a sentence; empty: nothing."""
        worker = self.workers.get(str(spec.get("actuator") or self.terms.actuator))
        return "" if worker is None else worker.actuator.lacks(spec)

    def cancel(self, name: str) -> None:
        """A job is wanted no more, which is on the disk."""
        self._cancels.put(name)
        self.wake()

    def tell(self, sentence: str) -> None:
        """Write down what somebody should know, with this turn."""
        self._told.append(sentence)

    def now_s(self) -> float:
        """On the service's clock."""
        return self._clock()

    def age_s(self) -> float:
        """Seconds since it went round."""
        return max(0.0, self._clock() - self.state.last_turn_s) if self.state.turns else 0.0

    @property
    def orders_open(self) -> int:
        """Orders that are not answered yet."""
        return sum(len(keys) for keys in list(self._open.values()))

    def pace(self) -> dict[str, float]:
        """Measured over predicted step of each job that runs and tells."""
        return {name: ratio for name, ratio in list(self._times.items()) if name in self._jobs}

    def of_wall_s(self, time_s: float) -> float:
        """A time by the machines' clocks on the service's, which differ where a clock was set back."""
        return time_s + self._clock() - self._wall()

    @property
    def policy(self) -> str:
        """Who decides now."""
        return self._held.name

    @property
    def degraded(self) -> str:
        """Why a rule decides in place of the policy, in a sentence; empty: it does not."""
        return self._held.why

    # ----------------------------------------------------------------------------------------------------- the start
    def _begin(self) -> None:
        """Stand as the store says."""
        with self.lock:
            self._jobs = {each.name: each for each in self._stored()}
            most = sql.select(sql.func.max(t.DECISIONS.c.number))
            known = self.store.read(lambda at: (at.execute(most).scalar(), kept(at, BEYOND)))
            self._last_decision, self._restored = max(int(each or 0) for each in known), known[1] is not None
            since_s, domains = self._clock() - 60.0 * self.measured.minutes, set(self.site.live.site.domains)
            found = self.store.read(lambda at: lately(at, since_s))
            known_of = [each for each in found if {each.source, each.destination} <= domains]
            self.measured.add(known_of)
            if self.steering is not None:
                self.steering.links.add(known_of)
            self._domains_hold(self.store.read(kept_words))
            content = self.store.read(lambda at: kept(at, QUEUE))
            if content is not None:
                self._restore(content)
            self._looks = self.site.live.moment is not None
            if self.measured.last_s or self.site.live.told_links is not None:
                self._heard_s = monotonic()  # who measured before is expected to go on

    def _stored(self) -> list[StoredJob]:
        """Jobs that are not over, and word of those that are to go."""
        rows = self.store.read(
            lambda at: at.execute(sql.select(t.JOBS).where(t.JOBS.c.state.not_in(r.OVER)).order_by("number")).all()
        )
        found = [job_of_row(each) for each in rows]
        for each in found:
            if each.cancels:
                self._cancels.put(each.name)
        return found

    def _restore(self, content: bytes) -> None:
        """The queue as it was packed; where it cannot be, all who were in it come anew, and who ran is put back."""
        try:
            names = LiveWorld.names_in(content)
            stored = {each.name: each for each in self._stored_as(names)}
            jobs = [self._job(stored[name]) for name in names]
            for kind in LiveWorld.kinds_in(content):  # in their order, those of who has gone, too
                if self.site.lacks(kind):
                    self.site.learn(self.site.planned(kind))
            self.site.live.restore(content, self.site.timed(jobs))
        except HippoError as error:
            self.tell(f"the queue is begun anew: {error}")
            self.site.live.clear()
            back = {name: job for name, job in self._jobs.items() if job.state in (r.WAITING, r.RUNNING)}
            self._ran = {name: job.place for name, job in back.items() if job.state == r.RUNNING and job.place}
            self._jobs |= {name: replace(job, state=r.QUEUED) for name, job in back.items()}

    def _stored_as(self, names: Sequence[str]) -> list[StoredJob]:
        numbers = [int(each[1:]) for each in names]
        some = [numbers[at : at + MOST_NAMES] for at in range(0, len(numbers), MOST_NAMES)]
        asked = [sql.select(t.JOBS).where(t.JOBS.c.number.in_(each)) for each in some]
        return self.store.read(lambda at: [job_of_row(row) for each in asked for row in at.execute(each).all()])

    def _again(self) -> None:
        """Tell every order that has not been answered again, and know which were."""
        runs = [name for name, each in self._jobs.items() if each.state == r.RUNNING or name in self._ran]
        self._made_s = (
            self.store.read(lambda at: at.execute(sql.select(sql.func.max(t.ORDERS.c.made_s))).scalar()) or 0.0
        )
        some = [runs[at : at + MOST_NAMES] for at in range(0, len(runs), MOST_NAMES)]
        asked = [t.ORDERS.c.state == OPEN, *(t.ORDERS.c.job.in_(each) for each in some)]
        rows = {row.key: row for which in asked for row in self._orders(which)}
        for row in sorted(rows.values(), key=lambda each: each.made_s):  # not by number: who waits for a yes is late
            order = JobOrder(**json.loads(row.body))
            if row.state == ANSWERED and row.job in self._jobs and order.act != r.CANCEL:
                self._keys[row.job] = row.key, monotonic()
            if row.state == OPEN:
                self._hand(order, row.actuator)

    def _orders(self, which: Any) -> Sequence[Any]:
        return self.store.read(lambda at: at.execute(sql.select(t.ORDERS).where(which)).all())

    # ------------------------------------------------------------------------------------------------------ one turn
    def _go_on(self) -> None:
        while not self._ends:
            self._woken.clear()
            began_s = monotonic()
            try:
                self.turn()
            except StoreError as error:
                self.state.unwritten = str(error)
            except Exception as error:  # a turn that breaks must not end the service
                self._broke = True
                self.state.counts["turns broken"] += 1
                self.tell(f"a turn broke: {type(error).__name__}: {error}"[:300])
            self.state.turned_s += (took_s := monotonic() - began_s)
            sleep(min(LONGEST_REST_S, took_s))  # what comes meanwhile is taken together
            due_s = self.site.live.next_s + self.site.epoch_s - self._clock()
            self._woken.wait(RETRY_S if self.state.unwritten else min(self.terms.every_s, max(0.0, due_s)))

    def _missed(self) -> None:
        """What a turn that broke may have taken and not dealt with comes again, once all that it brought is written."""
        for each in self._stored():
            self._come.put(each)
        self._stand_as_ordered(self._clock())
        self._broke = False

    def _stand_as_ordered(self, now_s: float) -> None:
        """What the queue decided and nobody ordered is taken back: who was not begun waits again, who was not moved
        stands where it did. (Whom it stopped, and who runs still, is stopped by what its actuator says.)"""
        places, self._looks = self.site.places(), True
        for name in self.site.standing():
            job = self._jobs.get(name)
            if job is None or (job.state == r.RUNNING and _place(places.get(name)) == _place(job.place)):
                continue
            change = JobChange(name, r.RESIZE, None, job.place)
            if job.state != r.RUNNING or not (self._stands(name, job.place) and self.site.carry_out(change)):
                self.site.live.fail(name, now_s - self.site.epoch_s)

    def turn(self) -> None:
        """Once round."""
        with self.lock:
            if not self._written():
                return
            if self._broke:
                self._missed()
            now_s = self._clock()
            self._hold()
            self._take_answers(now_s)
            gone = _all(self._cancels)  # before the jobs, which came before them
            self._take_jobs(now_s)
            self._put_back(now_s)
            self._take_cancels(gone, now_s)
            looks = self._take_truth(now_s)
            looks |= self._take_links(now_s)
            self._take_domains(now_s)
            looks |= self._looks
            self._pass(now_s)
            self._take_approved(now_s)  # of before too, whatever the mode is now
            if looks:
                self._look(now_s)
            self._looks = False
            self._steer(now_s)
            for number, least_s in _all(self._least):
                self._set_decision(number, bound_step_s=least_s)
            if self.mode != r.ACT:
                self._propose(now_s)
            elif not self.state.turns:
                self._supersede(self._proposals())
            self._written()
            self._roll(now_s)
            self.state.turns, self.state.last_turn_s = self.state.turns + 1, now_s

    def _hold(self) -> None:
        """Decide nothing without telemetry, where there was some."""
        if monotonic() >= self._noticed_s:
            self._noticed_s, notice = monotonic() + NOTICE_EVERY_S, self._notice()
            missing = sorted({self._unserved(each) for each in self._jobs.values()} - {""})
            if missing:
                words = f"jobs of {', '.join(missing)} are left as they are: start the service with --actuator too"
                notice = f"{notice}; {words}" if notice else words
            if notice and notice != self.state.notice:
                self.tell(notice)
            self.state.notice = notice
        old = self._heard_s is not None and monotonic() - self._heard_s > self.terms.stale_s
        why = f"no telemetry for {self.terms.stale_s:g} s" if old else ""
        if why != self.state.holds:
            self.tell(f"holds: {why}" if why else "goes on: telemetry is back")
        self.state.holds = why
        # Whoever runs where nobody can stop it holds its devices: until it is served again nobody who runs is stopped.
        self.site.live.let_stop(
            self.site.rules.stops
            and not any(each.state == r.RUNNING and self._unserved(each) for each in self._jobs.values())
        )
        self._held.holds = bool(why) or self.mode != r.ACT

    def _take_answers(self, now_s: float) -> None:
        while True:  # one by one: what breaks one must not lose those behind it
            try:
                order, receipt = self._answers.get_nowait()
            except Empty:
                return
            self._took.append(order)
            try:
                self._took_answer(order, receipt, now_s)
            except StoreError:  # nothing of it was taken: it comes again
                self._took.pop()
                self._answers.put((order, receipt))
                raise

    def _took_answer(self, order: JobOrder, receipt: Receipt, now_s: float) -> None:
        refused = order.act == r.RESIZE and not receipt.ok and not receipt.ended and order.job in self._jobs
        stood = self._stood(order.job) if refused else None  # the store may not answer
        self._steers.pop(order.key, None)
        left = self._open.pop(order.job, set()) - {order.key}
        self._open |= {order.job: left} if left else {}
        left = left - self._steers.keys()  # which say nothing of where it runs
        state = ANSWERED if receipt.ok else NOT_DONE
        decision = _decision(order.key)

        def write(at: Connection) -> None:
            at.execute(
                sql.update(t.ORDERS)
                .where(t.ORDERS.c.key == order.key)
                .values(state=state, answered_s=now_s, told=receipt.told)
            )
            became = r.CARRIED_OUT if receipt.ok else r.GIVEN_UP
            at.execute(
                sql.update(t.DECISIONS).where(t.DECISIONS.c.number == decision).values(state=became, told=receipt.told)
            )
            told: dict[str, Any] = {"act": order.act, "ok": receipt.ok, "told": receipt.told, "decision": decision}
            note(at, now_s, "answer", order.job, trace=str(order.spec.get("trace", "")), **told)

        self._unwritten.append(write)
        if receipt.ok and receipt.plan is not None:
            self._goes_by(order.job, receipt.plan, now_s)
        if order.act == r.STOP or receipt.ended:  # a look from before says nothing of now
            self._stopped[order.job] = monotonic(), self._stopped.get(order.job, (0.0, 0))[1]
        if order.act == r.CANCEL:
            return
        if receipt.ok and order.job in self._jobs:
            self._keys[order.job] = order.key, monotonic()
            self._measured[order.job] = decision, []
        elif order.job in self._jobs and order.act == r.BEGIN and not left:  # else one behind it says how it stands
            self._lost(order.job, receipt.told, now_s)
        elif order.job in self._jobs and order.act == r.RESIZE and not left:
            if receipt.ended:
                self._lost(order.job, f"its move was refused: {receipt.told}", now_s, fails=False)
            else:
                self._stays(order.job, stood, receipt.told, now_s)
        if order.act == r.RESIZE and not receipt.ok and receipt.plan is not None and not left:  # it goes by it still
            self._goes_by(order.job, receipt.plan, now_s)

    def _goes_by(self, name: str, document: Mapping[str, Any], now_s: float) -> None:
        """A job runs under a plan."""
        if name not in self._jobs:
            return
        plan, write = plan_kept(document, now_s)
        self._unwritten.append(write)
        self._plans[name] = plan, document
        self._set(name, now_s, place={**(self._jobs[name].place or {}), "plan": plan})

    def _stood(self, name: str) -> Mapping[str, Any] | None:
        """Where a job's last order that was carried out put it."""
        asked = sql.select(t.DECISIONS).where(t.DECISIONS.c.number == _decision(self._keys.get(name, ("o-0", 0.0))[0]))
        known = [decision_of_row(each) for each in self.store.read(lambda at: at.execute(asked).all())]
        return known[0].after if known else None

    def _stays(self, name: str, stood: Mapping[str, Any] | None, why: str, now_s: float) -> None:
        """A move was refused: the job runs on where it stood, which is no failure of its own. Where others have come
        there meanwhile it waits, and is stopped."""
        if name not in self.site.standing():
            return
        change = JobChange(name, r.RESIZE, None, stood)
        if change.after is None:  # what was to begin it was refused too
            self._lost(name, why, now_s)
            return
        last_s, self._refused[name] = self._refused.get(name, -inf), now_s
        self._looks |= now_s - last_s > FADED_S  # who wants it there still is not asked again before something happens
        self.site.live.pass_to(now_s - self.site.epoch_s)
        if self._stands(name, change.after) and self.site.carry_out(change):
            self._set(name, now_s, "job stays", place=self.site.places()[name], why=f"its move was refused: {why}")
        else:
            self._looks = True
            if name in self.site.standing():
                self.site.carry_out(replace(change, act=r.STOP))
            self._set(name, now_s, "job waits again", state=r.WAITING, why=f"its move was refused: {why}")

    def _lost(self, name: str, why: str, now_s: float, *, fails: bool = True) -> None:
        """A job does not run as it was thought to: it waits again, or is given up. ``fails``: by itself."""
        count, last_s = self._failures.get(name, (0, now_s))
        count, self._looks = (count if now_s - last_s <= FADED_S else 0) + fails, True
        if fails:
            self._failures[name] = count, now_s
        if name not in self._names():
            return  # the queue was begun anew, and it comes to it again
        self.site.live.fail(name, now_s - self.site.epoch_s)
        if count >= MOST_FAILURES:
            self._end(name, r.FAILED, f"failed {MOST_FAILURES} times, last: {why}", now_s)
            return
        self._set(name, now_s, "job waits again", state=r.WAITING, why=why)

    def _end(self, name: str, state: str, why: str, now_s: float) -> None:
        """A job is over, and gone from the queue."""
        if name in self._names():
            self.site.live.cancel(name, now_s - self.site.epoch_s)
        self._set(name, now_s, f"job {state}", state=state, why=why, ended_s=now_s)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """What was remembered of a job that is over."""
        known = (
            self._jobs,
            self._times,
            self._looked,
            self._keys,
            self._failures,
            self._refused,
            self._measured,
            self._plans,
        )
        for each in known:
            each.pop(name, None)

    def _names(self) -> set[str]:
        moment = self.site.live.moment
        if moment is None:
            return set()
        return {moment.workload.name(job) for job in (*moment.running.tolist(), *moment.waiting.tolist())}

    def _set(self, name: str, now_s: float, event: str = "", **values: Any) -> None:
        """Remember columns of a job, and write them with this turn."""
        self._set_all([name], now_s, event, **values)

    def _set_all(self, names: Sequence[str], now_s: float, event: str = "", **values: Any) -> None:
        """The same of several, by few statements: who submits waits for them."""
        self._jobs |= {name: replace(self._jobs[name], **values) for name in names if name in self._jobs}
        traces = {name: self._jobs[name].trace if name in self._jobs else "" for name in names}

        def write(at: Connection) -> None:
            set_jobs(at, names, **values)
            if event:
                told = {key: values[key] for key in ("state", "why", "place") if key in values}
                note_all(at, now_s, "job", traces, event=event, **told)

        self._unwritten.append(write)

    def _set_decision(self, number: int, only: str = "", **values: Any) -> None:
        """Write columns of a decision with this turn; ``only``: if it is in this state still."""
        row = sql.update(t.DECISIONS).where(t.DECISIONS.c.number == number).values(**values)
        row = row.where(t.DECISIONS.c.state == only) if only else row
        self._unwritten.append(lambda at: at.execute(row))

    def _take_jobs(self, now_s: float) -> None:
        """Jobs that were taken in come to the queue, once it is known what they can run under."""
        queued = [each for each in self._jobs.values() if each.state in (r.QUEUED, r.PLANNING)]
        queued += {each.name: each for each in _all(self._come) if each.name not in self._jobs}.values()
        come: list[Job] = []
        for each in queued:
            if self._unserved(each):  # it waits for who can begin it
                self._jobs.setdefault(each.name, each)
                continue
            try:
                job = self._job(each, now_s - self.site.epoch_s)
                state = self._ready(job)
            except HippoError as error:
                self._jobs[each.name] = each
                self._end(each.name, r.REFUSED, str(error), now_s)
                continue
            self._jobs.setdefault(each.name, each)
            if state == r.WAITING:
                come.append(job)
            elif state != each.state:
                self._set(each.name, now_s, "job is being planned", state=state)
        if come:
            refused = {job.name: why for job, why in self._submitted(come)}
            for name, why in refused.items():
                self._set(name, now_s, "job refused", state=r.REFUSED, why=why, ended_s=now_s)
                self._forget(name)
            if taken := [job.name for job in come if job.name not in refused]:
                self._set_all(taken, now_s, "job waits", state=r.WAITING)

    def _put_back(self, now_s: float) -> None:
        """Who ran when the queue was begun anew runs on, without an order, where its place is still and has room."""
        come = [name for name in self._ran if name in self._jobs and self._jobs[name].state == r.WAITING]
        if not come:
            return
        held, self._held.holds = self._held.holds, True
        self._pass(now_s)  # they arrive, and nobody is begun before they are there
        self._held.holds, self._looks = held, True
        for name in come:
            change = JobChange(name, r.BEGIN, None, self._ran.pop(name))
            if self._stands(name, change.after) and self.site.carry_out(change):
                left = max(1e-6, 1.0 - self._jobs[name].share_done)
                self.site.live.progress(name, left, now_s - self.site.epoch_s)
                self._set(name, now_s, "job runs on", state=r.RUNNING, place=self._jobs[name].place, why="")

    def _submitted(self, come: list[Job]) -> list[tuple[Job, str]]:
        """Hands jobs to the queue; those that it refuses, with the reason. One that breaks it is refused alone."""
        try:
            return self.site.submit(come)
        except Exception as error:
            if len(come) == 1:
                return [(come[0], f"{type(error).__name__}: {error}"[:300])]
            return [refused for job in come for refused in self._submitted([job])]

    def _ready(self, job: Job) -> str:
        """Whether it is known what a job can run under; where not, it is being found out."""
        if job.least == 0:
            return r.WAITING
        kind = TrainingKind(job.model, job.batch, job.seq)
        if not self.site.lacks(kind):
            return r.WAITING
        found = self._planning.get(kind)
        if found is None:
            found = self._planning[kind] = self._planner.submit(self.site.planned, kind)
            found.add_done_callback(lambda _: self.wake())
        if not found.done():
            return r.PLANNING
        del self._planning[kind]
        try:
            self.site.learn(found.result())
        except InputError:
            raise
        except HippoError as error:  # the process that planned it died, which is no fault of the job
            tried = self._died[kind] = self._died.get(kind, 0) + 1
            if tried >= MOST_FAILURES:
                del self._died[kind]
                raise
            self.tell(f"{error}; it is planned again")
            return r.PLANNING
        return r.WAITING

    def _job(self, stored: StoredJob, arrival_s: float | None = None) -> Job:
        at_s = stored.submitted_s - self.site.epoch_s if arrival_s is None else arrival_s
        found = job_of(stored.spec, stored.name, stored.owner, max(0.0, at_s))
        if found.deadline_s is None:
            return found
        return replace(
            found,
            deadline_s=max(found.arrival_s, stored.submitted_s - self.site.epoch_s + float(stored.spec["deadline_s"])),
        )

    def _take_cancels(self, names: Sequence[str], now_s: float) -> None:
        for name in names:
            if name not in self._jobs:
                continue
            runs = self._jobs[name].state == r.RUNNING
            before = self.site.places().get(name)
            if runs:
                self._order(JobChange(name, r.STOP, before, None), now_s, {"cause": "cancelled"})
            self._end(name, r.CANCELLED, "cancelled", now_s)

    def _take_truth(self, now_s: float) -> bool:
        """What actuators say of the jobs that they have; whether something is to be decided."""
        looks, at_s = False, now_s - self.site.epoch_s
        runs = set(self.site.standing())
        for name in [each for each in runs if each in self._jobs and self._unserved(self._jobs[each])]:
            self.site.live.outlast(name, at_s + 10.0, at_s)  # nobody here knows
        for worker in self.workers.values():
            if not worker.actuator.tells:
                continue
            seen = {} if worker.seen is None else {each.job: each for each in worker.seen}
            self._settle_left(worker, seen.values(), runs, now_s)
            for name, job in list(self._jobs.items()):
                if name not in runs or self._actuator(job) != worker.actuator.name:
                    continue
                key, since_s = self._keys.get(name, ("", monotonic()))
                found = seen.get(name)
                tells = found is not None and found.key == key and self._open.get(name, set()) <= self._steers.keys()
                if worker.seen is None or worker.fault or (name in self._open and not tells):
                    self.site.live.outlast(name, at_s + 10.0, at_s)  # nobody knows: it goes on
                    if not worker.fault and found is not None and (found.key, found.state) == (key, r.RUNNING):
                        self._went_on(name, found, now_s)  # as it was, until it is elsewhere
                elif found is None or found.key != key:
                    if monotonic() - since_s > self.terms.gone_after_s and worker.seen_s > since_s:
                        self._lost(name, f"{worker.actuator.name} has it no more", now_s)
                        looks = True
                    else:
                        self.site.live.outlast(name, at_s + 10.0, at_s)
                else:
                    looks |= self._saw(name, found, now_s)
        self._wait_for_strays()
        return looks

    def _settle_left(
        self, worker: ActuatorWorker, seen: Iterable[SeenJob], runs: Collection[str], now_s: float
    ) -> None:
        """Whoever has run to the end, is done; who still runs and should not is stopped, again and again: a stop was
        refused, or a job was given up. Where somebody has to say yes, only who is over is stopped. Whoever has ended
        and is over is said no more."""
        if worker.fault:
            return
        waits = self._names() - set(runs) if self.mode == r.ACT and not self.state.holds else set[str]()
        for each in seen:
            name = each.job
            if name in runs or name in self._open:
                continue
            known = self._jobs.get(name)
            if each.state != r.RUNNING and known is None and hasattr(worker.actuator, "forget"):
                with suppress(Exception):  # whatever breaks there must not end the turn
                    worker.actuator.forget(each)
            if not each.key.endswith(self._mark):
                continue
            if each.state == r.DONE and known is not None and self._actuator(known) == worker.actuator.name:
                self._end(name, r.DONE, "", now_s)
            elif each.state == r.RUNNING and (known is None or name in waits):
                self._stop_again(worker, name, now_s)

    def _stop_again(self, worker: ActuatorWorker, name: str, now_s: float) -> None:
        tried_s, times = self._stopped.get(name, (-inf, 0))
        if worker.seen_s < tried_s + min(STOP_AGAIN_S * 2.0**times, STOP_AT_LEAST_S):
            return
        if number_of(name) < 1 or (name in self._strays and self.mode != r.ACT):
            return
        job = self._jobs.get(name) or next(iter(self._stored_as([name])), None) or self._stray(worker, name, now_s)
        if job is not None and self._actuator(job) == worker.actuator.name:
            self._stopped[name] = monotonic(), times + 1
            self._order(JobChange(name, r.STOP, None, None), now_s, {"cause": "it runs still, and should not"}, job)
        if len(self._stopped) > MOST_STOPPED:
            old_s = monotonic() - 2.0 * STOP_AT_LEAST_S
            self._stopped = {name: at for name, at in self._stopped.items() if at[0] > old_s}

    def _stray(self, worker: ActuatorWorker, name: str, now_s: float) -> StoredJob | None:
        """Who runs with this store's mark and is not in it: begun after the backup of which the store was made. Where
        nobody has to say yes, it gets a row by which it can be stopped."""
        actuator = worker.actuator.name
        if name not in self._strays:
            told = f"{name} runs at {actuator}, was begun after the backup that this store was restored from"
            self.tell(
                f"{told}, and is stopped" if self.mode == r.ACT else f"{told}, and is stopped in the mode {r.ACT}"
            )
        self._strays[name] = monotonic() + STRAYS_S
        if self.mode != r.ACT:
            return None
        job, write = begun_after(number_of(name), actuator, now_s)
        self._unwritten.append(write)
        return job

    def _wait_for_strays(self) -> None:
        """Nobody is begun before it is known whether there are such, and while they are being stopped, as nobody knows
        what they hold; not for long."""
        new = [each.seen_s for each in self.workers.values() if each.seen is None and each.actuator.tells]
        waits = any(name in self._open and monotonic() < until_s for name, until_s in self._strays.items())
        waits |= self._restored and monotonic() < max(new, default=-inf) + STRAYS_S
        self._looks |= self._waits and not waits
        self._waits = waits
        self._held.holds |= waits

    def _saw(self, name: str, seen: SeenJob, now_s: float) -> bool:
        at_s = now_s - self.site.epoch_s
        if seen.state == r.FAILED:
            self._lost(name, seen.told or "its processes failed", now_s)
            return True
        if seen.state == r.DONE:
            self.site.live.progress(name, 0.0, at_s)
            return False
        if seen.share_done is not None:
            self.site.live.progress(name, max(1e-6, 1.0 - seen.share_done), at_s)
        self.site.live.outlast(name, at_s + 5.0, at_s)
        self._at_least(seen.links, now_s)
        said = (self.site.places().get(name) or {}).get("step_s")
        if seen.step_s is not None and said and name not in self._measured:
            now = seen.step_s / said
            self._times[name] = now if name not in self._times else 0.7 * self._times[name] + 0.3 * now
        if self._went_on(name, seen, now_s) and seen.step_s is not None:
            self._measure(name, seen.step_s)
        return False

    def _at_least(self, found: Sequence[LinkPoint], now_s: float) -> None:
        """What a run's messages got raises a link that was measured to carry less, where the run began to send after
        that had been heard. It mends that measurement and keeps its time: who measures many links one after another may
        stamp what is told next with a time before the run's. Where who measures takes that back (beside training a
        probe gets less), runs are not believed about that link for an hour: jobs would go to and fro."""
        names, more = self.site.live.site.domains, list[LinkPoint]()
        for each in found:
            pair = each.source, each.destination
            if self.of_wall_s(each.time_s) <= self._heard_of.get(pair, inf):
                continue
            if self._clock() < self._doubted.get(pair, -inf) + FADED_S:
                continue
            known = self._links.get(pair)
            now = self.carried()[0][tuple(map(names.index, pair))] if known is None else known.bytes_per_s
            if each.bytes_per_s > (1.0 + self.terms.least_change) * now:
                point = replace(each, time_s=self.measured.last_s[pair])
                with suppress(InputError):
                    more.append(checked(self.site.live.site, point, each.by, now_s))
                    self._raised[pair] = each.bytes_per_s
        if more:
            self._unwritten.append(written(more))
            self.points(more, heard=False)

    def _went_on(self, name: str, seen: SeenJob, now_s: float) -> bool:
        """Keeps how far a job is; whether it is farther than before."""
        job = self._jobs[name]
        share, step_s = seen.share_done or job.share_done, seen.step_s or job.step_s
        if (step_s, share) == (job.step_s, job.share_done):
            return False
        self._set(name, now_s, step_s=step_s, share_done=share)
        if now_s >= self._looked.get(name, 0.0) + LOOK_EVERY_S:
            self._looked[name] = now_s
            self._unwritten.append(looked(name, now_s, seen))
        return True

    def _measure(self, name: str, step_s: float) -> None:
        """What steps take since a job's last decision: the median of ``SETTLED`` of them after the first."""
        decision, found = self._measured.get(name, (0, []))
        if decision:
            found.append(step_s)
            if len(found) > SETTLED:
                self._set_decision(decision, measured_after_s=float(np.median(found[1:])))
                del self._measured[name]

    def _take_links(self, now_s: float) -> bool:
        """Links go over to what was measured last."""
        if not self._moved:
            return False
        self._moved = False
        names = self.site.live.site.domains
        state = self.carried()
        before_rate, before_late = state
        rate, late = before_rate.copy(), before_late.copy()
        come, self._links = self._links, {}
        for (source, destination), point in come.items():
            pair = names.index(source), names.index(destination)
            rate[pair] = point.bytes_per_s
            if point.latency_s is not None:
                late[pair] = point.latency_s
        with np.errstate(invalid="ignore", divide="ignore"):
            far = np.abs(rate - before_rate) > self.terms.least_change * np.maximum(before_rate, 1.0)
            later = np.abs(late - before_late) > self.terms.least_change * np.maximum(before_late, 1e-4)
        if not (far & np.isfinite(before_rate)).any() and not later.any():
            return False
        self.site.links([LinksNow(now_s - self.site.epoch_s, rate, late)])
        moved = np.argwhere(far & np.isfinite(before_rate))[:8]
        told = [f"{names[a]} to {names[b]}: {8e-9 * rate[a, b]:.3g} Gbit/s" for a, b in moved]
        self._unwritten.append(partial(note, time_s=now_s, kind="links", subject="links", moved=told))
        return False

    def _take_domains(self, now_s: float) -> None:
        """The queue goes by the GPUs that can be used. Where nobody may be stopped now, what is held is taken as it
        comes free."""
        told, site = _all(self._domains_told), self.site.live.site
        size = gpus_of(site)
        for name, worker in self.workers.items():
            before = self.counted_by(name)
            counts = {each: max(0, min(count, size[each])) for each, count in worker.usable.items() if each in size}
            news = [DomainNow(now_s, each, count, name) for each, count in counts.items() if count != before.get(each)]
            if news:
                self._unwritten.append(domains_written(site, news, now_s))
            told += news
        self._domains_hold(told)
        runs = [each for each in self._jobs.values() if each.state == r.RUNNING]
        self.site.heed(now_s, stops=not self._held.holds and not any(map(self._unserved, runs)))

    def counted_by(self, source: str) -> dict[str, int]:
        """GPUs of domains by the last words of a source."""
        return {each.domain: each.gpus for each in self._words if each.by == source}

    def _domains_hold(self, told: Sequence[DomainNow]) -> None:
        size = gpus_of(self.site.live.site)
        self._words = younger(self._words, [each for each in told if each.domain in size]) if told else self._words
        self.domains = holding(self._words)
        self.site.usable = {name: min(each.gpus, size[name]) for name, each in self.domains.items()}

    def carried(self) -> tuple[Any, Any]:
        """(K, K) bytes/s and seconds that links are thought to have now."""
        live = self.site.live
        if live.moment is not None:
            return live.moment.world.links.capacity, live.moment.world.links.latency
        if live.told_links is not None:
            return live.told_links.bandwidth_bytes_per_s, live.told_links.latency_s
        return np.array(live.site.bandwidth_bytes_per_s), np.array(live.site.latency_s)

    def _pass(self, now_s: float) -> None:
        """Let time pass, moment by moment, and order what is decided."""
        before, places = self.site.standing(), self.site.places()
        for moment in self.site.until(now_s):
            before, places = self._decided(moment, before, places)

    def _look(self, now_s: float) -> None:
        """Ask once more, as things stand: something has changed without a moment of its own."""
        before, places = self.site.standing(), self.site.places()
        if (here := self.site.live.decide(now_s - self.site.epoch_s)) is not None:
            self._decided(here, before, places)

    def _decided(self, moment: Moment, before: Any, places: Any) -> tuple[Any, Any]:
        now_s = moment.now_s + self.site.epoch_s
        known = self._names()
        for name in [each for each in before if each not in known and each in self._jobs]:
            self._set(name, now_s, "job done", state=r.DONE, ended_s=now_s, share_done=1.0, why="")
            self._forget(name)
        for change in self.site.changes(before, places, moment):
            if change.job in self._jobs:
                self._order(change, now_s, self._reasons(change, moment))
        return self.site.standing(), self.site.places()

    def _order(
        self,
        change: JobChange,
        now_s: float,
        why: Mapping[str, Any],
        job: StoredJob | None = None,
        approved: StoredDecision | None = None,
    ) -> None:
        """Write a decision and its order, which is carried out once they are on the disk; ``job``: one that is over;
        ``approved``: the proposal that becomes the decision."""
        job = job or self._jobs[change.job]
        if change.act not in r.STEERED and r.MOVE in [self._steers.get(key) for key in self._open.get(change.job, ())]:
            self._order(replace(change, act=r.CANCEL), now_s, {"cause": "the job stops, or goes elsewhere"}, job)
        number = self._next_decision() if approved is None else approved.number
        order = JobOrder(f"o-{number}-{change.job}-{self._mark}", change.act, change.job, dict(job.spec), change.after)
        order = replace(order, plan=change.plan, way=str((change.after or {}).get("way", "")))
        steers, actuator = change.act in r.STEERED, self._actuator(job)
        step_s = change.step_s if steers else self._expected(job, change)
        policy = change.policy or self._held.name
        row = _decision_row(change, now_s, self._with_mark(why), policy, r.ACT, r.ORDERED, job.step_s, step_s)
        body = {"key": order.key, "decision": number, "job": change.job, "actuator": actuator}
        self._made_s = max(now_s, self._made_s + TICK_S)  # one after another, whenever they were decided
        body |= {"body": json.dumps(vars(order)), "state": OPEN, "made_s": self._made_s, "told": ""}

        def write(at: Connection) -> None:
            if approved is None:
                at.execute(sql.insert(t.DECISIONS).values(number=number, **row))
            else:
                told_first = "time_s", "policy", "mode", "by"
                became = {key: value for key, value in row.items() if key not in told_first}
                became |= {} if steers else {"bound_step_s": None}  # which is asked for anew
                at.execute(sql.update(t.DECISIONS).where(t.DECISIONS.c.number == number).values(**became))
            at.execute(sql.insert(t.ORDERS).values(**body))
            told = {"job": change.job, "act": change.act, "cause": why.get("cause", ""), "after": change.after}
            note(at, now_s, "decision", f"d{number}", trace=job.trace, **told)

        self._unwritten.append(write)
        if approved is None or not steers:
            self._ask_bound(number, job, change)
        self.state.decisions += 1
        self._open.setdefault(change.job, set()).add(order.key)
        self._due.append((order, actuator))
        if steers:
            self._steers[order.key] = order.act
        if steers or change.job not in self._jobs:
            return
        values: dict[str, Any] = {"state": r.WAITING if change.after is None else r.RUNNING}
        if change.after is not None:
            values |= {"place": change.after, "predicted_step_s": step_s, "why": ""}
            values |= {"began_s": now_s} if job.began_s is None else {}
        self._set(change.job, now_s, **values)

    def _ask_bound(self, number: int, job: StoredJob, change: JobChange) -> None:
        """Of a decision about training that is to run on."""
        place, steers = change.after or {}, change.act in r.STEERED
        if "offer" not in place or change.act == r.CANCEL:
            return
        names, (rate, late) = self.site.live.site.domains, self.carried()
        at = [(one, two, (names.index(one), names.index(two))) for one, two in permutations(place["domains"], 2)]
        links = {(one, two): (float(rate[pair]), float(late[pair])) for one, two, pair in at}
        pace = change.pace if steers else self._times.get(job.name, 1.0)
        self._bounds.ask(number, job.spec, place, links, pace, change.plan)

    def _expected(self, job: StoredJob, change: JobChange) -> float | None:
        """What a step should take: as the table of offers says, times what this job's steps take of what it says."""
        step_s = (change.after or {}).get("step_s")
        return None if step_s is None else float(step_s) * self._times.get(job.name, 1.0)

    def _reasons(self, change: JobChange, moment: Moment) -> dict[str, Any]:
        return reasons(self.site, moment, change, self._times.get(change.job, 1.0))

    def _with_mark(self, why: Mapping[str, Any]) -> dict[str, Any]:
        """What a decision was made of, with the hash of what decisions of this turn go by: what links carry, how many
        GPUs can be used, who is there and where it stood."""
        if self._inputs[0] != self.state.turns:
            jobs = [(each.name, each.state, each.place, each.step_s) for each in self._jobs.values()]
            told = json.dumps([sorted(self.site.usable.items()), jobs], sort_keys=True).encode()
            links = b"".join(np.ascontiguousarray(each).tobytes() for each in self.carried())
            self._inputs = self.state.turns, sha256(links + told).hexdigest()
        return {**why, "sha256": self._inputs[1]}

    def _next_decision(self) -> int:
        self._last_decision += 1
        return self._last_decision

    # ------------------------------------------------------------------------------------------- plans of running jobs
    def _steer(self, now_s: float) -> None:
        """Take what was answered about plans of running jobs, and ask about those that are due."""
        if self.steering is None:
            return
        runs = self._steered()
        if self.mode != r.ACT:
            now = {name: run.place["plan"] for name, run in runs.items()}
            said = [each for each in self._proposals() if each.act in r.STEERED]
            self._supersede([each for each in said if now.get(each.job) != (each.before or {}).get("plan")])
        for answer in self.steering.turn(now_s, runs, holds=bool(self.state.holds)):
            if not answer.act:
                if answer.decided and self.mode != r.ACT:  # it is kept, as was decided
                    self._supersede(self._plan_proposals(answer.job))
                continue
            place = dict(self._jobs[answer.job].place or {})
            after = place
            if answer.document is not None:
                name, write = plan_kept(answer.document, now_s)
                self._unwritten.append(write)
                after = {**place, "plan": name, "way": answer.way, "lever": answer.lever}
            change = JobChange(answer.job, answer.act, place, after, answer.document)
            change = replace(change, policy=answer.policy, step_s=answer.step_s, pace=answer.pace)
            if self.mode == r.ACT:
                self._order(change, now_s, answer.why or {})
                self.steering.ordered(answer.job, answer.act, str(after["plan"]), answer.way)
            else:
                self._propose_plan(change, now_s, answer.why or {})

    def _steered(self) -> dict[str, SteeredRun]:
        """Running jobs that take orders for their plans, as their actuators see them."""
        found = {}
        for worker in self.workers.values():
            if not getattr(worker.actuator, "steers", False):
                continue
            seen = {each.job: each for each in worker.seen or ()}
            for name, job in self._jobs.items():
                if (
                    job.state != r.RUNNING
                    or self._actuator(job) != worker.actuator.name
                    or "plan" not in (job.place or {})
                ):
                    continue
                each = seen.get(name, SeenJob(name, "", r.RUNNING))
                told = each.arrived, each.stands, each.left_s, each.step_s
                found[name] = SteeredRun(
                    name, job.place or {}, partial(self._document, name), name in self._open, *told
                )
        return found

    def _document(self, job: str, plan: str) -> Mapping[str, Any]:
        known, document = self._plans.get(job, ("", {}))
        return document if known == plan else self.store.read(plan_of(plan))

    def _plan_proposals(self, name: str, *others: Any) -> list[StoredDecision]:
        return [each for each in self._proposals(*others) if each.job == name and each.act in r.STEERED]

    def _propose_plan(self, change: JobChange, now_s: float, why: Mapping[str, Any]) -> None:
        """Say what would be done about a job's plan, unless that is said already, or somebody said no."""
        young = t.DECISIONS.c.time_s > now_s - DENIED_S

        def said(place: Mapping[str, Any] | None) -> tuple[Any, ...]:
            return tuple((place or {}).get(key) for key in ("plan", "way"))

        known = self._plan_proposals(change.job, t.DECISIONS.c.state == r.DENIED, young)
        same = [
            each
            for each in known
            if (each.act, said(each.after)) == (change.act, said(change.after))
            and (each.before or {}).get("plan") == (change.before or {}).get("plan")
        ]
        self._supersede([each for each in known if each.state == r.PROPOSED and each not in same])
        if same:
            return
        number, job = self._next_decision(), self._jobs[change.job]
        row = _decision_row(
            change, now_s, self._with_mark(why), change.policy, self.mode, r.PROPOSED, job.step_s, change.step_s
        )

        def write(at: Connection) -> None:
            at.execute(sql.insert(t.DECISIONS).values(number=number, **row))
            told: dict[str, Any] = {"job": change.job, "act": change.act, "after": change.after}
            note(at, now_s, "proposal", f"d{number}", trace=job.trace, **told)

        self._unwritten.append(write)
        self._ask_bound(number, job, change)

    def _take_approved_plan(self, each: StoredDecision, now_s: float) -> None:
        """An approved change of a plan becomes an order, where the job still runs as it did when it was proposed."""
        job, after = self._jobs.get(each.job), each.after or {}
        now = {} if job is None or job.state != r.RUNNING else job.place or {}
        if now.get("plan") != (each.before or {}).get("plan") or (each.job in self._open and each.act != r.CANCEL):
            self._set_decision(each.number, state=r.SUPERSEDED, told="the job has changed since")
            return
        plan = None if each.act == r.CANCEL else self._document(each.job, str(after["plan"]))
        change = JobChange(each.job, each.act, now, after, plan, each.policy, each.predicted_step_s)
        self._order(change, now_s, each.why, approved=each)
        if self.steering is not None:
            self.steering.ordered(each.job, each.act, str(after["plan"]), str(after.get("way", "")))

    # -------------------------------------------------------------------------------------------- observe and advise
    def _propose(self, now_s: float) -> None:
        """Say what would be done; what is said already stands, what is said no more is superseded."""
        if self.state.holds:
            return
        found = self._proposals(t.DECISIONS.c.state == r.DENIED, t.DECISIONS.c.time_s > now_s - DENIED_S)
        found = [each for each in found if each.act not in r.STEERED]
        of = {True: dict[str, StoredDecision](), False: dict[str, StoredDecision]()}
        for each in found:
            of[each.state == r.DENIED][self._said(JobChange(each.job, each.act, each.before, each.after))] = each
        stands, denied = of[False], of[True]

        def no(key: str, change: JobChange) -> bool:
            return key in denied and _place(denied[key].before) == _place(change.before)

        said, waits = self._asked(()), set[str]()
        while more := {each.job for key, each in said.items() if each.act == r.BEGIN and no(key, each)}:
            waits |= more  # and keeps nobody from the devices that it may not have
            said = self._asked(waits)
        self._supersede([each for key, each in stands.items() if key not in said])
        moment = self.site.live.moment
        for key, change in said.items():
            if key in stands or no(key, change) or change.job not in self._jobs or moment is None:
                continue
            number, why = self._next_decision(), self._reasons(change, moment)
            job, policy = self._jobs[change.job], self._held.name
            expected_s = self._expected(job, change)
            row = _decision_row(
                change, now_s, self._with_mark(why), policy, self.mode, r.PROPOSED, job.step_s, expected_s
            )

            told = {"job": change.job, "act": change.act, "after": change.after}

            def write(at: Connection, number: int = number, row: Any = row, told: Any = told, job: Any = job) -> None:
                at.execute(sql.insert(t.DECISIONS).values(number=number, **row))
                note(at, now_s, "proposal", f"d{number}", trace=job.trace, **told)

            self._unwritten.append(write)
            self._ask_bound(number, job, change)

    def _asked(self, without: Collection[str]) -> dict[str, JobChange]:
        """What the scheduler would do, were these not there: it is held where it breaks or is late, but asked."""
        self._held.holds = False
        try:
            found = self.site.proposals(self._held, without)  # type: ignore[arg-type]
        finally:
            self._held.holds = True
        return {self._said(each): each for each in found}

    def _proposals(self, *others: Any) -> list[StoredDecision]:
        """What is proposed; ``others``: and what all of these hold of."""
        which = t.DECISIONS.c.state == r.PROPOSED
        asked = sql.select(t.DECISIONS).where(sql.or_(which, sql.and_(*others)) if others else which)
        return self.store.read(lambda at: [decision_of_row(each) for each in at.execute(asked).all()])

    def _supersede(self, decisions: Sequence[StoredDecision]) -> None:
        for each in decisions:
            self._set_decision(each.number, only=r.PROPOSED, state=r.SUPERSEDED)

    @staticmethod
    def _said(change: JobChange) -> str:
        return f"{change.job} {change.act} {_place(change.after)}"

    def _take_approved(self, now_s: float) -> None:
        rows = self.store.read(
            lambda at: at.execute(
                sql.select(t.DECISIONS).where(t.DECISIONS.c.state == r.APPROVED).order_by("number")
            ).all()
        )
        for each in map(decision_of_row, rows):
            if each.act in r.STEERED:
                self._take_approved_plan(each, now_s)
                continue
            change, places = JobChange(each.job, each.act, each.before, each.after), self.site.places()
            there = each.job in self._jobs and self.site.live.moment is not None
            told = "" if there and self._stands(each.job, each.after) else "what it names is not there any more"
            if not told and _place(places.get(each.job)) != _place(each.before):
                told = "the job has changed since"  # by another that was approved
            if not told:
                self.site.live.pass_to(now_s - self.site.epoch_s)
                told = "" if self.site.carry_out(change) else "there is no room for it any more"
            if told:
                self._set_decision(each.number, state=r.SUPERSEDED, told=told)
            else:
                again = replace(change, before=places.get(each.job), after=self.site.places().get(each.job))
                self._order(again, now_s, each.why, approved=each)

    def _stands(self, name: str, place: Mapping[str, Any] | None) -> bool:
        """Whether the site has the domains of a place, and its table of offers what the place means by its number."""
        return place is None or self.site.has(name, place)

    # ---------------------------------------------------------------------------------------------------- the store
    def _roll(self, now_s: float) -> None:
        """Old points become minutes, some at a time, beside what else is written."""
        if self._rolling is not None and not self._rolling.done():
            return
        more = self._rolling is not None and not self._rolling.exception() and self._rolling.result() > 0
        if more or now_s >= self._roll_s:
            self._rolling, self._roll_s = self.store.write(rolled(now_s)), now_s + ROLL_EVERY_S

    def _written(self) -> bool:
        """Write what this turn brought, all of it or nothing, then carry it out; False: it could not be written."""
        told, self._told = self._told, []
        now_s = self._clock()
        for sentence in told:
            self._unwritten.append(partial(note, time_s=now_s, kind="service", subject="service", told=sentence))
        if self._turn is None:
            if not self._unwritten:
                self.state.unwritten = ""
                self._go_ahead()
                return True
            self._turn = token_bytes(8), tuple(self._unwritten)
            self._unwritten.clear()
        mark, writes = self._turn
        packed = None if self.site.live.moment is None else self.site.live.packed()

        def write(at: Connection) -> None:
            if kept(at, TURN) == mark:  # it was committed, and the word of that was lost
                return
            for each in writes:
                each(at)
            if packed is not None:
                keep(at, QUEUE, packed, now_s)
            keep(at, TURN, mark, now_s)
            keep(at, CLOCK, f"{now_s!r} {self.site.epoch_s!r}".encode(), now_s)

        try:
            self.store.write(write).result()
        except Exception as error:  # whatever it was, nothing of this turn is on the disk, and nothing is carried out
            self.state.unwritten = f"{type(error).__name__}: {error}"[:300]
            return False
        self._turn = None
        self.state.unwritten = ""
        self._go_ahead()
        return True

    def _go_ahead(self) -> None:
        """What was decided is carried out, and what waits for answers that are on the disk now."""
        while self._took:
            order = self._took.popleft()
            for worker in self.workers.values():
                worker.written(order)
        while self._due:
            self._hand(*self._due.popleft())

    def _hand(self, order: JobOrder, actuator: str) -> None:
        self._open.setdefault(order.job, set()).add(order.key)
        if order.act in r.STEERED:
            self._steers[order.key] = order.act
        worker = self.workers.get(actuator)
        if worker is not None:  # else it stays open, and is told when its actuator is served again
            worker.order(order)

    def _answered(self, order: JobOrder, receipt: Receipt) -> None:
        self._answers.put((order, receipt))
        self.wake()

    def _unserved(self, job: StoredJob) -> str:
        """The actuator of a job, if it is not served now."""
        name = self._actuator(job)
        return "" if name in self.workers else name

    def _actuator(self, job: StoredJob) -> str:
        return str(job.spec.get("actuator") or self.terms.actuator)


def _all(queue: SimpleQueue[T]) -> list[T]:
    """What has come."""
    found: list[T] = []
    with suppress(Empty):
        while True:
            found.append(queue.get_nowait())
    return found


def _decision(key: str) -> int:
    """The decision of an order."""
    return int(key.split("-")[1])


def _place(place: Mapping[str, Any] | None) -> str:
    """What tells two places of a job apart."""
    return json.dumps({key: (place or {}).get(key) for key in ("offer", "domains", "gpus", *LAYOUT)})


def _decision_row(
    change: JobChange,
    now_s: float,
    why: Mapping[str, Any],
    policy: str,
    mode: str,
    state: str,
    step_s: float | None,
    expected_s: float | None,
) -> dict[str, Any]:
    before, after = (None if each is None else json.dumps(each) for each in (change.before, change.after))
    return {
        "time_s": now_s,
        "job": change.job,
        "act": change.act,
        "before": before,
        "after": after,
        "why": json.dumps({**why, "version": hippo.__version__}),
        "policy": policy,
        "mode": mode,
        "state": state,
        "by": "",
        "told": "",
        "ordered_s": now_s if state == r.ORDERED else None,
        "predicted_step_s": expected_s,
        "measured_before_s": step_s,
    }
