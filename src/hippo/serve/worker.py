"""Threads that talk to one actuator: the orders of each job in turn, and now and then what it has. Who hangs holds up
nobody else: neither another actuator, nor the orders of other jobs.

An order begins when the answer of the one before it is on the disk. Else a refusal that a kill forgets would be told
again behind what was carried out since, and be carried out then.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from math import inf, isfinite
from threading import BoundedSemaphore, Event, Lock, Thread
from time import monotonic

from hippo.serve.actuators.base import Actuator
from hippo.serve.records import CANCEL, DONE, FAILED, MOVE, RUNNING, STOP, JobOrder, Receipt, SeenJob

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
"""Between two tries of an order that its actuator has not answered."""
MOST_AT_ONCE = 16
"""Orders of different jobs that are under way at one actuator."""
NODES_EVERY_S = 2.0
"""Between two looks at how many GPUs can be used."""


class ActuatorWorker:
    """``answered`` hears of every order that has been answered, ``news`` that something may have changed."""

    def __init__(
        self,
        actuator: Actuator,
        *,
        answered: Callable[[JobOrder, Receipt], None],
        news: Callable[[], None],
        every_s: float = 0.5,
    ) -> None:
        self.actuator, self._answered, self._news, self._every_s = actuator, answered, news, every_s
        self._orders: dict[str, deque[JobOrder]] = {}  # of each job, as they came; the first is told
        self._late: deque[JobOrder] = deque()  # that could not begin
        self._lock, self._room = Lock(), BoundedSemaphore(MOST_AT_ONCE)
        self.seen: Sequence[SeenJob] | None = None  # None: it has not said yet
        self.seen_s = monotonic()  # when it last said
        self.fault = ""  # why it does not say, where it does not
        self.usable: Mapping[str, int] = {}  # GPUs of domains, of an actuator that knows
        self._usable_s, self._blind = -inf, ""  # when it was asked for them, and why it did not say
        self._unanswered: dict[str, str] = {}  # by key, what broke an order the last time that it was told
        self._ends, self._over = False, Event()
        self._due = Event()  # to look before it is time
        name = f"actuator {actuator.name}"
        self._looker = Thread(target=self._look_on, name=name, daemon=True)
        self._looker.start()

    @property
    def trouble(self) -> str:
        """Why it does not say what it has, or does not answer an order; empty: it does."""
        return self.fault or self._blind or next(iter(tuple(self._unanswered.values())), "")

    def order(self, order: JobOrder) -> None:
        """Carry it out when those before of its job are; what gives one of them up does not wait for it."""
        if order.act != CANCEL:
            with self._lock:
                orders = self._orders.setdefault(order.job, deque())
                orders.append(order)
                if len(orders) > 1:
                    return
        self._begin(order)

    def written(self, order: JobOrder) -> None:
        """The answer of an order is on the disk: the next of its job may begin."""
        with self._lock:
            orders = self._orders.get(order.job)
            if orders is None or orders[0].key != order.key:
                return
            orders.popleft()
            if not orders:
                del self._orders[order.job]
                return
            following = orders[0]
        self._begin(following)

    def close(self) -> None:
        """Take no more; what hangs is left to itself."""
        self._ends = True
        self._over.set()
        self._due.set()
        self._looker.join(timeout=5.0)
        with suppress(Exception):
            self.actuator.close()

    def _begin(self, order: JobOrder) -> None:
        try:
            Thread(target=self._tell, args=(order,), name=f"{order.act} {order.job}", daemon=True).start()
        except RuntimeError as error:  # the machine has no more threads to give: it may at the next look
            self._late.append(order)
            self._unanswered[order.key] = f"{order.act} {order.job}: {error}"[:200]

    def _tell(self, order: JobOrder) -> None:
        self._carry_out(order)
        self._due.set()

    def _look_on(self) -> None:
        while not self._ends:
            self._due.clear()
            for _ in range(len(self._late)):
                self._begin(self._late.popleft())
            self._look()
            self._due.wait(self._every_s)

    def _look(self) -> None:
        usable = self._counted()  # first: whose node is seen to be down is then seen to have failed, too
        began_s = monotonic()  # what comes about while it looks may be missing from what it says
        try:
            found = tuple(_sane(each) for each in self.actuator.seen())
        except Exception as error:  # whatever breaks there must not end the service
            self.fault = f"{type(error).__name__}: {error}"[:200]
            return
        changed = found != self.seen or usable != self.usable
        self.seen, self.seen_s, self.fault = found, began_s, ""
        self.usable = usable
        if changed:
            self._news()

    def _counted(self) -> Mapping[str, int]:
        """GPUs that can be used, asked for now and then; where nobody says, as they were told last."""
        if hasattr(self.actuator, "usable") and monotonic() >= self._usable_s + NODES_EVERY_S:
            self._usable_s = monotonic()
            try:
                found = dict(self.actuator.usable())
                self._blind = ""
                return dict.fromkeys(self.usable, 0) | found  # what it names no more is gone
            except Exception as error:
                self._blind = f"nodes: {type(error).__name__}: {error}"[:200]
        return self.usable

    def _carry_out(self, order: JobOrder) -> None:
        """Tell it until it is answered: it may have been carried out, so nobody may decide otherwise meanwhile. What
        breaks again gives way to a stop of its job, which ends whatever came of it (once may be a lost answer: asked
        again, its actuator says that it was carried out). What gives a move up is told again while the move is on its
        way there: it would be refused, and the move go on."""
        pause_s, broke = FIRST_PAUSE_S, 0
        while not self._ends:  # at the end it is left open, and told again when the service comes back
            try:
                with nullcontext() if order.act in (CANCEL, STOP) else self._room:  # what ends waits for nobody's turn
                    receipt = _receipt(self.actuator.carry_out(order))
            except Exception as error:  # the same key again
                self._unanswered[order.key] = f"{order.act} {order.job}: {type(error).__name__}: {error}"[:200]
                broke += 1
                if broke > 1 and order.act != STOP and self._waits(STOP, order.job):
                    told = f"gave way to a stop; {self._unanswered.pop(order.key)}"
                    self._answered(order, Receipt(False, told))
                    return
                self._over.wait(pause_s)
                pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)
            else:
                self._unanswered.pop(order.key, None)
                if order.act == CANCEL and not receipt.ok and self._waits(MOVE, order.job):
                    self._over.wait(pause_s)
                    continue
                self._answered(order, receipt)
                return

    def _waits(self, act: str, job: str) -> bool:
        """Whether an order of a kind for a job waits, or its answer is not on the disk yet."""
        with self._lock:
            return any(each.act == act for each in self._orders.get(job, ()))


def _receipt(answer: object) -> Receipt:
    """What can be kept; ``TypeError`` or ``ValueError`` for what cannot."""
    if not isinstance(answer, Receipt):
        raise TypeError(f"its actuator answers {type(answer).__name__}, not a receipt")
    if not isinstance(answer.plan, Mapping | None):
        raise TypeError(f"its actuator answers a plan that is {type(answer.plan).__name__}")
    json.dumps(answer.plan, allow_nan=False, sort_keys=True)
    return replace(answer, told=_plain(answer.told))


def _sane(seen: SeenJob) -> SeenJob:
    """What can be; ``ValueError`` for what cannot: an actuator that says so is not to be believed."""
    share, step_s = seen.share_done, seen.step_s
    if not (isinstance(seen.job, str) and isinstance(seen.key, str)):
        raise ValueError(f"a job is said to be {seen.job!r}, by the order {seen.key!r}"[:100])
    if seen.state not in (RUNNING, DONE, FAILED):
        raise ValueError(f"{seen.job} is said to be {seen.state!r}"[:100])
    if share is not None and not 0.0 <= share <= 1.0:
        raise ValueError(f"{seen.job} is said to be done by {share}"[:100])
    if step_s is not None and not 0.0 <= step_s < inf:
        raise ValueError(f"a step of {seen.job} is said to take {step_s} s"[:100])
    if seen.arrived is not None and not 0.0 <= seen.arrived <= 1.0:
        raise ValueError(f"a move of {seen.job} is said to have arrived by {seen.arrived}"[:100])
    if seen.left_s is not None and not 0.0 <= seen.left_s < inf:
        raise ValueError(f"{seen.job} is said to go on for {seen.left_s} s"[:100])
    loss = seen.loss if seen.loss is None or isfinite(seen.loss) else None
    return replace(seen, loss=loss, told=_plain(seen.told))


def _plain(told: str) -> str:
    """Words of an engine's, without what no store takes: a log may hold zeros, an answer half of a character."""
    return "".join(each if each.isprintable() else " " for each in told)
