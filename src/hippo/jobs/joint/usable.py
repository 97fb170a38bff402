"""Which devices others have of a pool, where only how many can be used is known: free ones first.

Which node is down nobody says: a queue counts devices, and where a job's processes are its actuator decides.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine import world as c
from hippo.jobs.engine.world import QueueWorld

NodeChange = tuple[int, int]
"""A node, counted through all pools, and the devices that others take of it (negative: give back)."""


def taken_by_others(
    world: QueueWorld, pool: int, usable: int, *, coming: Iterable[NodeChange] = (), stops: bool
) -> tuple[list[NodeChange], int]:
    """What others take and give back so that ``usable`` devices of a pool are left to jobs, and how many are missing.

    What is free is taken first: nodes that fit whole, the largest before others, then a part of the smallest; what is
    given back likewise. Where that is too little, and ``stops`` allows it, comes the node on which jobs hold least, of
    which the engine stops the job that holds most (so more may stop than would have to); else what is missing stays for
    when somebody has ended. Ties: the first node. ``coming``: what was told and has not come about.
    """
    first, last = world.pool[pool, c.POOL_FIRST : c.POOL_LAST + 1].tolist()
    rows = world.bin[first:last]
    free, taken = rows[:, c.BIN_FREE].copy(), rows[:, c.BIN_TENANTS].copy()
    for node, devices in coming:
        if first <= node < last:
            free[node - first] -= devices
            taken[node - first] += devices
    short, told = int(rows[:, c.BIN_SIZE].sum() - taken.sum()) - usable, list[NodeChange]()
    asks = stops and short > int(free.sum())
    held = [(at, *piece) for at in range(last - first) for piece in _pieces(world, first + at)] if asks else []
    while short < 0 and taken.any():
        at, devices = _fitting(taken, -short)
        taken[at] -= devices
        short += devices
        told.append((first + at, -devices))
    while short > 0 and ((free > 0).any() or held):
        if (free > 0).any():
            at, devices = _fitting(free, short)
        else:
            sums = np.bincount([each[0] for each in held], weights=[each[2] for each in held])
            at = min({each[0] for each in held}, key=lambda each: (sums[each], each))
            job = max((each for each in held if each[0] == at), key=lambda each: each[2])[1]
            for where, _, size in [each for each in held if each[1] == job]:
                free[where] += size
            held = [each for each in held if each[1] != job]
            devices = min(short, int(free[at]))
        free[at] -= devices
        short -= devices
        told.append((first + at, devices))
    return told, max(0, short)


def _pieces(world: QueueWorld, node: int) -> Iterable[tuple[int, int]]:
    """Job and devices of each piece of a node, in the engine's order."""
    piece = int(world.bin[node, c.BIN_FIRST])
    while piece >= 0:
        row = world.piece[piece]
        yield int(row[c.PIECE_JOB]), int(row[c.PIECE_DEVICES])
        piece = int(row[c.PIECE_NEXT])


def _fitting(devices: NDArray[np.int64], wanted: int) -> tuple[int, int]:
    """The largest that is wanted whole, else the least of which a part is: where, and how many."""
    whole = np.flatnonzero((devices > 0) & (devices <= wanted))
    if len(whole):
        at = int(whole[np.argmax(devices[whole])])
        return at, int(devices[at])
    some = np.flatnonzero(devices > 0)
    return int(some[np.argmin(devices[some])]), wanted
