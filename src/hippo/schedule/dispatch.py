"""A schedule as a hint: ranks run what is ready, the hint only says what goes first. For delays that nobody knows.

Letters: p ranks, S slots, m micro-batches (``problem.Tables``); N operations of the hint, a fused backward split.

Every rank has three queues, one per kind, each in the hint's order over all chunks. A rank without work looks at the
heads that are *ready* (the input is there; a forward also needs memory) and runs the one that comes first; when none
is ready it waits for the next message. The rules differ in what comes first: with ``hint`` what comes first in the
hint (RRFP, arXiv 2605.18750, calls this a non-binding hint), with ``online`` a B, else an F, else a W.

It never gets stuck. Let L be one order of all operations that agrees with the hint on each rank and with the data
(L exists: a legal hint can be replayed). Of the operations not done, x is the first in L, on rank r. Everything before
x in L is done, so x's input is on its way or there, and x is the head of its queue. If x is a forward: exactly the
forwards before it in the hint are done on r, and at least the B and W before it; r keeps at most what it keeps in the
hint before x, so x fits wherever the hint fits. Hence some operation can run, whatever the rule picks meanwhile. Where
a hint needs more than the limit this proof is void, except with one chunk per rank and micro-batches in order: there
the oldest unfinished micro-batch always fits, because nothing newer than it is ahead of it in any queue.

With *patience* a rank knows more than what is there: the producer of a message announces it when it starts; the
announcement takes the unstretched latency, and the receiver expects the message after the unstretched duration and
transfer. A rank leaves alone what it could start now while what comes first is expected within ``patience`` times its
duration from now, and gives up when it is overdue by as much. A little of it helps where memory is short: p 8, m 32,
F B W = 1 1.05 .75, all +-20 % (uniform, ranks +-10 %; mean of 300 plays), the cross-domain schedule as a hint. One link
of 5 F in the middle: 144.3 without and 141.1 with patience .5 at 8 live, 109.1 and 108.8 at 16. All links 1 F: 154.3
and 152.2 at 8, 112.7 and 111.9 at 16. All links .1 F: 109.5 and 107.7 at 8, but 102.4 and 103.0 at 16. The rule
``online`` gains nothing from it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.errors import InfeasibleError, UnknownNameError
from hippo.schedule.problem import Floats, Ints, ScheduleProblem
from hippo.schedule.replay import peak_memory
from hippo.schedule.schedule import Schedule, split

RULES = ("hint", "online")

NO_FACTORS: Floats = np.empty(0)
"""In place of an array of factors: every factor is 1."""

_NEVER = 2**31 - 1  # the turn of a forward that memory does not let run
_NEAR = 1e-9  # of the time: messages this close to a decision count as there (rounding)

# Columns of an entry. READ and the WRITEs are places in ``arrived``: (kind * S + slot) * m + micro-batch.
_TURN, _READ, _WRITE, _WEIGHT_WRITE, _OPERATION, _PLACE, _KIND, _RECEIVER = range(8)


class Queues(NamedTuple):
    """A hint made ready for ``run``."""

    entries: NDArray[np.int32]  # (N + 3 p, 8), see the columns above; each queue ends with an entry that is never ready
    first: Ints  # (3 p,) first entry of the queue ``3 rank + kind``
    operations: int  # N


def dispatch(
    problem: ScheduleProblem, hint: Schedule, *, rule: str = "hint", patience: float = 0.0, name: str = ""
) -> Schedule:
    """The order in which ranks run the operations of a legal hint, when everything takes as long as the problem says.

    The limits are those of the problem. ``patience`` is the share of an operation's time for which a rank waits for
    something that comes first and is announced, before it starts that operation (see the top of the file).

    Raises
    ------
    UnknownNameError
        No rule has that name.
    InfeasibleError
        The hint needs more than the limit, and ranks got stuck for it; the message names a limit that does.
    """
    whole = split(hint)
    start = np.empty(len(whole.order))
    found = run(problem.tables, queues(problem, whole, rule), NO_FACTORS, NO_FACTORS, NO_FACTORS, patience, start)
    if np.isinf(found):
        need = peak_memory(problem, whole)
        rank = int(np.argmax(need / problem.limit))
        raise InfeasibleError(
            [
                f"{hint.name} as a hint keeps {need[rank]:g} on rank {rank}, the limit is {problem.limit[rank]:g}, and "
                f"the ranks get stuck. Nearest way out: --memory {need.max():g}, or --method best."
            ]
        )
    return ordered(whole, start, name or f"{hint.name} as a hint")


def queues(problem: ScheduleProblem, hint: Schedule, rule: str = "hint") -> Queues:
    """The queues of all ranks; a fused backward becomes B and W (operations count as in ``split(hint)``)."""
    if rule not in RULES:
        raise UnknownNameError("dispatch rule", rule, RULES, source="rule")
    whole = split(hint)
    entries, first = _entries(problem.tables, whole.order, whole.order_start, rule == "online")
    return Queues(entries, first, len(whole.order))


def ordered(schedule: Schedule, start: Floats, name: str) -> Schedule:
    """The operations of each rank of a schedule put in the order of their ``start`` (N,)."""
    ranks = np.repeat(np.arange(len(schedule.order_start) - 1), np.diff(schedule.order_start))
    order = schedule.order[np.lexsort((start, ranks))]
    order.setflags(write=False)
    return Schedule(name, schedule.shape, False, order, schedule.order_start)


@kernel
def _entries(tables, order, order_start, online):  # type: ignore[no-untyped-def]
    """Entries and first entries of ``Queues``. With ``online`` B come before F before W, each as in the hint."""
    p, v, m, slots, n = tables.ranks, tables.chunks, tables.micro_batches, tables.offset.size, len(order)
    entries, first, at = np.zeros((n + 3 * p, 8), np.int32), np.empty(3 * p, np.int64), 0
    nowhere, never, always = np.arange(3 * slots * m, 3 * slots * m + 3)
    ahead = np.array([n, 0, 2 * n]) if online else np.zeros(3, np.int64)
    for queue in range(3 * p):
        rank, kind, first[queue] = queue // 3, queue % 3, at
        for op in range(order_start[rank], order_start[rank + 1]):
            if order[op, 0] != kind:
                continue
            slot, micro_batch = rank * v + order[op, 1], order[op, 2]
            receiver = tables.onward[kind, slot] if kind != WEIGHT else -1
            read, write, own_weight = (kind * slots + slot) * m + micro_batch, nowhere, nowhere
            if kind == FORWARD and tables.onward[BACKWARD, slot] < 0:
                read = always
            if receiver >= 0:
                write = (kind * slots + receiver) * m + micro_batch
            elif kind == FORWARD:
                write = (BACKWARD * slots + slot) * m + micro_batch
            if kind == BACKWARD:
                own_weight = (WEIGHT * slots + slot) * m + micro_batch
            entries[at, _TURN], entries[at, _READ], entries[at, _WRITE] = ahead[kind] + op, read, write
            entries[at, _WEIGHT_WRITE], entries[at, _OPERATION] = own_weight, op
            entries[at, _PLACE], entries[at, _KIND] = kind * slots + slot, kind
            entries[at, _RECEIVER] = receiver // v
            at += 1
        entries[at, _TURN], entries[at, _READ], at = 4 * n, never, at + 1  # the end of the queue
    return entries, first


@kernel
def run(tables, queues, factor, message_factor, rank_factor, patience, start):  # type: ignore[no-untyped-def]
    """The makespan, inf when the ranks get stuck; writes the start of every operation (N,) where there is room for it.

    ``factor`` (N,) stretches operations, ``message_factor`` (N,) the latency and the transfer of what they send,
    ``rank_factor`` (p,) all operations of a rank; empty: nothing. N counts as in ``split(hint)``. Messages of a
    directed link leave one after the other in the order their producers end.
    """
    entries, taken, limit = queues.entries, tables.taken, tables.limit * (1 + 1e-9)
    duration, memory = tables.duration.ravel(), np.concatenate((taken, -tables.freed, tables.freed - taken))
    delay, transfer, port = tables.delay.ravel(), tables.transfer.ravel(), tables.port.ravel()
    factor, message_factor = _or_ones(factor, queues.operations), _or_ones(message_factor, queues.operations)
    promised = duration[: len(delay)] + transfer + delay
    own, start, patient = _or_ones(rank_factor, tables.ranks), _or_ones(start, queues.operations), patience > 0
    arrived, heard, expected, live, wake, asleep, port_free = _nothing_done(tables, patient)
    head, makespan, left = queues.first.copy(), 0.0, queues.operations
    while left > 0:
        (rank, now), sure = _earliest(wake), True  # in the order of time: what is not sent yet comes later
        if now == np.inf:
            return np.inf
        while True:
            forward, backward, weight = head[3 * rank], head[3 * rank + 1], head[3 * rank + 2]
            turn_f, turn_b, turn_w = entries[forward, _TURN], entries[backward, _TURN], entries[weight, _TURN]
            turn_f = _NEVER if live[rank] + taken[entries[forward, _PLACE]] > limit[rank] else turn_f
            entry = forward if turn_f < min(turn_b, turn_w) else backward if turn_b < turn_w else weight
            read = entries[entry, _READ]
            if arrived[read] > now + _NEAR * now:
                if not sure:  # another rank may send meanwhile what comes first
                    wake[rank] = now
                    break
                at_f, at_b = arrived[entries[forward, _READ]], arrived[entries[backward, _READ]]
                kind, later = _ready(turn_f, turn_b, turn_w, at_f, at_b, arrived[entries[weight, _READ]], now)
                entry = head[3 * rank + max(kind, 0)]
                if patient and kind >= 0 and heard[read] <= now:
                    bearable = patience * duration[entries[entry, _PLACE]]
                    if expected[read] - bearable <= now < expected[read] + bearable:
                        kind, later = -1, min(later, expected[read] + bearable)
                if kind < 0:
                    wake[rank], asleep[rank] = later, True
                    break
            op, place, kind = entries[entry, _OPERATION], entries[entry, _PLACE], entries[entry, _KIND]
            sure = asleep[rank] = False
            begin = max(now, arrived[entries[entry, _READ]])  # later than now by rounding only
            now = begin + duration[place] * own[rank] * factor[op]
            start[op] = begin
            live[rank] += memory[place]
            head[3 * rank + kind], left = head[3 * rank + kind] + 1, left - 1
            if kind == WEIGHT:
                continue
            arrived[entries[entry, _WEIGHT_WRITE]] = now
            stretch, write, sent = message_factor[op], entries[entry, _WRITE], now
            if port[place] >= 0:
                sent = max(now, port_free[port[place]]) + transfer[place] * stretch
                port_free[port[place]] = sent
            arrived[write] = sent + delay[place] * stretch
            receiver = entries[entry, _RECEIVER]
            if receiver >= 0 and asleep[receiver]:
                wake[receiver] = min(wake[receiver], arrived[write])
            if patient:
                heard[write], expected[write] = begin + delay[place], begin + promised[place]
        makespan = max(makespan, now + tables.reduction[rank])
    return makespan


@kernel
def _or_ones(given, count):  # type: ignore[no-untyped-def]
    """An array for every use: without branches the kernel is quicker."""
    return given if len(given) > 0 else np.ones(count)


@kernel
def _earliest(wake):  # type: ignore[no-untyped-def]
    """Who decides next, and when."""
    rank, now = 0, wake[0]
    for other in range(1, len(wake)):
        if wake[other] < now:
            rank, now = other, wake[other]
    return rank, now


@kernel
def _nothing_done(tables, patient):  # type: ignore[no-untyped-def]
    """Arrivals, announcements and what they promise; memory, next decision and sleep of each rank; links free."""
    p, places = tables.ranks, 3 * tables.offset.size * tables.micro_batches + 3
    # When the input of an operation is there; the last three places: what nobody reads, never, always.
    arrived = np.full(places, np.inf)
    arrived[-1] = 0.0
    heard, expected = np.full(places if patient else 0, np.inf), np.full(places if patient else 0, np.inf)
    return arrived, heard, expected, np.zeros(p), np.zeros(p), np.zeros(p, np.bool_), np.zeros(p * p)


@kernel
def _ready(turn_f, turn_b, turn_w, at_f, at_b, at_w, moment):  # type: ignore[no-untyped-def]
    """Of the heads whose input is there, the kind that comes first (-1: none), and the next input that is not there."""
    kind, turn, later, now = -1, _NEVER, np.inf, moment + _NEAR * moment
    if at_f > now:
        later = at_f
    elif turn_f < turn:
        kind, turn = FORWARD, turn_f
    if at_b > now:
        later = min(later, at_b)
    elif turn_b < turn:
        kind, turn = BACKWARD, turn_b
    if at_w > now:
        later = min(later, at_w)
    elif turn_w < turn:
        kind = WEIGHT
    return kind, later
