"""Who moves the links: the trace, by the clock, and whoever writes to the control socket."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from hippo.emulate.setting import Move, Setting

MAX_GBPS, MAX_LATENCY_MS = 1e6, 60_000.0
_BYTES_PER_GBIT = 1.25e8

Change = Callable[[int, float, float], None]
"""Link, bytes/s, seconds."""


class Timetable:
    """The moves of a trace that are still to come."""

    def __init__(self, moves: tuple[Move, ...], started_ns: int) -> None:
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
    """The control socket: ``SRC DST gbps latency_ms`` in, ``ok`` or a sentence out."""

    def __init__(self, path: str, setting: Setting) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.setblocking(False)
        self._known: Mapping[str, int] = {
            " ".join(setting.position(link)): index for index, link in enumerate(setting.links)
        }

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
        return "ok"

    def close(self) -> None:
        """Closes the socket and removes its path."""
        path = self.socket.getsockname()
        self.socket.close()
        with suppress(OSError):
            os.unlink(path)


def _some(known: Mapping[str, int]) -> str:
    names = list(known)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "none"
