"""One pipeline played message by message under a runtime's own rules (SimPy): a judge, clear and not quick.

``message_rules`` says what each rank does in turn. Here is how messages move. A border has two ways; a way (both, if
``shared``) carries one message at a time, and the delay comes after the transfer. What differs is the ``Transport``:

* ``SOCKETS``: buffered on both sides, so a sender is done when it has posted.
* ``NCCL``: a group of sends and receives blocks its stream until all are complete (NCCL's user guide, point-to-point);
  a send waits for its receiver (nccl#1025), and there is no eager protocol, only rendezvous (nccl#609). What fits the
  FIFO of 4 MB a channel may end earlier (nccl#544): not counted. torch gives batched calls of a group one stream, in
  the order of the program, and calls that are not batched one for each pair of ranks; a stream begins a post when the
  work before it has ended (``ProcessGroupNCCL``, ``pointToPoint``).
* ``GLOO``: pytorch/gloo cc441984, ``transport/tcp/pair.cc``: data leaves when the receiver's notice is there; notices
  and data of two ranks share a connection, so a notice waits behind data; a sender is done when its bytes are with the
  kernel, whose buffer is taken to hold a message.

How ranks that wait for a message share their processors with it is not played: operations take what they are given.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import simpy
from simpy.events import Event

from .message_rules import Border, End, Line, Message, Pipeline, Post, Span, Wait, lines_of

Steps = Generator[Event, Any, None]


@dataclass(frozen=True)
class Transport:
    """How a message finds its receiver, and when its sender is done."""

    meets: bool = True  # a message waits until its receiver has posted; else it is buffered there
    notice: bool = False  # that the receiver has posted is known one delay of the way back later; else at once
    notice_queues: bool = False  # the notice waits for the messages that are on the way back already
    done: Literal["posted", "met", "left", "taken"] = "taken"  # the sender: where its message then is
    streams: Literal["none", "rank", "pair"] = "none"  # posts of a rank, or of it with one neighbour, follow each other


NCCL = Transport(meets=True, done="taken", streams="rank")
GLOO = Transport(meets=True, notice=True, notice_queues=True, done="met")
SOCKETS = Transport(meets=False, done="posted")
TRANSPORTS = {
    "ideal": SOCKETS,
    "hippo": SOCKETS,
    "megatron": NCCL,
    "megatron-zb": NCCL,
    "torch": GLOO,
    "torch-csv": GLOO,
    "deepspeed": replace(NCCL, streams="pair"),
}


@dataclass(frozen=True)
class Played:
    """When each operation (rank, kind, micro-batch) ran, and when each message entered its link and arrived."""

    step_s: float
    operations: dict[tuple[int, str, int], Span]
    messages: dict[Message, Span]


def play(
    pipeline: Pipeline, runtime: str, *, transport: Transport | None = None, planned: Pipeline | None = None
) -> Played:
    """One step under a runtime of ``TRANSPORTS``. ``planned``: by which seconds and borders zero bubble placed its
    messages (default: its own seconds, messages in no time)."""
    plan = dict[tuple[int, str, int], Span]()
    if runtime == "megatron-zb":
        planned = planned or replace(pipeline, borders=tuple(Border() for _ in pipeline.borders))
        plan = _play(planned, SOCKETS, lines_of(planned, "ideal", {})).operations
    return _play(pipeline, transport or TRANSPORTS[runtime], lines_of(pipeline, runtime, plan))


def _play(pipeline: Pipeline, transport: Transport, lines: list[Line]) -> Played:
    env = simpy.Environment()
    player = Player(pipeline, transport, env)
    player.begin(lines)
    env.run()
    return player.played()


class Player:
    """The borders, and who has posted what. ``carry``: what brings a message over a border, (border, way), in place of
    the border's own seconds."""

    def __init__(
        self,
        pipeline: Pipeline,
        transport: Transport,
        env: simpy.Environment,
        carry: Callable[[int, int], Event] | None = None,
    ) -> None:
        self.pipeline, self.transport, self.env, self.carry = pipeline, transport, env, carry
        self.posted: dict[End, Event] = defaultdict(self.env.event)
        self.over: dict[End, Event] = defaultdict(self.env.event)
        self.streams, self.operations, self.messages = dict[Any, Event](), dict[Any, Span](), dict[Message, Span]()
        self.links = [[simpy.Resource(self.env) for _ in range(1 if b.shared else 2)] for b in pipeline.borders]
        self.last = [self.env.event() for _ in pipeline.orders]  # that the last operation of a rank begins
        self.ranks = list[simpy.Process]()
        self.windows = [[simpy.Container(self.env, init=b.window_s or 1.0) for _ in "><"] for b in pipeline.borders]

    def begin(self, lines: list[Line]) -> list[simpy.Process]:
        """The ranks, at work."""
        for rank, order in enumerate(self.pipeline.orders):
            for message in filter(None, (self.pipeline.sent(rank, operation) for operation in order)):
                self.env.process(self._message(message, self.env.process(self._notice(message))))
        self.ranks = [self.env.process(self._rank(rank, line)) for rank, line in enumerate(lines)]
        return self.ranks

    def played(self) -> Played:
        """Once the clock has run out."""
        if stuck := [rank for rank, process in enumerate(self.ranks) if process.is_alive]:
            raise RuntimeError(f"ranks {stuck} wait for each other: these orders never end under these rules")
        ends = [end for spans in (self.operations, self.messages) for _, end in spans.values()]
        return Played(step_s=max(ends), operations=self.operations, messages=self.messages)

    def _rank(self, rank: int, line: Line) -> Steps:
        posts = dict[Post, Event]()
        for item in line:
            if isinstance(item, Post):
                posts[item] = self._start(rank, item)
            elif isinstance(item, Wait):
                yield posts[item.post]
            else:
                start = self.env.now
                if item == self.pipeline.orders[rank][-1]:
                    self.last[rank].succeed()
                yield self.env.timeout(self.pipeline.lasts(rank, item[0]))
                self.operations[rank, *item] = start, self.env.now

    def _start(self, rank: int, post: Post) -> Event:
        """A post as one batch, or apart on a stream for each neighbour: there forward before back."""
        apart = [(end,) for end in sorted(post.ends, key=lambda end: end.message[1])]
        batches = []
        for ends in apart if self.transport.streams == "pair" else [post.ends]:
            key = {"rank": (rank,), "pair": (rank, ends[0].message[0]), "none": ends}[self.transport.streams]
            batches.append(self.env.process(self._batch(ends, self.streams.get(key))))
            self.streams[key] = batches[-1]
        return self.env.all_of(batches)

    def _batch(self, ends: tuple[End, ...], before: Event | None) -> Steps:
        if before is not None:
            yield before
        for end in ends:
            self.posted[end].succeed()
        yield self.env.all_of([self.over[end] for end in ends])

    def _notice(self, message: Message) -> Steps:
        border, way, _ = message
        yield self.posted[End("receive", message)]
        if self.transport.notice:
            if self.transport.notice_queues:
                with self.links[border][way - 1].request() as turn:
                    yield turn
            yield self.env.timeout(self.pipeline.borders[border].delay_s[1 - way])

    def _message(self, message: Message, notice: Event) -> Steps:
        border, way, _ = message
        sender, receiver = self.over[End("send", message)], self.over[End("receive", message)]
        yield self.posted[End("send", message)]
        if self.transport.done == "posted":
            sender.succeed()
        if self.transport.meets:
            yield notice
        if self.transport.done == "met":
            sender.succeed()
        with self.links[border][-way].request() as turn:
            yield turn
            start = self.env.now
            yield from self._transfer(border, way)
        if self.transport.done == "left":
            sender.succeed()
        yield self.env.timeout(self.pipeline.borders[border].delay_s[way])
        self.messages[message] = start, self.env.now
        yield self.posted[End("receive", message)]
        receiver.succeed()
        if self.transport.done == "taken":
            sender.succeed()

    def _transfer(self, border: int, way: int) -> Steps:
        if self.carry is not None:
            yield self.carry(border, way)
            return
        link, window = self.pipeline.borders[border], self.windows[border][way]
        pieces = math.ceil(8 * link.transfer_s[way] / link.window_s) if link.window_s else 1
        for _ in range(pieces):
            piece = link.transfer_s[way] / pieces
            if link.window_s:
                yield window.get(piece)
                self.env.process(self._acknowledge(window, piece, piece + sum(link.delay_s)))
            yield self.env.timeout(piece)

    def _acknowledge(self, window: simpy.Container, piece: float, after_s: float) -> Steps:
        yield self.env.timeout(after_s)
        yield window.put(piece)
