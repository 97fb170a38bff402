"""Plays of one schedule under n draws (``fluctuation.Factors``), as a fixed order and by hint.

Letters as in ``fluctuation``; N operations of the schedule.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.schedule.dispatch import run
from hippo.schedule.replay import PLACE, RANK, READ, WRITE


@kernel
def play_fixed(tables, rows, drawn, duration, fused, operations, messages, ranks, found):  # type: ignore[no-untyped-def]
    """Writes the makespan of each play (n,); ``replay.play`` with factors.

    ``rows`` (N, 5) of ``replay.sequence``, ``drawn`` (N,) where the factor of each row stands, ``duration`` (3 S,) of
    each place, ``fused`` (S,) the weight gradient that is part of each backward, empty when it is not.
    """
    p, per_kind = tables.ranks, tables.ranks * tables.chunks * tables.micro_batches
    slots, is_fused = tables.ranks * tables.chunks, len(fused) > 0
    delay, transfer, port = tables.delay.ravel(), tables.transfer.ravel(), tables.port.ravel()
    arrived, free, port_free = np.empty(2 * per_kind), np.empty(p), np.empty(p * p)
    for play in range(len(found)):
        free[:], port_free[:] = 0.0, 0.0
        for row in range(len(rows)):
            rank, place, read, write, at = (
                rows[row, RANK],
                rows[row, PLACE],
                rows[row, READ],
                rows[row, WRITE],
                drawn[row],
            )
            now = free[rank]
            if read >= 0 and arrived[read] > now:
                now = arrived[read]
            taken = duration[place] * operations[play, at]
            if is_fused and place >= slots:
                taken += fused[place - slots] * operations[play, at + per_kind]
            now += taken * ranks[play, rank]
            free[rank] = now
            if write >= 0:
                if port[place] >= 0:
                    now = max(now, port_free[port[place]]) + transfer[place] * messages[play, at]
                    port_free[port[place]] = now
                arrived[write] = now + delay[place] * messages[play, at]
        found[play] = (free + tables.reduction).max()


@kernel
def play_by_hint(tables, queues, drawn, patience, operations, messages, ranks, found):  # type: ignore[no-untyped-def]
    """Writes the makespan of each play (n,) of ``dispatch.run``; ``drawn`` (N,) as in ``split(hint)``."""
    count, sends = len(drawn), messages.shape[1]
    factor, message_factor, nothing = np.empty(count), np.ones(count), np.empty(0)
    for play in range(len(found)):
        for op in range(count):
            factor[op] = operations[play, drawn[op]]
            if drawn[op] < sends:
                message_factor[op] = messages[play, drawn[op]]
        found[play] = run(tables, queues, factor, message_factor, ranks[play].astype(np.float64), patience, nothing)
