"""The inner loops of Sailor's search (Strati et al., SOSP'25): tensor widths of a setting, and chains of regions.

Letters: W tensor widths, K kinds of stages, p stages, n regions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.cost.measured import ENDLESS_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NO_ROOM, TOO_SLOW, NARROW, WIDE, BOTH = -1, 0, 1, 2, 3
"""What ``widths_of`` finds: a stage fits at no width; nothing below the limit; which of the two choices may be."""


class StageNumbers(NamedTuple):
    """A setting, as the kernel takes it."""

    seconds: Floats  # (W, K) of one micro-batch
    raised: Ints  # (W, K) to which width the scaling heuristic takes a stage of a width
    left_bytes: Floats  # (W, K) of each micro-batch in flight
    room_bytes: Floats  # (W, K) that temporary results leave for all else
    kind: Ints  # (p,)
    widths: Ints  # (W,)
    gpus: int  # of all regions
    least: int  # index of the narrowest width that is tried
    uniform: bool  # whether all stages have one width


class ChainNumbers(NamedTuple):
    """Stages to be dealt to regions, as the kernel takes them."""

    pair_s: Floats  # (n, n) of a round trip
    order: Ints  # (n, n) regions from each one, the nearest first
    room: Ints  # (n,) GPUs
    gpus: Ints  # (p,)
    compute_s: Floats  # (p,)
    waves: int
    open_share: float


@kernel
def widths_of(setting, kept, dp, waves, limit, chosen):  # type: ignore[no-untyped-def]
    """H2 and the scaling heuristic: fills ``chosen`` (2, p) with indices of each stage's narrowest width that fits
    beside ``kept`` (W, K) bytes, and of those raised; which of both may stay below ``limit`` seconds (see ``NO_ROOM``),
    and the bytes that are missing."""
    kind, count, p = setting.kind, len(setting.widths), len(setting.kind)
    for i in range(p):
        live, fitting = min(waves, p - i), count
        for w in range(count - 1, -1, -1):
            free = setting.room_bytes[w, kind[i]] - kept[w, kind[i]]
            if setting.seconds[w, kind[i]] < ENDLESS_S / 2 and free / setting.left_bytes[w, kind[i]] >= live:
                fitting = w
        if fitting == count:
            return NO_ROOM, (setting.left_bytes - (setting.room_bytes - kept)).min()
        chosen[0, i] = fitting
    if setting.uniform:
        chosen[0, :] = chosen[0].max()
    found, alike = TOO_SLOW, True
    for i in range(p):
        chosen[0, i] = max(chosen[0, i], setting.least)
        chosen[1, i] = setting.raised[chosen[0, i], kind[i]]
    if setting.uniform:
        chosen[1, :] = chosen[1].max()
    for i in range(p):
        alike = alike and chosen[0, i] == chosen[1, i]
    for choice in range(1 if alike else 2):
        slowest, total, gpus = 0.0, 0.0, 0
        for i in range(p):
            seconds = setting.seconds[chosen[choice, i], kind[i]]
            slowest, total, gpus = max(slowest, seconds), total + seconds, gpus + setting.widths[chosen[choice, i]]
        if slowest * waves + total < limit and dp * gpus <= setting.gpus:
            found += choice + 1
    return found, 0.0


@kernel
def nearest_chain(chain, limit, most, regions):  # type: ignore[no-untyped-def]
    """Fills ``regions`` (p,) with the chain of the least estimate below ``limit``; the estimate (``limit``: there is
    none) and how many partial chains were looked at, at most ``most``.

    Depth first, nearest region next, as many stages as it holds first. A partial chain is dropped when it reaches the
    best even if all borders that are still to come are the quickest ones.
    """
    n, p, pair_s, compute_s = len(chain.room), len(chain.gpus), chain.pair_s, chain.compute_s
    total, slowest, least_s, largest = 0.0, 0.0, np.inf, chain.room.max()
    quickest = compute_s.min()
    for i in range(p):
        total, slowest = total + compute_s[i], max(slowest, compute_s[i])
    for a in range(n):
        for b in range(n):
            if a != b:
                least_s = min(least_s, pair_s[a, b])
    quickest += chain.open_share * least_s
    behind = np.zeros(p + 1, np.int64)
    for i in range(p - 1, -1, -1):
        behind[i] = behind[i + 1] + chain.gpus[i]
    # of each depth: its region, the place of that in the order, stages [start, stop), what lies before
    at, place, stop = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    start, sent, worst = np.zeros(n + 2, np.int64), np.zeros(n + 2), np.zeros(n + 2)
    used = np.zeros(n, np.bool_)
    best, visits, depth, entered = limit, 0, 0, True
    while True:
        if entered:  # a partial chain of ``depth`` regions
            visits += 1
            entered = False
            first = start[depth]
            borders = max(-(-behind[first] // largest) - (1 if first == 0 else 0), 0)
            least = max(worst[depth], slowest, quickest if borders else 0.0) * chain.waves + total + sent[depth]
            hopeless = least + (borders * least_s if borders else 0.0) >= best or visits > most
            if not hopeless and first == p:
                best, hopeless = least, True
                for level in range(depth):
                    regions[start[level] : start[level + 1]] = at[level]
            if visits > most:
                return best, visits
            if hopeless or depth == n:
                if depth == 0:
                    return best, visits
                depth -= 1
            else:
                place[depth], stop[depth] = -1, 0
        first = start[depth]
        stop[depth] -= 1
        if place[depth] < 0 or stop[depth] <= first:  # the next region that has room
            if place[depth] >= 0:
                used[at[depth]] = False
            found = False
            while not found and place[depth] + 1 < n:
                place[depth] += 1
                region = place[depth] if depth == 0 else chain.order[at[depth - 1], place[depth]]
                if used[region] or (depth > 0 and not pair_s[at[depth - 1], region] < np.inf):
                    continue
                filled, free = first, chain.room[region]
                while filled < p and chain.gpus[filled] <= free:
                    free -= chain.gpus[filled]
                    filled += 1
                if filled > first:
                    at[depth], stop[depth], used[region], found = region, filled, True, True
            if not found:
                if depth == 0:
                    return best, visits
                depth -= 1
                continue
        step_s = pair_s[at[depth - 1], at[depth]] if depth else 0.0
        border_s = compute_s[first - 1] + chain.open_share * step_s if depth else 0.0
        start[depth + 1], sent[depth + 1] = stop[depth], sent[depth] + step_s
        worst[depth + 1] = max(worst[depth], border_s)
        depth += 1
        entered = True
