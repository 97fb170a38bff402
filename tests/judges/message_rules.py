"""What each rank of one pipeline does in turn under a runtime: operations, posts of messages, waits for posts.

Written from the runtimes' sources, for ``messages``, which plays it. ``BW`` is a whole backward; ``B`` makes the
gradient of the input, ``W`` those of the weights.

* ``ideal``, ``hippo``: every receive is posted before the step, what is made is sent at once, nobody waits for a send.
  ``hippo`` is sockets, as docs/running.md says.
* ``megatron``, 1F1B only: Megatron-LM d98e8a64, ``core/pipeline_parallel/schedules.py``
  ``forward_backward_pipelining_without_interleaving``; ``p2p_communication.py`` ``_communicate``. Warm-up: receive,
  compute, send, each awaited. Then a forward's send goes with the next backward's receive, as one batch to the next
  rank, and a backward's send with the next forward's receive, as one batch to the previous rank; a batch is awaited
  whole and the device synchronised (``batch_p2p_comm``, ``batch_p2p_sync``; overlap exists with virtual stages only,
  which are not played here). Drain: as the warm-up.
* ``megatron-zb``, any order: zero-bubble 39f2c186, ``zerobubble/scheduler/communication.py`` ``insert_send_nodes`` and
  ``insert_recv_nodes``, ``zerobubble/runtime.py`` ``add_communication`` and ``flush``. A send stands behind its
  producer. Receives are placed in the order in which the plan ends their producers, each in front of the first
  operation that the plan ends no earlier, or of a send, or of its own consumer, behind all that is placed already.
  Messages in a row are one batch (``fused_pipeline_ops``), cut after a receive that the next operation needs. Work
  waits for its own receive, never for a send. (``add_communication_nodes``, which it replaces, gives the same.)
* ``torch``: torch 2.13, ``distributed/pipelining/schedules.py``. ``Schedule1F1B``, where the order is 1F1B: a receive
  is posted when nothing else is left to do; the last warm-up's send goes with the first backward's receive, from then
  on a backward's send with a forward's receive and the reverse, each pair awaited; other sends are awaited after the
  next operation. ``ScheduleGPipe``, where the order is that: receives just before use, sends awaited after each half.
  Other orders, and all under ``torch-csv``: ``_PipelineScheduleRuntime``. Its ``_add_send_recv`` walks the ranks in
  rounds, one operation a rank and round if its input was sent; the send follows its producer, the receive goes to what
  is then the end of the receiver's list. Work waits for its receive, the step for its sends.
* ``deepspeed``, 1F1B only: DeepSpeed edaa7221 (0.19.6), ``runtime/pipe/schedule.py`` ``TrainSchedule.steps``;
  ``engine.py`` ``_exec_send_activations`` and its like; ``p2p.py``. Before a forward the last gradient is sent, then
  the activation received; before a backward the gradient is received, then the last activation sent: four calls, each
  awaited by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Span = tuple[float, float]
Operation = tuple[str, int]  # "F", "B", "W" or "BW", and the micro-batch
Message = tuple[int, int, int]  # border b (ranks b and b + 1), way (0 forward, 1 back), micro-batch
Orders = tuple[tuple[Operation, ...], ...]  # (ranks, operations in their turn)
Spans = Mapping[tuple[int, str, int], Span]  # rank, kind, micro-batch: start and end


class End(NamedTuple):
    """One side of a message."""

    side: Literal["send", "receive"]
    message: Message


@dataclass(frozen=True)
class Border:
    """Between two ranks, (forward, back): one-way delay, and how long a message occupies the way."""

    delay_s: Span = (0.0, 0.0)
    transfer_s: Span = (0.0, 0.0)
    shared: bool = False  # both ways share one link
    window_s: float | None = None  # at most in flight, not acknowledged: its bytes over the rate of the link


@dataclass(frozen=True)
class Pipeline:
    """What is played: the order and the seconds of F, B and W on each rank, and the borders between ranks."""

    orders: Orders
    seconds: tuple[Mapping[str, float], ...]
    borders: tuple[Border, ...]

    def lasts(self, rank: int, kind: str) -> float:
        return sum(self.seconds[rank][part] for part in kind)

    def received(self, rank: int, operation: Operation) -> Message | None:
        kind, micro = operation
        if kind == "F":
            return (rank - 1, 0, micro) if rank else None
        return (rank, 1, micro) if kind != "W" and rank + 1 < len(self.orders) else None

    def sent(self, rank: int, operation: Operation) -> Message | None:
        kind, micro = operation
        if kind == "F":
            return (rank, 0, micro) if rank + 1 < len(self.orders) else None
        return (rank - 1, 1, micro) if kind != "W" and rank else None


@dataclass(frozen=True)
class Post:
    """Sends and receives that are handed over together."""

    ends: tuple[End, ...]


@dataclass(frozen=True)
class Wait:
    """Until all ends of a post are complete."""

    post: Post


Line = list[Operation | Post | Wait]


def one_f_one_b(ranks: int, micros: int, backward: str = "BW") -> Orders:
    """The order of 1F1B."""
    orders = []
    for rank in range(ranks):
        ahead = min(ranks - 1 - rank, micros)
        order: list[Operation] = [("F", micro) for micro in range(ahead)]
        for micro in range(micros):
            order += [("F", micro + ahead)] if micro + ahead < micros else []
            order += [(backward, micro)]
        orders.append(tuple(order))
    return tuple(orders)


def gpipe(ranks: int, micros: int) -> Orders:
    """All forwards, then all backwards."""
    return (tuple((kind, micro) for kind in ("F", "BW") for micro in range(micros)),) * ranks


def lines_of(pipeline: Pipeline, runtime: str, plan: Spans) -> list[Line]:
    """What each rank does in turn. ``plan``: when operations run in the plan, by which zero bubble places receives."""
    ranks, micros = len(pipeline.orders), 1 + max(micro for _, micro in pipeline.orders[0])
    plain, halves = pipeline.orders == one_f_one_b(ranks, micros), pipeline.orders == gpipe(ranks, micros)
    if runtime in ("megatron", "deepspeed") and not plain:
        raise ValueError(f"{runtime} plays 1F1B with whole backwards only. To fix: give it one_f_one_b(ranks, micros)")
    works = [_Work(pipeline, rank) for rank in range(ranks)]
    if runtime == "megatron-zb":
        _zero_bubble(works, plan)
    elif runtime == "torch-csv" or (runtime == "torch" and not plain and not halves):
        _torch_csv(works)
    else:
        alone = {"ideal": _free, "hippo": _free, "megatron": _megatron, "deepspeed": _deepspeed}
        for work in works:
            (alone | {"torch": _torch_1f1b if plain else _torch_gpipe})[runtime](work)
    return [work.line for work in works]


class _Work:
    """A rank's line of work in the making; what does not exist (a first rank's receives) is passed over."""

    def __init__(self, pipeline: Pipeline, rank: int) -> None:
        self.pipeline, self.rank, self.line, self.order = pipeline, rank, Line(), pipeline.orders[rank]
        self.ranks = len(pipeline.orders)
        self.forwards = [operation for operation in self.order if operation[0] == "F"]
        self.backwards = [operation for operation in self.order if "B" in operation[0]]
        self.micros = len(self.forwards)

    def receive(self, operation: Operation | None) -> End | None:
        message = operation and self.pipeline.received(self.rank, operation)
        return End("receive", message) if message else None

    def send(self, operation: Operation | None) -> End | None:
        message = operation and self.pipeline.sent(self.rank, operation)
        return End("send", message) if message else None

    def post(self, *ends: End | None) -> Post | None:
        found = tuple(end for end in ends if end)
        self.line += [post := Post(found)] if found else []
        return post if found else None

    def wait(self, post: Post | None) -> None:
        self.line += [Wait(post)] if post else []

    def call(self, *ends: End | None) -> None:
        self.wait(self.post(*ends))

    def run(self, operation: Operation | None) -> None:
        self.line += [operation] if operation else []


def _free(work: _Work) -> None:
    posts = {operation: work.post(work.receive(operation)) for operation in work.order}
    for operation in work.order:
        work.wait(posts[operation])
        work.run(operation)
        work.post(work.send(operation))


def _megatron(work: _Work) -> None:
    ahead = min(work.ranks - 1 - work.rank, work.micros)
    for forward in work.forwards[:ahead]:
        work.call(work.receive(forward))
        work.run(forward)
        work.call(work.send(forward))
    steady = work.forwards[ahead:]
    if steady:
        work.call(work.receive(steady[0]))
    for forward, then, backward in zip(steady, [*steady[1:], None], work.backwards, strict=False):
        work.run(forward)
        work.call(work.send(forward), work.receive(backward))
        work.run(backward)
        work.call(work.send(backward), work.receive(then))
    for backward in work.backwards[len(steady) :]:
        work.call(work.receive(backward))
        work.run(backward)
        work.call(work.send(backward))


def _deepspeed(work: _Work) -> None:
    last: Operation | None = None
    for step in range(2 * (work.micros + work.ranks - 1)):
        forward = step % 2 == work.rank % 2
        micro = (step - work.rank) // 2 if forward else (step + work.rank + 1) // 2 - work.ranks
        now = ("F" if forward else "BW", micro) if 0 <= micro < work.micros else None
        for end in (work.send(last), work.receive(now)) if forward else (work.receive(now), work.send(last)):
            work.call(end)
        work.run(now)
        last = now


def _torch_1f1b(work: _Work) -> None:
    ahead, under_way = min(work.micros, work.ranks - work.rank), None
    for forward in work.forwards[:ahead]:
        work.call(work.receive(forward))
        work.run(forward)
        work.wait(under_way)
        under_way = work.post(work.send(forward)) if forward != work.forwards[ahead - 1] else None
    forward, rest = work.forwards[ahead - 1], work.forwards[ahead:]
    for backward, then in zip(work.backwards, [*rest, None], strict=False):
        work.call(work.send(forward), work.receive(backward))
        work.run(backward)
        if then:
            work.call(work.send(backward), work.receive(then))
            work.run(forward := then)
    under_way = work.post(work.send(work.backwards[len(rest)]))
    for backward in work.backwards[len(rest) + 1 :]:
        work.call(work.receive(backward))
        work.run(backward)
        work.wait(under_way)
        under_way = work.post(work.send(backward))
    work.wait(under_way)


def _torch_gpipe(work: _Work) -> None:
    for half in (work.forwards, work.backwards):
        sends = []
        for operation in half:
            work.call(work.receive(operation))
            work.run(operation)
            sends.append(work.post(work.send(operation)))
        for post in sends:
            work.wait(post)


def _torch_csv(works: list[_Work]) -> None:
    left, receives = [[*work.order] for work in works], dict[End, Post | None]()
    sends = list[tuple[_Work, Post | None]]()
    while before := sum(map(len, left)):
        for work, operations in zip(works, left, strict=True):
            end = work.receive(operations[0]) if operations else None
            if not operations or (end and end not in receives):
                continue
            operation = operations.pop(0)
            work.wait(receives[end] if end else None)
            work.run(operation)
            if send := work.send(operation):
                sends.append((work, work.post(send)))
                receive = End("receive", send.message)
                receives[receive] = works[work.rank + (1 if operation[0] == "F" else -1)].post(receive)
        if sum(map(len, left)) == before:
            raise ValueError("the orders wait for each other. To fix: order every operation behind what it needs")
    for work, post in sends:
        work.wait(post)


def _zero_bubble(works: list[_Work], plan: Spans) -> None:
    ends = {(rank, (kind, micro)): round(span[1], 9) for (rank, kind, micro), span in plan.items()}
    lists: list[list[Operation | End]] = []
    made, needed = dict[Message, float](), list[End]()
    for work in works:
        lists.append([])
        for operation in work.order:
            lists[-1].append(operation)
            if send := work.send(operation):
                lists[-1].append(send)
                made[send.message] = ends[work.rank, operation]
            needed += [receive for receive in [work.receive(operation)] if receive]
    placed = [0] * len(works)  # what stands before is fixed
    for end in sorted(needed, key=lambda end: made[end.message]):
        border, way, _ = end.message
        sender, receiver = border + way, border + 1 - way
        placed[sender] = lists[sender].index(End("send", end.message)) + 1
        at = placed[receiver]
        while not isinstance(item := lists[receiver][at], End) and ends[receiver, item] < made[end.message]:
            if works[receiver].receive(item) == end:
                break
            at += 1
        lists[receiver].insert(at, end)
        placed[receiver] = at + 1
    for work, items in zip(works, lists, strict=True):
        batch, posts = list[End](), dict[End, Post | None]()
        for at, item in enumerate(items):
            if not isinstance(item, End):
                receive = work.receive(item)
                work.wait(posts[receive] if receive else None)
                work.run(item)
                continue
            batch.append(item)
            then = next((later for later in items[at + 1 :] if not isinstance(later, End)), None)
            if at + 1 == len(items) or not isinstance(items[at + 1], End) or item == work.receive(then):
                posts |= dict.fromkeys(batch, work.post(*batch))
                batch = []
