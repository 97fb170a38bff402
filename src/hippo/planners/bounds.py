"""Lower bounds on the played step time of one pipeline, as numba kernels. Proofs: ``docs/exact.md``, section 3.

Letters: N layers, m waves, p stages. Stage i holds layers [a, b) with ``f`` seconds of forward and ``t`` seconds of
forward and backward per wave; ``head`` is the round trip of one wave through everything before the stage, ``rest``
through everything behind it; ``live`` the most micro-batches its memory holds. Layer arrays are prefix sums (N + 1,).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STEPS = 40  # most halvings of a bisection


@njit(cache=True)
def stage_need(t: float, f: float, rest: float, waves: int, live: int) -> float:
    """Least seconds from the first input of the stage to the end of its last backward.

    Fill: before its first backward a stage runs at most ``live`` forwards, and that backward comes no sooner than one
    round trip. Window: a micro-batch holds its slot for a whole round trip (docs/exact.md, bounds 2 and 3).
    """
    ahead = min(waves, live)
    fill = max(ahead * f, f + rest) - ahead * f + waves * t
    turns, left = divmod(waves - 1, ahead)
    return max(fill, (turns + 1) * (t + rest) + left * f)


@njit(cache=True)
def room_for(table, usable: float, a: int, b: int) -> int:  # type: ignore[no-untyped-def]
    """Most live micro-batches that layers [a, b) leave room for (0: the layers alone do not fit)."""
    kept = table[2, b] - table[2, a] + max(table[4, a], table[4, b - 1])
    each = table[3, b] - table[3, a]
    if kept + each > usable:
        return 0
    return min(1 << 40, int((usable - kept) / max(each, 1e-9)))


@njit(cache=True)
def stage_fits(table, a, b, head, forward, rest, waves, least_live, usable, limit, drained) -> bool:  # type: ignore[no-untyped-def]
    """Whether a stage with layers [a, b) fits its memory and the step can be done within ``limit`` seconds.

    ``head`` is the round trip through everything before the stage, ``forward`` its way down alone; ``drained`` what the
    first stage does once all gradients have reached it.
    """
    t, f = table[1, b] - table[1, a], table[0, b] - table[0, a]
    if head + waves * t + drained > limit:
        return False
    live = room_for(table, usable, a, b)
    if live < min(waves, least_live):
        return False
    need, once = stage_need(t, f, rest, waves, live), table[5, b] - table[5, a] + table[6, 0]
    return head + need + drained <= limit and forward + need + once <= limit


@njit(cache=True)
def greedy_cuts(table, delays, first, waves, usable, limit, tail, cuts) -> bool:  # type: ignore[no-untyped-def]
    """Whether p stages of one layout can each be done within ``limit``, the first with layers [0, first).

    Each other stage takes as many layers as it can: what it needs grows with its end and shrinks with its start, so
    this loses nothing. ``delays`` (p,): round-trip delay between stage i - 1 and i (0 for the first); fills ``cuts``.
    """
    p, n = len(delays), table.shape[1] - 1
    total, after, before = table[1, n], delays.sum(), 0.0
    drained = table[5, first] + table[6, 0] + tail
    a, cuts[0] = 0, 0
    for i in range(p):
        before += delays[i]
        after -= delays[i]
        head, forward, least = table[1, a] + before, table[0, a] + before / 2, p - i
        low, high = a + 1, n - (p - 1 - i)
        if i == p - 1:
            low = n
        if i == 0:
            low, high = first, first
        rest = total - table[1, low] + after
        if low > high or not stage_fits(table, a, low, head, forward, rest, waves, least, usable, limit, drained):
            return False
        while low < high:
            b = (low + high + 1) // 2
            rest = total - table[1, b] + after
            if stage_fits(table, a, b, head, forward, rest, waves, least, usable, limit, drained):
                low = b
            else:
                high = b - 1
        a = low
        cuts[i + 1] = a
    return True


@njit(cache=True)
def cuts_within(table, delays, waves, usable, limit, tail, cuts) -> bool:  # type: ignore[no-untyped-def]
    """Whether any cuts can be done within ``limit``; ``cuts`` (p + 1,) gets the first found.

    The first stage's layers are tried from many to few: fewer make its own synchronisation shorter and all others longer.
    """
    p, n = len(delays), table.shape[1] - 1
    if p == 1:
        return greedy_cuts(table, delays, n, waves, usable, limit, tail, cuts)
    for first in range(n - p + 1, 0, -1):
        if waves * table[1, first] > limit:
            continue
        if waves * (table[1, n] - table[1, first]) / (p - 1) + table[1, first] > limit:
            return False
        if greedy_cuts(table, delays, first, waves, usable, limit, tail, cuts):
            return True
    return False


@njit(cache=True)
def uniform_bound(table, delays, waves, slowest, tail, usable, ceiling, cuts) -> float:  # type: ignore[no-untyped-def]
    """Least step time over all cuts when every stage has the same layout; inf when above ``ceiling``.

    ``slowest``: seconds one wave occupies the slowest link; ``tail``: seconds after the first stage is done. ``cuts``
    (p + 1,) gets the cuts that reach the bound.
    """
    n = table.shape[1] - 1
    low = table[1, n] + delays.sum() + (waves - 1) * slowest + table[5, 1] + table[6, 0] + tail
    low = max(low, waves * table[1, n] / len(delays) + table[6, 0])
    if low > ceiling:
        return np.inf
    if cuts_within(table, delays, waves, usable, low, tail, cuts):
        return low
    if not cuts_within(table, delays, waves, usable, ceiling, tail, cuts):
        return np.inf
    high = low
    while high < ceiling:
        high = min(2.0 * high, ceiling)
        if cuts_within(table, delays, waves, usable, high, tail, cuts):
            break
        low = high
    for _ in range(STEPS):
        if high - low <= 1e-7 * high:
            break
        middle = 0.5 * (low + high)
        if cuts_within(table, delays, waves, usable, middle, tail, cuts):
            high = middle
        else:
            low = middle
    cuts_within(table, delays, waves, usable, high, tail, cuts)
    return low


@njit(cache=True)
def chain_fits(tables, option_kind, option_stages, hops, kinds, delays, rest, waves, usable, limit, back):  # type: ignore[no-untyped-def]
    """Whether the domains ``kinds`` (n,), in this order, can each take some layers in some layout within ``limit``.

    Dynamic program over (domains used, layers placed): the least round trip of one wave so far. Both the stage bounds
    and later round trips only grow with it, so the least is the best (docs/exact.md, section 3.3).
    ``delays`` (n,): round trip of the border before each domain; ``rest`` (N + 1,): least round trip of the layers
    behind a cut. ``back`` (n, options, stages, N + 1) gets the start of each stage's layers for ``chain_cuts``; a length of 0
    in its first axis: not wanted.
    """
    n = tables.shape[2] - 1
    state = np.full(n + 1, np.inf)
    state[0] = 0.0
    keep = back.shape[0] > 0
    after = delays.sum()
    for j in range(len(kinds)):
        state += delays[j]
        after -= delays[j]
        reached = np.full(n + 1, np.inf)
        for o in range(len(option_kind)):
            if option_kind[o] != kinds[j]:
                continue
            current = state.copy()
            for q in range(option_stages[o]):
                following = np.full(n + 1, np.inf)
                found = False
                for a in range(n):
                    head = current[a]
                    if head == np.inf:
                        continue
                    for b in range(a + 1, n + 1):
                        t = tables[o, 1, b] - tables[o, 1, a]
                        if head + waves * t > limit:
                            break
                        if head + t >= following[b]:
                            continue
                        behind = rest[b] + after
                        if not stage_fits(tables[o], a, b, head, behind, waves, len(kinds) - j, usable, limit):
                            continue
                        following[b] = head + t
                        found = True
                        if keep:
                            back[j, o, q, b] = a
                if not found:
                    break
                for b in range(n + 1):
                    if following[b] < reached[b]:
                        reached[b] = following[b]
                current = following + 2 * hops[o]
        state = reached
    return state[n]
