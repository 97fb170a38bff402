"""Jobs that run take faster devices from those that rank behind them, at ends of rounds, where speeds differ.

So turns are taken not only between running and waiting but between quick and slow devices, as Gavel has it.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import columns as c
from hippo.jobs.engine.eviction import clear, enough
from hippo.jobs.engine.keys import rank
from hippo.jobs.engine.moving import is_far
from hippo.jobs.engine.running import start, stop


@kernel(lean=True)
def climb(w):  # type: ignore[no-untyped-def]
    """Move them; whether anybody moved. Who had to go waits."""
    now, key, job, moved = w.clock[c.NOW], -np.inf, -1, False
    while True:
        job, pool = _next(w, key, job, now)
        if job < 0:
            return moved
        key = rank(w, job, now)
        stop(w, job, False)
        clear(w, job, key, pool, w.mark[job, c.DEVICES])
        start(w, job, pool)
        moved = True


@kernel(lean=True)
def could_climb(w):  # type: ignore[no-untyped-def]
    """Whether some running job would gain in another pool, had it room there."""
    for each in range(len(w.bin)):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            for pool in range(len(w.pool)):
                if _gains(w, w.piece[piece, c.PIECE_JOB], pool):
                    return True
            piece = w.piece[piece, c.PIECE_NEXT]
    return False


@kernel(lean=True)
def _next(w, after_key, after_job, now):  # type: ignore[no-untyped-def]
    """Who ranks first of those behind a rank that can move, and to which pool; (-1, -1): nobody."""
    best, best_key, best_pool = -1, np.inf, -1
    for each in range(len(w.bin)):
        piece = w.bin[each, c.BIN_FIRST]
        while piece >= 0:
            job = w.piece[piece, c.PIECE_JOB]
            piece = w.piece[piece, c.PIECE_NEXT]
            key = rank(w, job, now)
            behind = key > after_key or (key == after_key and job > after_job)
            first = best < 0 or key < best_key or (key == best_key and job < best)
            if behind and first and w.job[job, c.BEGAN] < now:
                pool = _faster(w, job, key)
                if pool >= 0:
                    best, best_key, best_pool = job, key, pool
    return best, best_pool


@kernel(lean=True)
def _faster(w, job, mine):  # type: ignore[no-untyped-def]
    """The fastest pool that a job gains by and that has room for it, if need be by force, -1: none."""
    best, best_room, devices = -1, False, w.mark[job, c.DEVICES]
    for pool in range(len(w.pool)):
        if not _gains(w, job, pool) or not enough(w, job, mine, pool, devices):
            continue
        room = w.pool[pool, c.POOL_FREE] >= devices
        if best < 0 or w.speed[pool] > w.speed[best] or (w.speed[pool] == w.speed[best] and room and not best_room):
            best, best_room = pool, room
    return best


@kernel(lean=True)
def _gains(w, job, pool):  # type: ignore[no-untyped-def]
    """Whether a job does more work there in a round, restart included, than where it runs; its data must be there."""
    here, shape = w.mark[job, c.POOL], w.mark[job, c.SHAPE]
    if w.mark[job, c.DOMAINS] > 0 or not w.allowed[shape, pool]:
        return False
    if w.speed[pool] * (w.round_s - w.restart_s) <= w.speed[here] * w.round_s:
        return False
    return not is_far(w, job, w.pool[pool, c.POOL_DOMAIN], w.job[job, c.GB])
