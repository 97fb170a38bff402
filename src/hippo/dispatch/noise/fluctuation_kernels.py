"""Plays of one schedule under n draws (``fluctuation.Factors``), as a fixed order.

Letters as in ``fluctuation``; N operations of the schedule.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.engine.fixed_order import play
from hippo.engine.program import Network, Record


@kernel
def play_fixed(packed, network, drawn, fused, operations, messages, ranks, found):  # type: ignore[no-untyped-def]
    """Writes the makespan of each play (n,).

    ``drawn`` (N,) is where the factor of each operation stands, ``fused`` (S,) the weight gradient that is part of each
    backward, empty when it is not.
    """
    count, per_kind, none = len(drawn), packed.slots * packed.waves, np.empty(0)
    seconds, late, record = np.empty(count), np.ones(count), Record(none, none, none, none)
    moved = Network(network.bandwidth, network.latency, network.nic_scale, seconds, late, late)
    for number in range(len(found)):
        for rank in range(len(packed.sync_s)):
            for op in range(packed.order_start[rank], packed.order_start[rank + 1]):
                at = drawn[op]
                place = at // packed.waves
                taken = packed.duration[place] * operations[number, at]
                if place < 2 * packed.slots:
                    late[op] = messages[number, at]
                    if len(fused) > 0 and place >= packed.slots:
                        taken += fused[place - packed.slots] * operations[number, at + per_kind]
                seconds[op] = taken * ranks[number, rank]
        found[number] = play(packed, moved, record)
