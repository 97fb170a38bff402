"""Bulk over one connection: who sends and who counts."""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass

from hippo.measure.probe.wire import CHUNK, Effort, NoAnswer

_ROOM = 1 << 20
_MOST_READY = 64


@dataclass(frozen=True)
class Goodput:
    """Bytes of the stream that came in a window of seconds, on the receiver's clock."""

    num_bytes: float
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The rate."""
        return self.num_bytes / self.seconds


def counted(peer: socket.socket, effort: Effort) -> Goodput:
    """Receives and counts, from ``ramp_s`` after the first byte, for ``window_s`` or until ``most_bytes`` have come.

    The window begins and ends with an arrival and all that lies ready behind it: bytes that had waited for a lost
    packet come in a burst, and belong to the time before.

    Raises
    ------
    NoAnswer
        Nothing comes for ``patience_s``, or the sender hangs up before the window has begun.
    """
    room, share = memoryview(bytearray(_ROOM)), effort.most_bytes / effort.flows
    opened_s, total, began, now = 0.0, 0.0, (0.0, 0.0), 0.0
    while got := _received(peer, room, effort.patience_s):
        now = time.monotonic()
        opened_s, total = opened_s or now, total + got
        if not began[0] and now - opened_s >= effort.ramp_s:
            total += _ready(peer, room)
            began = time.monotonic(), total
        elif began[0] and (now - began[0] >= effort.window_s or total >= share):
            total += _ready(peer, room)
            now = time.monotonic()
            break
        if not began[0] and total >= share:  # all that may be sent went into the ramp: count it whole
            return Goodput(total, max(now - opened_s, 1e-9))
    if not began[0] or total == began[1]:
        raise NoAnswer("hung up before anything could be counted")
    return Goodput(total - began[1], max(now - began[0], 1e-9))


def _received(peer: socket.socket, room: memoryview, patience_s: float) -> int:
    peer.settimeout(patience_s)
    try:
        return peer.recv_into(room)
    except TimeoutError:
        raise NoAnswer(f"sent nothing for {patience_s:g} s") from None
    except OSError as error:
        raise NoAnswer(f"broke off: {error.strerror or error}") from None


def _ready(peer: socket.socket, room: memoryview) -> int:
    """Takes what lies ready; bounded, as a quick sender never lets it run dry."""
    total = 0
    peer.setblocking(False)
    with suppress(OSError):
        for _ in range(_MOST_READY):
            got = peer.recv_into(room)
            total += got
            if got < len(room):
                break
    return total


def poured(peer: socket.socket, effort: Effort) -> None:
    """Sends until the receiver says something or hangs up, or until it must have had enough."""
    peer.setblocking(False)
    until_s = time.monotonic() + effort.ramp_s + effort.window_s + effort.patience_s
    while (left_s := until_s - time.monotonic()) > 0:
        heard, free, _ = select.select([peer], [peer], [], left_s)
        if heard:
            return
        if free:
            try:
                peer.send(CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                return
