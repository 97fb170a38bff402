"""One worker's step: receives posted ahead, operations as the order has them, results sent at once, gradients agreed.

Of a tensor-parallel team only the leader talks with other stages. It tells its team what is next and what came in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Protocol

import torch

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.executor.asking import LOOK_S, Asking
from hippo.run.executor.channels import BrokenError, Channel, GroupTeam, Inbox, Key
from hippo.run.executor.compute import Compute
from hippo.run.work import Operation, Transfer, Work, Worker

# --------------------------------------------------------------------------------------------------------------- order
# Which operation is next: the schedule's own, or (across a WAN) whatever is ready among what memory allows.
#
# Operations of a kind keep the schedule's order among themselves, so messages of a channel come in a known order. As a
# hint, the schedule says which of the ready operations goes first; a forward beyond the waves in flight that the
# schedule itself needs is never begun. With one chunk a worker this cannot deadlock: who holds the oldest wave
# can always go on.

Ready = Callable[[Operation], bool]


class Order:
    """The operations of one step that are not done yet."""

    def __init__(self, operations: Iterable[Operation], *, live_limit: float, free: bool, fused: bool) -> None:
        self._all = list(operations)
        self._place = {operation: place for place, operation in enumerate(self._all)}
        self._queues = {kind: [op for op in self._all if op[0] == kind] for kind in (FORWARD, BACKWARD, WEIGHT)}
        self._done = dict.fromkeys(self._queues, 0)
        self._release = BACKWARD if fused else WEIGHT
        waves = [[op[1:] for op in queue] for queue in self._queues.values() if queue]
        self._limit, self._free = live_limit, free and all(each == waves[0] for each in waves)

    def __bool__(self) -> bool:
        return sum(self._done.values()) < len(self._all)

    def next(self, ready: Ready) -> Operation | None:
        """The operation to begin now; None: wait for a message. ``ready``: whether its message is here."""
        heads = sorted(self._heads(), key=self._place.__getitem__)
        if not self._free:
            heads = heads[:1]
        for operation in heads:
            if self._allowed(operation) and ready(operation):
                return operation
        return None

    def awaited(self) -> Operation:
        """The first operation of the schedule that is not done."""
        return min(self._heads(), key=self._place.__getitem__)

    def head(self, kind: int) -> Operation:
        """The first operation of a kind that is not done."""
        return self._queues[kind][self._done[kind]]

    def is_last(self, operation: Operation) -> bool:
        """Whether no other operation of its kind and chunk is left."""
        kind, chunk, _ = operation
        return not any(other[1] == chunk for other in self._queues[kind][self._done[kind] + 1 :])

    def did(self, operation: Operation) -> None:
        """It is done."""
        self._done[operation[0]] += 1

    def _heads(self) -> list[Operation]:
        return [queue[self._done[kind]] for kind, queue in self._queues.items() if self._done[kind] < len(queue)]

    def _allowed(self, operation: Operation) -> bool:
        """Whether the operations before it in its wave are done, and memory holds it."""
        kind, done = operation[0], self._done
        if kind == FORWARD:
            return not self._free or done[FORWARD] - done[self._release] < self._limit
        if not self._free:
            return True
        before = FORWARD if kind == BACKWARD else BACKWARD
        return done[before] > done[kind]


# ----------------------------------------------------------------------------------------------------------- foresight
# Whether to wait a moment for what the schedule wants next, or to run something else meanwhile.
#
# Operations cannot be interrupted: a weight gradient begun just before the awaited message comes delays what others
# wait for. So where the message came soon after this moment in the step before, the worker waits for it; when it is
# late, the worker goes on with what is ready.

PATIENCE = 0.5
"""Of the other operation's length: less than that is waited."""


class Foresight:
    """When messages came, and how long operations took, in the step before; knows nothing in the first step."""

    def __init__(self) -> None:
        self._came_s: dict[Operation, float] = {}
        self._lasts_s: dict[int, float] = {}

    def learn(self, came_s: Mapping[Operation, float], lasted_s: Iterable[tuple[int, float]]) -> None:
        """Takes note of a step: when each message came, seconds from its start; kind and seconds of each operation."""
        self._came_s = dict(came_s)
        kinds: dict[int, list[float]] = {}
        for kind, seconds in lasted_s:
            kinds.setdefault(kind, []).append(seconds)
        self._lasts_s = {kind: median(each) for kind, each in kinds.items()}

    def pause_s(self, awaited: Operation, other: Operation, now_s: float) -> float:
        """Seconds to wait for ``awaited`` before ``other`` is begun; 0: begin it now."""
        left = self._came_s.get(awaited, 0.0) - now_s
        return left if 0 < left < PATIENCE * self._lasts_s.get(other[0], 0.0) else 0.0


# ------------------------------------------------------------------------------------------------------------ receipts
# Receives of a step, posted ahead: as many per channel as memory allows, the next as soon as one is taken.
#
# Each channel has a window of its own, in the order in which its sender makes the messages, so that a full one never
# keeps back what another channel must deliver.

Tensor = torch.Tensor
AHEAD_BYTES, LEAST = 256_000_000, 4
"""Most bytes of posted receives per channel, and the messages that are posted whatever their size."""


class Receipts:
    """What a worker receives in a step."""

    def __init__(
        self, work: Work, rank: int, compute: Compute, incoming: dict[Transfer, Channel], inbox: Inbox
    ) -> None:
        self._work, self._compute, self._incoming, self._inbox = work, compute, incoming, inbox
        self._arrivals = work.arrivals(work.workers[rank])
        self._later: dict[Transfer, deque[int]] = {}
        self._fed: dict[tuple[int, int], list[Transfer]] = {}
        for transfer in incoming:
            self._fed.setdefault((transfer.kind, transfer.destination_chunk), []).append(transfer)

    def post(self) -> None:
        """Posts the first receives of a step."""
        missing = self._inbox.missing
        missing.clear()
        self._inbox.tensors.clear()
        self._inbox.came_at_s.clear()
        self._later = {transfer: deque() for transfer in self._incoming}
        posted = dict.fromkeys(self._incoming.values(), 0)
        for transfer, wave in self._arrivals:
            key = (transfer.kind, transfer.destination_chunk, wave)
            missing[key] = missing.get(key, 0) + 1
        for transfer, wave in self._arrivals:
            channel = self._incoming[transfer]
            if posted[channel] < self._window(transfer):
                posted[channel] += 1
                self._receive(transfer, wave)
            else:
                self._later[transfer].append(wave)

    def take(self, key: Key) -> Tensor | None:
        """What came in for an operation (None: nothing does); posts the next of its channels."""
        given = self._inbox.tensors.pop(key, None)
        for transfer in self._fed.get(key[:2], []):
            if self._later[transfer]:
                self._receive(transfer, self._later[transfer].popleft())
        return given

    def _window(self, transfer: Transfer) -> int:
        whole = self._compute.room(transfer.kind)
        size = self._compute.piece(whole, transfer).nbytes
        return max(LEAST, AHEAD_BYTES // max(size, 1)) if self._work.plan.interleave == 1 else len(self._arrivals)

    def _receive(self, transfer: Transfer, wave: int) -> None:
        key = (transfer.kind, transfer.destination_chunk, wave)
        if key not in self._inbox.tensors:
            self._inbox.tensors[key] = self._compute.room(transfer.kind)
        piece = self._compute.piece(self._inbox.tensors[key], transfer)
        heard = partial(self._inbox.heard, key)
        self._incoming[transfer].receive(piece, tag(self._work, transfer, wave), heard)


def tag(work: Work, transfer: Transfer, wave: int) -> int:
    """A number that both sides of a message know."""
    return wave * work.plan.interleave + transfer.destination_chunk


NAMES = {FORWARD: "activations", BACKWARD: "gradients"}


class GradientSync(Protocol):
    """How the worker's gradients are agreed with those of its replicas."""

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

    def give_up(self) -> None:
        """Nothing of what was begun goes on."""
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
    """With whom a worker talks."""

    incoming: dict[Transfer, Channel]
    outgoing: dict[Transfer, Channel]
    inbox: Inbox
    team: GroupTeam | None
    agreement: GradientSync
    asking: Asking | None = None  # a worker without a list of operations to go through


@dataclass(frozen=True)
class Habits:
    """How a worker works."""

    free: bool = False  # runs what is ready; else in the schedule's order
    whole: bool = False  # a fused backward sends its gradient when the weights are done too


class Runner:
    """A worker at work."""

    def __init__(
        self, work: Work, worker: Worker, compute: Compute, ties: Ties, habits: Habits, beat: Callable[[str], None]
    ) -> None:
        self.work, self.worker, self.compute, self.habits, self.beat = work, worker, compute, habits, beat
        self.incoming, self.outgoing, self.inbox = ties.incoming, ties.outgoing, ties.inbox
        self.team, self.agreement, self.asking = ties.team, ties.agreement, ties.asking
        self.done: list[Done] = []
        self._receipts = Receipts(work, worker.rank, compute, ties.incoming, ties.inbox)
        self._local: dict[Key, Tensor] = {}
        self._foresight = Foresight()

    def post(self) -> None:
        """Posts the receives of the next step."""
        self._receipts.post()
        if self.asking is not None:
            self.asking.post(self.inbox)
        self.agreement.post()

    def run(self, step: int, start_s: float) -> None:
        """One step up to the agreed gradients; ``start_s`` on the monotonic clock. Receives were posted before.
        ``BrokenError``: it cannot be ended, and ``give_up`` makes as if it had not begun."""
        self.done = []
        self.compute.begin(step)
        self.agreement.begin()
        if self.asking is not None:
            self.asking.begin(step, start_s)
        operations = self.work.operations(self.worker)
        order = Order(
            operations,
            live_limit=self.work.live_limit(self.worker),
            free=self.habits.free,
            fused=self.work.fused(self.worker),
        )
        while order:
            operation = self._next(order, start_s)
            self._do(operation, order, start_s)
            order.did(operation)
            self.beat("")
        began = time.monotonic() - start_s
        self.beat("waits for replicas to agree on gradients")
        self.agreement.finish()
        came = {key: at_s - start_s for key, at_s in self.inbox.came_at_s.items()}
        self._foresight.learn(came, ((one.kind, one.end_s - one.start_s) for one in self.done))
        self.done.append(Done(3, 0, -1, began, time.monotonic() - start_s))

    def update(self, step: int, start_s: float) -> None:
        """The optimizer: the step is over."""
        began = time.monotonic() - start_s
        self.compute.finish(step)
        self.done.append(Done(4, 0, -1, began, time.monotonic() - start_s))

    def give_up(self) -> None:
        """Nothing of the step is left."""
        self._local.clear()
        self.agreement.give_up()
        self.compute.give_up()

    def _next(self, order: Order, start_s: float) -> Operation:
        """The operation to begin; waits for messages, and followers for their leader."""
        if self.team is not None and not self.worker.leads:
            self.beat("waits for the first rank of its tensor-parallel group")
            kind, chunk, wave = self.team.tell_numbers((0, 0, 0))
            self.beat("")
            if kind < 0:
                raise BrokenError("the step was given up")
            return kind, chunk, wave
        try:
            with self.inbox.news:
                while (operation := self._chosen(order, start_s)) is None:
                    pass
        except BrokenError:
            if self.team is not None:
                self.team.release((-1, 0, 0))
            raise
        if self.team is not None:
            self.team.tell_numbers(operation)
        return operation

    def _chosen(self, order: Order, start_s: float) -> Operation | None:
        """The operation to begin now; None: look again, a message came or a moment has passed."""
        news = self.inbox.news
        self.inbox.check()
        if self.asking is not None:
            return self._asked(self.asking, order)
        operation, awaited = order.next(self.inbox.has), order.awaited()
        if operation is None:
            if not news.wait(1.0):
                self._waits(awaited)
            return None
        if operation == awaited:
            return operation
        pause_s = self._foresight.pause_s(awaited, operation, time.monotonic() - start_s)
        if pause_s > 0.0:
            news.wait(pause_s)
            return None
        return operation

    def _asked(self, asking: Asking, order: Order) -> Operation | None:
        """As ``_chosen``, of who decides at every free rank."""
        kind = asking.next(self.inbox)
        if kind is not None:
            return order.head(kind)
        patience_s = asking.patience_s()
        if not self.inbox.news.wait(patience_s) and patience_s >= LOOK_S:
            self._waits(order.awaited())
        return None

    def _waits(self, awaited: Operation) -> None:
        kind, chunk, wave = awaited
        self.beat(f"waits for {NAMES.get(kind, 'work')} of wave {wave}{self._sender(kind, chunk)}")

    def _sender(self, kind: int, chunk: int) -> str:
        ranks = [t.source for t in self.incoming if (t.kind, t.destination_chunk) == (kind, chunk)]
        return "".join(f" from rank {rank} ({self.work.workers[rank].domain})" for rank in ranks[:1])

    def _do(self, operation: Operation, order: Order, start_s: float) -> None:
        """Runs it and sends on what it made; of a fused backward the gradient goes before the weights are done."""
        kind, chunk, wave = operation
        at, given, began = (chunk, wave), self._given(operation), time.monotonic() - start_s
        output, asking = None, self.asking
        if asking is not None:
            asking.begins(operation, began)
        if kind == FORWARD:
            output = self.compute.forward(at, given)
        elif kind == BACKWARD:
            output = self.compute.backward(at, given)
        if asking is not None:
            asking.made(operation, time.monotonic() - start_s)
        whole = kind == BACKWARD and self.work.fused(self.worker)
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
        if asking is not None:
            asking.ended(kind, began, time.monotonic() - start_s)

    def _given(self, operation: Operation) -> Tensor | None:
        """What came in for an operation; None: nothing does."""
        local = self._local.pop(operation, None)
        if local is not None:
            return local
        if self.team is not None and not self.worker.leads:
            return self._told(operation)
        given = self._receipts.take(operation)
        if given is not None and self.team is not None:
            self.team.tell(given)
        return given

    def _told(self, operation: Operation) -> Tensor | None:
        """What the leader got; the leader's own channels say whether anything comes."""
        leader = self.work.tensor_group(self.worker)[0]
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
        if len(self.work.plan.pipelines[self.worker.pipeline].stages) == 1:
            self._local[kind, chunk + (1 if kind == FORWARD else -1), wave] = output
            return
        for transfer, channel in self.outgoing.items():
            if (transfer.kind, transfer.source_chunk) == (kind, chunk):
                channel.send(self.compute.piece(output, transfer).contiguous(), tag(self.work, transfer, wave))
