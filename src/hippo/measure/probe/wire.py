"""The prober's protocol over TCP: one JSON line each way, then echoes or bulk, then one JSON line of what came.

    client                                        server
    {"hippo_probe": 1, "ask": "echo"}             {"hippo_probe": 1}; then it returns each 32 bytes
    {.., "ask": "receive", "effort": {..}}        {"hippo_probe": 1}; bulk to the server; {"bytes": , "seconds": }
    {.., "ask": "send", "effort": {..}}           {"hippo_probe": 1}; bulk from the server until the client hangs up
    {.., "ask": "measure", "host": , "port": ,    measures the link from itself to another server;
         "effort": {..}}                          {"hippo_probe": 1, "measured": {..}} or {.., "error": TEXT}

Goodput is what the receiver counts on its own clock, after the ramp: no two clocks are compared.
"""

from __future__ import annotations

import json
import math
import select
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from hippo.errors import HippoError

PORT = 5210
VERSION = 1
PING_BYTES = 32
LONGEST_LINE = 4096
CHUNK = bytes(256 * 1024)
PATIENCE_S = 10.0
"""Seconds without a byte after which a peer counts as gone."""


RAMP_TRIPS, LONGEST_OWN_RAMP_S = 30, 10.0
"""A ramp has at least so many round trips, up to so many seconds: TCP needs them to recover from its first loss."""


class NoAnswer(HippoError):
    """A peer could not be reached, fell silent, or does not speak this protocol."""


@dataclass(frozen=True)
class ProbeEffort:
    """How much one measurement of one direction may take."""

    window_s: float = 5.0  # in which bytes are counted
    ramp_s: float = 2.0  # before, not counted: TCP finds its rate; ``RAMP_TRIPS`` round trips where that is longer
    flows: int = 1
    trips: int = 20  # small messages there and back
    most_bytes: float = 1e12  # of one direction; the window ends early
    patience_s: float = PATIENCE_S

    @property
    def bound_s(self) -> float:
        """Most seconds that both directions and the round trips together take where the peer answers."""
        return 2 * (max(self.ramp_s, LONGEST_OWN_RAMP_S) + self.window_s + 2 * self.patience_s) + 3 * self.patience_s

    @property
    def usual_s(self) -> float:
        """Seconds that both directions take on a good link."""
        return 2 * (self.ramp_s + self.window_s) + 1.0


LIMITS: Mapping[str, tuple[float, float]] = {
    "window_s": (0.05, 600.0),
    "ramp_s": (0.0, 120.0),
    "flows": (1, 64),
    "trips": (1, 1000),
    "most_bytes": (1e4, 1e15),
    "patience_s": (0.1, 120.0),
}
"""Field of an effort: least and most."""


def effort_to_document(effort: ProbeEffort) -> dict[str, float]:
    """The effort as a line of the protocol carries it."""
    return asdict(effort)


def effort_from_document(document: object) -> ProbeEffort:
    """What a peer asks for; ``NoAnswer`` for anything out of ``LIMITS``."""
    if not isinstance(document, dict) or set(document) != {field.name for field in fields(ProbeEffort)}:
        raise NoAnswer("asks in another form")
    for name, (least, most) in LIMITS.items():
        value = document[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise NoAnswer(f"asks for {name} {value!r:.40}, not from {least:g} to {most:g}")
    whole = {name: int(document[name]) for name in ("flows", "trips")}
    return ProbeEffort(**{**document, **whole})


def send_line(peer: socket.socket, document: Mapping[str, object]) -> None:
    """Sends one line, with the version."""
    peer.sendall(json.dumps({"hippo_probe": VERSION, **document}).encode() + b"\n")


def receive_line(peer: socket.socket, *, until_s: float) -> dict[str, Any]:
    """The next line; never reads past it.

    ``until_s``: instant of the monotonic clock after which the peer counts as silent.

    Raises
    ------
    NoAnswer
        It hangs up, is silent, sends a longer line than ``LONGEST_LINE``, or no line of this protocol.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        if len(line) >= LONGEST_LINE:
            raise NoAnswer("sends something that is no answer of 'hippo probe --serve'")
        peer.settimeout(max(until_s - time.monotonic(), 0.001))
        try:
            byte = peer.recv(1)
        except TimeoutError:
            raise NoAnswer("is silent") from None
        if not byte:
            raise NoAnswer("hung up" if not line else "hung up in the middle of a line")
        line += byte
    return _opened(bytes(line))


def _opened(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "hippo_probe" not in document:
        raise NoAnswer("sends something that is no answer of 'hippo probe --serve'")
    if document["hippo_probe"] != VERSION:
        raise NoAnswer(f"speaks version {document['hippo_probe']!r:.20} of the protocol, not {VERSION}")
    if "error" in document:
        raise NoAnswer(f"says: {str(document['error'])[:300]}")
    return document


def number(document: Mapping[str, Any], key: str) -> float:
    """A finite figure, 0 or more, of a peer's line; ``NoAnswer`` otherwise."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise NoAnswer(f"sends {key} {value!r:.40}, which is no figure")
    return float(value)


def hang_up(peer: socket.socket) -> None:
    """Closes at once and drops what is still to be sent: it must not disturb what is measured next."""
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


# ---------------------------------------------------------------------------------------------------------------- bulk
# Bulk over one connection: who sends and who counts.

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


def counted(peer: socket.socket, effort: ProbeEffort) -> Goodput:
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


def poured(peer: socket.socket, effort: ProbeEffort) -> None:
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
