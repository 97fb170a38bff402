"""Fixed orders that play one sequence of operations under several states side by side.

Where the order of messages on every link is known beforehand (``Packed.queued`` is False), all states play the same
sequence, and differ in figures alone: eight of them take little more time than one. The rules are those of
``fixed_order``, and so are the results, to the last bit.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.engine.program import BYTES, DELAY, DEST, LINK, NIC, PORT
from hippo.engine.program import SECOND_LINK as SECOND

LANES = 8  # states side by side: a cache line of times


@kernel
def replay_many(packed, states, free, link_free):  # type: ignore[no-untyped-def]
    """Plays ``packed.sequence`` once per row of the states (as ``fixed_order.play_many``), without noise and gathers.

    Fills ``free`` (rows, G), when each rank has run its operations, and ``link_free`` (rows, E), when the last message
    has left each link.
    """
    backwards, rows, links = 2 * packed.slots, len(free), link_free.shape[1]
    arrived, latency = np.zeros((backwards * packed.waves, LANES)), np.empty((links, LANES))
    duration, lasts = np.empty((3 * packed.slots, LANES)), np.empty((3 * backwards, LANES))
    ranks_free, left, ports_free = np.empty((free.shape[1], LANES)), np.empty((links, LANES)), np.empty_like(lasts)
    for first in range(0, rows, LANES):
        ranks_free[:], left[:], ports_free[:] = 0.0, 0.0, 0.0
        for lane in range(LANES):
            _take(packed, states, min(first + lane, rows - 1), lane, duration, latency, lasts)
        _replay(packed, duration, latency, lasts, arrived, ranks_free, left, ports_free)
        for lane in range(min(LANES, rows - first)):
            free[first + lane], link_free[first + lane] = ranks_free[:, lane], left[:, lane]


@kernel
def _take(packed, states, row, lane, duration, latency, lasts):  # type: ignore[no-untyped-def]
    """One row of the states into a lane: lengths of operations, latencies of links, and how long a message takes its
    first link, its port and its second link, one place after the other of each."""
    bandwidth, delays, scale, compute = states
    for place in range(3 * packed.slots):
        slower = compute[row, place % packed.slots // packed.chunks] if len(compute) > 0 else 1.0
        duration[place, lane] = packed.duration[place] * slower
    for link in range(len(latency)):
        latency[link, lane] = delays[row, link]
    backwards = 2 * packed.slots
    for place in range(backwards):
        num_bytes, link, second = packed.transfer[place, BYTES], packed.route[place, LINK], packed.route[place, SECOND]
        if link >= 0:
            lasts[place, lane] = num_bytes / bandwidth[row, link]
            lasts[backwards + place, lane] = num_bytes / (packed.transfer[place, NIC] * scale[row, link])
        if second >= 0:
            lasts[2 * backwards + place, lane] = num_bytes / bandwidth[row, second]


@kernel(lean=True)
def _replay(packed, duration, latency, lasts, arrived, ranks_free, left, ports_free):  # type: ignore[no-untyped-def]
    """All operations in their sequence. No views of arrays: to count references to them would take longer."""
    backwards, waves, sequence, route = 2 * packed.slots, packed.waves, packed.sequence, packed.route
    for row in range(len(sequence)):
        rank, place, wave = sequence[row, 1], sequence[row, 2], sequence[row, 3]
        if place >= backwards:
            for lane in range(LANES):
                ranks_free[rank, lane] += duration[place, lane]
            continue
        here, there = place * waves + wave, route[place, DEST] * waves + wave
        for lane in range(LANES):
            came, free = arrived[here, lane], ranks_free[rank, lane]
            ranks_free[rank, lane] = (came if came > free else free) + duration[place, lane]
        if there < 0:
            continue
        if route[place, LINK] < 0:
            for lane in range(LANES):
                arrived[there, lane] = ranks_free[rank, lane] + packed.transfer[place, DELAY]
        elif route[place, PORT] < 0 and route[place, SECOND] < 0:
            link = route[place, LINK]
            for lane in range(LANES):
                now, free = ranks_free[rank, lane], left[link, lane]
                left[link, lane] = (free if free > now else now) + lasts[place, lane]
                arrived[there, lane] = left[link, lane] + latency[link, lane]
        else:
            _cross(route, place, rank, there, backwards, latency, lasts, arrived, ranks_free, left, ports_free)


@kernel(lean=True)
def _cross(route, place, rank, there, backwards, latency, lasts, arrived, ranks_free, left, ports_free):  # type: ignore[no-untyped-def]
    """A message with a port or a second link."""
    link, port, second = route[place, LINK], route[place, PORT], route[place, SECOND]
    for lane in range(LANES):
        start = max(ranks_free[rank, lane], left[link, lane])
        if port >= 0:
            start = max(start, ports_free[port, lane])
            ports_free[port, lane] = start + lasts[backwards + place, lane]
        left[link, lane] = last = start + lasts[place, lane]
        if port >= 0:
            last = max(last, ports_free[port, lane])
        last += latency[link, lane]
        if second >= 0:
            begin = max(start + latency[link, lane], left[second, lane])
            left[second, lane] = begin + lasts[2 * backwards + place, lane]
            last = max(left[second, lane], last) + latency[second, lane]
        arrived[there, lane] = last
