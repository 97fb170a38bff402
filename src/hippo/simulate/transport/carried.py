"""What of a transport's congestion can be said by a program itself: flows no faster than their window, pipes drained.

Any engine then plays it. What depends on silence or on the clock is for ``world``. What TCP's and a runtime's own bytes
take of a link, its cluster says already (``Cluster.under``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hippo.problem.links import Trace
from hippo.problem.transport import Transport, queue_limit_bytes
from hippo.simulate.program import FORWARD, Program
from hippo.simulate.transport.sharing import SharedLink, stretch

Floats = NDArray[np.float64]


def carried(program: Program, transport: Transport) -> Program:
    """The program with what is left of each rate, the window of each flow as a cap of its sender, and sums as long as
    the flows take that share their links."""
    groups = tuple(
        replace(
            group,
            nic_bytes_per_s=tuple(
                min(cap, _window_rate(program, transport, (link,)))
                for link, cap in zip(group.links, group.nic_bytes_per_s or (np.inf,) * len(group.links), strict=True)
            ),
        )
        for group in shared(program, transport, program.link_bandwidth_bytes_per_s).groups
    )
    return replace(
        program,
        down_nic_bytes_per_s=_caps(program, transport, FORWARD),
        up_nic_bytes_per_s=_caps(program, transport, 1 - FORWARD),
        groups=groups,
        link_bandwidth_bytes_per_s=_left(program.link_bandwidth_bytes_per_s, program.link_latency_s, transport),
    )


def controlled(program: Program, transport: Transport) -> Program:
    """The same of a plan whose cluster says its congestion control: its links are drained already."""
    undrained = transport.congestion.undrained(_round_trips_s(program.link_latency_s, transport))
    return shared(program, transport, program.link_bandwidth_bytes_per_s / undrained)


def _round_trips_s(latency_s: Floats, transport: Transport) -> Floats:
    """Of links whose latency has the transport's overhead in it."""
    found: Floats = 2.0 * (latency_s - transport.overhead_s)
    return found


def shared(program: Program, transport: Transport, rates: Floats) -> Program:
    """The program whose sums take their links as long as flows do that share one. Sums of all groups meet on a link, at
    the end of a step. ``rates``: bytes/s of payload of each link, nothing drained, (E,)."""
    flows, sent, back = Counter[int](), defaultdict[int, float](float), set[int]()
    for group in program.groups:
        for link, size in zip(group.links, group.link_bytes, strict=True):
            flows[link] += group.flows
            sent[link] += size
        if len(group.routes) == 2:  # a ring of two domains: each of its ways is the other's way back
            back.update(group.links)
    longer = {}
    for link, count in flows.items():
        latency_s = float(program.link_latency_s[link]) - transport.overhead_s
        rate = float(rates[link])
        wire = rate / transport.goodput
        queue_s = queue_limit_bytes(wire, latency_s) / wire
        found = SharedLink(rate, 2.0 * latency_s, queue_s, loaded_back=link in back)
        longer[link] = stretch(count, sent[link] / rate, found, transport.congestion.control)
    groups = (replace(group, longer=tuple(longer[link] for link in group.links)) for group in program.groups)
    return replace(program, groups=tuple(groups))


def _left(rate_bytes_per_s: Floats, latency_s: Floats, transport: Transport) -> Floats:
    """What is left of a rate, on the mean of a long time of sending."""
    left: Floats = rate_bytes_per_s * transport.congestion.undrained(_round_trips_s(latency_s, transport))
    return left


def _caps(program: Program, transport: Transport, kind: int) -> Floats:
    """Bytes/s at which the messages of a direction may leave, (G, C)."""
    nic: Floats = (program.down_nic_bytes_per_s, program.up_nic_bytes_per_s)[kind]
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
    """The same of links that move."""
    return replace(trace, bandwidth_bytes_per_s=_left(trace.bandwidth_bytes_per_s, trace.latency_s, transport))


def from_instant(trace: Trace, start_s: float) -> Trace:
    """The trace as a step that begins at ``start_s`` meets it."""
    return replace(trace, time_s=trace.time_s - start_s)
