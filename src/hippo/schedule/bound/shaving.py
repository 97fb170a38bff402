"""A tighter bound by contradiction: a makespan T is refuted when its windows leave some operation no time to start.

With a makespan of at most T every operation has a latest start. Where two operations of a rank do not fit in one order
they must run in the other; that raises heads and tails, which narrows windows, and so on, until nothing changes or
some window is empty (destructive bounds: Klein and Scholl 1999, constraint-based scheduling: Carlier and Pinson 1990).
If T is refuted every schedule is longer than T. Unlike Jackson's bound this sees that operations are not interrupted.
"""

from __future__ import annotations

import numpy as np

from hippo.schedule.bound.heads import one_machine, raise_heads, shifts, turned
from hippo.schedule.bound.precedence import Rules, reverse
from hippo.schedule.problem import Floats

_RESOLUTION = 1e-5  # of the bound
_FIRST_STEP = 1e-4
_ROUNDS = 50


def shaved(found: Rules, head: Floats, tail: Floats, least: float) -> float:
    """The largest makespan found that is refuted, or ``least``, a bound known already; heads and tails are (G, m)."""
    step, low = _FIRST_STEP * least, least
    while refuted(found, head, tail, low + step):
        low, step = low + step, 2 * step
    while step > _RESOLUTION * least and low + step > least + _FIRST_STEP * least:
        step /= 2
        if refuted(found, head, tail, low + step):
            low += step
    return low


def refuted(found: Rules, head: Floats, tail: Floats, target: float) -> bool:
    """Whether no schedule is as short as ``target``."""
    backwards, real = reverse(found), np.arange(head.shape[1]) < found.passes[:, None]
    ahead, behind, lengths = head.copy(), turned(found, tail), found.duration[:, None]
    paths, paths_back = shifts(found), shifts(backwards)
    for _ in range(_ROUNDS):
        before = float(ahead[real].sum() + behind[real].sum())
        if raise_heads(found, paths, ahead, target - lengths - turned(found, behind)):
            return True
        if raise_heads(backwards, paths_back, behind, target - lengths - turned(found, ahead)):
            return True
        if float(ahead[real].sum() + behind[real].sum()) <= before * (1 + 1e-9):
            break
    after, machines = turned(found, behind), np.unique(found.machine[found.passes > 0])
    return any(one_machine(found, machine, ahead, after) > target * (1 + 1e-9) for machine in machines)
