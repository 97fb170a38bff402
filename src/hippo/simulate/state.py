"""What the kernels read and write while playing. Letters as in ``packed``: G ranks, S slots, N operations, Q groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Network(NamedTuple):
    """State of the links while playing, and the noise of this run."""

    bandwidth: Floats  # (E,) bytes/s
    latency: Floats  # (E,) s
    nic_scale: Floats  # (E,) factor on the caps of the nodes that send into the link
    op_factor: Floats  # (N,) factor on the duration of each operation; empty: none
    message_factor: Floats  # (N,) factor on the transfer of each operation's message; empty: none


class Record(NamedTuple):
    """Where times are written; arrays of length 0: nothing is recorded."""

    op_start: Floats  # (N + 2 G,) operations, then synchronisation and optimizer of each rank
    op_end: Floats
    message_start: Floats  # (2 N + group links,) at 2 * operation + hop, then group links
    message_end: Floats


class State(NamedTuple):
    """What changes while playing. Kernels count no references to it (``lean``): that took 20 times as long."""

    duration: Floats  # (3 S,) with the wait for gathered parameters
    arrived: Floats  # (2 * S * waves,) when the input of an operation is there, -1: not yet
    next_op: Ints  # (G,)
    free: Floats  # (G,) when the rank is free
    blocked: Ints  # (G,) index into ``arrived`` that the rank waits for, -1: none, -2: done
    ready: Ints  # stack of ranks to play on
    sizes: Ints  # (2,) height of the stack, size of the heap
    link_free: Floats  # (E,)
    port_free: Floats  # (2 S,)
    first_hop: Floats  # (N,) arrival of the last byte at the middle of a relay
    heap_time: Floats
    heap_key: Ints
    group_left: Ints  # (Q,) members that still work
    group_ready: Floats  # (Q,)
    group_last: Floats  # (Q,) when the last byte has left
    noting: bool  # whether to write ``tables.sequence``
