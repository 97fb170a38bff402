"""Ranks that choose: one event loop that takes, of what could run next on a free rank, what some rule puts first.

Letters: G ranks, C chunks per rank, S = G C slots, m micro-batches, L operations of one kind on the busiest rank.

A rank that is free looks at the next operation of each kind, in the order of its queue; it starts one, or sleeps until
a message comes in or the rule looks again. Ranks decide in the order of time, of equals the first. Messages go as in
``fixed_order``. What comes first is a matter of the rule:

* ``HINT``: of what is ready, what comes first in a schedule, with patience for what is announced
  (``schedule.by_hint``);
* ``POLICY``: the least start plus patience, within bounds on how far ahead a rank runs (``schedule.search.policy``);
* ``DUE``: the earliest due time (``schedule.search.hint``);
* ``ASKED``: whoever called is asked, and starts operations (``start``): ``resume`` comes back for every decision.

A pipeline may be played *mirrored*, backwards in time: B comes down the ranks and F goes up, W runs before its B.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.fixed_order import arrival_of
from hippo.engine.program import BYTES, DELAY, DEST, LINK, RECEIVER, WEIGHT, Floats, Ints, Network, Packed

DOWN, UP, EXTRA = range(3)  # F, B, W; B, F, W where mirrored
HINT, POLICY, DUE, ASKED = range(4)
PATIENCE_DOWN, PATIENCE_EXTRA, PATIENCE_URGENT, AHEAD, BACKLOG = range(5)  # rows of a policy
ROOM = 1 + 1e-9  # memory may exceed its limit by rounding
NEVER = 2**31 - 1  # the turn of a forward that memory does not let run
NEAR = 1e-9  # of the time: messages this close to a decision count as there (rounding)
MAKESPAN, TO_DO, NOW, WHO = range(4)  # in ``Board.total``


class Pipe(NamedTuple):
    """A pipeline of ranks that choose."""

    slots: int  # this and the next four as in ``Packed``
    chunks: int
    waves: int  # m
    route: Ints  # (2 S, 5)
    transfer: Floats  # (2 S, 3)
    network: Network  # ``seconds`` and factors, where there are any, stand at ``place * m + micro-batch``
    mirrored: bool  # backwards in time; one chunk per rank
    duration: Floats  # (3, S) as promised
    announced: Floats  # (2, S) what the announcement of a message takes
    promised: Floats  # (2, S) what the message itself takes, as promised
    memory: Floats  # (3, S) taken at the start, below 0: given back at the end
    limit: Floats  # (G,) most memory, with room for rounding
    release: Floats  # (G,) when the rank may start
    rest: Floats  # (G,) time after its last operation until the end
    length: Ints  # (G,) operations of each kind


class Board(NamedTuple):
    """Where a play stands; made once, wiped for each play."""

    free: Floats  # this and the next four as in ``Playing`` and ``Record``; no messages are recorded
    link_free: Floats
    port_free: Floats
    message_start: Floats
    message_end: Floats
    arrived: Floats  # (3, S, m) when the input is there; inf: not known
    heard: Floats  # (3, S, m) when its announcement is there; empty: nothing is announced
    expected: Floats  # (3, S, m) when the announcement says that it comes
    begun: Ints  # (G, 3) operations of each kind
    wake: Floats  # (G,) when the rank decides next
    live: Floats  # (G,) memory
    left: Floats  # (G,) time still to take, as promised
    total: Floats  # (4,) makespan once it is known, operations to do, and of a rank that is asked: when, and who


class Rule(NamedTuple):
    """What comes first, and what the rule needs to know; all else is ``None``, so that each rule is compiled alone."""

    by: int
    policy: Floats | None  # (5, G)
    due: Floats | None  # (3, G, m)
    queue: NDArray[np.int32] | None  # (3 G, L, 3) place in the schedule, slot, micro-batch of ``3 rank + kind``'s
    patience: float  # share of an operation's time for which a rank waits for what comes first and is announced


class Written(NamedTuple):
    """What is written where there is room for it."""

    kinds: NDArray[np.int8]  # (G, 3 m) that each rank runs one after the other
    starts: Floats  # (3, S, m)


_NO_FLOATS = np.empty(0)
_EMPTY = Rule(ASKED, None, None, None, 0.0)
NOWHERE = Written(np.empty((0, 0), np.int8), np.empty((0, 0, 0)))
"""Nothing is written."""


def by_policy(policy: Floats) -> Rule:
    """A policy (5, G), see the columns."""
    return _EMPTY._replace(by=POLICY, policy=policy)


def by_due(due: Floats) -> Rule:
    """Due times (3, G, m)."""
    return _EMPTY._replace(by=DUE, due=due)


def by_hint(queue: NDArray[np.int32], patience: float = 0.0) -> Rule:
    """A schedule, as queues of its operations."""
    return _EMPTY._replace(by=HINT, queue=queue, patience=float(patience))


def pipe(
    packed: Packed, network: Network, memory: Floats, limit: Floats, length: Ints, *, mirrored: bool = False
) -> Pipe:
    """A pipeline for ranks with so much ``limit`` (G,); see ``Pipe`` for ``memory`` (3, S) and ``length`` (G,)."""
    link, none = packed.route[:, LINK], np.zeros(len(packed.sync_s))
    delay = np.where(link < 0, packed.transfer[:, DELAY], 0.0)
    sending = np.zeros(len(delay))
    delay[link >= 0] = network.latency[link[link >= 0]]
    sending[link >= 0] = packed.transfer[link >= 0, BYTES] / network.bandwidth[link[link >= 0]]
    duration = packed.duration.reshape(3, -1)
    return Pipe(
        *(packed.slots, packed.chunks, packed.waves, packed.route, packed.transfer, network, mirrored, duration),
        announced=delay.reshape(2, -1),
        promised=(duration[:2] + sending.reshape(2, -1)) + delay.reshape(2, -1),
        memory=memory,
        limit=limit * ROOM,
        release=packed.sync_s if mirrored else none,
        rest=none if mirrored else packed.sync_s,
        length=length,
    )


def board(pipe: Pipe, *, announces: bool = False) -> Board:
    """An empty board of a pipeline."""
    ranks, size = len(pipe.length), (3, pipe.slots, pipe.waves)
    announced = size if announces else (0, 0, 0)
    free, wake, live, left = np.zeros((4, ranks))
    return Board(
        *(free, np.zeros(len(pipe.network.latency)), np.zeros(2 * pipe.slots), _NO_FLOATS, _NO_FLOATS),
        *(np.empty(size), np.empty(announced), np.empty(announced), np.zeros((ranks, 3), np.int64)),
        *(wake, live, left, np.zeros(4)),
    )


@kernel(lean=True)
def wipe(pipe, board):  # type: ignore[no-untyped-def]
    """Nothing has run; the first slots have the inputs of all micro-batches."""
    board.begun[:], board.live[:], board.total[:] = 0, 0.0, 0.0
    board.link_free[:], board.port_free[:] = 0.0, 0.0
    board.arrived[:], board.heard[:], board.expected[:] = np.inf, np.inf, np.inf
    for slot in range(pipe.slots):
        if pipe.route[pipe.slots + slot, DEST] < 0:
            board.arrived[DOWN, slot] = 0.0
    if pipe.mirrored:
        board.arrived[EXTRA] = 0.0
    for rank in range(len(pipe.length)):
        board.free[rank] = board.wake[rank] = pipe.release[rank]
        board.total[TO_DO] += 3 * pipe.length[rank]
        board.left[rank] = pipe.rest[rank]
        for kind in range(3):
            board.left[rank] += pipe.waves * pipe.duration[kind, rank * pipe.chunks]


@kernel(lean=True)
def play(pipe, board, rule, written, give_up):  # type: ignore[no-untyped-def]
    """Plays from the beginning, as ``resume``."""
    wipe(pipe, board)
    return resume(pipe, board, rule, written, give_up)


@kernel(lean=True)
def resume(pipe, board, rule, written, give_up):  # type: ignore[no-untyped-def]
    """Plays on to the end: the makespan; inf when ranks get stuck, or when it would be above ``give_up``.

    With ``ASKED`` to the next decision: below 0, and ``board.total`` says who decides when.
    """
    ranks, wake, left, total = len(pipe.length), board.wake, board.left, board.total
    while total[TO_DO] > 0:
        rank, now = 0, wake[0]
        for other in range(1, ranks):
            if wake[other] < now:
                rank, now = other, wake[other]
        if now == np.inf or now + left[rank] > give_up:
            return np.inf
        if rule.by == ASKED:
            total[NOW], total[WHO] = now, rank
            return -1.0
        sure = True  # in the order of time: what is not sent yet comes later
        while True:
            found = _first(pipe, board, rule.policy, rule.due, rule.queue, rule.patience, rank, now)
            kind, slot, nth, later, certain = found
            if not (sure or certain):  # another rank may send meanwhile what comes first
                break
            if kind < 0:
                wake[rank] = later
                break
            start(pipe, board, written, rank, kind, slot, nth, now)
            if rule.by != HINT:
                break
            now, sure = wake[rank], False
    for rank in range(ranks):
        total[MAKESPAN] = max(total[MAKESPAN], board.free[rank] + pipe.rest[rank])
    return total[MAKESPAN]


@kernel(lean=True)
def start(pipe, board, written, rank, kind, slot, micro_batch, now):  # type: ignore[no-untyped-def]
    """Runs an operation from now on and sends its result; whoever waits for it wakes when it is there."""
    network, free, place = pipe.network, board.free, kind * pipe.slots + slot
    now = max(now, board.arrived[kind, slot, micro_batch])  # later than now by rounding only
    op = place * pipe.waves + micro_batch
    if len(written.kinds) > 0:
        written.kinds[rank, board.begun[rank, 0] + board.begun[rank, 1] + board.begun[rank, 2]] = kind
    if len(written.starts) > 0:
        written.starts[kind, slot, micro_batch] = now
    end = now + (network.seconds[op] if len(network.seconds) > 0 else pipe.duration[kind, slot])
    board.begun[rank, kind] += 1
    board.live[rank] += pipe.memory[kind, slot]
    board.left[rank] -= pipe.duration[kind, slot]
    board.wake[rank] = free[rank] = end
    board.total[TO_DO] -= 1
    if kind == EXTRA:
        return
    if kind == UP and not pipe.mirrored:
        board.arrived[WEIGHT, slot, micro_batch] = end
    dest = pipe.route[place, DEST]
    if dest < 0:
        return
    there, receiver = arrival_of(pipe, network, board, board, op, place, end), pipe.route[place, RECEIVER]
    waits, other = (UP, dest - pipe.slots) if dest >= pipe.slots else (DOWN, dest)
    board.arrived[waits, other, micro_batch] = there
    board.wake[receiver] = min(board.wake[receiver], max(there, free[receiver]))
    if len(board.heard) > 0:
        board.heard[waits, other, micro_batch] = now + pipe.announced[kind, slot]
        board.expected[waits, other, micro_batch] = now + pipe.promised[kind, slot]


# --------------------------------------------------------------------------------------------------------------- rules
@kernel(lean=True)
def _first(pipe, board, policy, due, queue, patience, rank, now):  # type: ignore[no-untyped-def]
    """What begins now: kind (-1: nothing), slot, micro-batch, else when to look again; and whether nothing else could
    come first, whatever other ranks send meanwhile."""
    if queue is not None:
        return _by_hint(pipe, board, queue, patience, rank, now)
    if policy is not None:
        kind, later = _by_policy(pipe, board, policy, rank, now)
        return kind, rank, board.begun[rank, kind], later, False
    if due is not None:
        kind, later = _by_due(pipe, board, due, rank, now)
        return kind, rank, board.begun[rank, kind], later, False
    return -1, rank, 0, np.inf, False


@kernel(lean=True)
def _by_hint(pipe, board, queue, patience, rank, now):  # type: ignore[no-untyped-def]
    """Of what is ready, what comes first in the schedule. See ``schedule.by_hint``."""
    near, first, first_turn, first_slot, first_at = now + NEAR * now, -1, NEVER, 0, 0
    for each in range(3):
        nth = board.begun[rank, each]
        if nth < pipe.length[rank] and queue[3 * rank + each, nth, 0] < first_turn:
            slot = queue[3 * rank + each, nth, 1]
            if each > DOWN or board.live[rank] + pipe.memory[DOWN, slot] <= pipe.limit[rank]:
                first, first_slot, first_at = each, slot, queue[3 * rank + each, nth, 2]
                first_turn = queue[3 * rank + each, nth, 0]
    if first >= 0 and board.arrived[first, first_slot, first_at] <= near:
        return first, first_slot, first_at, now, True
    kind, turn, of_slot, at, later = -1, NEVER, 0, 0, np.inf
    for each in range(3):
        nth = board.begun[rank, each]
        if nth < pipe.length[rank]:
            its, slot, its_at = (
                queue[3 * rank + each, nth, 0],
                queue[3 * rank + each, nth, 1],
                queue[3 * rank + each, nth, 2],
            )
            there = board.arrived[each, slot, its_at]
            if there > near:
                later = min(later, there)
            elif its < turn and (each > DOWN or board.live[rank] + pipe.memory[DOWN, slot] <= pipe.limit[rank]):
                kind, turn, of_slot, at = each, its, slot, its_at
    if patience > 0 and kind >= 0:
        bearable = patience * pipe.duration[kind, of_slot]
        expected = board.expected[first, first_slot, first_at]
        if board.heard[first, first_slot, first_at] <= now and expected - bearable <= now < expected + bearable:
            return -1, of_slot, at, min(later, expected + bearable), False
    return kind, of_slot, at, later, False


@kernel(lean=True)
def _by_policy(pipe, board, policy, rank, now):  # type: ignore[no-untyped-def]
    """The least start plus patience, if it can start now; else -1 and when the first that is on its way is there."""
    m = pipe.waves
    downs, ups, extras = board.begun[rank, DOWN], board.begun[rank, UP], board.begun[rank, EXTRA]
    down = board.arrived[DOWN, rank, downs] if downs < m else np.inf
    up = board.arrived[UP, rank, ups] if ups < downs else np.inf
    ahead, backlog = policy[AHEAD, rank], policy[BACKLOG, rank]
    if pipe.mirrored:  # W comes before B and takes the memory
        fits = board.live[rank] + pipe.memory[EXTRA, rank] <= pipe.limit[rank]
        urgent = extras == downs and down <= now
        extra = now if extras < m and fits and extras - ups < ahead and extras - downs < backlog else np.inf
        down = down if downs < extras else np.inf
    else:
        fits = board.live[rank] + pipe.memory[DOWN, rank] <= pipe.limit[rank]
        urgent = ups - extras >= backlog
        if downs - ups >= ahead:
            down = np.inf
        elif not fits:
            urgent = urgent or down <= now
            down = np.inf
        extra = now if extras < ups else np.inf
    down, up = max(down, now), max(up, now)
    kind, begins, least = UP, up, up
    if down + policy[PATIENCE_DOWN, rank] < least:
        kind, begins, least = DOWN, down, down + policy[PATIENCE_DOWN, rank]
    if extra + policy[PATIENCE_URGENT if urgent else PATIENCE_EXTRA, rank] < least:
        kind, begins = EXTRA, extra
    if begins <= now:
        return kind, now
    if now < down < begins:
        begins = down
    if now < up < begins:
        begins = up
    return -1, begins


@kernel(lean=True)
def _by_due(pipe, board, due, rank, now):  # type: ignore[no-untyped-def]
    """What could start first, if it can start now; -1 and when to look again. Nothing starts before it is due, and what
    is not on its way yet counts as there when it is due; of what would start together, the earlier due goes first."""
    m = pipe.waves
    downs, ups, extras = board.begun[rank, DOWN], board.begun[rank, UP], board.begun[rank, EXTRA]
    fits = board.live[rank] + pipe.memory[EXTRA if pipe.mirrored else DOWN, rank] <= pipe.limit[rank]
    kind, least, wanted, there, wake = -1, np.inf, np.inf, np.inf, np.inf
    for each in range(3):
        nth, arrives = board.begun[rank, each], now
        if each == DOWN:
            allowed = downs < m and (downs < extras if pipe.mirrored else fits)
        elif each == UP:
            allowed = ups < downs
        else:
            allowed = (extras < m and fits) if pipe.mirrored else extras < ups
        if not allowed:
            continue
        if each != EXTRA:
            arrives = board.arrived[each, rank, nth]
        its = due[each, rank, nth]
        known = arrives < np.inf
        begins = max(now, its, arrives) if known else max(now, its)
        if known and begins < wake:
            wake = begins  # by then it starts, whatever is only expected
        sooner = begins < least or (begins == least and known and there == np.inf)
        if sooner or (begins == least and known == (there < np.inf) and its < wanted):
            kind, least, wanted, there = each, begins, its, arrives
    if there <= now:
        return kind, now
    return -1, (there if there < np.inf else wake)
