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
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hippo.errors import InfeasibleError, UnknownNameError
from hippo.pipeline.problem import Floats, Ints, ScheduleProblem
from hippo.pipeline.replay import peak_memory
from hippo.pipeline.schedule import BACKWARD, FORWARD, WEIGHT, Schedule

RULES = ("hint", "online")

NO_FACTORS: Floats = np.empty(0)
"""In place of an array of factors: every factor is 1."""

_NEAR = 1e-9  # of the time: messages this close to a decision count as there (rounding)

# Columns of an entry. READ and the WRITEs are places in ``arrived``: (kind * S + slot) * m + micro-batch.
_TURN, _READ, _WRITE, _OPERATION, _PLACE, _WEIGHT_WRITE = range(6)


class Queues(NamedTuple):
    """A hint made ready for ``run``."""

    entries: NDArray[np.int32]  # (N + 3 p, 6), see the columns above; each queue ends with an entry that is never ready
    first: Ints  # (3 p,) first entry of the queue ``3 rank + kind``
    operations: int  # N


def dispatch(
    problem: ScheduleProblem, hint: Schedule, *, rule: str = "hint", patience: float = 0.0, name: str = ""
) -> Schedule:
    """The order in which ranks run the operations of a legal hint, when everything takes as long as the problem says.

    The limits are those of the problem. ``patience`` is the share of an operation's time for which a rank waits for
    something that comes first and is announced, before it starts that operation (see ``run``).

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


def split(schedule: Schedule) -> Schedule:
    """The same schedule with every fused backward as B and then W; itself when nothing is fused."""
    if not schedule.fused:
        return schedule
    backward = schedule.order[:, 0] == BACKWARD
    order = np.repeat(schedule.order, 1 + backward, axis=0)
    before = np.concatenate([[0], np.cumsum(backward)])
    order[np.flatnonzero(backward) + before[1:][backward], 0] = WEIGHT
    start = schedule.order_start + before[schedule.order_start]
    for array in (order, start):
        array.setflags(write=False)
    return Schedule(schedule.name, schedule.shape, False, order, start)


def ordered(schedule: Schedule, start: Floats, name: str) -> Schedule:
    """The operations of each rank of a schedule put in the order of their ``start`` (N,)."""
    ranks = np.repeat(np.arange(len(schedule.order_start) - 1), np.diff(schedule.order_start))
    order = schedule.order[np.lexsort((start, ranks))]
    order.setflags(write=False)
    return Schedule(name, schedule.shape, False, order, schedule.order_start)


@njit(cache=True)
def _entries(tables, order, order_start, online):  # type: ignore[no-untyped-def]
    """Entries and first entries of ``Queues``. With ``online`` B come before F before W, each as in the hint."""
    p, v, m, slots, n = tables.ranks, tables.chunks, tables.micro_batches, tables.ranks * tables.chunks, len(order)
    entries, first = np.zeros((n + 3 * p, 6), np.int32), np.empty(3 * p, np.int64)
    nowhere, never, always = np.arange(3 * slots * m, 3 * slots * m + 3)
    at = 0
    for rank in range(p):
        for kind in range(3):
            first[3 * rank + kind] = at
            ahead = (0 if kind == BACKWARD else n if kind == FORWARD else 2 * n) if online else 0
            for op in range(order_start[rank], order_start[rank + 1]):
                if order[op, 0] != kind:
                    continue
                slot, micro_batch = rank * v + order[op, 1], order[op, 2]
                place = kind * slots + slot
                read, write, weight_write = never, nowhere, nowhere
                if kind == FORWARD:
                    read = place * m + micro_batch if tables.onward[BACKWARD, slot] >= 0 else always
                    receiver = tables.onward[FORWARD, slot]
                    target = receiver if receiver >= 0 else BACKWARD * slots + slot
                    write = target * m + micro_batch
                elif kind == BACKWARD:
                    read = place * m + micro_batch
                    receiver = tables.onward[BACKWARD, slot]
                    if receiver >= 0:
                        write = (BACKWARD * slots + receiver) * m + micro_batch
                    weight_write = (WEIGHT * slots + slot) * m + micro_batch
                else:
                    read = place * m + micro_batch
                entries[at, _TURN], entries[at, _READ], entries[at, _WRITE] = ahead + op, read, write
                entries[at, _OPERATION], entries[at, _PLACE], entries[at, _WEIGHT_WRITE] = op, place, weight_write
                at += 1
            entries[at, _TURN], entries[at, _READ] = 4 * n, never  # the end of the queue
            at += 1
    return entries, first


class _State(NamedTuple):
    """What ``run`` changes."""

    head: Ints  # (3 p,) entry at the head of each queue
    live: Floats  # (p,) memory kept
    arrived: Floats  # when the input of an operation is there; inf while nobody knows
    announced: Floats  # when its receiver hears that it is being made; empty without patience
    expected: Floats  # when the receiver then expects it
    wake: Floats  # (p,) when the rank decides next
    asleep: NDArray[np.bool_]  # (p,) nothing to do until a message comes
    port_free: Floats  # (p p,) when the directed link has sent what it was given


@njit(cache=True, error_model="numpy")
def run(tables, queues, factor, message_factor, rank_factor, patience, start):  # type: ignore[no-untyped-def]
    """The makespan, inf when the ranks get stuck; writes the start of every operation (N,) where there is room for it.

    ``factor`` (N,) stretches operations, ``message_factor`` (N,) the latency and the transfer of what they send,
    ``rank_factor`` (p,) all operations of a rank; an empty array stretches nothing. Operations count as in the order of
    ``split(hint)``. Messages of a directed link leave one after the other in the order their producers end.

    With ``patience`` above 0 a rank knows more than what is there: the producer of a message announces it when it
    starts, over the same link, and the receiver expects it after the unstretched duration and transfer. A rank leaves
    alone what it could start now while something that comes first is expected within ``patience`` times its duration.
    """
    state, makespan, left = _fresh(tables, queues, patience > 0), 0.0, queues.operations
    while left > 0:
        rank, now = 0, state.wake[0]
        for other in range(1, tables.ranks):  # decisions in the order of time: what is not sent yet comes later
            if state.wake[other] < now:
                rank, now = other, state.wake[other]
        if now == np.inf:
            return np.inf
        best, foremost, later = _ready(tables, queues, state, rank, now)
        state.asleep[rank] = best < 0
        if patience > 0 and best >= 0 and best != foremost:
            until = _worth_waiting(tables, queues, state, rank, now, best, patience)
            if until < np.inf:
                best, later = -1, until
        if best < 0:
            state.wake[rank] = later
        while best >= 0:
            end = _execute(tables, queues, state, rank, best, now, factor, message_factor, rank_factor, start)
            left, now, makespan = left - 1, end, max(makespan, end)
            state.wake[rank] = end
            best, foremost, later = _ready(tables, queues, state, rank, now)
            if best != foremost:  # what another rank sends meanwhile may come first
                best = -1
    return makespan


@njit(cache=True)
def _fresh(tables, queues, announces):  # type: ignore[no-untyped-def]
    """Nothing done; the last three places of ``arrived`` are for what nobody reads, for never, and for always."""
    p, places = tables.ranks, 3 * tables.ranks * tables.chunks * tables.micro_batches + 3
    arrived = np.full(places, np.inf)
    arrived[-1] = 0.0
    announced = np.full(places if announces else 0, np.inf)
    wake, port_free = np.zeros(p), np.zeros(p * p)
    return _State(
        queues.first.copy(), np.zeros(p), arrived, announced, announced.copy(), wake, np.zeros(p, np.bool_), port_free
    )


@njit(cache=True)
def _ready(tables, queues, state, rank, now):  # type: ignore[no-untyped-def]
    """Of the heads that memory lets run: the ready one that comes first, the one that comes first, the next arrival."""
    best = foremost = -1
    best_turn = foremost_turn = 2**31 - 1
    later, near = np.inf, now + _NEAR * now
    for kind in range(3):
        entry = queues.entries[state.head[3 * rank + kind]]
        if kind == FORWARD and state.live[rank] + tables.taken[entry[_PLACE]] > tables.limit[rank] * (1 + 1e-9):
            continue
        turn, at = entry[_TURN], state.arrived[entry[_READ]]
        if turn < foremost_turn:
            foremost, foremost_turn = kind, turn
        if at > near:
            later = min(later, at)
        elif turn < best_turn:
            best, best_turn = kind, turn
    return best, foremost, later


@njit(cache=True)
def _worth_waiting(tables, queues, state, rank, now, best, patience):  # type: ignore[no-untyped-def]
    """When the input arrives of a head before ``best`` that is expected soon; inf when none is."""
    chosen = queues.entries[state.head[3 * rank + best]]
    latest = now + patience * tables.duration[best, chosen[_PLACE] % tables.offset.size]
    for kind in range(3):
        entry = queues.entries[state.head[3 * rank + kind]]
        if kind == FORWARD and state.live[rank] + tables.taken[entry[_PLACE]] > tables.limit[rank] * (1 + 1e-9):
            continue
        read = entry[_READ]
        if entry[_TURN] < chosen[_TURN] and state.announced[read] <= now and state.expected[read] <= latest:
            if state.arrived[read] > now:
                return state.arrived[read]
    return np.inf


@njit(cache=True)
def _execute(tables, queues, state, rank, kind, now, factor, message_factor, rank_factor, start):  # type: ignore[no-untyped-def]
    """Runs the head of that kind and sends what it makes; when it ends."""
    entry = queues.entries[state.head[3 * rank + kind]]
    state.head[3 * rank + kind] += 1
    op, slot = entry[_OPERATION], entry[_PLACE] - kind * tables.offset.size
    begin = now
    if state.arrived[entry[_READ]] > now:  # by rounding only
        begin = state.arrived[entry[_READ]]
    if len(start) > 0:
        start[op] = begin
    taken = tables.duration[kind, slot]
    if len(factor) > 0:
        taken *= factor[op]
    if len(rank_factor) > 0:
        taken *= rank_factor[rank]
    end = begin + taken
    if kind == FORWARD:
        state.live[rank] += tables.taken[slot]
    elif kind == BACKWARD:
        state.live[rank] -= tables.freed[slot]
        state.arrived[entry[_WEIGHT_WRITE]] = end
    else:
        state.live[rank] -= tables.taken[slot] - tables.freed[slot]
        return end
    _send(tables, state, entry[_WRITE], kind, slot, begin, end, message_factor[op] if len(message_factor) > 0 else 1.0)
    return end


@njit(cache=True)
def _send(tables, state, write, kind, slot, begin, end, stretch):  # type: ignore[no-untyped-def]
    """The message of an operation, and what wakes for it."""
    latency, port = tables.delay[kind, slot] * stretch, tables.port[kind, slot]
    at = end
    if port >= 0:
        at = max(end, state.port_free[port]) + tables.transfer[kind, slot] * stretch
        state.port_free[port] = at
    state.arrived[write] = at + latency
    receiver = tables.onward[kind, slot] // tables.chunks
    if len(state.announced) > 0:
        state.announced[write] = begin + latency
        state.expected[write] = begin + tables.duration[kind, slot] + tables.transfer[kind, slot] + latency
    if tables.onward[kind, slot] >= 0 and state.asleep[receiver]:
        state.wake[receiver] = min(state.wake[receiver], at + latency)
