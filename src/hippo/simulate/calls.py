"""How messages and operations wait for each other in a runtime whose senders and receivers have to meet.

A *call* is what a rank hands over at once: sends, receives or both. Of the gap between two operations of a rank, where
the result of the first may have to be sent and the input of the second to come:

* ``coupled`` (Megatron-LM, ``schedules.py``, ``forward_backward_pipelining_without_interleaving``): between a forward
  and a backward one call of both; between two of a kind (warm-up, drain) the send, then the receive. With several
  chunks a rank every gap is one call. The rank waits for all of it.
* ``apart`` (DeepSpeed, ``pipe/schedule.py``, ``TrainSchedule``): a call for each, the send first, but before a backward
  that follows a forward the receive, where the pipeline is full. The rank waits for each.
* ``late`` (torch, ``distributed/pipelining/schedules.py``, ``Schedule1F1B``): as ``coupled`` between unlike kinds;
  between two of a kind nobody waits for the send, and the receive is posted once the send before is over.

Letters: N operations, G ranks, S = G * C slots, Q calls. ``engine.program.Packed`` says what the arrays mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import AT_ONCE, BACKWARD, FORWARD, MET, TAKEN, WAY, WEIGHT
from hippo.simulate.program import Program

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Calls(NamedTuple):
    """The calls of a program, as fields of ``engine.program.Packed``."""

    call_of_rank: Ints
    call_of_op: Ints
    call_rank: Ints
    call_before: Ints
    call_then: Ints
    call_part: Ints
    part: Ints
    send_call: Ints
    take_call: Ints
    awaited: Ints
    meeting: Ints


def calls(program: Program, dest: Ints) -> Calls | None:
    """The calls of a program; ``dest`` (2, S) from ``packed.destinations``; None: messages go when they are made."""
    order, order_start, messages = program.order, program.order_start, program.messages
    chunks = program.forward_s.shape[1]
    if messages.calls == "free":
        return None
    size, ranks = len(order), len(order_start) - 1
    rank_of = np.repeat(np.arange(ranks), np.diff(order_start))
    sender = _senders(order, rank_of, dest, chunks)
    sends, takes = np.zeros(size, bool), sender >= 0
    sends[sender[takes]] = True
    last = np.zeros(size, bool)
    last[order_start[1:] - 1] = True
    then = np.append(np.arange(1, size), 0)
    takes_next = np.where(last, False, takes[then])
    together, take_first = _gaps(order, last, chunks, messages.calls)
    stages = np.bincount(program.rank_pipeline)[program.rank_pipeline]
    full = program.num_waves[program.rank_pipeline] >= stages - program.rank_stage
    take_first &= full[rank_of]
    both = sends & takes_next
    together, take_first = together & both, take_first & both

    opening = np.flatnonzero(takes[order_start[:-1]])  # ranks that receive before their first operation
    of_rank = np.searchsorted(opening, np.arange(ranks + 1))
    of_op = len(opening) + np.concatenate([[0], np.cumsum(sends.astype(np.int64) + takes_next - together)])
    send_call = np.where(sends, of_op[:-1] + take_first, -1)
    take_of_next = np.where(takes_next, of_op[:-1] + (both & ~together & ~take_first), -1)
    taken = np.full(size, -1)  # by receiving operation
    taken[then[takes_next]] = take_of_next[takes_next]
    taken[order_start[:-1][opening]] = np.arange(len(opening))
    take_call = np.full(size, -1)
    take_call[sender[takes]] = taken[takes]

    count = int(of_op[-1])
    before = np.full(count, -1)
    apart = both & ~together
    second, first = np.maximum(send_call, take_of_next)[apart], np.minimum(send_call, take_of_next)[apart]
    if messages.calls == "late":  # the receive waits for the send before the last
        earlier = np.concatenate([[-1], send_call[:-1]])
        earlier[order_start[:-1]] = -1
        alike = takes_next & ~together
        before[take_of_next[alike]] = earlier[alike]
        waits = np.where(together, send_call, np.where(takes_next, take_of_next, earlier))
    else:
        before[second] = first
        waits = np.maximum(send_call, take_of_next)
    awaited = np.full(size, -1)
    awaited[then[~last]] = waits[~last]
    awaited[order_start[:-1][opening]] = np.arange(len(opening))
    following = np.full(count, -1)
    following[before[before >= 0]] = np.flatnonzero(before >= 0)

    owner, parts = np.concatenate([send_call[sends], take_call[sends]]), np.flatnonzero(sends)
    halves = np.concatenate([2 * parts, 2 * parts + 1])
    by_call = np.argsort(owner, kind="stable")
    call_rank = np.empty(count, np.int64)
    call_rank[send_call[sends]] = rank_of[sends]
    call_rank[taken[takes]] = rank_of[takes]
    return Calls(
        of_rank,
        of_op,
        call_rank,
        before,
        following,
        np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))]),
        halves[by_call],
        send_call,
        take_call,
        awaited,
        np.array([TAKEN if messages.sender == "taken" else MET, WAY if messages.notice else AT_ONCE]),
    )


def _senders(order: Ints, rank_of: Ints, dest: Ints, chunks: int) -> Ints:
    """The operation on another rank whose result each operation needs, (N,); -1: none."""
    kind, slot, wave = order[:, 0], rank_of * chunks + order[:, 1], order[:, 2]
    slots = dest.shape[1]
    source = np.full((3, slots), -1)
    for each in (FORWARD, BACKWARD):
        reached = np.flatnonzero(dest[each] >= 0)
        source[each, dest[each, reached]] = reached
    made = np.full((3, slots, int(wave.max(initial=0)) + 1), -1)
    made[kind, slot, wave] = np.arange(len(order))
    origin = source[kind, slot]
    found = np.where(origin >= 0, made[kind, origin, wave], -1)
    away = (origin >= 0) & (origin // chunks != rank_of)
    return np.where(away & (kind != WEIGHT), found, -1)


def _gaps(order: Ints, last: Flags, chunks: int, style: str) -> tuple[Flags, Flags]:
    """Of the gap behind each operation, (N,): whether send and receive are one call; else, whether the receive comes
    first."""
    kind = order[:, 0]
    following = np.append(kind[1:], kind[-1:])
    forth, back = (kind == FORWARD) & (following != FORWARD), (kind != FORWARD) & (following == FORWARD)
    if style == "apart":
        return np.zeros(len(order), bool), forth & ~last
    if chunks > 1:
        return ~last, np.zeros(len(order), bool)
    return (forth | back) & ~last, np.zeros(len(order), bool)
