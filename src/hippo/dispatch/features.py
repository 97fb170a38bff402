"""What a free rank sees when it chooses: only what it would know in a real run.

That is its own past, its queues and its memory; what has arrived, what is announced (the producer of a message
announces it when it starts; the announcement takes the latency without fluctuation), and three numbers that every
message carries: how many F, B and W its sender had begun. Times are in beats (the longest time that a rank takes for
one micro-batch), counts over p or m, so the same network serves every size.

Letters: p ranks, m micro-batches. Choices are F, B, W = 0, 1, 2 and WAIT = 3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.state import BUSY, DEVIATION, LATE, MESSAGES, PROMISED, readiness
from hippo.engine.events import NEAR
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.problem import ScheduleProblem

# ---------------------------------------------------------------------------------------- what is known before the step
# What a rank knows of itself before a step begins: its place, its times, its links, its memory, all as ratios.

FIXED = (
    "place",  # rank over p - 1
    "first",
    "last",
    "forward",  # F over F + B + W of the rank
    "backward",
    "load",  # F + B + W of the rank over that of the slowest
    "link_before_down",  # log1p of latency and transfer over the beat, of the link that F comes in on
    "link_before_up",  # that B goes out on
    "link_after_down",  # that F goes out on
    "link_after_up",  # that B comes in on
    "trip",  # log1p of the time from the end of F of a lone micro-batch to its B, over the beat
    "memory",  # micro-batches that the limit holds over p, at most 4
    "memory_trip",  # the same over what a round trip asks for, at most 4
    "micro_batches",  # log of m / p
    "ranks",  # log of p, over 3
    "warm_up",  # F before the first B in the hint, over p, at most 4
    "patience",  # of the base
)
"""Columns of ``Base.fixed``; the beat is the longest time that a rank takes for one micro-batch."""


def fixed_features(problem: ScheduleProblem, turn: NDArray[np.int64], patience: float) -> NDArray[np.float32]:
    """(p, len(FIXED)) of a plain problem; ``turn`` (3, p, m) of its hint."""
    t, p = problem.tables, problem.ranks
    load = t.duration.sum(axis=0)
    beat, way = load.max(), t.delay + t.transfer
    before = np.concatenate([np.zeros((2, 1)), way[:, :-1]], axis=1)
    after_up = np.append(way[BACKWARD, 1:], 0.0)
    trip = np.zeros(p)
    for rank in range(p - 2, -1, -1):
        there, back = way[FORWARD, rank], way[BACKWARD, rank + 1]
        trip[rank] = there + back + t.duration[FORWARD, rank + 1] + trip[rank + 1] + t.duration[BACKWARD, rank + 1]
    held = np.minimum(t.limit / t.taken, 4.0 * problem.micro_batches)
    asked = np.maximum(trip + load, beat) / beat
    warm_up = (turn[FORWARD] < turn[BACKWARD][:, :1]).sum(axis=1)
    ranks, ones = np.arange(p), np.ones(p)
    columns = (
        ranks / max(p - 1, 1),
        ranks == 0,
        ranks == p - 1,
        t.duration[FORWARD] / load,
        t.duration[BACKWARD] / load,
        load / beat,
        np.log1p(before[FORWARD] / beat),
        np.log1p(np.where(ranks > 0, way[BACKWARD], 0.0) / beat),
        np.log1p(np.where(ranks < p - 1, way[FORWARD], 0.0) / beat),
        np.log1p(after_up / beat),
        np.log1p(trip / beat),
        np.minimum(held / p, 4.0),
        np.minimum(held / asked, 4.0),
        ones * np.log(problem.micro_batches / p),
        ones * np.log(p) / 3,
        np.minimum(warm_up / p, 4.0),
        ones * patience,
    )
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.float32))


WAIT, CHOICES = 3, 4

_EACH_MESSAGE = ("ready", "announced", "due", "queued")
_EACH_KIND = ("exists", "ahead", "next", "lag", "slack", "left", "last_few")
MOVING = (
    *(f"{kind}_{name}" for kind in "FB" for name in _EACH_MESSAGE),
    "W_ready",
    *(f"{kind}_{name}" for kind in "FBW" for name in _EACH_KIND),
    "says_F",  # what the base would do: the patient hint
    "says_B",
    "says_W",
    "says_WAIT",
    "bearable",  # how long it would still wait, in beats
    "live",  # share of the memory limit
    "room",  # micro-batches that still fit, at most 4, over 4
    "full",
    "backlog",  # W that could run, over p
    "in_flight",  # F begun whose B is not, over p
    "out",  # F begun whose B has not come back, over p
    "after_queue",  # F that the next rank had not begun when it last said, at most 6, over 4
    "after_backlog",  # its W that could run, over p
    "before_queue",  # B that the rank before had not begun when it last said
    "before_backlog",
    "slow",  # time of the rank's operations over what was promised, less 1
    "unsteady",  # mean distance of an operation's time from its promise, as a share of it
    "late",  # mean lateness of messages, in beats
    "idle",  # share of the time so far
)
"""What changes during a play. Of what comes by message: is it there, is it announced, when is it due (beats from now),
how many have arrived. Of each kind: is one left, its turn in the hint less what the rank has begun (over p), is it the
hint's next, how late it is against the hint's own times, the slack that it had there, share left, the last of them."""

FEATURES = len(FIXED) + len(MOVING)

_AHEAD, _LAG = 2.0, 8.0


@kernel(lean=True)
def rule(base, state, rank, now, ready_f, ready_b, ready_w, fits):  # type: ignore[no-untyped-def]
    """What the base would do (as ``schedule.by_hint``), and until when it would wait."""
    head, m = state.board.begun, state.pipe.waves
    never = 4 * m
    f, b, w = head[rank, 0], head[rank, 1], head[rank, 2]
    turn_f = base.turn[FORWARD, rank, f] if fits else never
    turn_b = base.turn[BACKWARD, rank, b] if b < m else never
    turn_w = base.turn[WEIGHT, rank, w] if w < m else never
    kind, turn = WAIT, never
    if ready_f and turn_f < turn:
        kind, turn = FORWARD, turn_f
    if ready_b and turn_b < turn:
        kind, turn = BACKWARD, turn_b
    if ready_w and turn_w < turn:
        kind, turn = WEIGHT, turn_w
    if kind == WAIT or base.patience == 0.0:
        return kind, np.inf
    first = FORWARD if turn_f < min(turn_b, turn_w) else BACKWARD if turn_b < turn_w else WEIGHT
    if first != WEIGHT and first != kind:
        heard, expected = promise(state, first, rank, head[rank, first])
        bearable = base.patience * state.pipe.duration[kind, rank]
        if heard <= now and expected - bearable <= now < expected + bearable:
            return WAIT, expected + bearable
    return kind, np.inf


@kernel(lean=True)
def promise(state, kind, rank, index):  # type: ignore[no-untyped-def]
    """When a message is announced and when it is expected; inf: its producer has not begun, or it is the rank's own."""
    if 0 <= (rank - 1 if kind == FORWARD else rank + 1) < len(state.pipe.length):
        place = kind * state.pipe.slots + rank
        return state.board.heard[place, index], state.board.expected[place, index]
    return np.inf, np.inf


@kernel(lean=True)
def awaited(state, kind, rank, now, wanted):  # type: ignore[no-untyped-def]
    """Whether the next input of a kind is announced and not there."""
    index = state.board.begun[rank, kind]
    if not wanted or state.board.arrived[kind * state.pipe.slots + rank, index] <= now + NEAR * now:
        return False
    heard, _ = promise(state, kind, rank, index)
    return heard <= now


@kernel(lean=True)
def look(state, rank, now):  # type: ignore[no-untyped-def]
    """Counts the messages that are there (those behind a missing one do not count)."""
    moment = now + NEAR * now
    for kind in range(2):
        at, arrived = state.seen[rank, kind], state.board.arrived[kind * state.pipe.slots + rank]
        while arrived[at] <= moment:
            _, expected = promise(state, kind, rank, at)
            if expected < np.inf:
                state.history[rank, LATE] += arrived[at] - expected
                state.history[rank, MESSAGES] += 1
            at += 1
        state.seen[rank, kind] = at


@kernel(lean=True)
def observe(base, state, rank, now, seen, mask):  # type: ignore[no-untyped-def]
    """Writes what the rank sees (FEATURES,) and what it may choose (CHOICES,); gives ``rule``'s answer.

    WAIT is allowed only where something that could start is announced: then it ends.
    """
    ready_f, ready_b, ready_w, fits = readiness(state, rank, now)
    await_f = awaited(state, FORWARD, rank, now, fits)
    await_b = awaited(state, BACKWARD, rank, now, True)
    mask[0], mask[1], mask[2], mask[3] = ready_f, ready_b, ready_w, await_f or await_b
    says, until = rule(base, state, rank, now, ready_f, ready_b, ready_w, fits)
    look(state, rank, now)
    at = base.fixed.shape[1]
    for each in range(at):
        seen[each] = base.fixed[rank, each]
    at = _messages(base, state, rank, now, ready_f, ready_b, seen, at)
    seen[at] = ready_w
    at = _kinds(base, state, rank, now, seen, at + 1)
    for kind in range(CHOICES):
        seen[at + kind] = says == kind
    seen[at + 4] = min(until - now, 4 * base.beat) / base.beat if says == WAIT else 0.0
    _counts(base, state, rank, now, seen, at + 5)
    return says, until


@kernel(lean=True)
def _messages(base, state, rank, now, ready_f, ready_b, seen, at):  # type: ignore[no-untyped-def]
    for kind in range(2):
        index, due = state.board.begun[rank, kind], 2.0
        heard, expected = promise(state, kind, rank, index)
        announced = heard <= now and state.board.arrived[kind * state.pipe.slots + rank, index] > now
        if announced:
            due = min(max((expected - now) / base.beat, -2.0), 2.0)
        seen[at] = ready_f if kind == FORWARD else ready_b
        seen[at + 1], seen[at + 2] = announced, due
        seen[at + 3] = min(state.seen[rank, kind] - index, 6) / 4
        at += 4
    return at


@kernel(lean=True)
def _kinds(base, state, rank, now, seen, at):  # type: ignore[no-untyped-def]
    m, p, head = state.pipe.waves, len(state.pipe.length), state.board.begun
    done = head[rank, 0] + head[rank, 1] + head[rank, 2]
    first = 4 * m
    for kind in range(3):
        if head[rank, kind] < m:
            first = min(first, base.turn[kind, rank, head[rank, kind]])
    for kind in range(3):
        index = head[rank, kind]
        seen[at] = index < m
        if index < m:
            turn, start = base.turn[kind, rank, index], base.start[kind, rank, index]
            seen[at + 1] = min(max((turn - done) / p, -_AHEAD), _AHEAD)
            seen[at + 2] = turn == first
            seen[at + 3] = min(max((now - start) / base.beat, -_LAG), _LAG) / 4
            seen[at + 4] = min((base.makespan - start - base.tail[kind, rank, index]) / base.beat, _LAG) / 4
        else:
            seen[at + 1], seen[at + 2], seen[at + 3], seen[at + 4] = _AHEAD, 0.0, 0.0, 0.0
        seen[at + 5], seen[at + 6] = (m - index) / m, min((m - index) / p, 2.0)
        at += 7
    return at


@kernel(lean=True)
def _counts(base, state, rank, now, seen, at):  # type: ignore[no-untyped-def]
    m, p, head, live = state.pipe.waves, len(state.pipe.length), state.board.begun, state.board.live[rank]
    f, b, w, mine = head[rank, 0], head[rank, 1], head[rank, 2], state.history[rank]
    taken = state.pipe.memory[FORWARD, rank]
    limit = min(state.limit[rank], 4.0 * m * taken)
    room = (limit - live) / taken
    seen[at], seen[at + 1], seen[at + 2] = live / limit, min(room, 4.0) / 4, room < 1 - 1e-9
    seen[at + 3], seen[at + 4], seen[at + 5] = (b - w) / p, (f - b) / p, (f - state.seen[rank, BACKWARD]) / p
    seen[at + 6], seen[at + 7], seen[at + 8], seen[at + 9] = 0.0, 0.0, 0.0, 0.0
    if rank < p - 1 and state.seen[rank, BACKWARD] > 0:
        told = state.told[BACKWARD, rank, state.seen[rank, BACKWARD] - 1]
        seen[at + 6], seen[at + 7] = min(f - told[0], 6) / 4, (told[1] - told[2]) / p
    elif rank < p - 1:
        seen[at + 6] = min(f, 6) / 4
    if rank > 0 and state.seen[rank, FORWARD] > 0:
        told = state.told[FORWARD, rank, state.seen[rank, FORWARD] - 1]
        seen[at + 8], seen[at + 9] = min(b - told[1], 6) / 4, (told[1] - told[2]) / p
    count = f + b + w
    seen[at + 10] = mine[BUSY] / mine[PROMISED] - 1 if count > 0 else 0.0
    seen[at + 11] = mine[DEVIATION] / count if count > 0 else 0.0
    late = mine[LATE] / mine[MESSAGES] / base.beat if mine[MESSAGES] > 0 else 0.0
    seen[at + 12] = min(max(late, -4.0), 4.0)
    seen[at + 13] = 1 - mine[BUSY] / now if now > 0 else 0.0
