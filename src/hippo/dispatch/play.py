"""Learned dispatch: who is free next, what it sees, what happens when it has chosen.

Ranks, links, memory and announcements are the engine's (``engine.events``), as in ``schedule.by_hint``; a network that
follows the base hint gives its makespans.

Decisions are taken in the order of time, of equals the first rank. It never gets stuck: memory
masks only F, and with one chunk per rank and micro-batches in order the oldest unfinished micro-batch can always go on
(see there); WAIT is allowed only for a message that is announced, and ends with it at the latest.

The same kernels serve a whole play (``play``), whoever is asked decision by decision (``following`` and ``act``), and a
rank of a running pipeline, which knows its own rows of the state alone (``decide``; ``dispatch.rank``).

Letters: p ranks, m micro-batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.base import Base
from hippo.dispatch.features import CHOICES, FEATURES, WAIT, awaited, observe, promise
from hippo.dispatch.network import DispatchWeights, scores
from hippo.dispatch.state import BUSY, DEVIATION, PROMISED, DispatchState, begin, readiness
from hippo.engine.events import NEAR, earliest, makespan, sleep, start, vary
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT

ENDED = -1
STARVED, ASKED = 4, 5
"""Beside the choices: nothing can start; there is a choice, and ``AskedRank`` says what the rank sees."""
_AGAIN = 0.25  # beats: who waits longer than the base would is asked again so often


class AskedRank(NamedTuple):
    """Room for one decision."""

    seen: NDArray[np.float32]  # (FEATURES,)
    mask: NDArray[np.bool_]  # (4,)
    scores: NDArray[np.float32]  # (4,)
    one: NDArray[np.float32]  # (h,) the hidden units
    two: NDArray[np.float32]  # (h,)
    until: NDArray[np.float64]  # (2,) now, and until when the base would wait
    says: NDArray[np.int64]  # (1,) what the base would do


@kernel
def room(hidden):  # type: ignore[no-untyped-def]
    """Room for one decision of a network with so many hidden units."""
    return AskedRank(
        np.zeros(FEATURES, np.float32),
        np.zeros(CHOICES, np.bool_),
        np.zeros(CHOICES, np.float32),
        np.zeros(hidden, np.float32),
        np.zeros(hidden, np.float32),
        np.zeros(2),
        np.zeros(1, np.int64),
    )


@kernel(lean=True)
def following(state, base, asked):  # type: ignore[no-untyped-def]
    """Plays on until a rank has a choice; that rank, or ENDED. What a rank does that has no choice is done here."""
    while state.left[0] > 0:
        rank, now = earliest(state.board.wake)
        faced = facing(state, base, rank, now, asked)
        if faced == ASKED:
            return rank
        if faced == STARVED:
            state.waiting[rank] = False
            sleep(state.board, rank, _next_arrival(state, rank, now))
        else:
            act(state, base, rank, now, faced, np.inf)
    return ENDED


@kernel(lean=True)
def facing(state, base, rank, now, asked):  # type: ignore[no-untyped-def]
    """What a free rank faces: the one operation that it could start, STARVED, or ASKED."""
    ready_f, ready_b, ready_w, fits = readiness(state, rank, now)
    count = int(ready_f) + int(ready_b) + int(ready_w)
    if count == 0:
        return STARVED
    alone = not awaited(state, FORWARD, rank, now, fits)
    if count == 1 and alone and not awaited(state, BACKWARD, rank, now, True):
        return 0 if ready_f else 1 if ready_b else 2
    says, until = observe(base, state, rank, now, asked.seen, asked.mask)
    asked.until[0], asked.until[1], asked.says[0] = now, until, says
    return ASKED


class Known(NamedTuple):
    """What a rank decides with."""

    state: DispatchState
    base: Base
    weights: DispatchWeights
    asked: AskedRank


@kernel(lean=True)
def decide(known, rank, now):  # type: ignore[no-untyped-def]
    """What a free rank does: F, B, W, WAIT or STARVED, and when it decides again if it hears of nothing. ``known`` is a
    row of one ``Known``: a rank that has slept looks at hundreds of objects in a cold cache else."""
    state, base, weights, asked = known[0].state, known[0].base, known[0].weights, known[0].asked
    choice = facing(state, base, rank, now, asked)
    if choice == ASKED:
        choice = best_choice(weights, asked)
    state.waiting[rank] = choice == WAIT
    if choice == WAIT:
        return choice, _gives_up(state, base, rank, now, asked.until[1])
    if choice == STARVED:
        return choice, _next_arrival(state, rank, now)
    return choice, now


@kernel(lean=True)
def _next_arrival(state, rank, now):  # type: ignore[no-untyped-def]
    """When something else comes in, as far as anybody knows; inf."""
    later, moment = np.inf, now + NEAR * now
    for kind in range(2):
        there = state.board.arrived[kind * state.pipe.slots + rank, state.board.begun[rank, kind]]
        if there > moment:
            later = min(later, there)
    return later


@kernel(lean=True)
def act(state, base, rank, now, choice, until):  # type: ignore[no-untyped-def]
    """What follows from a choice; ``until``: when one who waits gives up, inf for the usual."""
    if choice == WAIT:
        sleep(state.board, rank, _gives_up(state, base, rank, now, until))
        state.waiting[rank] = True
        return
    pipe, board = state.pipe, state.board
    index, begins = board.begun[rank, choice], now
    if choice != WEIGHT:
        begins = max(now, board.arrived[choice * pipe.slots + rank, index])  # later than now by rounding only
    remember(state, rank, choice, begins, start(pipe, board, state.written, rank, choice, rank, index, begins))
    state.left[0] -= 1
    state.waiting[rank] = False
    receiver = rank + 1 if choice == FORWARD else rank - 1
    if choice != WEIGHT and 0 <= receiver < len(pipe.length):
        for kind in range(3):
            state.told[choice, receiver, index, kind] = board.begun[rank, kind]
        if state.waiting[receiver]:
            heard, _ = promise(state, choice, receiver, index)
            sleep(board, receiver, min(board.wake[receiver], heard))


@kernel(lean=True, flat=True)
def remember(state, rank, kind, begins, end):  # type: ignore[no-untyped-def]
    """How long an operation of the rank took, beside its promise."""
    promised, mine = state.pipe.duration[kind, rank], state.history[rank]
    mine[BUSY] += end - begins
    mine[PROMISED] += promised
    mine[DEVIATION] += abs((end - begins) / promised - 1)


@kernel(lean=True)
def _gives_up(state, base, rank, now, until):  # type: ignore[no-untyped-def]
    """When a rank that waits decides again: when something comes in or is announced, when the base would give up; after
    a quarter beat at most where the base would not wait at all."""
    wake = min(_next_arrival(state, rank, now), until)
    if until == np.inf:
        wake = min(wake, now + _AGAIN * base.beat)
    for kind in range(2):
        heard, _ = promise(state, kind, rank, state.board.begun[rank, kind])
        if heard > now:
            wake = min(wake, heard)
    return wake


@kernel(lean=True)
def best_choice(weights, asked):  # type: ignore[no-untyped-def]
    """The allowed choice with the highest score; of equals what the base would do, else the first."""
    scores(weights, asked.seen, asked.says[0], asked.one, asked.two, asked.scores)
    found = asked.says[0]
    for choice in range(CHOICES):
        if asked.mask[choice] and asked.scores[choice] > asked.scores[found]:
            found = choice
    return found


@kernel(lean=True)
def play(state, base, weights, asked):  # type: ignore[no-untyped-def]
    """The makespan when every rank takes its best choice."""
    begin(state)
    while True:
        rank = following(state, base, asked)
        if rank == ENDED:
            return makespan(state.pipe, state.board)
        act(state, base, rank, asked.until[0], best_choice(weights, asked), asked.until[1])


@kernel
def play_all(state, base, weights, operations, messages, ranks, found):  # type: ignore[no-untyped-def]
    """Writes the makespan of each play (n,) under factors (``engine.events.vary``), (n, ..) each."""
    asked = room(len(weights.first_bias))
    for number in range(len(found)):
        vary(state.pipe, operations[number], messages[number], ranks[number])
        found[number] = play(state, base, weights, asked)
