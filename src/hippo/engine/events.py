"""Ranks that choose: one event loop that takes, of what could run next on a free rank, what some rule puts first.

Letters: G ranks, C chunks per rank, S = G C slots, m micro-batches, L operations of one kind on the busiest rank. A
*place* is ``kind * S + slot``.

A rank that is free looks at the next operation of each kind, in the order of its queue; it starts one, or sleeps until
a message comes in or the rule looks again. Ranks decide in the order of time, of equals the first. A link belongs to
one pair of ranks and one direction, and carries its messages one after the other, as in ``fixed_order``. What comes
first is a matter of the rule:

* ``by_hint``: of what is ready, what comes first in a schedule, with patience for what is announced
  (``schedule.by_hint``);
* ``by_policy``: the least start plus patience, within bounds on how far ahead a rank runs (``schedule.search.policy``);
* due times (3, G, m): the earliest (``schedule.search.hint``).

Who decides in another way asks ``earliest`` for the rank and makes it ``start`` or ``sleep`` (``dispatch.play``).
A pipeline may be played *mirrored*, backwards in time: B comes down the ranks and F goes up, W runs before its B.

What a rule or a caller does not need is ``None``, so that each is compiled alone, without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BYTES, DELAY, DEST, LINK, RECEIVER, Floats, Ints, Network, Packed

DOWN, UP, EXTRA = range(3)  # F, B, W; B, F, W where mirrored
PATIENCE_DOWN, PATIENCE_EXTRA, PATIENCE_URGENT, AHEAD, BACKLOG = range(5)  # rows of a policy
ROOM = 1 + 1e-9  # memory may exceed its limit by rounding
NEVER = 2**31 - 1  # the turn of what cannot run
NEAR = 1e-9  # of the time: messages this close to a decision count as there (rounding)


class Pipe(NamedTuple):
    """A pipeline of ranks that choose."""

    slots: int  # S
    chunks: int  # C
    waves: int  # m
    mirrored: bool  # backwards in time; one chunk per rank
    route: Ints  # (2 S, 3) columns DEST, RECEIVER, LINK of what F and B send
    delay: Floats  # (2, S) what a message takes from its last byte sent to the last received; so does its announcement
    sending: Floats  # (2, S) time that it occupies its link
    duration: Floats  # (3, S) as promised
    memory: Floats  # (3, S) taken at the start, below 0: given back at the end
    limit: Floats  # (G,) most memory, with room for rounding
    release: Floats  # (G,) when the rank may start
    rest: Floats  # (G,) time after its last operation until the end
    length: Ints  # (G,) operations of each kind
    seconds: Floats | None  # (3 S m,) how long each operation takes in this play, at ``place * m + micro-batch``
    late: Floats | None  # (2 S m,) factor on delay and sending of what each operation sends


class Board(NamedTuple):
    """Where a play stands; made once, wiped for each play."""

    free: Floats  # (G,) when the rank is free
    link_free: Floats  # (E,)
    arrived: Floats  # (2 S, m + 1) when the input of F and B is there; inf: not known, and in the last column
    gradient: Floats | None  # (S, m + 1) that of W, which a rank knows without it while it keeps to the micro-batches
    heard: Floats | None  # (3 S, m + 1) when its announcement is there; empty: nothing is announced
    expected: Floats | None  # (3 S, m + 1) when the announcement says that it comes
    begun: Ints  # (G, 3) operations of each kind
    wake: Floats  # (G,) when the rank decides next
    live: Floats  # (G,) memory
    left: Floats  # (G,) time still to take, as promised


class Rule(NamedTuple):
    """What comes first: one of the first three, and what it needs to know."""

    policy: Floats | None  # (5, G)
    due: Floats | None  # (3, G, m)
    queue: NDArray[np.int32] | None  # (3 G, L + 1, 3) turn, slot, micro-batch of ``3 rank + kind``'s, see ``by_hint``
    patience: float  # share of an operation's time for which a rank waits for what comes first and is announced


class Written(NamedTuple):
    """What is written."""

    kinds: NDArray[np.int8] | None  # (G, 3 m) that each rank runs one after the other
    starts: Floats | None  # (3, S, m); empty: not these


NOTHING = Written(None, None)


def by_policy(policy: Floats) -> Rule:
    """A policy (5, G), see the columns."""
    return Rule(policy, None, None, 0.0)


def by_hint(queue: NDArray[np.int32], patience: float = 0.0) -> Rule:
    """A schedule, as queues of its operations; each ends with a row of turn NEVER and micro-batch m."""
    return Rule(None, None, queue, float(patience))


def pipe(
    packed: Packed, network: Network, memory: Floats, limit: Floats, length: Ints, *, mirrored: bool = False
) -> Pipe:
    """A pipeline whose messages cross one link at most, for ranks with so much ``limit`` (G,).

    See ``Pipe`` for ``memory`` (3, S) and ``length`` (G,).
    """
    link, none = packed.route[:, LINK], np.zeros(len(packed.sync_s))
    crosses = link >= 0
    delay, sending = np.where(crosses, 0.0, packed.transfer[:, DELAY]), np.zeros(len(link))
    delay[crosses] = network.latency[link[crosses]]
    sending[crosses] = packed.transfer[crosses, BYTES] / network.bandwidth[link[crosses]]
    return Pipe(
        *(packed.slots, packed.chunks, packed.waves, mirrored, np.ascontiguousarray(packed.route[:, :3])),
        delay=delay.reshape(2, -1),
        sending=sending.reshape(2, -1),
        duration=packed.duration.reshape(3, -1),
        memory=memory,
        limit=limit * ROOM,
        release=packed.sync_s if mirrored else none,
        rest=none if mirrored else packed.sync_s,
        length=length,
        seconds=None,
        late=None,
    )


def varying(pipe: Pipe) -> Pipe:
    """The pipeline with room for how long things take in one play, see ``vary``."""
    count = pipe.slots * pipe.waves
    return pipe._replace(seconds=np.empty(3 * count), late=np.empty(2 * count))


def board(pipe: Pipe, *, announces: bool | None = None) -> Board:
    """An empty board of a pipeline. ``announces``: whether messages are announced; ``None``: no rule asks."""
    ranks, slots, size = len(pipe.length), pipe.slots, pipe.waves + 1
    free, wake, live, left = np.zeros((4, ranks))
    gradient = heard = expected = None
    if announces is not None:
        gradient, (heard, expected) = np.empty((slots, size)), np.empty((2, 3 * slots if announces else 0, size))
    links = np.zeros(pipe.route[:, LINK].max(initial=-1) + 1)
    begun, arrived = np.zeros((ranks, 3), np.int64), np.empty((2 * slots, size))
    return Board(free, links, arrived, gradient, heard, expected, begun, wake, live, left)


@kernel(lean=True, flat=True)
def vary(pipe, operations, messages, ranks):  # type: ignore[no-untyped-def]
    """How long things take in a play: factors of operations (3 S m,), of what F and B send (2 S m,), of ranks (G,)."""
    at = 0
    for kind in range(3):
        for slot in range(pipe.slots):
            own = pipe.duration[kind, slot] * np.float64(ranks[slot // pipe.chunks])
            for _ in range(pipe.waves):
                pipe.seconds[at] = own * np.float64(operations[at])
                at += 1
    for at in range(len(pipe.late)):
        pipe.late[at] = messages[at]


@kernel(lean=True, flat=True)
def wipe(pipe, board):  # type: ignore[no-untyped-def]
    """Nothing has run; the first slots have the inputs of all micro-batches."""
    board.begun[:], board.live[:], board.link_free[:], board.arrived[:] = 0, 0.0, 0.0, np.inf
    _nothing_heard(board.gradient, board.heard, board.expected)
    for slot in range(pipe.slots):
        if pipe.route[pipe.slots + slot, DEST] < 0:
            board.arrived[slot, : pipe.waves] = 0.0
    for rank in range(len(pipe.length)):
        board.free[rank] = board.wake[rank] = pipe.release[rank]
        board.left[rank] = pipe.rest[rank]
        for kind in range(3):
            board.left[rank] += pipe.waves * pipe.duration[kind, rank * pipe.chunks]


@kernel(lean=True, flat=True)
def _nothing_heard(gradient, heard, expected):  # type: ignore[no-untyped-def]
    if heard is not None:
        gradient[:], heard[:], expected[:] = np.inf, np.inf, np.inf


@kernel(lean=True, flat=True)
def play(pipe, board, rule, written, give_up):  # type: ignore[no-untyped-def]
    """Plays from the beginning to the end: the makespan; inf when ranks get stuck, or when it would be above
    ``give_up``."""
    wipe(pipe, board)
    wake, left, to_do, rank, now, goes_on = board.wake, board.left, 0, 0, 0.0, False
    for each in range(len(pipe.length)):
        to_do += 3 * pipe.length[each]
    while to_do > 0:
        if not goes_on:
            rank, now = earliest(wake)
            # No rank is below 0; told so, the compiler leaves out what counting from the end of arrays would take.
            if now == np.inf or now + left[rank] > give_up or rank < 0:
                return np.inf
        kind, slot, nth, when = _first(pipe, board, rule.policy, rule.due, rule.queue, rule, rank, now, goes_on)
        if kind < 0:
            wake[rank], goes_on = when, False
        else:
            now = start(pipe, board, written, rank, kind, slot, nth, when)
            to_do -= 1
            goes_on = rule.queue is not None
    return makespan(pipe, board)


@kernel(lean=True, flat=True)
def earliest(wake):  # type: ignore[no-untyped-def]
    """The rank that decides next, and when: inf when none ever does."""
    rank, now = 0, wake[0]
    for other in range(1, len(wake)):
        if wake[other] < now:
            rank, now = other, wake[other]
    return rank, now


@kernel(lean=True, flat=True)
def sleep(board, rank, until):  # type: ignore[no-untyped-def]
    """The rank decides again at that time, or when a message comes in that is sent from now on."""
    board.wake[rank] = until


@kernel(lean=True, flat=True)
def makespan(pipe, board):  # type: ignore[no-untyped-def]
    """Of a play that has come to its end."""
    end = 0.0
    for rank in range(len(pipe.length)):
        end = max(end, board.free[rank] + pipe.rest[rank])
    return end


@kernel(lean=True, flat=True)
def start(pipe, board, written, rank, kind, slot, micro_batch, now):  # type: ignore[no-untyped-def]
    """Runs an operation from now on and sends its result; whoever waits for it wakes when it is there. Its end."""
    place = kind * pipe.slots + slot
    op = place * pipe.waves + micro_batch
    _write(written.kinds, written.starts, board.begun, rank, kind, slot, micro_batch, now)
    end = now + _drawn(pipe.seconds, op, pipe.duration[kind, slot])
    board.begun[rank, kind] += 1
    board.live[rank] += pipe.memory[kind, slot]
    board.left[rank] -= pipe.duration[kind, slot]
    board.wake[rank] = board.free[rank] = end
    if kind == EXTRA:
        return end
    _keep(board.gradient, kind, slot, micro_batch, end)
    dest, receiver, link = pipe.route[place, DEST], pipe.route[place, RECEIVER], pipe.route[place, LINK]
    if dest < 0 or receiver < 0 or micro_batch < 0:  # the last two never, as in ``play``
        return end
    stretch, there = _drawn(pipe.late, op, 1.0), end
    if link >= 0:
        there = max(end, board.link_free[link]) + pipe.sending[kind, slot] * stretch
        board.link_free[link] = there
    there += pipe.delay[kind, slot] * stretch
    board.arrived[dest, micro_batch] = there
    board.wake[receiver] = min(board.wake[receiver], max(there, board.free[receiver]))
    _announce(pipe, board.heard, board.expected, kind, slot, dest, micro_batch, now)
    return end


@kernel(lean=True, flat=True)
def _write(kinds, starts, begun, rank, kind, slot, micro_batch, now):  # type: ignore[no-untyped-def]
    if kinds is not None:
        kinds[rank, begun[rank, 0] + begun[rank, 1] + begun[rank, 2]] = kind
    if starts is not None:  # noqa: SIM102 -- None is known when compiling, the length is not
        if len(starts) > 0:
            starts[kind, slot, micro_batch] = now


@kernel(lean=True, flat=True)
def _keep(gradient, kind, slot, micro_batch, end):  # type: ignore[no-untyped-def]
    if gradient is not None:  # noqa: SIM102 -- as above
        if kind == UP:
            gradient[slot, micro_batch] = end


@kernel(lean=True, flat=True)
def _drawn(values, at, usual):  # type: ignore[no-untyped-def]
    """The value of this play, the usual one where nothing varies."""
    if values is None:
        return usual
    return values[at]


@kernel(lean=True, flat=True)
def _announce(pipe, heard, expected, kind, slot, dest, micro_batch, now):  # type: ignore[no-untyped-def]
    """What the receiver hears of an operation that starts now, and when it expects its result, as promised."""
    if heard is not None:  # noqa: SIM102 -- as above
        if len(heard) > 0:
            heard[dest, micro_batch] = now + pipe.delay[kind, slot]
            promised = (pipe.duration[kind, slot] + pipe.sending[kind, slot]) + pipe.delay[kind, slot]
            expected[dest, micro_batch] = now + promised


# --------------------------------------------------------------------------------------------------------------- rules
@kernel(lean=True, flat=True)
def _first(pipe, board, policy, due, queue, rule, rank, now, goes_on):  # type: ignore[no-untyped-def]
    """What begins (-1: nothing), slot, micro-batch, and when; or when to look again. A rank that ``goes_on``, out of
    the order of time, begins only what comes first whatever other ranks send meanwhile."""
    if queue is not None:
        return _by_hint(
            pipe, board, board.gradient, board.heard, board.expected, queue, rule.patience, rank, now, goes_on
        )
    if policy is not None:
        kind, when = _by_policy(pipe, board, policy, rank, now)
        return kind, rank, board.begun[rank, kind], when
    if due is not None:
        kind, when = _by_due(pipe, board, due, rank, now)
        return kind, rank, board.begun[rank, kind], when
    return -1, rank, 0, np.inf


@kernel(lean=True, flat=True)
def _by_hint(pipe, board, gradient, heard, expected, queue, patience, rank, moment, goes_on):  # type: ignore[no-untyped-def]
    """Of what is ready, what comes first in the schedule. See ``schedule.by_hint``."""
    now, slots, of_f, of_b, of_w = moment + NEAR * moment, pipe.slots, 3 * rank, 3 * rank + 1, 3 * rank + 2
    f, b, w = board.begun[rank, DOWN], board.begun[rank, UP], board.begun[rank, EXTRA]
    turn_f, slot_f, at_f = queue[of_f, f, 0], queue[of_f, f, 1], queue[of_f, f, 2]
    turn_b, slot_b, at_b = queue[of_b, b, 0], queue[of_b, b, 1], queue[of_b, b, 2]
    turn_w, slot_w, at_w = queue[of_w, w, 0], queue[of_w, w, 1], queue[of_w, w, 2]
    there_f, there_b = board.arrived[slot_f, at_f], board.arrived[slots + slot_b, at_b]
    there_w = gradient[slot_w, at_w]
    if board.live[rank] + pipe.memory[DOWN, slot_f] > pipe.limit[rank]:
        turn_f = NEVER
    if turn_f < min(turn_b, turn_w):
        place, nth, there = slot_f, at_f, there_f
        if there <= now:
            return DOWN, slot_f, at_f, max(moment, there)
    elif turn_b < turn_w:
        place, nth, there = slots + slot_b, at_b, there_b
        if there <= now:
            return UP, slot_b, at_b, max(moment, there)
    else:
        place, nth, there = EXTRA * slots + slot_w, at_w, there_w
        if there <= now:
            return EXTRA, slot_w, at_w, max(moment, there)
    if goes_on:
        return -1, slot_f, at_f, moment
    kind, slot, at, turn, begins, later = -1, slot_f, at_f, NEVER, moment, np.inf
    if there_f > now:
        later = there_f
    elif turn_f < turn:
        kind, turn, begins = DOWN, turn_f, there_f
    if there_b > now:
        later = min(later, there_b)
    elif turn_b < turn:
        kind, slot, at, turn, begins = UP, slot_b, at_b, turn_b, there_b
    if there_w > now:
        later = min(later, there_w)
    elif turn_w < turn:
        kind, slot, at, begins = EXTRA, slot_w, at_w, there_w
    if patience > 0 and kind >= 0 and heard[place, nth] <= moment:
        bearable = patience * pipe.duration[kind, slot]
        if expected[place, nth] - bearable <= moment < expected[place, nth] + bearable:
            return -1, slot, at, min(later, expected[place, nth] + bearable)
    return kind, slot, at, max(moment, begins) if kind >= 0 else later


@kernel(lean=True, flat=True)
def _by_policy(pipe, board, policy, rank, now):  # type: ignore[no-untyped-def]
    """The least start plus patience, if it can start now; else -1 and when the first that is on its way is there."""
    m = pipe.waves
    downs, ups, extras = board.begun[rank, DOWN], board.begun[rank, UP], board.begun[rank, EXTRA]
    down, up = board.arrived[rank, downs], board.arrived[pipe.slots + rank, ups]
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


@kernel(lean=True, flat=True)
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
            arrives = board.arrived[each * pipe.slots + rank, nth]
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
