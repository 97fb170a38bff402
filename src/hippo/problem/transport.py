"""What carries messages between domains: TCP and what a runtime adds to it, as numbers the simulator plays with.

How messages wait for their receivers is the runtime's (``runtimes.Messages``). Why, and how it fits: docs/running.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, log
from typing import Any

from hippo.errors import InputError

SEGMENT_BYTES = 1448.0
GOODPUT = 1448 / 1518
"""Payload of a full TCP segment over its bytes on the wire (Ethernet framing of 18 bytes, 52 of headers)."""

OVERHEAD_S = 0.002
"""Of a message on gloo: copies into and out of sockets, wake-ups; on two busy cores; a machine's own."""

STOCK_WINDOW_BYTES = 3.35e6
"""What Linux' stock buffers (``tcp_wmem`` up to 4 MB) keep in flight: 27 % of 1 Gbit/s at 100 ms, measured."""

DRAINED_EVERY_S = 10.0
"""Of ``Congestion.drain_s``."""


@dataclass(frozen=True)
class Congestion:
    """How TCP comes up to the rate of a link and stays there. Checked when made (``InputError``)."""

    control: str = ""  # bbr, cubic: flows that share a link are played (``simulate.transport.sharing``); else: as one
    initial_bytes: float = 10 * SEGMENT_BYTES  # a fresh flow sends so much per round trip, then twice that, ..
    paced_rtts: float = 0.0  # round trips more, over which a pacing sender spreads its last window
    gain: float = inf  # times what it saw delivered a pacing sender sends at, where messages leave it idle
    kept: tuple[float, ...] = (1.0, 0.5, 0.25)  # of that loss on the first, second, .. message of a fresh flow
    timeout_s: float = inf  # a window halves for each such time (plus a round trip) of silence; inf: it stays
    fill: float = 0.7  # of a link that fresh flows share
    drain_s: float = 0.0  # with next to nothing in flight (and a round trip more), after each 10 s of sending

    def __post_init__(self) -> None:
        if not self.initial_bytes > 0 or not self.timeout_s > 0 or not self.gain > 1 or not 0 < self.fill <= 1:
            raise InputError("needs numbers above 0", key="congestion", value=self, remedy="see docs/running.md")
        if min(self.paced_rtts, self.drain_s) < 0:
            raise InputError("needs no less than 0", key="congestion", value=self, remedy="see docs/running.md")

    def undrained(self, rtt_s: Any) -> Any:
        """Share of a link's rate that its drains leave, on the mean of a long time of sending; seconds or an array."""
        return DRAINED_EVERY_S / (DRAINED_EVERY_S + self.drain_s + rtt_s) if self.drain_s > 0.0 else 1.0


CUBIC = Congestion("cubic", timeout_s=0.2)
BBR = Congestion("bbr", paced_rtts=0.5, gain=2 / log(2), drain_s=0.2)
"""Its ``PROBE_RTT``: every 10 s the pipe is drained, unless the flow was silent by then. A flow that messages leave
idle shows no rate of a link, so it stays in ``STARTUP``."""
CUBIC_KEPT = replace(CUBIC, timeout_s=inf)
"""With ``net.ipv4.tcp_slow_start_after_idle=0``."""


@dataclass(frozen=True)
class Transport:
    """What lies between a message that is sent and its arrival. Checked when made (``InputError``)."""

    name: str
    goodput: float = 1.0  # share of a link's rate that is payload, above 0, at most 1
    overhead_s: float = 0.0  # per message, on its arrival: system calls, copies, wake-ups
    window_bytes: float = inf  # in flight per flow: socket buffers
    congestion: Congestion = field(default_factory=Congestion)
    shares: bool = False  # it was measured how its flows share links, by congestion control

    def __post_init__(self) -> None:
        if not 0 < self.goodput <= 1:
            raise InputError("must be above 0 and at most 1", key="goodput", value=self.goodput, remedy="give a share")
        if not 0 <= self.overhead_s < inf:
            raise InputError("must be 0 or more", key="overhead_s", value=self.overhead_s, remedy="give seconds")
        if not self.window_bytes > 0:
            raise InputError("must be above 0", key="window_bytes", value=self.window_bytes, remedy="give bytes")

    def controlled(self, control: str) -> Transport:
        """The same with the congestion control of that name; itself where there is none, or none is known of it."""
        return replace(self, congestion=CONGESTIONS[control]) if self.shares and control in CONGESTIONS else self


IDEAL = Transport("ideal")
HIPPO = Transport("hippo", GOODPUT, overhead_s=OVERHEAD_S, shares=True)
TORCH = replace(HIPPO, name="torch")

NCCL = Transport("nccl", GOODPUT)
"""NCCL's sockets. Nobody measured them over a WAN: they are taken to fill it as TCP can, with no time of their own."""


CONGESTIONS: Mapping[str, Congestion] = {"bbr": BBR, "cubic": CUBIC_KEPT}
"""As ``hippo emulate`` sets them up, which switches slow start after silence off."""

SMALLEST_QUEUE_BYTES = 256 * 1024
QUEUE_BEYOND_BDP_S = 0.02


def queue_limit_bytes(rate_bytes_per_s: float, latency_s: float) -> float:
    """Bytes that may wait before a link: one product of rate and round trip and 20 ms more, 256 KiB at least."""
    return max(SMALLEST_QUEUE_BYTES, rate_bytes_per_s * (2 * latency_s + QUEUE_BEYOND_BDP_S))


def lost_s(num_bytes: float, per_s: float, rtt_s: float, *, window_bytes: float, paced_rtts: float = 0.0) -> float:
    """Seconds by which the last byte of a message leaves later than at ``per_s`` bytes/s: slow start from a window.

    Each round trip sends a window, the next one twice as much, until a window fills the pipe.
    """
    window, sent, seconds = window_bytes, 0.0, 0.0
    while window < per_s * rtt_s and sent + window < num_bytes:
        sent, seconds, window = sent + window, seconds + rtt_s, 2 * window
    if seconds == 0.0:
        return 0.0
    return seconds - sent / per_s + paced_rtts * rtt_s
