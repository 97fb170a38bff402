"""How far each stage of a pipeline must run ahead so that slow borders do not set its pace.

Letters: p stages, ``t`` seconds of one wave on a stage, ``P`` the pace (seconds per wave), ``w`` the warm-up: waves
that a stage runs forward before its first backward. In the steady state of 1F1B a wave travels from the forward on
stage i down to stage j and back in ``L_ij``, the sum of the stages' seconds and of the borders' round trips between
them; on that way ``w_i - w_j + 1`` waves are under way at once. So the pace is at least ``L_ij / (w_i - w_j + 1)`` for
every pair, and the least warm-up that keeps pace P is ``w_i = max_j (w_j - 1 + ceil(L_ij / P))``, from the last stage
upwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

Floats = NDArray[np.float64]

SLACK = 1e-9  # of a wave: rounding errors must not cost a whole one
HALVINGS = 30
FEW = 2  # warm-ups worth a play beside the least one
SHARES = (0.9, 0.7, 0.5, 0.3, 0.15, 0.0)  # of the way to a stage that is never idle


@kernel(lean=True)
def least_warm_up(seconds, delays, pace, waves, warm_up):  # type: ignore[no-untyped-def]
    """Fills ``warm_up`` (p,) for ``pace``; ``seconds`` (p,) per wave, ``delays`` (p,) round trip before each stage."""
    p = len(seconds)
    for i in range(p - 1, -1, -1):
        trip, best = seconds[i], max(1.0, np.ceil(seconds[i] / pace - SLACK))
        for j in range(i + 1, p):
            trip += seconds[j] + delays[j]
            best = max(best, warm_up[j] - 1 + np.ceil(trip / pace - SLACK))
        warm_up[i] = min(best, waves)


@kernel(lean=True)
def fitting_warm_up(seconds, delays, pace, waves, room, warm_up):  # type: ignore[no-untyped-def]
    """Least pace from ``pace`` on whose warm-up fits ``room`` (p,), the waves that each stage has memory for.

    Fills ``warm_up``; inf where a stage has room for none.
    """
    for each in room:
        if each < 1:
            return np.inf
    least_warm_up(seconds, delays, pace, waves, warm_up)
    if _fits(warm_up, room):
        return pace
    own, between = 0.0, 0.0
    for i in range(len(seconds)):
        own += seconds[i]
        between += delays[i]
    low, high = pace, max(pace, own + between)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        least_warm_up(seconds, delays, middle, waves, warm_up)
        if _fits(warm_up, room):
            high = middle
        else:
            low = middle
    least_warm_up(seconds, delays, high, waves, warm_up)
    return high


@kernel(lean=True)
def _fits(warm_up, room):  # type: ignore[no-untyped-def]
    fits = True
    for i in range(len(room)):
        fits = fits and warm_up[i] <= room[i]
    return fits


def deeper(warm_up: Floats, wanted: Floats, room: Floats) -> list[tuple[int, ...]]:
    """Warm-ups between ``warm_up`` and ``wanted``, all (p,), the deepest that fit first; ``warm_up`` itself last.

    A stage that runs ``1 + rest / f`` waves ahead (``rest``: round trip behind it, ``f``: its forward) is never idle
    before its first backward. What is added never grows from stage to stage, so the pace of every pair is kept.
    """
    found = []
    for share in SHARES:
        added = np.floor(share * np.maximum(0.0, wanted - warm_up))
        added = np.maximum.accumulate(added[::-1])[::-1]
        if (warm_up + added <= room).all():
            found.append(tuple(int(each) for each in warm_up + added))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class ChainTimes:
    """Stages of one pipeline, (p,) each."""

    forward_s: Floats  # per wave
    seconds: Floats  # forward and backward per wave
    delays_s: Floats  # round trip of one wave before each stage
    room: Floats  # waves each stage has memory for
    waves: int
    slowest_s: float  # one wave on the slowest link


def warm_ups(chain: ChainTimes) -> list[tuple[int, ...]]:
    """Those worth a play: the deepest that memory allows, and the least that keeps the best pace; none: no room."""
    if len(chain.seconds) == 1:
        return [()]
    least, pace = np.empty(len(chain.seconds)), max(float(chain.seconds.max()), chain.slowest_s)
    room = np.minimum.accumulate(np.minimum(chain.room, chain.waves))
    if not np.isfinite(fitting_warm_up(chain.seconds, chain.delays_s, pace, chain.waves, room, least)):
        return []
    trips = chain.seconds + chain.delays_s
    rest = np.cumsum(trips[::-1])[::-1] - trips
    behind = np.divide(rest, chain.forward_s, out=np.where(rest > 0, np.inf, 0.0), where=chain.forward_s > 0)
    ways = deeper(least, np.minimum(1 + np.ceil(behind), chain.waves), room)
    return list(dict.fromkeys([*ways[:FEW], ways[-1]]))
