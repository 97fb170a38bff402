"""A pipeline as the engine plays it: one form for every order of operations, over links of its own or shared ones.

Letters: G ranks, C chunks per rank, S = G * C slots (``rank * C + chunk``), N operations, E links, Q groups. A *place*
is ``kind * S + slot``: what forwards of a slot send goes down (activations), what backwards send goes up.

``simulate.packed.pack`` makes a ``Packed`` of a step of a plan, with all its pipelines, shared links, relays and groups
of replicas; ``schedule.replay.packed`` of a schedule problem, which is one pipeline whose links carry nothing else.
``fixed_order`` plays it with each rank keeping to its order, ``events`` with ranks that take what comes first by some
priority. What moves a clock on stands in this room alone; ``simulate.reference`` (SimPy) judges it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT = 0, 1, 2

# Columns of ``Packed.route``: the place that waits for the result (-1: none; the end of the model hands over to its own
# backward), its rank, the links crossed (-1: none), the sending port (one per nodes and first link; -1: no cap).
DEST, RECEIVER, LINK, SECOND_LINK, PORT = range(5)
# Columns of ``Packed.transfer``: seconds inside a domain, bytes, bytes/s of the sending nodes (inf: no cap).
DELAY, BYTES, NIC = range(3)
# Columns of ``Packed.sequence``.
OPERATION, RANK, PLACE, MICRO_BATCH = range(4)
# In ``Playing.sizes``.
NOTING, CALLS = 2, 3
# In ``Packed.meeting``: when the sender's part is over (MET: it knows that its receiver is there; TAKEN: it has
# arrived), and how it comes to know: at once, or by a notice over the way of the answers, behind them (WAY).
SENDER, NOTICE = range(2)
MET, TAKEN = range(2)
AT_ONCE, WAY = range(2)

NEVER_PLAYED = -1


class Packed(NamedTuple):
    """What a kernel reads. Only ``sequence`` and ``known`` change: written by the second play (of many states:
    the first) for all later ones."""

    slots: int
    chunks: int
    waves: int  # the most waves of any pipeline
    queued: bool  # True: the order of messages on some link is only known while playing (a heap of requests)
    order: Ints  # (N, 3)
    order_start: Ints  # (G + 1,)
    sequence: Ints  # (N, 4) operation, rank, place, micro-batch in an order that can be played
    known: Ints  # (1,) rows of it that are written; NEVER_PLAYED: most programs are played once
    duration: Floats  # (3 S,) of each place: F, B, W
    route: Ints  # (2 S, 5) columns DEST, RECEIVER, LINK, SECOND_LINK, PORT
    transfer: Floats  # (2 S, 3) columns DELAY, BYTES, NIC
    sync_s: Floats  # (G,)
    finish_s: Floats  # (G,)
    rank_group: Ints  # groups of each rank, one rank after the other
    rank_group_start: Ints  # (G + 1,)
    group_size: Ints  # (Q,) members
    group_local: Floats  # (Q,)
    group_hops: Floats  # (Q,)
    group_link_start: Ints  # (Q + 1,) slice of the next four
    group_of_link: Ints
    group_link: Ints
    group_bytes: Floats
    group_nic: Floats
    group_route_start: Ints  # (Q + 1,) slice of the next
    group_route: Ints  # (routes, 2) links of a pair of the ring, -1: none
    gather_link: Ints
    gather_bytes: Floats  # (2 S,) per forward, per backward
    gather_rounds: float
    # Calls: what a rank hands over at once, where sender and receiver have to meet (``simulate.calls``). Q calls, those
    # that a rank makes before its first operation, then those it makes at the end of each operation.
    call_of_rank: Ints  # (G + 1,) slice of the first; (): messages go when they are made, nobody waits for a send
    call_of_op: Ints  # (N + 1,) slice of the others
    call_rank: Ints  # (Q,)
    call_before: Ints  # (Q,) call that has to be over first, -1: none
    call_then: Ints  # (Q,) call that waits for it, -1: none
    call_part: Ints  # (Q + 1,) slice of the next
    part: Ints  # 2 * the operation whose result is sent, plus 1 in the receiver's call
    send_call: Ints  # (N,) call in which the result of an operation is sent, -1: it goes when it is made
    take_call: Ints  # (N,) call in which that is taken, at the receiver
    awaited: Ints  # (N,) call that has to be over before an operation, -1: none
    meeting: Ints  # (2,) columns SENDER, NOTICE


class Network(NamedTuple):
    """State of the links while playing, and how long things take in this play."""

    bandwidth: Floats  # (E,) bytes/s
    latency: Floats  # (E,) s
    nic_scale: Floats  # (E,) factor on the caps of the nodes that send into the link
    seconds: Floats  # (N,) length of each operation; empty: that of its place
    transfer_factor: Floats  # (N,) factor on the bytes, or the delay, of each operation's message; empty: none
    latency_factor: Floats  # (N,) factor on the latency of the links that it crosses; empty: none


class Record(NamedTuple):
    """Where times are written; arrays of length 0: nothing is recorded."""

    op_start: Floats  # (N + 2 G,) operations, then synchronisation and optimizer of each rank
    op_end: Floats
    message_start: Floats  # (2 N + group links,) at 2 * operation + hop, then group links
    message_end: Floats


class Playing(NamedTuple):
    """What changes while playing. Kernels count no references to it (``lean``): that took 20 times as long."""

    duration: Floats  # (3 S,) with the wait for gathered parameters
    arrived: Floats  # (2 * S * waves,) when the input of an operation is there, -1: not yet
    next_op: Ints  # (G,)
    free: Floats  # (G,) when the rank is free
    blocked: Ints  # (G,) index into ``arrived`` that the rank waits for, -1: none, -2: done
    ready: Ints  # stack of ranks to play on
    sizes: Ints  # (4,) height of the stack, size of the heap; NOTING: 1 to write ``Packed.sequence``; CALLS: next
    link_free: Floats  # (E,)
    port_free: Floats  # (2 S,)
    first_hop: Floats  # (N,) arrival of the last byte at the middle of a relay
    heap_time: Floats
    heap_key: Ints
    group_left: Ints  # (Q,) members that still work
    group_ready: Floats  # (Q,)
    group_last: Floats  # (Q,) when the last byte has left
    calls: Ints  # stack of calls that begin
    call_asked: Floats  # (Q,) when the rank makes the call, -1: not yet
    call_begun: Floats  # (Q,) when it has begun, -1: not yet
    call_over: Floats  # (Q,) when its last part is over
    call_left: Ints  # (Q,) parts that are not over
    met: Floats  # (N,) when the sender of an operation's result knows that its receiver is there, -1: not yet
    sent: Floats  # (2 G,) when the last message that a rank sent down, or up, has left


_NONE: Floats = np.empty(0)
NOTHING = Record(_NONE, _NONE, _NONE, _NONE)
"""Nothing is recorded."""


_FREE = np.empty(0, np.int64)
_FREE.setflags(write=False)
NO_CALLS: dict[str, Any] = dict.fromkeys(
    (
        *("call_of_rank", "call_of_op", "call_rank", "call_before", "call_then", "call_part", "part"),
        *("send_call", "take_call", "awaited", "meeting"),
    ),
    _FREE,
)
"""Fields of a ``Packed`` whose messages go when they are made."""


def quiet(bandwidth: Floats, latency: Floats, nic_scale: Floats) -> Network:
    """The links in a state, everything as long as it should be."""
    return Network(bandwidth, latency, nic_scale, _NONE, _NONE, _NONE)


def room_for(packed: Packed) -> Record:
    """Room for all times; NaN: not written."""
    ops, messages = len(packed.order) + 2 * len(packed.sync_s), 2 * len(packed.order) + len(packed.group_link)
    return Record(*(np.full(size, np.nan) for size in (ops, ops, messages, messages)))


def read_only(array: Ints) -> Ints:
    """The array as one that nobody writes to: numba compiles all kernels again for every mixture of the two kinds."""
    view = np.ascontiguousarray(array, dtype=np.int64).view()
    view.setflags(write=False)
    return view
