"""What happens next: a heap of items (jobs, nodes, the clock of rounds), each with the time that it is due.

An item stands once in the heap and moves in it. Earliest first, ties by number: so jobs go before nodes.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel


@kernel(lean=True)
def set_due(heap, due, place, height, item, time):  # type: ignore[no-untyped-def]
    """Let ``item`` happen at ``time`` (inf: not at all). ``height`` (1,) is how many stand in the heap."""
    at = place[item]
    due[item] = time
    if time == np.inf:
        if at >= 0:
            _leave(heap, due, place, height, at)
        return
    if at < 0:
        at = height[0]
        height[0] += 1
    _rise(heap, due, place, at, item)
    if place[item] == at:
        _sink(heap, due, place, height[0], at, item)


@kernel(lean=True)
def _leave(heap, due, place, height, at):  # type: ignore[no-untyped-def]
    """Take out what stands at ``at``; the last of the heap takes its place."""
    place[heap[at]] = -1
    height[0] -= 1
    if at == height[0]:
        return
    item = heap[height[0]]
    _rise(heap, due, place, at, item)
    if place[item] == at:
        _sink(heap, due, place, height[0], at, item)


@kernel(lean=True)
def _rise(heap, due, place, at, item):  # type: ignore[no-untyped-def]
    time = due[item]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above]
        if due[other] < time or (due[other] == time and other < item):
            break
        heap[at] = other
        place[other] = at
        at = above
    heap[at] = item
    place[item] = at


@kernel(lean=True)
def _sink(heap, due, place, height, at, item):  # type: ignore[no-untyped-def]
    time = due[item]
    while True:
        below = 2 * at + 1
        if below >= height:
            break
        other = heap[below]
        if below + 1 < height:
            right = heap[below + 1]
            if due[right] < due[other] or (due[right] == due[other] and right < other):
                below, other = below + 1, right
        if time < due[other] or (time == due[other] and item < other):
            break
        heap[at] = other
        place[other] = at
        at = below
    heap[at] = item
    place[item] = at
