"""Who holds which devices: pieces of bins (nodes where nodes fail, else whole pools)."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import (
    BIN_FIRST,
    BIN_FREE,
    BIN_POOL,
    BIN_UP,
    FREE_PIECE,
    PIECE,
    PIECE_BEFORE,
    PIECE_BIN,
    PIECE_DEVICES,
    PIECE_JOB,
    PIECE_NEXT,
    PIECE_OF_JOB,
    POOL_FIRST,
    POOL_FREE,
    POOL_HELD,
    POOL_LAST,
)


@kernel(lean=True)
def take(w, job, pool, devices):  # type: ignore[no-untyped-def]
    """Devices of a pool that has as many: in the fullest node that has room for all, else in the emptiest ones."""
    w.pool[pool, POOL_FREE] -= devices
    w.pool[pool, POOL_HELD] += devices
    first, last = w.pool[pool, POOL_FIRST], w.pool[pool, POOL_LAST]
    while devices > 0:
        chosen = -1
        for each in range(first, last):
            free = w.bin[each, BIN_FREE]
            if w.bin[each, BIN_UP] == 0 or free == 0:
                continue
            most = w.bin[chosen, BIN_FREE] if chosen >= 0 else 0
            better = free < most if free >= devices and most >= devices else free > most
            if better:
                chosen = each
        taken = min(devices, w.bin[chosen, BIN_FREE])
        _hold(w, job, chosen, taken)
        devices -= taken


@kernel(lean=True)
def _hold(w, job, where, devices):  # type: ignore[no-untyped-def]
    """A new piece."""
    new = w.tally[FREE_PIECE]
    row = w.piece[new]
    w.tally[FREE_PIECE] = row[PIECE_NEXT]
    after = w.bin[where, BIN_FIRST]
    row[PIECE_JOB], row[PIECE_BIN], row[PIECE_DEVICES] = job, where, devices
    row[PIECE_NEXT], row[PIECE_BEFORE], row[PIECE_OF_JOB] = after, -1, w.mark[job, PIECE]
    if after >= 0:
        w.piece[after, PIECE_BEFORE] = new
    w.bin[where, BIN_FIRST] = new
    w.bin[where, BIN_FREE] -= devices
    w.mark[job, PIECE] = new


@kernel(lean=True)
def give_back(w, job):  # type: ignore[no-untyped-def]
    """All that a job holds."""
    piece = w.mark[job, PIECE]
    while piece >= 0:
        row = w.piece[piece]
        where, devices, before, after = row[PIECE_BIN], row[PIECE_DEVICES], row[PIECE_BEFORE], row[PIECE_NEXT]
        if before >= 0:
            w.piece[before, PIECE_NEXT] = after
        else:
            w.bin[where, BIN_FIRST] = after
        if after >= 0:
            w.piece[after, PIECE_BEFORE] = before
        w.bin[where, BIN_FREE] += devices
        w.pool[w.bin[where, BIN_POOL], POOL_FREE] += devices
        w.pool[w.bin[where, BIN_POOL], POOL_HELD] -= devices
        row[PIECE_NEXT] = w.tally[FREE_PIECE]
        w.tally[FREE_PIECE] = piece
        piece = row[PIECE_OF_JOB]
    w.mark[job, PIECE] = -1
