"""The clear engine (SimPy): one process per rank, per message and per group. It judges ``fast`` and is not quick.

The rules of waiting stand in ``hippo.engine.fixed_order``; both engines keep them to the letter, ties included, so that
their times agree to rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from heapq import heappop, heappush
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import AllOf, Event, EventPriority

from hippo.engine.program import MET, NOTICE, SENDER, WAY
from hippo.errors import InputError
from hippo.simulate.calls import calls
from hippo.simulate.packed import destinations, sending_nodes, stretched_durations
from hippo.simulate.program import BACKWARD, FORWARD, WEIGHT, Program, SyncGroup
from hippo.simulate.timeline import Timeline, timeline

_PORTS_DECIDE, _LINKS_DECIDE, _NOTICES_LEAVE = (EventPriority(each) for each in (2, 3, 4))  # SimPy's own: 0 and 1

Steps = Generator[Event, Any, None]


def play(
    program: Program,
    *,
    bandwidth_bytes_per_s: NDArray[np.float64] | None = None,
    latency_s: NDArray[np.float64] | None = None,
) -> Timeline:
    """The whole timeline of one step under a state of the links (default: the base state); see ``fast.play``."""
    bandwidth = program.link_bandwidth_bytes_per_s if bandwidth_bytes_per_s is None else bandwidth_bytes_per_s
    world = SimulatedWorld(program, bandwidth, program.link_latency_s if latency_s is None else latency_s)
    return world.run()


class Turn:
    """What one message at a time may hold. Grants are decided when an instant is over: ties have a written rule."""

    priority = _LINKS_DECIDE

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.waiting: list[tuple[float, int, Event]] = []
        self.taken = False

    def request(self, key: int) -> Event:
        """Ask for it; the event succeeds when it is granted."""
        granted = self.env.event()
        heappush(self.waiting, (self.rank(), key, granted))
        self._decide_later()
        return granted

    def rank(self) -> float:
        """What counts before the key."""
        return float(self.env.now)

    def release(self) -> None:
        """Let it go."""
        self.taken = False
        self._decide_later()

    def _decide_later(self) -> None:
        end = EndOfInstant(self.env, self.priority)
        assert end.callbacks is not None
        end.callbacks.append(self._decide)

    def _decide(self, _: Event) -> None:
        if self.waiting and not self.taken:
            self.taken = True
            heappop(self.waiting)[2].succeed()


class SimulatedLink(Turn):
    """A directed link: requests in order of (time, key)."""

    def __init__(self, env: simpy.Environment, bandwidth: float, latency: float, nic_scale: float) -> None:
        super().__init__(env)
        self._bandwidth, self._latency, self._nic_scale = float(bandwidth), float(latency), float(nic_scale)

    @property
    def bandwidth(self) -> float:
        """Bytes/s."""
        return self._bandwidth

    @property
    def latency(self) -> float:
        """One-way seconds."""
        return self._latency

    @property
    def nic_scale(self) -> float:
        """Factor on the caps of nodes."""
        return self._nic_scale

    def carry(self, num_bytes: float) -> Steps:
        """Keep the granted link until the last byte has left, then let it go."""
        yield self.env.timeout(num_bytes / self.bandwidth)
        self.release()


class _Port(Turn):
    """What nodes send into one link under their cap: of those that wait, the smallest key first."""

    priority = _PORTS_DECIDE

    def rank(self) -> float:
        """Nothing counts before the key."""
        return 0.0


class EndOfInstant(Event):
    """Happens now, but after everything else that happens now; ports decide before links, notices leave last."""

    def __init__(self, env: simpy.Environment, priority: EventPriority) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, priority=priority)


class SimulatedWorld:
    """One run: the environment, its links and ports, and what has been seen. N operations, G ranks."""

    def __init__(self, program: Program, bandwidth: NDArray[np.float64], latency: NDArray[np.float64]) -> None:
        self.env = simpy.Environment()
        self.program = program
        self.chunks = program.forward_s.shape[1]
        self.dest = destinations(program)
        per_node = program.link_per_node if program.link_per_node is not None else np.zeros(len(bandwidth), dtype=bool)
        scale = np.where(per_node, bandwidth / program.link_bandwidth_bytes_per_s, 1.0)
        self.links = [SimulatedLink(self.env, *state) for state in zip(bandwidth, latency, scale, strict=True)]
        self.seconds = stretched_durations(program, bandwidth, latency)
        self.inputs: defaultdict[tuple[int, int, int], Event] = defaultdict(self.env.event)  # (kind, slot, micro-batch)
        self.nodes = sending_nodes(program)
        self.ports: defaultdict[tuple[int, int], _Port] = defaultdict(lambda: _Port(self.env))
        # Where senders and receivers have to meet (``simulate.calls``), by operation whose result is sent.
        self.calls = calls(program, self.dest)
        self.sending: defaultdict[int, Event] = defaultdict(self.env.event)  # its call has begun
        self.met: defaultdict[int, Event] = defaultdict(self.env.event)  # its sender knows that its receiver is there
        self.parts: defaultdict[tuple[int, int], Event] = defaultdict(self.env.event)  # over: sender's 0, receiver's 1
        self.over: defaultdict[int, Event] = defaultdict(self.env.event)  # by call
        self.left: dict[tuple[int, int], Event] = {}  # by rank and kind: its last message so far has left
        self.ready = [self.env.event() for _ in program.rank_stage]
        self.agreed = [self.env.event() for _ in program.groups]
        total, ranks = len(program.order), len(program.rank_stage)
        self.op_rank = np.repeat(np.arange(ranks), np.diff(program.order_start))
        self.op_start, self.op_end = np.full((2, total + 2 * ranks), np.nan)
        self.sent_start, self.sent_end = np.full((2, 2 * total + sum(len(g.links) for g in program.groups)), np.nan)

    def run(self) -> Timeline:
        """Play the step to its end; ``InputError`` where ranks wait for each other for ever under its runtime."""
        for call in range(0 if self.calls is None else int(self.calls.call_of_rank[-1])):
            self.env.process(self._call(call))
        ranks = [self.env.process(self._rank(rank)) for rank in range(len(self.ready))]
        first = 2 * len(self.program.order)
        for index, group in enumerate(self.program.groups):
            self.env.process(self._group(index, group, first))
            first += len(group.links)
        self.env.run()
        ended = all(rank.processed for rank in ranks)
        if self.calls is not None and not (ended or self._stands_still()):
            told = "its ranks would wait for each other for ever under this runtime"
            raise InputError(told, key="schedule", remedy="plan for this runtime (--runtime), or play it under another")
        assert ended or self._stands_still(), "the order of operations deadlocks"
        step = float(np.max(self.op_end[len(self.program.order) :])) if ended else np.inf
        return timeline(self.program, step, (self.op_start, self.op_end), (self.sent_start, self.sent_end))

    def _stands_still(self) -> bool:
        """Whether a link that is needed never comes back."""
        return False

    def _rank(self, rank: int) -> Steps:
        """Operations, then in-domain synchronisation, agreement, optimizer."""
        program, env = self.program, self.env
        yield from self._operations(rank)
        at = len(program.order) + 2 * rank
        self.op_start[at] = env.now
        yield env.timeout(program.sync_s[rank])
        self.ready[rank].succeed()
        yield AllOf(env, [self.agreed[index] for index, group in enumerate(program.groups) if rank in group.ranks])
        self.op_end[at] = self.op_start[at + 1] = env.now
        yield env.timeout(program.finish_s[rank])
        self.op_end[at + 1] = env.now

    def _operations(self, rank: int) -> Steps:
        """All operations of a rank, in the order given."""
        for op in range(self.program.order_start[rank], self.program.order_start[rank + 1]):
            needed = self._needed(op, rank)
            if needed is not None:
                yield self.inputs[needed]
            yield from self._operation(op, rank)

    def _needed(self, op: int, rank: int) -> tuple[int, int, int] | None:
        """Which input an operation waits for; None: it needs none, or one of its own rank that is there."""
        kind, chunk, micro_batch = (int(value) for value in self.program.order[op])
        slot = rank * self.chunks + chunk
        if kind == WEIGHT or (kind == FORWARD and self.dest[BACKWARD, slot] < 0):
            return None
        return kind, slot, micro_batch

    def _operation(self, op: int, rank: int) -> Steps:
        """One operation whose input is there, and the calls that its rank makes behind it."""
        kind, chunk, micro_batch = (int(value) for value in self.program.order[op])
        if self.calls is not None and self.calls.awaited[op] >= 0:
            yield self.over[int(self.calls.awaited[op])]
        self.op_start[op] = self.env.now
        yield self.env.timeout(self.seconds[kind, rank, chunk])
        self.op_end[op] = self.env.now
        if kind != WEIGHT:
            self._pass_on(op, kind, rank * self.chunks + chunk, micro_batch)
        if self.calls is not None:
            for call in range(self.calls.call_of_op[op], self.calls.call_of_op[op + 1]):
                self.env.process(self._call(call))

    def _call(self, call: int) -> Steps:
        """What a rank hands over at once, when the call that has to be over first is over."""
        known = self.calls
        assert known is not None
        if known.call_before[call] >= 0:
            yield self.over[int(known.call_before[call])]
        parts = [divmod(int(part), 2) for part in known.part[known.call_part[call] : known.call_part[call + 1]]]
        for op, receives in parts:
            if receives:
                self.env.process(self._notice(op, by_way=bool(known.meeting[NOTICE] == WAY)))
            else:
                self.sending[op].succeed()
        yield AllOf(self.env, [self.parts[part] for part in parts])
        self.over[call].succeed()

    def _notice(self, op: int, *, by_way: bool) -> Steps:
        """The receiver's word that it is there: at once, or behind what it sent that way, and a latency later."""
        kind, chunk, _ = (int(value) for value in self.program.order[op])
        receiver, at = divmod(int(self.dest[kind, int(self.op_rank[op]) * self.chunks + chunk]), self.chunks)
        way_back = (self.program.up_route, self.program.down_route)[kind][receiver, at]
        if by_way and way_back[0] >= 0:
            yield EndOfInstant(self.env, _NOTICES_LEAVE)
            before = self.left.get((receiver, 1 - kind))
            if before is not None and not before.triggered:
                yield before
            self._words(receiver, 1 - kind, int(self.op_rank[op]))
            yield self.env.timeout(sum(self.links[link].latency for link in way_back if link >= 0))
        self.met[op].succeed()

    def _pass_on(self, op: int, kind: int, slot: int, micro_batch: int) -> None:
        dest = int(self.dest[kind, slot])
        if dest >= 0:
            self.env.process(self._message(op, kind, slot, self.inputs[kind, dest, micro_batch]))
        elif kind == FORWARD:  # the end of the model: the backward may start
            self.inputs[BACKWARD, slot, micro_batch].succeed()

    def _words(self, rank: int, kind: int, other: int) -> None:
        """A few bytes go from a rank to another, over the stream of its messages of a kind."""

    def _message(self, op: int, kind: int, slot: int, arrived: Event) -> Steps:
        """One message, once its sender and its receiver have met."""
        known = self.calls
        if known is None or known.send_call[op] < 0:
            yield from self._way(op, kind, slot)
            arrived.succeed()
            return
        yield AllOf(self.env, [self.sending[op], self.met[op]])
        if known.meeting[SENDER] == MET:
            self.parts[op, 0].succeed()
        yield from self._way(op, kind, slot)
        arrived.succeed()
        if known.meeting[SENDER] != MET:
            self.parts[op, 0].succeed()
        self.parts[op, 1].succeed()

    def _way(self, op: int, kind: int, slot: int) -> Steps:
        """Through the port and the link of a message (and the second link of a relay), or a pure delay."""
        program, at = self.program, (slot // self.chunks, slot % self.chunks)
        num_bytes = (program.down_bytes, program.up_bytes)[kind][at]
        route = (program.down_route, program.up_route)[kind][at]
        if route[0] < 0 or num_bytes <= 0:
            yield self.env.timeout((program.down_delay_s, program.up_delay_s)[kind][at])
            return
        left = self.left[at[0], kind] = self.env.event()
        nic = (program.down_nic_bytes_per_s, program.up_nic_bytes_per_s)[kind][at]
        link, port = self.links[route[0]], self.ports[int(self.nodes[at[0]]), int(route[0])]
        capped = not np.isinf(nic)
        if capped:
            yield port.request(op)
        yield link.request(2 * op)
        self.sent_start[2 * op] = self.env.now
        on_link = self.env.process(link.carry(self._wire_bytes(op, link, num_bytes)))
        here = self.env.event()  # the last byte is at the end of the first link
        onward = self.env.process(self._second_hop(op, (link, int(route[1])), num_bytes, (here, left)))
        if capped:
            yield self.env.timeout(num_bytes / (nic * link.nic_scale))
            port.release()
        yield on_link
        yield from self._leaves(op, link, num_bytes)
        if route[1] < 0:
            left.succeed()
        yield self.env.timeout(link.latency)
        self.sent_end[2 * op] = self.env.now
        here.succeed()
        yield onward

    def _wire_bytes(self, op: int, link: SimulatedLink, num_bytes: float) -> float:
        """For how many bytes a message takes its first link."""
        return num_bytes

    def _leaves(self, op: int, link: SimulatedLink, num_bytes: float) -> Steps:
        """Whatever else goes by until the last byte of a message has left its first link."""
        yield from ()

    def _second_hop(
        self, op: int, hops: tuple[SimulatedLink, int], num_bytes: float, ends: tuple[Event, Event]
    ) -> Steps:
        """Stream on over the second link of a relay, if there is one, as soon as the first byte is in the middle.

        ``ends``: the last byte is in the middle; it has left from there.
        """
        (before, index), (here, left) = hops, ends
        if index < 0:
            yield here
            return
        link = self.links[index]
        yield self.env.timeout(before.latency)
        yield link.request(2 * op + 1)
        self.sent_start[2 * op + 1] = self.env.now
        yield self.env.process(link.carry(num_bytes))
        yield here
        left.succeed()
        yield self.env.timeout(link.latency)
        self.sent_end[2 * op + 1] = self.env.now

    def _group(self, index: int, group: SyncGroup, first: int) -> Steps:
        """Replicas that agree: wait for all members, agree inside the domains, then over the links of the ring."""
        env = self.env
        yield AllOf(env, [self.ready[rank] for rank in group.ranks])
        yield env.timeout(group.local_s)
        caps = group.nic_bytes_per_s or (np.inf,) * len(group.links)
        shares = zip(group.links, group.taken_bytes, caps, strict=True)
        yield AllOf(env, [env.process(self._share(first + i, *share)) for i, share in enumerate(shares)])
        routes = group.routes or tuple((link,) for link in group.links)
        slowest = max((sum(self.links[link].latency for link in route) for route in routes), default=0.0)
        yield env.timeout(group.hops * slowest)
        self.agreed[index].succeed()

    def _share(self, slot: int, index: int, num_bytes: float, nic: float) -> Steps:
        """What one link of a ring carries."""
        link = self.links[index]
        yield link.request(slot)
        self.sent_start[slot] = self.env.now
        on_link = self.env.process(link.carry(num_bytes))
        yield self.env.timeout(num_bytes / (nic * link.nic_scale))
        yield on_link
        self.sent_end[slot] = self.env.now + link.latency
