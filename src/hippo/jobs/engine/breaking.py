"""Nodes that fail and come back; when, follows from the seed alone."""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.jobs.engine import columns as c
from hippo.jobs.engine.agenda import set_due
from hippo.jobs.engine.running import stop


@kernel(lean=True)
def time_to_failure(seed, node, count, mtbf_s):  # type: ignore[no-untyped-def]
    """Seconds that a node works before its failure number ``count`` (0, 1, ...): exponential, by SplitMix64."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(node) * np.uint64(0xD1B54A32D192ED03)
    mixed += np.uint64(count + 1) * np.uint64(0x8CB92BA72F3D8DD7)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    share = (np.float64(mixed >> np.uint64(11)) + 1.0) / 9007199254740992.0
    return -np.log(share) * mtbf_s


@kernel(lean=True)
def break_or_repair(w, node, now):  # type: ignore[no-untyped-def]
    """A node that works fails: its jobs stop. A broken one comes back."""
    row, pool = w.bin[node], w.bin[node, c.BIN_POOL]
    w.tally[c.EVENTS] += 1
    if row[c.BIN_UP] == 1:
        while row[c.BIN_FIRST] >= 0:
            stop(w, w.piece[row[c.BIN_FIRST], c.PIECE_JOB], True)
        row[c.BIN_UP] = 0
        row[c.BIN_FAILURES] += 1
        w.pool[pool, c.POOL_FREE] -= row[c.BIN_SIZE]
        due = now + w.repair_s
    else:
        row[c.BIN_UP] = 1
        w.pool[pool, c.POOL_FREE] += row[c.BIN_SIZE]
        due = now + time_to_failure(w.seed, node, row[c.BIN_FAILURES], w.mtbf_s)
    set_due(w.heap, w.due, w.place, w.tally[c.HEAP : c.HEAP + 1], len(w.job) + node, due)
