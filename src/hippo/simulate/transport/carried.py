"""What of a transport can be said by a program itself: less bandwidth, more latency, flows no faster than their window.

Any engine then plays it. What depends on when a receiver asks, on silence or on the clock is for ``world``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hippo.problem.links import Trace
from hippo.problem.transport import DRAINED_EVERY_S, Transport
from hippo.simulate.program import FORWARD, Program

Floats = NDArray[np.float64]


def carried(program: Program, transport: Transport) -> Program:
    """The program with payload rates, overhead per message, and the window of each flow as a cap of its sender."""
    groups = tuple(
        replace(
            group,
            nic_bytes_per_s=tuple(
                min(cap * transport.goodput, _window_rate(program, transport, (link,)))
                for link, cap in zip(group.links, group.nic_bytes_per_s or (np.inf,) * len(group.links), strict=True)
            ),
        )
        for group in program.groups
    )
    return replace(
        program,
        down_nic_bytes_per_s=_caps(program, transport, FORWARD),
        up_nic_bytes_per_s=_caps(program, transport, 1 - FORWARD),
        down_delay_s=program.down_delay_s + transport.overhead_s,
        up_delay_s=program.up_delay_s + transport.overhead_s,
        groups=groups,
        link_bandwidth_bytes_per_s=_payload(program.link_bandwidth_bytes_per_s, program.link_latency_s, transport),
        link_latency_s=program.link_latency_s + transport.overhead_s,
    )


def _payload(rate_bytes_per_s: Floats, latency_s: Floats, transport: Transport) -> Floats:
    """What is left of a rate for payload, on the mean of a long time of sending."""
    left: Floats = rate_bytes_per_s * transport.goodput
    if transport.congestion.drain_s > 0.0:
        left = left * DRAINED_EVERY_S / (DRAINED_EVERY_S + transport.congestion.drain_s + 2.0 * latency_s)
    return left


def _caps(program: Program, transport: Transport, kind: int) -> Floats:
    """Bytes/s at which the messages of a direction may leave, (G, C)."""
    nic: Floats = (program.down_nic_bytes_per_s, program.up_nic_bytes_per_s)[kind] * transport.goodput
    if np.isinf(transport.window_bytes):
        return nic
    routes = (program.down_route, program.up_route)[kind]
    flat = routes.reshape(-1, routes.shape[-1])
    window = np.array([_window_rate(program, transport, route) for route in flat.tolist()])
    slower: Floats = np.minimum(nic, window.reshape(nic.shape))
    return slower


def _window_rate(program: Program, transport: Transport, route: tuple[int, ...] | list[int]) -> float:
    """A window per round trip."""
    rtt_s = 2.0 * sum(float(program.link_latency_s[link]) for link in route if link >= 0)
    return transport.window_bytes / rtt_s if rtt_s > 0 else np.inf


def carried_trace(trace: Trace, transport: Transport) -> Trace:
    """The same of links that move; ``trace`` is what they carry on the wire."""
    return replace(
        trace,
        bandwidth_bytes_per_s=_payload(trace.bandwidth_bytes_per_s, trace.latency_s, transport),
        latency_s=trace.latency_s + transport.overhead_s,
    )


def from_instant(trace: Trace, start_s: float) -> Trace:
    """The trace as a step that begins at ``start_s`` meets it."""
    return replace(trace, time_s=trace.time_s - start_s)
