"""New connections between domains are used before they are needed, beside the step in which processes make ready.

A fresh flow of TCP sends ten segments, then twice as much each round trip (slow start, RFC 5681 and 6928): the first
message of a new connection takes as many round trips more as it has doublings to go. So both ends of a way that is to
be used from a border on take turns before: one sends, the other says that it came, each time twice as much. After the
last turn the flow sends half of what the link carries in a round trip at once; there cubic leaves slow start by itself
(HyStart, RFC 9406), so more would be bytes for nothing.

What trains goes first: a turn begins only where little of this node is under way to that place, as the kernel tells
(``spare.Connections``, without rights); where it does not tell, or tells of traffic for ``PATIENCE_S``, at once. Where
the system forgets windows in silence (``net.ipv4.tcp_slow_start_after_idle``) it forgets these too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hippo.run.executor.spare import Connections

FIRST_BYTES = 14_480
"""Ten segments, which every fresh flow may send (RFC 6928)."""
MOST_BYTES = 4_000_000
AHEAD_BYTES, AHEAD_S = 1448, 0.004
"""What goes ahead of a turn, and when it has gone: Linux' trains have no gap of 2 ms."""
PATIENCE_S = 1.0  # of all turns of a way, for the link to be free
LOOK_S = 0.004

Product = Callable[[int, int], float]
"""Bytes that the link from one process to another carries in a round trip; 0: what lies between is quick."""


def turns(product_bytes: float) -> tuple[int, ...]:
    """Bytes of every turn of a way over a link that carries so many in a round trip; they are about that in all."""
    found, size = list[int](), FIRST_BYTES
    while sum(found) + size / 2 < min(product_bytes, MOST_BYTES):
        found.append(size)
        size *= 2
    return tuple(found)


class QuietLink:
    """Waits until little of this node is under way to a place."""

    def __init__(self, address: str, product_bytes: float) -> None:
        """``address``: IPv4."""
        self._address, self._most = address, product_bytes / 4
        self._left_s = PATIENCE_S
        try:
            self._connections: Connections | None = Connections()
        except (OSError, AttributeError):  # no Linux, or not allowed
            self._connections = None

    def wait(self) -> None:
        """Comes back when something may be sent that is in nobody's way, or patience is over."""
        while self._left_s > 0.0 and self._busy():
            time.sleep(LOOK_S)
            self._left_s -= LOOK_S

    def _busy(self) -> bool:
        if self._connections is None:
            return False
        try:
            flows = self._connections.to(self._address)
        except OSError:
            return False
        return sum(flow.outstanding_bytes for flow in flows) > self._most

    def close(self) -> None:
        """Looks no more."""
        if self._connections is not None:
            self._connections.close()


def take_turns(address: str, product_bytes: float, send: Callable[[int], None], hear: Callable[[], None]) -> None:
    """The sender's side: what goes ahead and the rest of each turn, then the answer."""
    quiet = QuietLink(address, product_bytes)
    try:
        for size in turns(product_bytes):
            quiet.wait()
            send(AHEAD_BYTES)
            time.sleep(AHEAD_S)
            send(size - AHEAD_BYTES)
            hear()
    finally:
        quiet.close()
