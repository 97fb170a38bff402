"""How messages and operations wait for each other in a runtime whose senders and receivers have to meet.

A *call* is what a rank hands over at once: sends, receives or both. Of the gap between two operations of a rank, where
the result of the first may have to be sent and the input of the second to come:

* ``coupled`` (Megatron-LM, ``schedules.py``, ``forward_backward_pipelining_without_interleaving``): between a forward
  and a backward one call of both; between two of a kind (warm-up, drain) the send, then the receive. The rank waits
  for all of it. With several chunks a rank (``forward_backward_pipelining_with_interleaving``, messages overlapped as
  ``--overlap-p2p-communication`` has them unless told otherwise) see ``_chunked_calls``.
* ``apart`` (DeepSpeed, ``pipe/schedule.py``, ``TrainSchedule``): a call for each, the send first, but before a backward
  that follows a forward the receive, where the pipeline is full. The rank waits for each.
* ``late`` (torch, ``distributed/pipelining/schedules.py``, ``Schedule1F1B`` and ``ScheduleGPipe``): as ``coupled``
  between unlike kinds; between two of a kind nobody waits for the send, and the receive is posted once the send before
  is over. Other orders, and chunks, are run by ``_PipelineScheduleRuntime``: ``_add_send_recv`` goes through the ranks
  round by round, an operation a rank; its result's send follows it, the receive stands behind what its receiver has
  done by then. Nobody waits for a send.
* ``stream`` (zero bubble on NCCL, sail-sg/zero-bubble-pipeline-parallelism, ``scheduler/communication.py``): sends and
  receives stand where the plan has them, by its own seconds and messages in no time; those in a row are one call, cut
  behind a receive that the next operation needs. All calls of a rank run one after another on one stream; an operation
  waits for the call of its input and for nothing else.

Letters: N operations, G ranks, S = G * C slots, Q calls. ``engine.program.Packed`` says what the arrays mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import AT_ONCE, BACKWARD, FORWARD, MET, TAKEN, WAY, WEIGHT
from hippo.errors import InputError
from hippo.problem.runtimes import Messages
from hippo.schedule.schedule import order
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
    rows, order_start, messages = program.order, program.order_start, program.messages
    chunks = program.forward_s.shape[1]
    if messages.calls == "free":
        return None
    if messages.calls == "late" and not _is_built_in(program):
        return _posted_calls(program, dest)
    if messages.calls == "stream":
        return _streamed_calls(program, dest)
    if messages.calls == "coupled" and chunks > 1:
        return _chunked_calls(program, dest)
    size, ranks = len(rows), len(order_start) - 1
    rank_of = np.repeat(np.arange(ranks), np.diff(order_start))
    sender = _senders(rows, rank_of, dest, chunks)
    sends, takes = np.zeros(size, bool), sender >= 0
    sends[sender[takes]] = True
    last = np.zeros(size, bool)
    last[order_start[1:] - 1] = True
    then = np.append(np.arange(1, size), 0)
    takes_next = np.where(last, False, takes[then])
    together, take_first = _gaps(rows, last, messages.calls)
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

    call_rank = np.empty(count, np.int64)
    call_rank[send_call[sends]] = rank_of[sends]
    call_rank[taken[takes]] = rank_of[takes]
    part_start, part = _parts(send_call, take_call, count)
    how = _meeting(messages)
    return Calls(of_rank, of_op, call_rank, before, following, part_start, part, send_call, take_call, awaited, how)


def _chunked_calls(program: Program, dest: Ints) -> Calls:
    """Interleaved 1F1B: in the warm-up one call behind each forward, of its send and of the receive of the forward
    after it; from then on a call for each message.

    What an operation sends stands behind it; what it receives behind the last one of its kind, for the first backward
    behind the warm-up. A rank waits for what it sends: for that of a forward at once, of a backward after the backward
    that follows, in the drain at once. Messages with one neighbour follow each other; where two ranks are neighbours on
    both sides, all that a rank sends, and all that it receives.
    """
    rows, starts, chunks = program.order, program.order_start, program.forward_s.shape[1]
    size, ranks = len(rows), len(starts) - 1
    rank_of = np.repeat(np.arange(ranks), np.diff(starts))
    sender = _senders(rows, rank_of, dest, chunks)
    place, forth, first = np.arange(size), rows[:, 0] == FORWARD, starts[rank_of]
    stages = np.bincount(program.rank_pipeline)[program.rank_pipeline]
    waves = program.num_waves[program.rank_pipeline] * chunks
    warm = first + np.minimum(2 * (stages - program.rank_stage - 1) + (chunks - 1) * stages, waves)[rank_of]
    pair = ~forth & (place > warm) & np.append(False, forth[:-1])  # backwards that follow a forward
    opens = ~forth & ((place == warm) | pair & (place == warm + 1))  # the first backward of a rank
    takes, sends = np.flatnonzero(sender >= 0), np.zeros(size, bool)
    sends[sender[takes]] = True

    behind = np.where((place > warm) & (forth | pair), place - 2, place - 1)
    behind = np.where(opens, warm - 1, behind)
    gap = np.where(place == first, rank_of, ranks + behind)
    sent, taken = 3 * (ranks + place) + (place >= warm), 3 * gap + np.where((place <= warm) & ~opens, 0, 2)
    used = np.unique(np.concatenate([sent[sends], taken[takes]]))  # a number for each call, as the engine has them
    send_call, take_call = np.full((2, size), -1)
    send_call[sends] = np.searchsorted(used, sent[sends])
    take_call[sender[takes]] = received = np.searchsorted(used, taken[takes])

    def whole(at: Ints) -> Ints:
        """The warm-up's call at each of these gaps; -1: it has none."""
        found = np.minimum(np.searchsorted(used, 3 * at), len(used) - 1)
        return np.where(used[found] == 3 * at, found, -1)

    mine = np.where(np.append(False, pair[:-1]), place - 3, place - 1)  # whose send the rank waits for
    awaited = np.where(mine >= warm, send_call[mine], -1)
    awaited = np.where(place <= warm, whole(np.where(place == first, rank_of, ranks + place - 1)), awaited)

    owner = used // 3
    call_rank = np.where(owner < ranks, owner, rank_of[owner - ranks])
    onward = np.zeros(len(used), bool)  # calls with the next rank, of two ranks those that send
    two = (stages == 2)[rank_of]
    onward[send_call[sends]] = (forth | two)[sends]
    onward[received] = (~forth & ~two)[takes]
    before = np.full(len(used), -1)
    single = np.flatnonzero(used % 3 > 0)
    line = single[np.lexsort((single, 2 * call_rank[single] + onward[single]))]
    same = (call_rank[line[1:]] == call_rank[line[:-1]]) & (onward[line[1:]] == onward[line[:-1]])
    before[line[1:][same]] = line[:-1][same]
    earliest = received[opens[takes]]  # the first backwards' receives, behind all of the warm-up
    before[earliest] = whole(owner[earliest])
    following = np.full(len(used), -1)
    following[before[before >= 0]] = np.flatnonzero(before >= 0)
    of_rank = np.searchsorted(owner, np.arange(ranks + 1))
    of_op = np.searchsorted(owner, ranks + np.arange(size + 1))
    parts = _parts(send_call, take_call, len(used))
    how = _meeting(program.messages)
    return Calls(of_rank, of_op, call_rank, before, following, *parts, send_call, take_call, awaited, how)


def _parts(send_call: Ints, take_call: Ints, count: int) -> tuple[Ints, Ints]:
    """Slices (Q + 1,) and parts of the calls, from the two calls of each operation's result, (N,)."""
    sending = np.flatnonzero(send_call >= 0)
    owner = np.concatenate([send_call[sending], take_call[sending]])
    halves = np.concatenate([2 * sending, 2 * sending + 1])
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
    return starts, halves[np.argsort(owner, kind="stable")]


def _meeting(messages: Messages) -> Ints:
    return np.array([TAKEN if messages.sender == "taken" else MET, WAY if messages.notice else AT_ONCE])


def _is_built_in(program: Program) -> bool:
    """Whether torch has a class of its own for the order of each pipeline: 1F1B or GPipe, a chunk a rank."""
    if program.forward_s.shape[1] > 1 or not program.fused:
        return False
    first = 0
    for waves, ranks in zip(program.num_waves.tolist(), np.bincount(program.rank_pipeline).tolist(), strict=True):
        mine = program.order[program.order_start[first] : program.order_start[first + ranks]]
        names = ("1f1b", "gpipe") if waves >= ranks else ()
        if not any(np.array_equal(mine, order(name, stages=ranks, micro_batches=waves).order) for name in names):
            return False
        first += ranks
    return True


def _posted_calls(program: Program, dest: Ints) -> Calls:
    """A call for every send and for every receive; nobody waits but for what an operation needs."""
    rows, starts, chunks = program.order, program.order_start, program.forward_s.shape[1]
    size, ranks = len(rows), len(starts) - 1
    rank_of = np.repeat(np.arange(ranks), np.diff(starts))
    sender = _senders(rows, rank_of, dest, chunks)
    takes, receiver = np.flatnonzero(sender >= 0), np.full(size, -1)
    receiver[sender[takes]] = takes
    after = posted(starts, sender, receiver)
    if (after[takes] < -1).any():
        raise InputError("would wait for ever under torch", key="schedule", remedy="take another order of operations")
    sends = np.flatnonzero(receiver >= 0)
    gap = np.concatenate([sends, after[takes]])
    rank = np.concatenate([rank_of[sends], rank_of[takes]])
    by_place = np.lexsort((np.arange(len(gap)), np.where(gap < 0, rank, gap), gap >= 0))
    number = np.empty(len(gap), np.int64)
    number[by_place] = np.arange(len(gap))
    send_call, take_call, awaited = np.full((3, size), -1)
    send_call[sends], awaited[takes] = number[: len(sends)], number[len(sends) :]
    take_call[sender[takes]] = awaited[takes]
    opening = int((gap < 0).sum())
    of_rank = np.searchsorted(rank[by_place[:opening]], np.arange(ranks + 1))
    of_op = opening + np.searchsorted(gap[by_place[opening:]], np.arange(size + 1))
    none = np.full(len(gap), -1)
    parts = _parts(send_call, take_call, len(gap))
    how = _meeting(program.messages)
    return Calls(of_rank, of_op, rank[by_place], none, none.copy(), *parts, send_call, take_call, awaited, how)


def _streamed_calls(program: Program, dest: Ints) -> Calls:
    """Calls of several sends and receives, one after another on each rank's stream."""
    rows, starts, chunks = program.order, program.order_start, program.forward_s.shape[1]
    size, ranks = len(rows), len(starts) - 1
    rank_of = np.repeat(np.arange(ranks), np.diff(starts))
    sender = _senders(rows, rank_of, dest, chunks)
    made = _planned_ends(program, sender, rank_of)
    lists = _placed(starts, sender, made)
    send_call, take_call, awaited = np.full((3, size), -1)
    found: list[tuple[int, int, list[tuple[int, bool]]]] = []  # gap (-1: before the first operation), rank, ends
    for rank, items in enumerate(lists):
        gap, together = -1, True
        for at, (op, is_end, receives) in enumerate(items):
            if not is_end:
                gap, together = op, False
                continue
            if not together or not found or found[-1][1] != rank:
                found.append((gap, rank, []))
            found[-1][2].append((op, receives))
            upcoming = next((other for other, end, _ in items[at + 1 :] if not end), None)
            together = not (receives and op == upcoming)
    found.sort(key=lambda call: (call[0] >= 0, call[0] if call[0] >= 0 else call[1]))
    last_of: dict[int, int] = {}
    before, following = np.full((2, len(found)), -1)
    for call, (_, rank, ends) in enumerate(found):
        before[call] = last_of.get(rank, -1)
        last_of[rank] = call
        for op, receives in ends:
            if receives:
                awaited[op], take_call[sender[op]] = call, call
            else:
                send_call[op] = call
    following[before[before >= 0]] = np.flatnonzero(before >= 0)
    gaps, owners = np.array([gap for gap, _, _ in found]), np.array([rank for _, rank, _ in found])
    opening = int((gaps < 0).sum())
    of_rank = np.searchsorted(owners[:opening], np.arange(ranks + 1))
    of_op = opening + np.searchsorted(gaps[opening:], np.arange(size + 1))
    parts = _parts(send_call, take_call, len(found))
    how = _meeting(program.messages)
    return Calls(of_rank, of_op, owners, before, following, *parts, send_call, take_call, awaited, how)


def _placed(starts: Ints, sender: Ints, made: NDArray[np.float64]) -> list[list[tuple[int, bool, bool]]]:
    """What each rank does in turn: (operation, False, False), or the end of a message: (the operation that makes it,
    True, False) where it is sent, (the one that needs it, True, True) where it is received.

    Messages are placed in the order in which they are made: the receive behind what its rank has done by then, before
    the operation that needs it at the latest.
    """
    ranks = len(starts) - 1
    needed = [op for op in range(len(sender)) if sender[op] >= 0]
    sends = {int(sender[op]) for op in needed}
    lists: list[list[tuple[int, bool, bool]]] = []
    for rank in range(ranks):
        lists.append([])
        for op in range(starts[rank], starts[rank + 1]):
            lists[-1] += [(op, False, False), *([(op, True, False)] if op in sends else [])]
    rank_of = np.repeat(np.arange(ranks), np.diff(starts)).tolist()
    placed = [0] * ranks  # what stands before is fixed
    for op in sorted(needed, key=lambda each: made[sender[each]]):
        source = int(sender[op])
        placed[rank_of[source]] = lists[rank_of[source]].index((source, True, False)) + 1
        items, at = lists[rank_of[op]], placed[rank_of[op]]
        while not items[at][1] and made[items[at][0]] < made[source] and items[at][0] != op:
            at += 1
        items.insert(at, (op, True, True))
        placed[rank_of[op]] = at + 1
    return lists


def _planned_ends(program: Program, sender: Ints, rank_of: Ints) -> NDArray[np.float64]:
    """When each operation would end if messages took no time, (N,), to the nanosecond of its unit."""
    seconds = np.stack([program.forward_s, program.backward_s, program.weight_s])
    if program.fused:
        seconds[BACKWARD] += seconds[WEIGHT]
    rows, starts = program.order, program.order_start
    lasts = seconds[rows[:, 0], rank_of, rows[:, 1]]
    ends, upcoming, moved = np.full(len(rows), np.nan), starts[:-1].tolist(), True
    while moved:
        moved = False
        for rank, op in enumerate(upcoming):
            while op < starts[rank + 1] and (sender[op] < 0 or not np.isnan(ends[sender[op]])):
                free = ends[op - 1] if op > starts[rank] else 0.0
                ends[op] = max(free, ends[sender[op]] if sender[op] >= 0 else 0.0) + lasts[op]
                op += 1
                moved = True
            upcoming[rank] = op
    found: NDArray[np.float64] = np.round(ends, 9)
    return found


@kernel
def posted(order_start, sender, receiver):  # type: ignore[no-untyped-def]
    """The operation behind which each operation's receive is posted, (N,): -1 before the first of its rank, -2 where
    the ranks would wait for each other. ``sender`` and ``receiver`` (N,) of its input and of its result."""
    ranks = len(order_start) - 1
    upcoming, last, after = order_start[:-1].copy(), np.full(ranks, -1), np.full(len(sender), -2)
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            op = upcoming[rank]
            if op < order_start[rank + 1] and (sender[op] < 0 or after[op] >= -1):
                upcoming[rank], last[rank], moved = op + 1, op, True
                other = receiver[op]
                if other >= 0:
                    after[other] = last[np.searchsorted(order_start, other, side="right") - 1]
    return after


def _senders(rows: Ints, rank_of: Ints, dest: Ints, chunks: int) -> Ints:
    """The operation on another rank whose result each operation needs, (N,); -1: none."""
    kind, slot, wave = rows[:, 0], rank_of * chunks + rows[:, 1], rows[:, 2]
    slots = dest.shape[1]
    source = np.full((3, slots), -1)
    for each in (FORWARD, BACKWARD):
        reached = np.flatnonzero(dest[each] >= 0)
        source[each, dest[each, reached]] = reached
    made = np.full((3, slots, int(wave.max(initial=0)) + 1), -1)
    made[kind, slot, wave] = np.arange(len(rows))
    origin = source[kind, slot]
    found = np.where(origin >= 0, made[kind, origin, wave], -1)
    away = (origin >= 0) & (origin // chunks != rank_of)
    return np.where(away & (kind != WEIGHT), found, -1)


def _gaps(rows: Ints, last: Flags, style: str) -> tuple[Flags, Flags]:
    """Of the gap behind each operation, (N,): whether send and receive are one call; else, whether the receive comes
    first."""
    kind = rows[:, 0]
    following = np.append(kind[1:], kind[-1:])
    forth, back = (kind == FORWARD) & (following != FORWARD), (kind != FORWARD) & (following == FORWARD)
    if style == "apart":
        return np.zeros(len(rows), bool), forth & ~last
    return (forth | back) & ~last, np.zeros(len(rows), bool)
