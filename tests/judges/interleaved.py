"""Megatron-LM's interleaved schedule played call by call (SimPy): a judge, clear and not quick.

Written from Megatron-LM d98e8a64, ``core/pipeline_parallel/schedules.py``
``forward_backward_pipelining_with_interleaving`` and ``p2p_communication.py`` ``_p2p_ops``, in their words, with what
``training/arguments.py`` sets unless told otherwise: ``overlap_p2p_comm`` (so calls are not batched), no
``overlap_p2p_comm_warmup_flush``, ``deallocate_pipeline_outputs``, groups of as many micro-batches as ranks.

A wait stops the rank's compute stream. What is sent and received with one neighbour runs on one stream, in the order in
which it was posted (``ProcessGroupNCCL``); of two ranks one direction has the world's communicator. A send waits for
its receive and is over when that has all of it. Tensors carry what they are, and whoever takes a wrong one fails.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy
from simpy.events import Event

Steps = Generator[Event, Any, None]
Tensor = tuple[str, int, int]  # "F" or "B", the virtual stage that made it, micro-batch


@dataclass(frozen=True)
class Interleaved:
    """p ranks of v chunks; seconds of F and of whole backwards by rank and chunk; each directed link of two ranks."""

    forward_s: Sequence[Sequence[float]]  # (p, v)
    backward_s: Sequence[Sequence[float]]  # (p, v)
    delay_s: dict[tuple[int, int], float]  # by sender and receiver, neighbours on the ring of ranks
    transfer_s: dict[tuple[int, int], float]
    micro_batches: int


def play(asked: Interleaved) -> dict[tuple[int, str, int, int], float]:
    """When each operation (rank, kind, chunk, micro-batch) starts."""
    world = _World(asked, simpy.Environment())
    ranks = [world.env.process(_Rank(world, rank).run()) for rank in range(len(asked.forward_s))]
    world.env.run()
    if stuck := [rank for rank, process in enumerate(ranks) if process.is_alive]:
        raise RuntimeError(f"ranks {stuck} wait for each other")
    return world.starts


@dataclass
class _Half:
    """One side of a message: posted at some time, at work once its stream has come to it."""

    begun: Event
    over: Event
    tensor: Tensor | None = None


@dataclass
class _World:
    asked: Interleaved
    env: simpy.Environment
    starts: dict[tuple[int, str, int, int], float] = field(default_factory=dict)
    streams: dict[tuple[int, object], Event] = field(default_factory=dict)
    unmet: dict[tuple[int, int, object, str], deque[_Half]] = field(default_factory=lambda: defaultdict(deque))
    links: dict[tuple[int, int], simpy.Resource] = field(default_factory=dict)

    def post(self, side: str, pair: tuple[int, int], group: object, tensor: Tensor | None) -> _Half:
        """One side of the next message from ``pair[0]`` to ``pair[1]`` in a communicator."""
        mine = _Half(self.env.event(), self.env.event(), tensor)
        rank = pair[0] if side == "send" else pair[1]
        before = self.streams.get((rank, group))
        self.streams[rank, group] = mine.over
        self.env.process(self._begin(mine, before))
        other = self.unmet[*pair, group, "receive" if side == "send" else "send"]
        if other:
            theirs = other.popleft()
            halves = (mine, theirs) if side == "send" else (theirs, mine)
            self.env.process(self._carry(*halves, pair))
        else:
            self.unmet[*pair, group, side].append(mine)
        return mine

    def _begin(self, half: _Half, before: Event | None) -> Steps:
        if before is not None:
            yield before
        half.begun.succeed()

    def _carry(self, send: _Half, receive: _Half, pair: tuple[int, int]) -> Steps:
        yield send.begun
        yield receive.begun
        link = self.links.setdefault(pair, simpy.Resource(self.env))
        with link.request() as turn:
            yield turn
            yield self.env.timeout(self.asked.transfer_s[pair])
        yield self.env.timeout(self.asked.delay_s[pair])
        receive.tensor = send.tensor
        send.over.succeed()
        receive.over.succeed()


class _Rank:
    """``forward_backward_pipelining_with_interleaving`` of one rank."""

    def __init__(self, world: _World, rank: int) -> None:
        self.world, self.rank = world, rank
        self.size, self.chunks = len(world.asked.forward_s), len(world.asked.forward_s[0])
        waves = world.asked.micro_batches
        groups = [range(at, min(at + self.size, waves)) for at in range(0, waves, self.size)]
        self.table = [(micro, chunk) for group in groups for chunk in range(self.chunks) for micro in group]
        self.total = len(self.table)
        warm_up = (self.size - rank - 1) * 2 + (self.chunks - 1) * self.size
        self.warm_up = min(warm_up, self.total)
        self.inputs: list[deque[_Half]] = [deque() for _ in range(self.chunks)]
        self.gradients: list[deque[_Half]] = [deque() for _ in range(self.chunks)]
        self.first, self.last = rank == 0, rank == self.size - 1

    def chunk(self, k: int, forward: bool) -> int:
        """``get_model_chunk_id``."""
        found = self.table[k % self.total][1]
        return found if forward else self.chunks - 1 - found

    def receives(self, k: int, forward: bool) -> tuple[bool, int]:
        """``recv_tensor_from_previous_stage``."""
        receive, end = True, self.chunks - 1 if forward else 0
        if self.first if forward else self.last:
            if k < self.size - 1:
                receive, chunk = False, self.chunk(k + 1, forward)
            else:
                chunk = self.chunk(k - (self.size - 1), forward)
            receive = receive and chunk != end
            chunk += 1 if forward else -1
        else:
            chunk = self.chunk(k + 1, forward)
        return receive, chunk

    def communicate(
        self,
        *,
        send_prev: Tensor | None = None,
        recv_prev: bool = False,
        send_next: Tensor | None = None,
        recv_next: bool = False,
    ) -> dict[str, _Half]:
        """``_p2p_ops``."""
        before, after, halves = (self.rank - 1) % self.size, (self.rank + 1) % self.size, {}
        even = self.rank % 2 == 0
        order = ["send_next", "recv_prev", "send_prev", "recv_next"]
        for name in order if even else ["recv_prev", "send_next", "recv_next", "send_prev"]:
            tensor = {"send_next": send_next, "send_prev": send_prev}.get(name)
            if tensor is None and not {"recv_prev": recv_prev, "recv_next": recv_next}.get(name, False):
                continue
            other = after if name.endswith("next") else before
            group: object = frozenset((self.rank, other))
            if self.size == 2 and name.startswith("send") != even:
                group = "world"
            pair = (self.rank, other) if name.startswith("send") else (other, self.rank)
            halves[name] = self.world.post("send" if tensor else "receive", pair, group, tensor)
        return halves

    def step(self, kind: str, k: int) -> Generator[Event, Any, Tensor]:
        """A forward or a backward: takes what it needs, which has to be the right thing, and works."""
        forward, asked = kind == "F", self.world.asked
        chunk, micro = self.chunk(k, forward), self.table[k][0]
        stage = chunk * self.size + self.rank
        took = (self.inputs if forward else self.gradients)[chunk]
        neighbour = stage - 1 if forward else stage + 1
        if 0 <= neighbour < self.size * self.chunks:
            half = took.popleft()
            assert half.tensor == (kind, neighbour, micro), (self.rank, kind, k, half)
        self.world.starts[self.rank, kind, chunk, micro] = self.world.env.now
        yield self.world.env.timeout((asked.forward_s if forward else asked.backward_s)[self.rank][chunk])
        return kind, stage, micro

    def sent(self, tensor: Tensor) -> Tensor | None:
        """What goes on; the ends of the model send nothing."""
        kind, stage, _ = tensor
        return None if stage == (self.size * self.chunks - 1 if kind == "F" else 0) else tensor

    def run(self) -> Steps:
        """Warm-up, steady state, cool-down."""
        recv_prev_handles, recv_next_handles = deque[_Half](), deque[_Half]()
        send_prev_handle: _Half | None = None
        if not self.first:
            handles = self.communicate(recv_prev=True)
            self.inputs[0].append(handles["recv_prev"])
            yield handles["recv_prev"].over
        for k in range(self.warm_up):
            receive, chunk = self.receives(k, True)
            receive = receive and k != self.total - 1
            output = yield from self.step("F", k)
            handles = self.communicate(send_next=self.sent(output), recv_prev=receive)
            for each in handles.values():
                yield each.over
            if receive:
                self.inputs[chunk].append(handles["recv_prev"])
            if k == self.warm_up - 1 and self.warm_up < self.total and not self.last:
                got = self.communicate(recv_next=True)["recv_next"]
                recv_next_handles.append(got)
                self.gradients[self.chunks - 1].append(got)
        for k in range(self.total - self.warm_up):
            forward_k = k + self.warm_up
            if not (self.first and self.chunk(forward_k, True) == 0) and recv_prev_handles:
                yield recv_prev_handles.popleft().over
            output = yield from self.step("F", forward_k)
            receive, chunk = self.receives(forward_k, True)
            receive = receive and k != self.total - self.warm_up - 1
            handles = self.communicate(send_next=self.sent(output), recv_prev=receive)
            if receive:
                recv_prev_handles.append(handles["recv_prev"])
                self.inputs[chunk].append(handles["recv_prev"])
            if "send_next" in handles:  # deallocate_pipeline_outputs
                yield handles["send_next"].over
            if not (self.last and self.chunk(k, False) == self.chunks - 1) and recv_next_handles:
                yield recv_next_handles.popleft().over
            gradient = yield from self.step("B", k)
            receive, chunk = self.receives(k, False)
            handles = self.communicate(send_prev=self.sent(gradient), recv_next=receive)
            if send_prev_handle is not None:
                yield send_prev_handle.over
            send_prev_handle = handles.get("send_prev")
            if receive:
                recv_next_handles.append(handles["recv_next"])
                self.gradients[chunk].append(handles["recv_next"])
        if self.warm_up == self.total and not self.last:
            handles = self.communicate(recv_next=True)
            yield handles["recv_next"].over
            self.gradients[self.chunks - 1].append(handles["recv_next"])
        for k in range(self.total - self.warm_up, self.total):
            if not (self.last and self.chunk(k, False) == self.chunks - 1) and k != 0 and recv_next_handles:
                yield recv_next_handles.popleft().over
            receive, chunk = self.receives(k, False)
            receive = receive and k != self.total - 1
            gradient = yield from self.step("B", k)
            handles = self.communicate(send_prev=self.sent(gradient), recv_next=receive)
            for each in handles.values():
                yield each.over
            if receive:
                self.gradients[chunk].append(handles["recv_next"])
        if send_prev_handle is not None:
            yield send_prev_handle.over
