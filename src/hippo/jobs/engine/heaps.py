"""The queue's two orders: what happens next, and who waits.

What happens next is a heap of items (jobs, nodes, the clock of rounds), each with the time that it is due. An item
stands once in the heap and moves in it. Earliest first, ties by number: so jobs go before nodes.

Who waits stands in one tree of smallest keys per class of jobs, leaves in order of arrival: ties go to who came first.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import world as c


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


@kernel(lean=True)
def put(tree, base, size, leaf, key):  # type: ignore[no-untyped-def]
    """Write a leaf (inf: nobody) and what follows above it."""
    node = size + leaf
    tree[base + node] = key
    while node > 1:
        node >>= 1
        least = min(tree[base + 2 * node], tree[base + 2 * node + 1])
        if tree[base + node] == least:
            return
        tree[base + node] = least


@kernel(lean=True)
def first_at_most(tree, base, size, limit):  # type: ignore[no-untyped-def]
    """The first leaf whose key is not above ``limit``, -1: none."""
    if not tree[base + 1] <= limit:
        return -1
    node = 1
    while node < size:
        node *= 2
        if not tree[base + node] <= limit:
            node += 1
    return node - size


@kernel(lean=True)
def join(w, job, key):  # type: ignore[no-untyped-def]
    """A job waits under ``key``, from now on or again."""
    kind, leaf = w.mark[job, c.CLASS], w.mark[job, c.LEAF]
    key = min(key, c.NEVER)
    put(w.tree, w.klass[kind, c.CLASS_BASE], w.klass[kind, c.CLASS_SIZE], leaf, key)
    w.tally[c.N_WAITING] += 1
    head = w.klass[kind, c.CLASS_HEAD]
    if head < 0:
        w.klass[kind, c.CLASS_ACTIVE] = w.tally[c.ACTIVE]
        w.active[w.tally[c.ACTIVE]] = kind
        w.tally[c.ACTIVE] += 1
    find_head(w, kind)


@kernel(lean=True)
def leave(w, job):  # type: ignore[no-untyped-def]
    """A job waits no longer."""
    kind = w.mark[job, c.CLASS]
    put(w.tree, w.klass[kind, c.CLASS_BASE], w.klass[kind, c.CLASS_SIZE], w.mark[job, c.LEAF], np.inf)
    w.tally[c.N_WAITING] -= 1
    find_head(w, kind)
    if w.klass[kind, c.CLASS_HEAD] < 0:
        w.tally[c.ACTIVE] -= 1
        last, at = w.active[w.tally[c.ACTIVE]], w.klass[kind, c.CLASS_ACTIVE]
        w.active[at] = last
        w.klass[last, c.CLASS_ACTIVE] = at
        w.klass[kind, c.CLASS_ACTIVE] = -1


@kernel(lean=True)
def rekey(w, job, key):  # type: ignore[no-untyped-def]
    """A job that waits has another key."""
    kind = w.mark[job, c.CLASS]
    put(w.tree, w.klass[kind, c.CLASS_BASE], w.klass[kind, c.CLASS_SIZE], w.mark[job, c.LEAF], min(key, c.NEVER))
    find_head(w, kind)


@kernel(lean=True)
def find_head(w, kind):  # type: ignore[no-untyped-def]
    """Note who goes first in a class: smallest key, then first come (by arrival alone if all that fits goes)."""
    base, size = w.klass[kind, c.CLASS_BASE], w.klass[kind, c.CLASS_SIZE]
    least = w.tree[base + 1]
    w.head_key[kind] = 0.0 if w.backfills else least
    if least == np.inf:
        w.klass[kind, c.CLASS_HEAD] = -1
        return
    limit = c.NEVER if w.backfills else least
    leaf = first_at_most(w.tree, base, size, limit)
    w.klass[kind, c.CLASS_HEAD] = w.order[w.klass[kind, c.CLASS_FIRST] + leaf]
