"""The heap of requests for shared links, inside the kernels' state: the smallest (time, key) is on top.

Numba notices a change in a kernel's own file only: after a change here, remove ``simulate/__pycache__``.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True, error_model="numpy", _nrt=False, inline="always")
def heap_push(state, time, key):  # type: ignore[no-untyped-def]
    """Add a request; the smallest (time, key) is on top."""
    times, keys, at = state.heap_time, state.heap_key, state.sizes[1]
    state.sizes[1] += 1
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and keys[above] < key):
            break
        times[at], keys[at] = times[above], keys[above]
        at = above
    times[at], keys[at] = time, key


@njit(cache=True, error_model="numpy", _nrt=False)
def heap_pop(state):  # type: ignore[no-untyped-def]
    """Take the first request: (time, key)."""
    times, keys = state.heap_time, state.heap_key
    state.sizes[1] -= 1
    size, top_time, top_key = state.sizes[1], times[0], keys[0]
    time, key, at = times[size], keys[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        right = child + 1
        if right < size and (
            times[right] < times[child] or (times[right] == times[child] and keys[right] < keys[child])
        ):
            child = right
        if times[child] > time or (times[child] == time and keys[child] > key):
            break
        times[at], keys[at] = times[child], keys[child]
        at = child
    times[at], keys[at] = time, key
    return top_time, top_key
