"""One seat's step: receives posted ahead, operations as the order has them, results sent at once, gradients agreed.

Of a tensor-parallel team only the leader talks with other stages. It tells its team what is next and what came in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.executor.channels import Channel
from hippo.run.executor.compute import Compute
from hippo.run.executor.foresight import Foresight
from hippo.run.executor.inbox import Inbox, Key
from hippo.run.executor.order import Order
from hippo.run.executor.receipts import Receipts, tag
from hippo.run.executor.wires import GroupTeam
from hippo.run.work import Operation, Seat, Transfer, Work

Tensor = torch.Tensor
NAMES = {FORWARD: "activations", BACKWARD: "gradients"}


class Agreement(Protocol):
    """How the seat's gradients are agreed with those of its replicas."""

    def post(self) -> None:
        """Posts the receives of the next step."""
        ...

    def begin(self) -> None:
        """A step starts."""
        ...

    def ready(self, layer: int) -> None:
        """A layer's gradients are whole."""
        ...

    def finish(self) -> None:
        """Waits until all are agreed."""
        ...


@dataclass(frozen=True)
class Done:
    """One operation as it ran, seconds from the start of the step."""

    kind: int
    chunk: int
    wave: int
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class Ties:
    """With whom a seat talks."""

    incoming: dict[Transfer, Channel]
    outgoing: dict[Transfer, Channel]
    inbox: Inbox
    team: GroupTeam | None
    agreement: Agreement


@dataclass(frozen=True)
class Habits:
    """How a seat works."""

    free: bool = False  # runs what is ready; else in the schedule's order
    whole: bool = False  # a fused backward sends its gradient when the weights are done too


class Runner:
    """A seat at work."""

    def __init__(
        self, work: Work, seat: Seat, compute: Compute, ties: Ties, habits: Habits, beat: Callable[[str], None]
    ) -> None:
        self.work, self.seat, self.compute, self.habits, self.beat = work, seat, compute, habits, beat
        self.incoming, self.outgoing, self.inbox = ties.incoming, ties.outgoing, ties.inbox
        self.team, self.agreement = ties.team, ties.agreement
        self.done: list[Done] = []
        self._receipts = Receipts(work, seat.rank, compute, ties.incoming, ties.inbox)
        self._local: dict[Key, Tensor] = {}
        self._foresight = Foresight()

    def post(self) -> None:
        """Posts the receives of the next step."""
        self._receipts.post()
        self.agreement.post()

    def run(self, step: int, start_s: float) -> None:
        """One step; ``start_s`` on the monotonic clock. Receives were posted before."""
        self.done = []
        self.compute.begin(step)
        self.agreement.begin()
        operations = self.work.operations(self.seat)
        order = Order(
            operations,
            live_limit=self.work.live_limit(self.seat),
            free=self.habits.free,
            fused=self.work.fused(self.seat),
        )
        while order:
            operation = self._next(order, start_s)
            self._do(operation, order, start_s)
            order.did(operation)
            self.beat("")
        began = time.monotonic() - start_s
        self.beat("waits for replicas to agree on gradients")
        self.agreement.finish()
        agreed = time.monotonic() - start_s
        self.compute.finish(step)
        came = {key: at_s - start_s for key, at_s in self.inbox.came_at_s.items()}
        self._foresight.learn(came, ((one.kind, one.end_s - one.start_s) for one in self.done))
        self.done += [Done(3, 0, -1, began, agreed), Done(4, 0, -1, agreed, time.monotonic() - start_s)]

    def _next(self, order: Order, start_s: float) -> Operation:
        """The operation to begin; waits for messages, and followers for their leader."""
        if self.team is not None and not self.seat.leads:
            kind, chunk, wave = self.team.tell_numbers((0, 0, 0))
            return kind, chunk, wave
        with self.inbox.news:
            while (operation := self._chosen(order, start_s)) is None:
                pass
        if self.team is not None:
            self.team.tell_numbers(operation)
        return operation

    def _chosen(self, order: Order, start_s: float) -> Operation | None:
        """The operation to begin now; None: look again, a message came or a moment has passed."""
        news = self.inbox.news
        self.inbox.check()
        operation, awaited = order.next(self.inbox.has), order.awaited()
        if operation is None:
            if not news.wait(1.0):
                kind, chunk, wave = awaited
                self.beat(f"waits for {NAMES.get(kind, 'work')} of wave {wave}{self._sender(kind, chunk)}")
            return None
        if operation == awaited:
            return operation
        pause_s = self._foresight.pause_s(awaited, operation, time.monotonic() - start_s)
        if pause_s > 0.0:
            news.wait(pause_s)
            return None
        return operation

    def _sender(self, kind: int, chunk: int) -> str:
        ranks = [t.source for t in self.incoming if (t.kind, t.destination_chunk) == (kind, chunk)]
        return "".join(f" from rank {rank} ({self.work.seats[rank].domain})" for rank in ranks[:1])

    def _do(self, operation: Operation, order: Order, start_s: float) -> None:
        """Runs it and sends on what it made; of a fused backward the gradient goes before the weights are done."""
        kind, chunk, wave = operation
        at, given, began = (chunk, wave), self._given(operation), time.monotonic() - start_s
        output = None
        if kind == FORWARD:
            output = self.compute.forward(at, given)
        elif kind == BACKWARD:
            output = self.compute.backward(at, given)
        whole = kind == BACKWARD and self.work.fused(self.seat)
        if not (whole and self.habits.whole):
            self._send(kind, at, output)
        ended = time.monotonic() - start_s
        if kind != WEIGHT:
            self.done.append(Done(*operation, began, ended))
        if kind == WEIGHT or whole:
            self.compute.weight(at, self.agreement.ready if order.is_last(operation) else None)
            self.done.append(Done(WEIGHT, chunk, wave, ended, time.monotonic() - start_s))
        if whole and self.habits.whole:
            self._send(kind, at, output)

    def _given(self, operation: Operation) -> Tensor | None:
        """What came in for an operation; None: nothing does."""
        local = self._local.pop(operation, None)
        if local is not None:
            return local
        if self.team is not None and not self.seat.leads:
            return self._told(operation)
        given = self._receipts.take(operation)
        if given is not None and self.team is not None:
            self.team.tell(given)
        return given

    def _told(self, operation: Operation) -> Tensor | None:
        """What the leader got; the leader's own channels say whether anything comes."""
        leader = self.work.tensor_group(self.seat)[0]
        fed = any((t.destination, t.kind, t.destination_chunk) == (leader, *operation[:2]) for t in self.work.transfers)
        if not fed:
            return None
        given = self.compute.room(operation[0])
        assert self.team is not None
        self.team.tell(given)
        return given

    def _send(self, kind: int, at: tuple[int, int], output: Tensor | None) -> None:
        """Sends what a pass made at once; to itself where the next chunk is its own."""
        chunk, wave = at
        if output is None:
            return
        if len(self.work.plan.pipelines[self.seat.pipeline].stages) == 1:
            self._local[kind, chunk + (1 if kind == FORWARD else -1), wave] = output
            return
        for transfer, channel in self.outgoing.items():
            if (transfer.kind, transfer.source_chunk) == (kind, chunk):
                channel.send(self.compute.piece(output, transfer).contiguous(), tag(self.work, transfer, wave))
