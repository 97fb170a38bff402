"""The emulated WAN itself: one loop that carries frames from port to port, each over the queue of its directed link."""

from __future__ import annotations

import gc
import heapq
import select
import time
from contextlib import suppress

from hippo.emulate.control import Control, Timetable
from hippo.emulate.kernel import wake_on_time
from hippo.emulate.line import Line
from hippo.emulate.port import Port
from hippo.emulate.setting import FIRST_ADDRESS, Run, Setting, Traffic, port_name
from hippo.emulate.wire import destination, wire_bytes

RING_BLOCKS = 128  # MiB for all ports together ...
MOST_BLOCKS_PER_PORT = 16  # ... of which one takes 16 MiB, 240 super-packets, at most
_AT_ONCE = 32  # frames read from one port before the others have their turn
_LONGEST_WAIT_NS = 1_000_000_000


class Forwarder:
    """Ports, lines, and the order in which frames are due."""

    def __init__(self, setting: Setting, control: Control, started_ns: int) -> None:
        self._setting, self._control = setting, control
        self._timetable = Timetable(setting.moves, started_ns)
        blocks = max(1, min(MOST_BLOCKS_PER_PORT, RING_BLOCKS // max(1, len(setting.names))))
        self._ports = [Port(port_name(domain), blocks=blocks) for domain in range(len(setting.names))]
        self._lines = [Line(link.rate_bytes_per_s, link.latency_s) for link in setting.links]
        self._sends = [self._ports[link.destination].send for link in setting.links]
        self._due: list[tuple[int, int]] = []  # release of a line's first frame, line; some entries are out of date
        self._routes: list[dict[int, int]] = [{} for _ in setting.names]  # per port: address -> line
        for index, link in enumerate(setting.links):
            self._routes[link.source][link.destination + FIRST_ADDRESS] = index
        self._late_ns = self._max_late_ns = self._released = 0

    def run(self, stop: int) -> Run:
        """Forwards until the file ``stop`` becomes readable."""
        gc.disable()  # the loop makes no cycles; a collection would hold frames up
        wake_on_time()
        begun_ns, cpu_s = time.monotonic_ns(), time.process_time()
        poll = select.epoll()
        readers = {port.socket.fileno(): index for index, port in enumerate(self._ports)}
        for descriptor in (*readers, self._control.socket.fileno(), stop):
            poll.register(descriptor, select.EPOLLIN)
        while True:
            # select waits to the microsecond, epoll only to the millisecond; epoll says which of many
            select.select([poll], [], [], self._wait_s())
            for descriptor, _ in poll.poll(0):
                if descriptor == stop:
                    return self._told(time.monotonic_ns() - begun_ns, time.process_time() - cpu_s)
                if descriptor in readers:
                    self._read(readers[descriptor])
                else:
                    self._control.serve(self._change)
            self._timetable.apply(time.monotonic_ns(), self._change)
            self._release()

    def _wait_s(self) -> float:
        now_ns = time.monotonic_ns()
        next_ns = min(self._due[0][0] if self._due else now_ns + _LONGEST_WAIT_NS, self._timetable.due_ns())
        return min(max(0, next_ns - now_ns), _LONGEST_WAIT_NS) / 1e9

    def _read(self, domain: int) -> None:
        """Puts what came in at a port into the queues of its links; a domain without a link to there is not reached."""
        port, routes = self._ports[domain], self._routes[domain]
        for _ in range(_AT_ONCE):
            if (found := port.read()) is None:
                return
            arrival_ns, frame = found
            if (index := routes.get(destination(frame))) is None:
                continue
            line = self._lines[index]
            if line.take(arrival_ns, wire_bytes(frame), frame) and len(line.waiting) == 1:
                heapq.heappush(self._due, (line.waiting[0][0], index))

    def _release(self) -> None:
        """Sends every frame that is due."""
        due, now_ns = self._due, time.monotonic_ns()
        while due and due[0][0] <= now_ns:
            release_ns, index = heapq.heappop(due)
            waiting, send = self._lines[index].waiting, self._sends[index]
            if not waiting or waiting[0][0] != release_ns:
                continue  # a change has given this frame another time, and an entry of its own
            while waiting and waiting[0][0] <= now_ns:
                late_ns = now_ns - waiting[0][0]
                with suppress(OSError):  # the far end is gone, or has no room: a loss, as on a real link
                    send(waiting.popleft()[3])
                self._late_ns += late_ns
                self._max_late_ns = max(self._max_late_ns, late_ns)
                self._released += 1
            if waiting:
                heapq.heappush(due, (waiting[0][0], index))

    def _change(self, index: int, rate_bytes_per_s: float, latency_s: float) -> None:
        line = self._lines[index]
        line.change(time.monotonic_ns(), rate_bytes_per_s, latency_s)
        if line.waiting:
            heapq.heappush(self._due, (line.waiting[0][0], index))

    def _told(self, ran_ns: int, cpu_s: float) -> Run:
        ends = (self._setting.position(link) for link in self._setting.links)
        links = tuple(
            Traffic(*pair, line.carried_bytes, line.carried_frames, line.dropped_bytes, line.dropped_frames)
            for pair, line in zip(ends, self._lines, strict=True)
        )
        return Run(
            seconds=ran_ns / 1e9,
            cpu_s=cpu_s,
            mean_late_ms=self._late_ns / max(1, self._released) / 1e6,
            max_late_ms=self._max_late_ns / 1e6,
            missed_frames=sum(port.missed() for port in self._ports),
            links=links,
        )
