"""The emulated WAN itself: one loop that carries frames from port to port, each over the queue of its directed link."""

from __future__ import annotations

import gc
import heapq
import json
import math
import mmap
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from hippo.emulate.emulation import LOG
from hippo.emulate.setting import FIRST_ADDRESS, EmulatorRun, EmulatorSetting, LinkMove, LinkTraffic, port_name
from hippo.emulate.syscalls import wake_on_time
from hippo.problem.transport import queue_limit_bytes

# ---------------------------------------------------------------------------------------------------------------- wire
# How many bytes a frame is on the wire, and where it goes.
#
# A frame comes as the kernel hands it out: a virtio header (10 bytes), an Ethernet header (14), an IPv4 packet. A TCP
# super-packet (up to 64 KiB, segmentation left to the card that is not there) counts as the segments it would become.

VNET = 10  # bytes of the virtio header
ETHERNET = 14
FRAMING = 18  # Ethernet header and check sequence of one segment on the wire
_IP = VNET + ETHERNET
_TCP, _UDP = 6, 17
_ROUND = 1 << 32


def wire_bytes(frame: bytes) -> int:
    """Bytes that the frame takes on the wire, all segments with their headers and framing."""
    size = len(frame) - _IP
    if not frame[1]:  # no segmentation asked for
        return size + FRAMING
    segment = frame[4] | frame[5] << 8
    ip_header = (frame[_IP] & 15) * 4
    protocol = frame[_IP + 9]
    headers = ip_header + ((frame[_IP + ip_header + 12] >> 4) * 4 if protocol == _TCP else 8)
    segments = max(1, -(-(size - headers) // segment)) if segment else 1
    return size + (segments - 1) * headers + segments * FRAMING


def destination(frame: bytes) -> int:
    """Last two bytes of the IPv4 destination, as one number; -1 for a frame too short to have one."""
    return frame[_IP + 18] << 8 | frame[_IP + 19] if len(frame) >= _IP + 20 else -1


class TcpPayload(NamedTuple):
    """What a TCP frame carries of its stream."""

    flow: bytes  # addresses and ports
    start: int  # sequence number of the first byte
    size: int


def tcp_payload(frame: bytes) -> TcpPayload | None:
    """The part of a TCP stream in a frame; None: there is none."""
    if len(frame) < _IP + 40 or frame[_IP + 9] != _TCP:
        return None
    above = _IP + (frame[_IP] & 15) * 4
    total = frame[_IP + 2] << 8 | frame[_IP + 3]  # 0 or the whole of a super-packet
    size = (total or len(frame) - _IP) + _IP - above - (frame[above + 12] >> 4) * 4
    if size <= 0:
        return None
    flow = frame[_IP + 12 : _IP + 20] + frame[above : above + 4]
    return TcpPayload(flow, int.from_bytes(frame[above + 4 : above + 8]), size)


class StreamCount:
    """Bytes of one TCP stream that a link carried, first time and again. Sequence numbers go round at 2**32."""

    def __init__(self, start: int) -> None:
        self._upcoming = start  # of the first byte that was never seen
        self._owed = 0  # bytes that were dropped and did not come again yet

    def fresh(self, part: TcpPayload, *, carried: bool) -> int:
        """How many bytes of a part the link carries for the first time; ``carried``: else it was dropped."""
        beyond = (part.start + part.size - self._upcoming) % _ROUND
        new = min(beyond, part.size) if beyond < _ROUND // 2 else 0
        if new:
            self._upcoming = (part.start + part.size) % _ROUND
        if not carried:
            self._owed += new
            return 0
        late = min(part.size - new, self._owed)
        self._owed -= late
        return new + late

    def lost(self, size: int) -> None:
        """So many bytes that were carried never arrived."""
        self._owed += size


# ---------------------------------------------------------------------------------------------------------------- port
# A port of the emulator: frames of one interface, whole TCP super-packets, read from a ring shared with the kernel.
#
# AF_PACKET with PACKET_VNET_HDR, so that super-packets of up to 64 KiB cross uncut, and with a receive ring, so that a
# burst waits in memory of its own (a socket's usual buffer holds three of them) and each frame carries the time at
# which the kernel took it: a reader that wakes up late delays nothing.

_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION, _VNET_HDR, _IGNORE_OUTGOING = 5, 6, 10, 15, 23
_TPACKET_V2 = 1
_ETH_P_IP = 0x0800
_FRAME = 66_048  # a super-packet with every header, in 16s
BLOCK = 1 << 20
_PER_BLOCK = BLOCK // _FRAME
_LATEST_READING_NS = 200_000_000


class Port:
    """One interface: ``read`` takes what came in, ``send`` puts a frame out."""

    def __init__(self, interface: str, *, blocks: int) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
        self.socket.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
        self.socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        count = blocks * _PER_BLOCK
        self.socket.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("IIII", BLOCK, blocks, _FRAME, count))
        self._ring = mmap.mmap(self.socket.fileno(), blocks * BLOCK)
        self._words = memoryview(self._ring).cast("I")
        self._starts = [index // _PER_BLOCK * BLOCK + index % _PER_BLOCK * _FRAME for index in range(count)]
        self._next = 0
        self.socket.bind((interface, _ETH_P_IP))
        self.socket.setblocking(False)
        self.send = self.socket.send

    def read(self) -> tuple[int, bytes] | None:
        """When the kernel took the next frame (ns, ``time.monotonic_ns``) and the frame; None: no more."""
        start = self._starts[self._next]
        words, word = self._words, start >> 2
        if not words[word] & 1:  # TP_STATUS_USER: ours
            return None
        # struct tpacket2_hdr: status, length, captured length, (mac, net offsets), seconds, nanoseconds
        begin = start + (words[word + 3] & 0xFFFF) - VNET
        frame = self._ring[begin : begin + VNET + words[word + 2]]
        age_ns = time.time_ns() - words[word + 4] * 1_000_000_000 - words[word + 5]
        words[word] = 0
        self._next = self._next + 1 if self._next + 1 < len(self._starts) else 0
        # The kernel's stamp is of the wall clock, which may be set meanwhile: an age that cannot be is none.
        return time.monotonic_ns() - (age_ns if 0 < age_ns < _LATEST_READING_NS else 0), frame

    def missed(self) -> int:
        """Frames since the last call that found the ring full."""
        seen = self.socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
        return int(struct.unpack("II", seen)[1])


# ---------------------------------------------------------------------------------------------------------------- line
# A directed link as a queue: one frame after the other at the set rate, then the one-way delay, in order.
#
#     departure = max(arrival, departure of the frame before) + wire bytes / rate
#     release   = max(departure + delay, release of the frame before)
#
# A frame that would wait behind more than a limit of bytes is dropped. When rate or delay change, frames that have not
# departed are timed anew; those on their way keep their time. Rate 0 is an outage: what has not departed is lost.

_NS = 1_000_000_000


class DelayLine:
    """State and counts of one directed link. Times in ns of ``time.monotonic_ns``."""

    def __init__(self, rate_bytes_per_s: float, latency_s: float) -> None:
        self.waiting: deque[tuple[int, int, int, bytes]] = deque()  # release, departure, wire bytes, frame
        self.carried_bytes = self.carried_frames = self.dropped_bytes = self.dropped_frames = 0
        self.payload_bytes = self.repeated_bytes = 0  # among the carried ones
        self._streams: dict[bytes, StreamCount] = {}
        self._free_ns = self._last_release_ns = 0
        self._set(rate_bytes_per_s, latency_s)

    def _set(self, rate_bytes_per_s: float, latency_s: float) -> None:
        self.rate_bytes_per_s, self.latency_s = rate_bytes_per_s, latency_s
        self._ns_per_byte = _NS / rate_bytes_per_s if rate_bytes_per_s > 0 else 0.0
        self._latency_ns = round(latency_s * _NS)
        self._limit_ns = queue_limit_bytes(rate_bytes_per_s, latency_s) * self._ns_per_byte

    def take(self, arrival_ns: int, wire_bytes: int, frame: bytes) -> bool:
        """Admits a frame, or drops it (False)."""
        start_ns = max(arrival_ns, self._free_ns)
        length_ns = wire_bytes * self._ns_per_byte
        if not self._ns_per_byte or start_ns - arrival_ns + length_ns > self._limit_ns:
            self.dropped_bytes += wire_bytes
            self.dropped_frames += 1
            self._count(frame, carried=False)
            return False
        self._free_ns = departure_ns = start_ns + int(length_ns)
        self._append(departure_ns, wire_bytes, frame)
        self.carried_bytes += wire_bytes
        self.carried_frames += 1
        self._count(frame, carried=True)
        return True

    def _count(self, frame: bytes, *, carried: bool) -> None:
        """Tells payload that the link carries for the first time from what it carries again."""
        if (part := tcp_payload(frame)) is None:
            return
        if (stream := self._streams.get(part.flow)) is None:
            stream = self._streams[part.flow] = StreamCount(part.start)
        fresh = stream.fresh(part, carried=carried)
        if carried:
            self.payload_bytes += fresh
            self.repeated_bytes += part.size - fresh

    def _append(self, departure_ns: int, wire_bytes: int, frame: bytes) -> None:
        self._last_release_ns = release_ns = max(departure_ns + self._latency_ns, self._last_release_ns)
        self.waiting.append((release_ns, departure_ns, wire_bytes, frame))

    def change(self, now_ns: int, rate_bytes_per_s: float, latency_s: float) -> None:
        """Another rate and delay from ``now_ns`` on, also for what has not departed."""
        old_ns_per_byte = self._ns_per_byte
        late = []
        while self.waiting and self.waiting[-1][1] > now_ns:
            late.append(self.waiting.pop())
        self._set(rate_bytes_per_s, latency_s)
        self._free_ns = now_ns
        self._last_release_ns = self.waiting[-1][0] if self.waiting else 0
        for _, departure_ns, wire_bytes, frame in reversed(late):
            if not self._ns_per_byte:
                self._lose(wire_bytes, frame)
                continue
            # of the frame being sent only the rest is left
            rest_bytes = min(wire_bytes, (departure_ns - now_ns) / old_ns_per_byte)
            self._free_ns += int(rest_bytes * self._ns_per_byte)
            self._append(self._free_ns, wire_bytes, frame)

    def _lose(self, wire_bytes: int, frame: bytes) -> None:
        """An admitted frame that never departs."""
        if (part := tcp_payload(frame)) is not None:
            fresh = min(part.size, self.payload_bytes)
            self.payload_bytes -= fresh
            self.repeated_bytes -= part.size - fresh
            self._streams[part.flow].lost(fresh)
        self.carried_bytes -= wire_bytes
        self.carried_frames -= 1
        self.dropped_bytes += wire_bytes
        self.dropped_frames += 1


# ------------------------------------------------------------------------------------------------------------- control
# Who moves the links: the trace, by the clock, and whoever writes to the control socket.

MAX_GBPS, MAX_LATENCY_MS = 1e6, 60_000.0
_BYTES_PER_GBIT = 1.25e8

Change = Callable[[int, float, float], None]
"""Link, bytes/s, seconds."""


class Timetable:
    """The moves of a trace that are still to come."""

    def __init__(self, moves: tuple[LinkMove, ...], started_ns: int) -> None:
        self._moves, self._next, self._started_ns = moves, 0, started_ns

    def due_ns(self) -> float:
        """Clock time of the next move; infinite: none."""
        if self._next == len(self._moves):
            return math.inf
        return self._started_ns + self._moves[self._next].after_s * 1e9

    def apply(self, now_ns: int, change: Change) -> None:
        """Makes every move that is due."""
        while self.due_ns() <= now_ns:
            move = self._moves[self._next]
            change(move.link, move.rate_bytes_per_s, move.latency_s)
            self._next += 1


class Control:
    """The control socket: ``SRC DST gbps latency_ms`` in, ``ok`` or a sentence out. Beside it ``PATH.log`` keeps what
    was changed, so that whoever runs inside knows what its links were: ``emulation.LinkChange``, one a line."""

    def __init__(self, path: str, setting: EmulatorSetting) -> None:
        self._log = f"{path}{LOG}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.setblocking(False)
        self._known: Mapping[str, int] = {
            " ".join(setting.position(link)): index for index, link in enumerate(setting.links)
        }
        self._ends = [setting.position(link) for link in setting.links]

    def serve(self, change: Change) -> None:
        """Takes every message that has come, and answers it where an answer is wanted (a socket passed along)."""
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return
            answer = self._obey(text.decode(errors="replace"), change).encode()
            for descriptor in descriptors:
                with suppress(OSError), socket.socket(fileno=descriptor) as asker:
                    asker.send(answer)

    def _obey(self, text: str, change: Change) -> str:
        words = text.rsplit(maxsplit=2)
        if len(words) != 3:
            return "give SRC DST gbps latency_ms"
        link = self._known.get(words[0].strip())
        if link is None:
            return f"the emulation has no link '{words[0]}'; it has {_some(self._known)}"
        try:
            gbps, latency_ms = float(words[1]), float(words[2])
        except ValueError:
            return f"'{words[1]} {words[2]}' are not two numbers"
        if not (0 <= gbps <= MAX_GBPS and 0 <= latency_ms <= MAX_LATENCY_MS):
            return f"rate must be from 0 to {MAX_GBPS:g} Gbit/s, latency from 0 to {MAX_LATENCY_MS:g} ms"
        change(link, gbps * _BYTES_PER_GBIT, latency_ms / 1e3)
        with open(self._log, "a") as log:
            log.write(f"{json.dumps([time.monotonic(), *self._ends[link], gbps, latency_ms])}\n")
        return "ok"

    def close(self) -> None:
        """Closes the socket and removes its path."""
        path = self.socket.getsockname()
        self.socket.close()
        for each in (path, self._log):
            with suppress(OSError):
                os.unlink(each)


def _some(known: Mapping[str, int]) -> str:
    names = list(known)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "none"


RING_BLOCKS = 128  # MiB for all ports together ...
MOST_BLOCKS_PER_PORT = 16  # ... of which one takes 16 MiB, 240 super-packets, at most
_AT_ONCE = 32  # frames read from one port before the others have their turn
_LONGEST_WAIT_NS = 1_000_000_000


class Forwarder:
    """Ports, lines, and the order in which frames are due."""

    def __init__(self, setting: EmulatorSetting, control: Control, started_ns: int) -> None:
        self._setting, self._control = setting, control
        self._timetable = Timetable(setting.moves, started_ns)
        blocks = max(1, min(MOST_BLOCKS_PER_PORT, RING_BLOCKS // max(1, len(setting.names))))
        self._ports = [Port(port_name(domain), blocks=blocks) for domain in range(len(setting.names))]
        self._lines = [DelayLine(link.rate_bytes_per_s, link.latency_s) for link in setting.links]
        self._sends = [self._ports[link.destination].send for link in setting.links]
        self._due: list[tuple[int, int]] = []  # release of a line's first frame, line; some entries are out of date
        self._routes: list[dict[int, int]] = [{} for _ in setting.names]  # per port: address -> line
        for index, link in enumerate(setting.links):
            self._routes[link.source][link.destination + FIRST_ADDRESS] = index
        self._late_ns = self._max_late_ns = self._released = 0

    def run(self, stop: int) -> EmulatorRun:
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

    def _told(self, ran_ns: int, cpu_s: float) -> EmulatorRun:
        ends = (self._setting.position(link) for link in self._setting.links)
        links = tuple(
            LinkTraffic(
                *pair,
                line.carried_bytes,
                line.carried_frames,
                line.dropped_bytes,
                line.dropped_frames,
                line.payload_bytes,
                line.repeated_bytes,
                line.carried_bytes - line.payload_bytes - line.repeated_bytes,
            )
            for pair, line in zip(ends, self._lines, strict=True)
        )
        return EmulatorRun(
            seconds=ran_ns / 1e9,
            cpu_s=cpu_s,
            mean_late_ms=self._late_ns / max(1, self._released) / 1e6,
            max_late_ms=self._max_late_ns / 1e6,
            missed_frames=sum(port.missed() for port in self._ports),
            links=links,
        )
