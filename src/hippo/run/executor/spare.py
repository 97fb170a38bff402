"""What training leaves of a link: how much may be sent to a place now without being in anybody's way. Linux; no torch.

No network between sites knows classes, so priority is the sender's own: all connections of this node to the place are
looked at (the kernel's ``sock_diag``, without rights), and bytes are added only where those that are under way, whoever
sent them, do not fill the pipe: ``outstanding < rate x least round trip``. A message of training that begins makes
them more, and nothing is added until it has left; what was added before leaves in a few ms. The rate is the most that
was delivered lately by all connections together, so it follows a link that moves, up with ease and down within
``HOLD_S``; the pipe is corrected by whether this connection's own round trips say that something waits. Where the
kernel does not tell, TCP shares the link as it does.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event

TICK_S = 0.002
HOLD_S = 3.0  # of the rate: what a link carried longer ago says nothing of it
AHEAD_S = 0.005  # of the rate, beyond the pipe: what leaves before the next look, and shows whether more can
QUICKER = 1.1  # than the rate, to find out where links have got quicker
LEAST_BYTES = 16_000  # of the pipe, and at once
CHANGE, SMALLEST, LARGEST = 0.1, 0.85, 1.25  # of the pipe: in a round trip, and in all
STUCK_S = 1.0  # whose bytes do not arrive for so long is not training
SHORTEST_S = 0.5  # over which a rate is measured: acknowledgements come in bunches where the way back is full


@dataclass(frozen=True)
class PeerFlow:
    """One connection to a place."""

    ports: tuple[int, int]  # of this side and of the other
    outstanding_bytes: int  # written, and not acknowledged yet
    delivered_bytes: int  # in whole segments; what came behind a loss, too
    rtt_s: float  # of late
    least_rtt_s: float


# --------------------------------------------------------------------------------------------------------- connections
# struct inet_diag_req_v2 and inet_diag_msg of linux/inet_diag.h, struct tcp_info of linux/tcp.h.

_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_ESTABLISHED, _INFO = 1 << 1, 2
_REQUEST = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED) + bytes(48)
_SEGMENT, _RTT, _LEAST_RTT, _DELIVERED = 16, 68, 148, 192  # in tcp_info


class Connections:
    """This node's TCP connections."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
        self._socket.settimeout(1.0)

    def to(self, address: str) -> list[PeerFlow]:
        """All to an IPv4 address; ``OSError`` where the kernel does not tell."""
        place = socket.inet_aton(address)
        self._socket.send(struct.pack("=IHHII", 16 + len(_REQUEST), _BY_FAMILY, _DUMP, 1, 0) + _REQUEST)
        found = []
        for kind, told in self._answers():
            if kind == _ERROR:
                raise OSError("the kernel tells nothing of connections")
            if told[24:28] == place and (flow := _flow(told)) is not None:
                found.append(flow)
        return found

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        """Type and body of every part of an answer."""
        while True:
            got, at = self._socket.recv(1 << 18), 0
            while at + 16 <= len(got):
                size, kind = struct.unpack_from("=IH", got, at)
                if kind == _DONE:
                    return
                yield kind, got[at + 16 : at + size]
                if kind == _ERROR:
                    return
                at += size + 3 & ~3

    def close(self) -> None:
        """Asks no more."""
        self._socket.close()


def _flow(told: bytes) -> PeerFlow | None:
    ports = struct.unpack_from(">HH", told, 4)
    (outstanding,) = struct.unpack_from("=I", told, 60)
    at = 72
    while at + 4 <= len(told):
        size, kind = struct.unpack_from("=HH", told, at)
        if kind == _INFO and size >= 4 + _DELIVERED + 4:
            segment, rtt_us, least_us, delivered = (
                struct.unpack_from("=I", told, at + 4 + place)[0] for place in (_SEGMENT, _RTT, _LEAST_RTT, _DELIVERED)
            )
            return PeerFlow(ports, outstanding, segment * delivered, rtt_us / 1e6, min(rtt_us, least_us) / 1e6)
        at += max(4, size + 3 & ~3)
    return None


# --------------------------------------------------------------------------------------------------------------- spare
class Spare:
    """Says how much a connection may send now."""

    def __init__(self, connection: socket.socket, rate_bytes_per_s: float) -> None:
        """``rate_bytes_per_s``: what the link should carry, until it is measured."""
        self.rate_bytes_per_s = rate_bytes_per_s
        self._address, port = connection.getpeername()
        self._ports = connection.getsockname()[1], port
        try:
            self._connections: Connections | None = Connections()
        except (OSError, AttributeError):  # no Linux, or not allowed
            self._connections = None
        self._flows: dict[tuple[int, int], tuple[int, float]] = {}  # bytes delivered, and when that last changed
        self._seen: deque[tuple[float, int]] = deque()  # when, bytes delivered by all
        self._most: deque[tuple[float, float]] = deque()  # when, bytes/s: falling
        self._more = 1.0  # times the pipe that is known
        self._delivered, self._active_s, self._at_s, self._tokens = 0, 0.0, 0.0, 0.0

    def wait(self, wanted: int, hurry: Event) -> int:
        """Comes back with a number of bytes, ``wanted`` at most, that may be sent; at once when there is ``hurry``."""
        while not hurry.is_set():
            room = self._room(time.monotonic())
            if room is None:
                return wanted
            if room >= min(wanted, 1448):
                granted = min(wanted, int(room))
                self._tokens -= granted
                return granted
            hurry.wait(TICK_S)
        return wanted

    def _room(self, now_s: float) -> float | None:
        """Bytes that may be added; None: nobody knows."""
        if self._connections is None:
            return None
        try:
            flows = self._connections.to(self._address)
        except OSError:
            self._connections = None
            return None
        outstanding, rtt_s, waits_s = 0, 0.0, 0.0
        for flow in flows:
            before, changed_s = self._flows.get(flow.ports, (flow.delivered_bytes, now_s))
            self._delivered += max(0, flow.delivered_bytes - before)
            if flow.delivered_bytes != before or not flow.outstanding_bytes:
                changed_s = now_s
            self._flows[flow.ports] = flow.delivered_bytes, changed_s
            if flow.ports == self._ports:
                rtt_s, waits_s = flow.least_rtt_s, flow.rtt_s - flow.least_rtt_s
            if flow.ports == self._ports or now_s - changed_s < STUCK_S:
                outstanding += flow.outstanding_bytes
        elapsed_s = min(now_s - self._at_s, 10 * TICK_S)  # who has slept has nothing saved up
        self._at_s = now_s
        self._measure(now_s, elapsed_s, max(SHORTEST_S, 2 * rtt_s))
        rate = self.rate_bytes_per_s
        most = max(LEAST_BYTES, QUICKER * rate * 2 * TICK_S)
        self._tokens = min(self._tokens + QUICKER * rate * elapsed_s, most)
        pipe = max(LEAST_BYTES, self._more * rate * (rtt_s + AHEAD_S))
        if outstanding > pipe - LEAST_BYTES:  # it is full; where nothing waits all the same, the link carries more
            change = elapsed_s / max(rtt_s, TICK_S)
            grown = self._more * (1 + change * (CHANGE if waits_s < AHEAD_S else -CHANGE))
            self._more = min(LARGEST, max(SMALLEST, grown))
        return min(self._tokens, pipe - outstanding)

    def _measure(self, now_s: float, elapsed_s: float, over_s: float) -> None:
        """The most that was delivered in ``over_s`` seconds on end, in the last ``HOLD_S`` of sending."""
        if elapsed_s >= 10 * TICK_S and self._seen and now_s - self._seen[-1][0] > over_s:
            self._seen.clear()  # it had nothing to send: of that time nothing is known
            return
        self._active_s += elapsed_s
        self._seen.append((now_s, self._delivered))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= over_s:
            self._seen.popleft()
        span_s = now_s - self._seen[0][0]
        if span_s < over_s:
            return
        rate = (self._delivered - self._seen[0][1]) / span_s
        while self._most and self._most[-1][1] <= rate:
            self._most.pop()
        self._most.append((self._active_s, rate))
        while self._active_s - self._most[0][0] > HOLD_S:
            self._most.popleft()
        if self._active_s > 1.0:
            self.rate_bytes_per_s = max(self._most[0][1], LEAST_BYTES)

    def close(self) -> None:
        """Looks no more."""
        if self._connections is not None:
            self._connections.close()
