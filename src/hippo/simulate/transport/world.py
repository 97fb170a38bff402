"""The clear engine under a transport: flows that warm up, links that move, ranks free to choose.

Letters: G ranks, E links, T instants. A *flow* is what one rank sends another of one kind. A *stream* is a flow or,
where notices and data share one, all that one rank sends another. Messages of a stream leave in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, inf
from types import MappingProxyType

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import AnyOf, Event

from hippo.problem.links import Trace
from hippo.problem.transport import Transport, lost_s
from hippo.simulate.program import BACKWARD, FORWARD, WEIGHT, Program
from hippo.simulate.reference import SimulatedLink, SimulatedWorld, Steps

# --------------------------------------------------------------------------------------------------------------- links
# Links that move while a message is on its way. T instants.

Floats = NDArray[np.float64]


class MovingLink(SimulatedLink):
    """A directed link whose rate and latency follow a trace; a message takes the rates that hold while it leaves.

    What leaves at an instant takes the latency of that instant. The last values hold for ever.
    """

    def __init__(self, env: simpy.Environment, link: SimulatedLink, states: tuple[Floats, Floats, Floats]) -> None:
        """``states``: instants (T,), bytes/s (T,), one-way seconds (T,). Caps of nodes keep the scale of ``link``."""
        super().__init__(env, link.bandwidth, link.latency, link.nic_scale)
        self._time_s, self._rates, self._latencies = states
        self.is_gone = False  # whether a message waits for ever

    def _state(self) -> int:
        return max(int(np.searchsorted(self._time_s, self.env.now, side="right")) - 1, 0)

    @property
    def latency(self) -> float:
        """One-way seconds now."""
        return float(self._latencies[self._state()])

    @property
    def bandwidth(self) -> float:
        """Bytes/s now."""
        return float(self._rates[self._state()])

    def carry(self, num_bytes: float) -> Steps:
        """Keep the granted link until the last byte has left; for ever where the link stays down."""
        wait_s = self._seconds(num_bytes)
        if wait_s == np.inf:
            self.is_gone = True
            yield self.env.event()
        yield self.env.timeout(wait_s)
        self.release()

    def _seconds(self, num_bytes: float) -> float:
        """How long so many bytes take from now on."""
        state, left, waited_s = self._state(), num_bytes, 0.0
        for upcoming in self._time_s[state + 1 :].tolist():
            holds_s = upcoming - (self.env.now + waited_s)
            if left <= self._rates[state] * holds_s:
                break
            left -= self._rates[state] * holds_s
            waited_s += holds_s
            state += 1
        rate = float(self._rates[state])
        return waited_s + left / rate if rate > 0 else np.inf


Flow = tuple[int, int, int]  # rank that sends, rank that receives, kind
Stream = tuple[int, ...]  # rank that sends, rank that receives, and the kind where each has a stream of its own


class Flight:
    """What a pacing sender knows of a flow."""

    def __init__(self, seen: float, trip_s: float) -> None:
        self.seen = seen  # bytes/s: the most that was delivered
        self.trip_s = trip_s
        self.began_s, self.left_s = -inf, -inf  # its first byte, its last byte so far
        self.sent = 0.0  # bytes


@dataclass(frozen=True)
class Circumstances:
    """What a step meets."""

    trace: Trace | None = None  # links that move while the step runs, from instant 0 on; None: as the program says
    cold: bool = False  # every flow is fresh, as in the first step of a run
    live_limit: Sequence[float | None] = ()  # (G,) waves in flight of a rank free to choose, None: it keeps its order


class CarriedWorld(SimulatedWorld):
    """One step under a transport; program and trace are already ``carried``."""

    def __init__(
        self,
        program: Program,
        transport: Transport,
        circumstances: Circumstances,
        flights: Mapping[Flow, Flight] = MappingProxyType({}),
    ) -> None:
        """``flights``: what pacing senders know from the step before."""
        super().__init__(program, program.link_bandwidth_bytes_per_s, program.link_latency_s)
        self.transport, self.circumstances = transport, circumstances
        self.flights = {flow: Flight(each.seen, each.trip_s) for flow, each in flights.items()}
        trace = circumstances.trace
        if trace is not None:
            columns = zip(self.links, trace.bandwidth_bytes_per_s.T, trace.latency_s.T, strict=True)
            self.links = [MovingLink(self.env, link, (trace.time_s, rates, late)) for link, rates, late in columns]
        self._gone: defaultdict[int, Event] = defaultdict(self.env.event)  # by operation: its message left the link
        self._before: dict[int, int | None] = {}  # by operation: whose message entered the stream before its own
        self._last: dict[Stream, int] = {}  # of each stream
        self._count: defaultdict[Flow, int] = defaultdict(int)  # messages of a flow
        self._silent_s: dict[Flow, float] = {}  # when a flow's last message had left
        # Fresh flows with a message for the link.
        self._waiting: defaultdict[SimulatedLink, list[Flow]] = defaultdict(list)

    # What a message meets.

    def _way(self, op: int, kind: int, slot: int) -> Steps:
        """Enters its stream and goes the usual way."""
        route = (self.program.down_route, self.program.up_route)[kind][slot // self.chunks, slot % self.chunks]
        num_bytes = (self.program.down_bytes, self.program.up_bytes)[kind][slot // self.chunks, slot % self.chunks]
        if route[0] >= 0 and num_bytes > 0:
            stream, flow = self._ends(op)
            self._before[op] = self._last.get(stream)
            self._last[stream] = op
            if self._freshness(flow) > 0:
                self._waiting[self.links[route[0]]].append(flow)
        yield from super()._way(op, kind, slot)

    def _ends(self, op: int) -> tuple[Stream, Flow]:
        """Stream and flow of what an operation sends."""
        kind, chunk, _ = (int(value) for value in self.program.order[op])
        rank = int(self.op_rank[op])
        pair = (rank, int(self.dest[kind, rank * self.chunks + chunk]) // self.chunks)
        flow = (*pair, kind)
        return pair if self.program.messages.notice else flow, flow

    def _freshness(self, flow: Flow) -> float:
        """Share of a slow start that the next message of a flow pays; flows that are warm pay nothing."""
        kept = self.transport.congestion.kept
        return kept[self._count[flow]] if self.circumstances.cold and self._count[flow] < len(kept) else 0.0

    def _wire_bytes(self, op: int, link: SimulatedLink, num_bytes: float) -> float:
        """Fresh flows do not fill a link that they share."""
        shares = len(set(self._waiting[link])) > 1 and self._ends(op)[1] in self._waiting[link]
        return num_bytes / self.transport.congestion.fill if shares else num_bytes

    def _leaves(self, op: int, link: SimulatedLink, num_bytes: float) -> Steps:
        """Slow start of a flow that is fresh or was silent; messages of a stream leave in order."""
        flow = self._ends(op)[1]
        yield self.env.timeout(self._slowed_s(op, flow, link, num_bytes))
        before = self._before[op]
        if before is not None:
            yield self._gone[before]
        yield from self._paced(op, flow, link, num_bytes)
        if flow in self._waiting[link]:
            self._waiting[link].remove(flow)
        self._count[flow] += 1
        self._silent_s[flow] = self.env.now
        self._gone[op].succeed()

    def _slowed_s(self, op: int, flow: Flow, link: SimulatedLink, num_bytes: float) -> float:
        """Seconds by which a message leaves later than at the link's rate."""
        control, rate, rtt_s = self.transport.congestion, link.bandwidth, 2 * link.latency
        slow = partial(lost_s, num_bytes, rate, rtt_s, paced_rtts=control.paced_rtts)
        share = self._freshness(flow)
        if share > 0:
            return share * slow(window_bytes=control.initial_bytes)
        silent_s = float(self.sent_start[2 * op]) - self._silent_s.get(flow, inf)
        halvings = floor(max(0.0, silent_s) / (control.timeout_s + rtt_s))
        if halvings == 0:
            return 0.0
        return slow(window_bytes=max(control.initial_bytes, rate * rtt_s / 2.0 ** min(halvings, 64)))

    def _paced(self, op: int, flow: Flow, link: SimulatedLink, num_bytes: float) -> Steps:
        """A pacing sender's last byte: no sooner than at ``gain`` times the most that it saw delivered.

        A *flight* is what it sends from being idle, everything acknowledged, until it is idle again. Of its bytes it
        sees the rate from its start to its last acknowledgement (Linux ``tcp_rate.c``). As the application had no more
        to send, a lower rate than before does not count (``tcp_bbr.c``). Single messages come to rest at a round trip /
        (gain - 1) each, unless the link is slower.
        """
        gain, trip_s = self.transport.congestion.gain, 2 * (link.latency - self.transport.overhead_s)
        if gain == inf or trip_s <= 0:
            return
        began_s, flight = float(self.sent_start[2 * op]), self.flights.get(flow)
        if flight is None:
            flight = self.flights[flow] = Flight(num_bytes * (gain - 1) / (gain * trip_s), trip_s)
        if began_s >= flight.left_s + trip_s:
            flight.began_s, flight.sent = began_s, 0.0
        due_s = max(began_s, flight.left_s) + num_bytes / (gain * flight.seen)
        if due_s > self.env.now:
            yield self.env.timeout(due_s - self.env.now)
        flight.left_s = self.env.now
        flight.sent += num_bytes
        flight.seen = max(flight.seen, flight.sent / (trip_s + flight.left_s - flight.began_s))

    def _words(self, rank: int, kind: int, other: int) -> None:
        """A notice that leaves while a flight is acknowledged: until its own acknowledgement a round trip goes by, in
        which the rest of the flight is delivered."""
        flight = self.flights.get((rank, other, kind))
        if flight is None or flight.left_s <= flight.began_s:
            return
        rest = (flight.left_s + flight.trip_s - self.env.now) / (flight.left_s - flight.began_s)
        if 0.0 < rest < 1.0:
            flight.seen = max(flight.seen, rest * flight.sent / flight.trip_s)

    def _stands_still(self) -> bool:
        return any(isinstance(link, MovingLink) and link.is_gone for link in self.links)

    # What a rank does.

    def _operations(self, rank: int) -> Steps:
        """Its operations, in the order given or, where it is free to choose, as they become ready."""
        limits = self.circumstances.live_limit
        limit = limits[rank] if limits else None
        if limit is None:
            yield from super()._operations(rank)
            return
        first, last = int(self.program.order_start[rank]), int(self.program.order_start[rank + 1])
        queues = [[op for op in range(first, last) if self.program.order[op, 0] == kind] for kind in range(3)]
        done = [0, 0, 0]
        while heads := self._allowed(queues, done, limit):
            ready = [op for op in heads if self._is_there(op, rank)]
            if not ready:
                yield AnyOf(self.env, [self.inputs[needed] for op in heads if (needed := self._needed(op, rank))])
                continue
            yield from self._operation(ready[0], rank)
            done[int(self.program.order[ready[0], 0])] += 1
            follows = ready[0] + 1  # the weight gradient that the order puts right behind a backward
            if queues[WEIGHT][done[WEIGHT] :][:1] == [follows] and self.program.order[ready[0], 0] == BACKWARD:
                yield from self._operation(follows, rank)
                done[WEIGHT] += 1

    def _allowed(self, queues: list[list[int]], done: list[int], limit: float) -> list[int]:
        """The next operation of each kind that may run as far as the rank itself is concerned, in the order given."""
        released = done[BACKWARD] if self.program.fused else done[WEIGHT]
        allowed = (done[FORWARD] - released < limit, done[FORWARD] > done[BACKWARD], done[BACKWARD] > done[WEIGHT])
        return sorted(
            queue[done[kind]] for kind, queue in enumerate(queues) if done[kind] < len(queue) and allowed[kind]
        )

    def _is_there(self, op: int, rank: int) -> bool:
        needed = self._needed(op, rank)
        return needed is None or self.inputs[needed].triggered
