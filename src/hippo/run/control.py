"""A running job takes orders and tells what it measures: a socket of this machine, JSON lines, a token. No torch.

A client says ``{"hello": PROTOCOL, "token": ..}`` and then one request a line: ``{"order": kind, "key": .., ..}``,
``{"ask": "status"}`` (with ``"record": true`` all that the last step told), ``{"ask": "metrics"}`` (Prometheus' text)
or ``{"ask": "watch"}`` (the record of each step from now on); inside an emulated WAN ``{"ask": "link", "from": ..,
"to": .., "gbps": .., "latency_ms": ..}`` moves a link. Every request is answered by one line.
An order is checked, numbered and written to the journal before it is answered; one that came before, by its key, is
answered as it was then and does nothing. The socket's folder holds the token in ``NAME.token``, for its owner alone.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import inf
from pathlib import Path
from queue import Empty, Queue
from statistics import mean
from threading import Lock, Thread
from typing import Any

from hippo.emulate.emulation import emulation
from hippo.errors import HippoError, InputError
from hippo.files import write_whole
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan
from hippo.run.change import Changed, PlanChange, check_change, under
from hippo.run.fits import needed_bytes
from hippo.run.job import RunJob
from hippo.run.journal import Journal
from hippo.run.move import LATE, MoveForecast, moved, stopping, streaming
from hippo.run.network import Pair, RunNetwork
from hippo.run.orders import GIVE_UP, RunOrder, change_of, order_of_document
from hippo.run.predict import predicted_each, predicted_s
from hippo.run.run import Emulated, RunStep, RunStretch
from hippo.run.telemetry import links_used, prometheus_text, step_record
from hippo.run.version import Version

PROTOCOL = 1
MOST_BYTES = 64_000_000  # of one line: a plan is some kB a stage
ACCEPTED, DONE, GIVEN_UP = "accepted", "done", "given up"
GONE = object()
VOID = "not begun"
DID = {"step", "order", "done", "lost"}  # what shows in a journal that a run did something
OF_WHO_IS_THERE = ("join", "leave", "shares")
THERE_AGAIN = "it was ordered to who was left, and those who were lost are there again"
MOST_UNREAD = 100
"""Steps that are kept for somebody who watches and does not read."""


class Desk:
    """Takes orders for one run, one after another, and writes down what became of each."""

    def __init__(self, job: RunJob, journal: Journal, *planned: PlanChange) -> None:
        self._lock, self._journal = Lock(), journal
        self._first, self._now, self._asked = job, job, job  # as it began, as it runs, as it has been asked to run
        self._queue: list[_Open] = []
        self._under_way: _Open | None = None  # it has left the queue and is not made yet
        self._orders: list[dict[str, Any]] = []
        self._keys: dict[str, _Known] = {}
        self._unwanted: dict[int, int] = {}  # orders that are to be given up, and by which order
        self._last: RunStep | None = None
        self._late: deque[float] = deque(maxlen=LATE)  # seconds of steps
        self._ran = job  # as it was in the last step
        self._under: deque[RunStep] = deque(maxlen=LATE)  # steps of late under that plan
        self._expected: tuple[Any, float | None] = None, None  # of what a step was predicted, and the seconds
        self._made, self._sent = 0, Counter[Pair]()  # steps; payload between domains, bytes
        self._used: dict[Pair, dict[str, float]] = {}  # of pairs of domains in the last step
        self._watchers: list[Queue[tuple[RunStep, RunJob] | None]] = []
        before = standing(journal.lines) if job.options.resume_from is not None else []
        given = _digest(job)
        if begun_under(journal.lines) not in (None, given):  # what was ordered was ordered to another plan
            before = [replace(order, over=order.over or "the run goes on under another plan file") for order in before]
        carried = (
            {"carries": [asdict(order) for order in before]} if before else {}
        )  # with it: a crash leaves all or none
        journal.write(
            kind="begun", model=job.problem.model.name, first_step=job.options.first_step, plan=given, **carried
        )
        self._orders += [{"order": at, "kind": each.asked.get("order")} for at, each in enumerate(before, start=1)]
        for number, order in sorted(enumerate(before, start=1), key=lambda item: item[1].turn(job.options.first_step)):
            self._again(order, number)
        for each in planned:
            self._queue.append(_Open(None, self._asked.plan, each))
            self._asked = under(self._asked, each.plan)

    @property
    def job(self) -> RunJob:
        """As the run begins: where it goes on from a checkpoint, under the orders that had been carried out by then."""
        return self._first

    @property
    def asked(self) -> RunJob:
        """As the run has been asked to go on."""
        return self._asked

    def _again(self, order: StandingOrder, number: int) -> None:
        """An order of the run that this one goes on from, whose plan knows nothing of it. What was done before the step
        of the checkpoint holds from the start; what was done after it, or later, is done there again."""
        if order.over:
            over = {"state": GIVEN_UP, "why": order.over}
            self._orders[number - 1] |= {"state": DONE} if order.asked.get("order") == GIVE_UP else over
            self._keys[order.key] = _Known(order.asked, {ACCEPTED: number})
            return
        first = self._first.options.first_step
        past = order.done_after is not None and order.done_after < first - 1  # a checkpoint is of the plan before
        held = past and not order.late
        asked = {name: value for name, value in order.asked.items() if name != "after_step"}
        after = order.asked.get("after_step") if order.done_after is None else order.done_after
        due = max((each.change.after_step or 0 for each in self._queue), default=0)  # of those before, done or not
        at_once = order.done_after == first - 1 or (past and order.late)
        if isinstance(after, int) and after >= first and after > due:
            asked["after_step"] = after
        try:
            self._order({**asked, "key": order.key}, again=number, at_once=at_once)
        except HippoError as error:
            self._journal.write(kind="refused", key=order.key, why=str(error))
            why = f"it is not carried out in this run: {error}"
            self._orders[number - 1] |= {"state": GIVEN_UP, "why": why}
            self._keys[order.key] = _Known(order.asked, {ACCEPTED: number})
            return
        self._keys[order.key] = _Known(order.asked, {ACCEPTED: number})
        if held:
            options = replace(self._asked.options, resume_from=self._first.options.resume_from)
            self._queue.clear()
            self._first = self._now = self._asked = self._ran = replace(self._asked, options=options)
            self._orders[number - 1] |= {"state": DONE, "after_step": order.done_after}
            self._journal.write(kind="done", order=number, after_step=order.done_after)

    # asked from other threads
    def answer(self, request: Any) -> dict[str, Any]:
        """To one request."""
        try:
            if isinstance(request, dict) and request.get("ask") == "status":
                return self.status(record=request.get("record") is True)
            if isinstance(request, dict) and request.get("ask") == "metrics":
                return {"metrics": prometheus_text(self.status(record=True), self._sent, self._made)}
            if isinstance(request, dict) and request.get("ask") == "link":
                return _link_moved(request)
            if isinstance(request, dict) and "ask" in request:
                remedy = "ask status, metrics, watch or link"
                raise InputError("is nothing that a run tells", source="ask", value=request["ask"], remedy=remedy)
            return self._order(request)
        except HippoError as error:
            return {"refused": str(error)}

    def _order(self, request: Any, *, again: int = 0, at_once: bool = False) -> dict[str, Any]:
        """``again``: the number of an order of the run before; ``at_once``: it is done before the first step."""
        key = request.pop("key", None) if isinstance(request, dict) else None
        if not isinstance(key, str) or not key:
            remedy = "give a text of your own, another one for each order"
            raise InputError("an order needs a key, by which it is known when it comes twice", remedy=remedy)
        with self._lock:
            if (known := self._keys.get(key)) is not None:
                return known.answer(request)
        if request.get("order") == GIVE_UP:
            return self._give_up(request, key)
        order = order_of_document(request)
        with self._lock:
            if (known := self._keys.get(key)) is not None:  # it came twice at once
                return known.answer(request)
            number = again or len(self._orders) + 1
            self._check_turn(order)
            before = max(0.0, needed_bytes(self._asked) - needed_bytes(self._now))
            change = change_of(order, self._asked, done=self._done, number=number, before=before)
            if at_once:
                change = replace(change, after_step=self._done, background=False)
            if (inside := emulation()) is not None:
                Emulated(inside).check(change.plan, source="order")
            forecast = self._forecast(change)
            ahead = [each.change.order for each in (self._under_way, *self._queue) if each is not None]
            self._journal.write(kind="order", order=number, key=key, asked=request)
            self._queue.append(_Open(order, self._asked.plan, change))
            self._asked = under(self._asked, change.plan)
            self._orders[number - 1 :] = [
                {"order": number, "kind": order.kind, "asked": change.asked, "state": ACCEPTED},
                *self._orders[number:],
            ]
            told = {ACCEPTED: number, **({"follows": ahead[-1]} if ahead else {})}
            self._keys[key] = _Known(request, told | ({} if forecast is None else {"move": _told(forecast)}))
            return self._keys[key].told

    def _check_turn(self, order: RunOrder) -> None:
        """``InputError`` for an order that is due before one that was accepted: they are carried out in turn."""
        open_ = [self._under_way, *self._queue]
        last = max((each.change.after_step or 0 for each in open_ if each is not None), default=0)
        if last and order.after_step is not None and order.after_step <= last:
            told = f"comes before an order that is carried out after step {last}"
            remedy = f"name a step from {last + 1} on, or give that order up first"
            raise InputError(told, source="order", key="after_step", value=order.after_step, remedy=remedy)

    def _forecast(self, change: PlanChange) -> MoveForecast | None:
        """What a move should take over the emulated WAN; None: no layer crosses it, or nothing is known of a step yet.

        Raises
        ------
        InputError
            A move beside the training that never arrives.
        """
        job = self._asked
        network = RunNetwork.around(job.problem.cluster)
        old = Version.first(job)
        new = old.following(under(job, change.plan), fresh=len(old.members))
        if not network.emulated or not moved(old, new):
            return None
        if not change.background:
            return stopping(old, new, network)
        if not self._late and not job.options.stand_in:
            return None
        step_s = mean(self._late) if self._late else predicted_s(job, network)
        steps = None if change.after_step is None else max(1, change.after_step - self._done)
        found = streaming(old, new, network, step_s=step_s, steps=steps)
        if found.seconds == inf:
            told = "never arrives beside the training: its gradients are more than training leaves of a link"
            remedy = "move fewer layers at a time, stop for it, or say after which step whatever is left is sent"
            raise InputError(told, source="order", key="way", value="background", remedy=remedy)
        return found

    def _give_up(self, request: dict[str, Any], key: str) -> dict[str, Any]:
        """An order that another one, the one under way where it names none, is given up at the next border."""
        if unknown := sorted(request.keys() - {"order", "number"}):
            raise InputError("is unknown", source="order", key=unknown[0][:60], remedy=f"'{GIVE_UP}' takes number")
        with self._lock:
            if (known := self._keys.get(key)) is not None:
                return known.answer(request)
            open_ = [each["order"] for each in self._orders if each["state"] == ACCEPTED and each["kind"] != GIVE_UP]
            wanted = request.get("number", open_[0] if open_ else None)
            if type(wanted) is not int or wanted not in open_:
                remedy = f"name one of {', '.join(map(str, open_))}" if open_ else "nothing has to be done"
                named = str(wanted)[:60] if "number" in request else None
                raise InputError("no such order is under way", source="order", value=named, remedy=remedy)
            number = len(self._orders) + 1
            self._journal.write(kind="order", order=number, key=key, asked={**request, "number": wanted})
            self._orders.append({"order": number, "kind": GIVE_UP, "state": ACCEPTED})
            self._unwanted.setdefault(wanted, number)
            self._keys[key] = _Known({**request, "number": wanted}, {ACCEPTED: number})
            return self._keys[key].told

    def status(self, *, record: bool = False) -> dict[str, Any]:
        """Where the run is, and what became of its orders; ``record``: what the last step told, too."""
        with self._lock:
            first, last, ran, under_ = self._first.options, self._last, self._ran, tuple(self._under)
            told = {
                "protocol": PROTOCOL,
                "model": self._first.problem.model.name,
                "step": self._done,
                "last_step": first.first_step + first.steps - 1,
                "plan": repr(self._now.plan),
                "step_s": None if last is None else last.seconds,
                "loss": None if last is None or first.stand_in else last.loss,
                "links": [{"from": pair[0], "to": pair[1], **each} for pair, each in sorted(self._used.items())],
                "orders": [dict(each) for each in self._orders],
            }
        if record:
            told["record"] = None if last is None else step_record(last, ran)
            told["predicted_step_s"] = self._predicted(ran, under_)
        return told

    def _predicted(self, job: RunJob, steps: Sequence[RunStep]) -> float | None:
        """What a step should take now; None: no step has told yet how long its layers take. Asked again only where the
        plan, the links or, for real layers, ``LATE`` steps more could change it."""
        if not steps or not (job.options.stand_in or all(step.operations for step in steps)):
            return None
        network = RunNetwork.around(job.problem.cluster)
        met = None if network.met is None else len(network.met.time_s)
        of = job.plan, met, steps[-1].number // LATE
        if network.trace is not None or of != self._expected[0]:
            found = predicted_each(job, network, [time.monotonic()], result=RunStretch(job, tuple(steps)))
            self._expected = of, float(found[0])
        return self._expected[1]

    @property
    def _done(self) -> int:
        return self._first.options.first_step - 1 if self._last is None else self._last.number

    @contextmanager
    def watching(self) -> Iterator[Queue[tuple[RunStep, RunJob] | None]]:
        """Steps as they are made, and under what; None: the run is over. Who reads too slowly misses the oldest."""
        mine: Queue[tuple[RunStep, RunJob] | None] = Queue(MOST_UNREAD)
        with self._lock:
            self._watchers.append(mine)
        try:
            yield mine
        finally:
            with self._lock, suppress(ValueError):
                self._watchers.remove(mine)

    # told by the run
    def due(self, done: int, now: RunJob) -> PlanChange | None:
        """The next change that was ordered; where replicas were lost since, as it is of those that are left."""
        with self._lock:
            one = self._under_way = self._queue.pop(0) if self._queue else None
        if one is None:
            return None
        change, why = one.change, self.unwanted(one.change)
        if not why and one.upon != now.plan:
            try:
                change = one.of(now, done).change
            except HippoError as error:
                why = f"not of the replicas that are left: {error}"
        if not why:
            return change
        self.gave_up(change, why)
        return None

    def again(self, what: PlanChange) -> None:
        """What was under way has not been made, and is asked for again."""
        with self._lock:
            assert self._under_way is not None, "it has been due"
            self._queue.insert(0, self._under_way)
            self._under_way = None

    def unwanted(self, what: PlanChange) -> str:
        """Why an order is to be given up; empty: it is not."""
        with self._lock:
            by = self._unwanted.get(what.order)
            return "" if by is None else f"order {by} asked for it"

    def changed(self, what: Changed, now: RunJob) -> None:
        """An order has been carried out."""
        emulated = RunNetwork.around(now.problem.cluster).emulated
        told = {
            "after_step": what.after_step,
            "measured_s": what.measured_s,
            "predicted_s": what.predicted_s if emulated else None,
            "stopped_s": what.stopped_s,
            "prepared_s": what.prepared_s,
            "sent_bytes": what.sent_bytes,
            "warmed_bytes": what.warmed_bytes,
            "background": what.background,
            "predicted_stopped_s": what.predicted_stopped_s if emulated else None,
        }
        if what.lost:
            left = len(now.work.workers)
            self._journal.tell(kind="lost", why=what.lost, processes=len(self._now.work.workers) - left, **told)
        else:
            self._journal.tell(kind="done", order=what.order, **told)
        with self._lock:
            self._now = now
            if not what.lost:
                self._under_way = None
            if self._under_way is None and (what.lost or not self._queue):
                self._asked = now  # what comes next is asked of those who are left
                for each in self._queue:  # what cannot be done without the others is given up when it is due
                    with suppress(HippoError):
                        self._asked = under(self._asked, each.of(self._asked, self._done).change.plan)
            if what.order:
                self._orders[what.order - 1] |= {"state": DONE, **told}
                self._answer_unwanted(what.order, {"state": GIVEN_UP, "why": f"order {what.order} was done before"})

    def gave_up(self, what: PlanChange, told: str) -> None:
        """An order could not be carried out; those that come after it are asked of what there is without it."""
        with self._lock:
            self._void(what.order, told)
            waiting, self._queue, self._asked, self._under_way = self._queue, [], self._now, None
            self._ask_anew(waiting, f"order {what.order} before it was given up")

    def _ask_anew(self, waiting: Sequence[_Open], why: str) -> None:
        """Orders that are still to be done, of what there is now."""
        for each in waiting:
            try:
                found = each.of(self._asked, self._done)
            except HippoError as error:
                self._void(each.change.order, f"{why}: {error}")
                continue
            self._queue.append(found)
            self._asked = under(self._asked, found.change.plan)

    def _void(self, order: int, why: str) -> None:
        self._journal.tell(kind="given up", order=order, why=why)
        if order:
            self._orders[order - 1] |= {"state": GIVEN_UP, "why": why}
            self._answer_unwanted(order, {"state": DONE, "after_step": self._done})

    def _answer_unwanted(self, order: int, told: dict[str, Any]) -> None:
        """What became of the order that another one is given up."""
        by = self._unwanted.pop(order, None)
        if by is not None:
            self._orders[by - 1] |= told

    def made(self, step: RunStep) -> None:
        """A step has been made."""
        self._journal.tell(kind="step", step=step.number, seconds=step.seconds, loss=step.loss)
        with self._lock:
            if self._ran is not self._now:
                self._under.clear()
            self._under.append(step)
            self._last, self._ran, self._made = step, self._now, self._made + 1
            self._used = links_used(step.messages, self._now.work.workers)
            for pair, used in self._used.items():
                self._sent[pair] += int(used["bytes"])
            if step.number == self._first.options.first_step + 1:
                self._late.clear()  # the first step, on cold connections
            self._late.append(step.seconds)
            for each in self._watchers:
                _put(each, (step, self._now))

    def not_begun(self, why: str) -> None:
        """The run is refused after all: its journal is as if it had not begun."""
        self._journal.tell(kind=VOID, why=why)

    def missed(self, step: int, why: str) -> None:
        """A checkpoint of a step could not be written."""
        self._journal.tell(kind="unsaved", step=step, why=why)

    def close(self) -> None:
        """The run is over."""
        with self._lock:
            for each in self._watchers:
                _put(each, None)
        self._journal.close()


def _put(steps: Queue[tuple[RunStep, RunJob] | None], new: tuple[RunStep, RunJob] | None) -> None:
    """One more for somebody who watches; where that is too many, in place of the oldest. Nobody else adds any."""
    if steps.full():
        with suppress(Empty):
            steps.get_nowait()
    steps.put_nowait(new)


def _link_moved(request: Mapping[str, Any]) -> dict[str, Any]:
    """An emulated link gets another rate and latency, as an experiment asks; ``InputError`` where there is none."""
    if (inside := emulation()) is None:
        remedy = "start the run with --emulate, or inside 'hippo emulate'"
        raise InputError("is of emulated links, and this run has none", source="link", remedy=remedy)
    ends, numbers = (request.get("from"), request.get("to")), (request.get("gbps"), request.get("latency_ms"))
    if not all(isinstance(each, str) for each in ends) or not all(type(each) in (int, float) for each in numbers):
        raise InputError("is no link", source="link", value=str(request)[:60], remedy="give FROM TO GBPS LATENCY_MS")
    (source, destination), (gbps, latency_ms) = ends, numbers
    inside.set_link(str(source), str(destination), gbps=float(str(gbps)), latency_ms=float(str(latency_ms)))
    return {"link": [source, destination, gbps, latency_ms]}


def _told(forecast: MoveForecast) -> dict[str, Any]:
    """Of a move, with the answer to its order."""
    return {
        "background": forecast.background,
        "wan_bytes": sum(forecast.wan_bytes.values()),
        "sent_bytes": forecast.sent_bytes,
        "steps": forecast.steps,
        "predicted_s": forecast.seconds,
        "predicted_stopped_s": forecast.stopped_s,
    }


@dataclass(frozen=True)
class _Open:
    """An order that is still to be carried out."""

    order: RunOrder | None  # None: known when the run began
    upon: Plan  # that runs by then, as far as is known
    change: PlanChange

    def of(self, job: RunJob, done: int) -> _Open:
        """As it is of another job; ``InputError`` where it cannot be."""
        if self.order is None:
            check_change(job, self.change, source="--then")
            return replace(self, upon=job.plan)
        change = change_of(replace(self.order, after_step=None), job, done=done, number=self.change.order)
        return replace(self, upon=job.plan, change=replace(change, after_step=self.change.after_step))


@dataclass(frozen=True)
class _Known:
    """An order by its key: what was asked, and the answer."""

    asked: Mapping[str, Any]
    told: dict[str, Any]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """To one that comes again; ``InputError`` where it is another one."""
        gives_up = request.get("order") == GIVE_UP  # the one under way, where it names none
        if request != self.asked and not (gives_up and {**self.asked, **request} == self.asked):
            remedy = "give each order a key of its own"
            told = f"is that of another order, {self.told[ACCEPTED]}"
            raise InputError(told, source="order", key="key", value=str(self.asked.get("order"))[:60], remedy=remedy)
        return self.told


@dataclass(frozen=True)
class StandingOrder:
    """An order that was accepted and not given up."""

    key: str
    asked: Mapping[str, Any]
    done_after: int | None  # the last step before it held; None: it was not done
    over: str = ""  # why it will not be done; of one that gives another up: it has been asked for
    late: bool = False  # the last run was to do it again after that step, and had not

    def turn(self, first: int) -> float:
        """When a run from step ``first`` on asks for it again: as it was done, before all that is still to be done, and
        what is late behind all that holds."""
        if self.done_after is None:
            return inf
        return max(self.done_after, first - 1) if self.late else self.done_after


def _digest(job: RunJob) -> str:
    """Of a plan, whatever its problem."""
    document = {key: value for key, value in plan_to_document(job.problem, job.plan).items() if key != "problem"}
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def begun_under(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """The digest of the plan file that the last run in a journal was given; None: it does not say."""
    return next((line.get("plan") for line in reversed(_of_runs(lines)) if line.get("kind") == "begun"), None)


def _of_runs(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lines of a journal without those of runs that were refused after all, or ended before they did anything."""
    runs: list[list[Mapping[str, Any]]] = [[]]
    for line in lines:
        if line.get("kind") == "begun":
            runs.append([])
        runs[-1].append(line)
    void = [{VOID} & kinds or not DID & kinds for kinds in ({line.get("kind") for line in run} for run in runs)]
    return [line for run, is_void in zip(runs, void, strict=True) for line in run if not is_void]


def standing(lines: Sequence[Mapping[str, Any]]) -> list[StandingOrder]:
    """Those of the last run in a journal, in turn: what it carried on from runs before, as its first line says, and
    what it was told itself. An order that it could not take up again stands for the next run."""
    lines = _of_runs(lines)
    begun = max((at for at, line in enumerate(lines) if line.get("kind") == "begun"), default=len(lines))
    found = {
        each["key"]: StandingOrder(**each) for line in lines[begun : begun + 1] for each in line.get("carries", ())
    }
    first = next((line.get("first_step", 1) for line in lines[begun : begun + 1]), 1)
    for key, order in found.items():  # until it says that it has done them
        undone = order.done_after is not None and (order.late or order.done_after >= first - 1)
        found[key] = replace(order, late=undone)
    keys: dict[Any, str] = {}  # by number
    fewer = False  # whether processes were lost, which are there again
    of_left: dict[str, list[str]] = {}  # what was asked of the rest, and of which plans, which name who is there
    plans: list[str] = []
    for line in lines[begun:]:
        kind, number = line.get("kind"), line.get("order")
        if kind == "lost" and line.get("processes", 0) > 0:
            fewer, plans = True, [each for each in plans if found[each].done_after is None and not found[each].over]
        if kind == "order":
            key = keys[number] = line["key"]
            if fewer and line["asked"].get("order") in OF_WHO_IS_THERE:
                of_left[key] = plans
            plans = [*plans, *([key] if line["asked"].get("order") == "plan" else [])]
            found.setdefault(key, StandingOrder(key, line["asked"], None))
            if line["asked"].get("order") == GIVE_UP:
                found[key] = replace(found[key], over="was asked for before")
                unwanted = keys.get(line["asked"].get("number"))
                if unwanted and (found[unwanted].done_after is None or found[unwanted].late):
                    found[unwanted] = replace(found[unwanted], over=f"order {number} asked for it")
        elif kind == "done" and number in keys:
            found[keys[number]] = replace(found[keys[number]], done_after=line.get("after_step"), over="", late=False)
            fewer = fewer and found[keys[number]].asked.get("order") != "plan"  # which names who is there
        elif kind == "given up" and number in keys:
            found[keys[number]] = replace(found[keys[number]], over=line.get("why") or "it was given up")
    for key, named in of_left.items():
        if all(found[plan].over for plan in named):
            found[key] = replace(found[key], over=found[key].over or THERE_AGAIN)
    return list(found.values())


def journal_of(control: Path) -> Path:
    """Where the journal of a run lies."""
    return _beside(control, "journal")


def _beside(socket: Path, what: str) -> Path:
    """A file beside a socket; ``InputError`` for a path that names none."""
    if not socket.name:
        raise InputError("names no file", source="SOCKET", value=str(socket), remedy="name a socket, as run.sock")
    return socket.with_name(f"{socket.name}.{what}")


# -------------------------------------------------------------------------------------------------------------- server
class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """One client, until it leaves."""
        with suppress(OSError):
            if self._greeted():
                while (request := self._heard()) is not GONE:
                    if isinstance(request, dict) and request.get("ask") == "watch":
                        self._watch()
                        return
                    self._say(self.server.desk.answer(request))

    def _greeted(self) -> bool:
        hello = self._heard()
        told = hello if isinstance(hello, dict) else {}
        path, version = self.server.server_address, told.get("hello")
        if type(version) is not int or version != PROTOCOL:
            why, remedy = f"speaks protocol {version!r:.20}, and this run {PROTOCOL}", "use the hippo that started it"
            self._say({"refused": f"{path}: {why}. To fix: {remedy}"})
            return False
        if not secrets.compare_digest(repr(told.get("token")).encode(), repr(self.server.token).encode()):
            remedy = f"give what stands in {path}.token, which is made anew for each run"
            self._say({"refused": f"{path}: the token is not that of this run. To fix: {remedy}"})
            return False
        self._say({"hello": PROTOCOL})
        return True

    def _heard(self) -> Any:
        """The next line; ``GONE``: the client is. What is no JSON is answered like an order that is none."""
        line = self.rfile.readline(MOST_BYTES)
        if not line.endswith(b"\n"):
            return GONE
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return "no JSON"

    def _say(self, told: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(told).encode() + b"\n")

    def _watch(self) -> None:
        with self.server.desk.watching() as steps:
            self._say({"watching": True})
            while True:
                try:
                    told = steps.get(timeout=1.0)
                except Empty:
                    continue
                if told is None:
                    return
                self._say(step_record(*told))


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128  # who comes while as many wait hears nobody

    desk: Desk

    def __init__(self, path: Path, token: str) -> None:
        self.token = token
        super().__init__(str(path), _Connection)


def _listens(path: Path) -> bool:
    """Whether anybody is behind a socket."""
    with socket.socket(socket.AF_UNIX) as asker:
        try:
            asker.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


@contextmanager
def listening(path: Path, opened: Callable[[], Desk]) -> Iterator[Desk]:
    """The socket of a run, while it lasts; then its desk is closed, which is opened when there is a socket.

    ``InputError`` where there is one already, or none can be made.
    """
    token, beside = secrets.token_hex(16), _beside(path, "token")
    try:
        if path.is_socket() and not _listens(path):
            path.unlink()  # of a run that was killed
        server = _Server(path, token)
        path.chmod(0o600)
    except OSError as error:
        remedy = "name a path of at most 100 letters in a folder you may write to, where nothing is yet"
        raise InputError(
            f"no socket can be made: {error.strerror or error}", source="--control", value=str(path), remedy=remedy
        ) from None
    with ExitStack() as ends:
        ends.callback(path.unlink, missing_ok=True)
        ends.callback(server.server_close)
        server.desk = opened()
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        ends.callback(server.shutdown)
        ends.callback(server.desk.close)
        ends.callback(beside.unlink, missing_ok=True)
        write_whole(beside, token)
        beside.chmod(0o600)
        yield server.desk


# -------------------------------------------------------------------------------------------------------------- client
class RefusedError(InputError):
    """The run has answered, and says no; any other ``InputError`` of a client: it has not answered."""


class RunClient:
    """Talks to a running job: ``with RunClient(path) as run: run.ask({"order": ..})``."""

    def __init__(self, path: Path, *, timeout_s: float = 60.0) -> None:
        self.path, beside = path, _beside(path, "token")
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            token = beside.read_text(errors="replace")
            self._socket.settimeout(timeout_s)
            self._connect(until_s=time.monotonic() + timeout_s)
        except OSError as error:
            self._socket.close()
            remedy = "name the socket that 'hippo run --control' was given, while it runs"
            raise InputError(
                f"no run listens: {error.strerror}", source="SOCKET", value=str(path), remedy=remedy
            ) from None
        self._file = self._socket.makefile("rwb")
        try:
            self.ask({"hello": PROTOCOL, "token": token})
        except BaseException:  # it has just ended, or does not know the token
            self.close()
            raise

    def _connect(self, *, until_s: float) -> None:
        """A socket where too many wait says so at once, whatever its timeout."""
        while True:
            try:
                return self._socket.connect(str(self.path))
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.05)

    def __enter__(self) -> RunClient:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer; ``RefusedError`` where it is a refusal, ``InputError`` where the run has ended or is silent."""
        try:
            self._file.write(json.dumps(request).encode() + b"\n")
            self._file.flush()
            line = self._file.readline()
        except TimeoutError:
            remedy = "look whether its process hangs, or ask again"
            raise InputError("does not answer", source=str(self.path), remedy=remedy) from None
        except OSError:
            line = b""
        if not line:
            raise InputError("has ended", source=str(self.path), remedy="see what 'hippo run' printed, and its journal")
        found: dict[str, Any] = json.loads(line)
        if "refused" in found:
            raise RefusedError(str(found["refused"]).removesuffix("."))
        return found

    def watch(self) -> Iterator[dict[str, Any]]:
        """Steps as they are made, until the run is over."""
        self.ask({"ask": "watch"})
        self._socket.settimeout(None)
        return self.steps()

    def steps(self) -> Iterator[dict[str, Any]]:
        """What is told since ``{"ask": "watch"}`` was answered."""
        with suppress(OSError):  # it was killed
            for line in self._file:
                yield json.loads(line)

    def close(self) -> None:
        """Leaves."""
        with suppress(OSError):
            self._file.close()
        self._socket.close()
