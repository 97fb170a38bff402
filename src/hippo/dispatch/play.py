"""The event loop of learned dispatch: who is free next, what it sees, what happens when it has chosen.

Ranks, links, memory and announcements are those of ``schedule.by_hint``; a network that follows the base hint
gives its makespans. Decisions are taken in the order of time, of equals the first rank. It never gets stuck: memory
masks only F, and with one chunk per rank and micro-batches in order the oldest unfinished micro-batch can always go on
(see there); WAIT is allowed only for a message that is announced, and ends with it at the latest.

The same kernels serve a whole play (``play``) and whoever is asked decision by decision (``following`` and ``act``).

Letters: p ranks, m micro-batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.dispatch.features import CHOICES, FEATURES, WAIT, awaited, observe, promise
from hippo.dispatch.network import scores
from hippo.dispatch.state import (
    BUSY,
    DEVIATION,
    LIVE,
    PROMISED,
    STARVED,
    WAITING,
    WAKE,
    WORKING,
    begin,
    readiness,
)
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT

ENDED = -1
_AGAIN = 0.25  # beats: who waits longer than the base would is asked again so often


class Asked(NamedTuple):
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
    return Asked(
        np.zeros(FEATURES, np.float32),
        np.zeros(CHOICES, np.bool_),
        np.zeros(CHOICES, np.float32),
        np.zeros(hidden, np.float32),
        np.zeros(hidden, np.float32),
        np.zeros(2),
        np.zeros(1, np.int64),
    )


@kernel
def following(tables, base, state, draws, start, asked):  # type: ignore[no-untyped-def]
    """Plays on until a rank has a choice; that rank, or ENDED. ``draws``: factors (3 p m,), (2 p m,), (p,) of a play.

    ``start`` (3, p, m) is written where it has room; what a rank does that has no choice is done here.
    """
    while state.total[1] > 0:
        rank, now = 0, state.rank[0, WAKE]
        for other in range(1, tables.ranks):
            if state.rank[other, WAKE] < now:
                rank, now = other, state.rank[other, WAKE]
        ready_f, ready_b, ready_w, fits = readiness(tables, state, rank, now)
        count = int(ready_f) + int(ready_b) + int(ready_w)
        if count == 0:
            state.rank[rank, WAKE], state.asleep[rank] = _next_arrival(tables, state, rank, now), STARVED
            continue
        alone = not awaited(tables, state, FORWARD, rank, now, fits)
        if count == 1 and alone and not awaited(tables, state, BACKWARD, rank, now, True):
            act(tables, base, state, draws, start, rank, now, 0 if ready_f else 1 if ready_b else 2, np.inf)
            continue
        says, until = observe(tables, base, state, rank, now, asked.seen, asked.mask)
        asked.until[0], asked.until[1], asked.says[0] = now, until, says
        return rank
    return ENDED


@kernel
def _next_arrival(tables, state, rank, now):  # type: ignore[no-untyped-def]
    """When something else comes in, as far as anybody knows; inf."""
    later, moment = np.inf, now + 1e-9 * now
    for kind in range(2):
        index = state.head[rank, kind]
        if index < tables.micro_batches and state.arrived[kind, rank, index] > moment:
            later = min(later, state.arrived[kind, rank, index])
    return later


@kernel
def act(tables, base, state, draws, start, rank, now, choice, until):  # type: ignore[no-untyped-def]
    """What follows from a choice; ``until``: when one who waits gives up, inf for the usual."""
    if choice == WAIT:
        _wait(tables, base, state, rank, now, until)
        return
    operations, messages, ranks = draws
    p, m, mine = tables.ranks, tables.micro_batches, state.rank[rank]
    index = state.head[rank, choice]
    at = (choice * p + rank) * m + index
    begins = now if choice == WEIGHT else max(now, state.arrived[choice, rank, index])
    promised = tables.duration[choice, rank]
    end = begins + promised * np.float64(ranks[rank]) * np.float64(operations[at])
    if len(start) > 0:
        start[choice, rank, index] = begins
    taken, freed = tables.taken[rank], tables.freed[rank]
    mine[LIVE] += taken if choice == FORWARD else -freed if choice == BACKWARD else freed - taken
    mine[BUSY] += end - begins
    mine[PROMISED] += promised
    mine[DEVIATION] += abs((end - begins) / promised - 1)
    state.head[rank, choice] += 1
    state.total[1] -= 1
    state.asleep[rank], mine[WAKE] = WORKING, end
    if state.head[rank, WEIGHT] == m:
        mine[WAKE] = np.inf
        state.total[0] = max(state.total[0], end + tables.reduction[rank])
    if choice != WEIGHT:
        _send(tables, state, rank, choice, index, begins, end, np.float64(messages[at]))


@kernel
def _send(tables, state, rank, kind, index, begins, end, stretch):  # type: ignore[no-untyped-def]
    """The message of an F or B, and its announcement; F of the last rank hands its result to its own B."""
    receiver = rank + 1 if kind == FORWARD else rank - 1
    if receiver >= tables.ranks:
        state.arrived[BACKWARD, rank, index] = end
    if not 0 <= receiver < tables.ranks:
        return
    sent = end
    if tables.port[kind, rank] >= 0:
        sent = max(end, state.port[kind, rank]) + tables.transfer[kind, rank] * stretch
        state.port[kind, rank] = sent
    arrival = sent + tables.delay[kind, rank] * stretch
    state.arrived[kind, receiver, index], state.begun[kind, receiver, index] = arrival, begins
    state.told[kind, receiver, index] = state.head[rank]
    if state.asleep[receiver] != WORKING:
        state.rank[receiver, WAKE] = min(state.rank[receiver, WAKE], arrival)
    if state.asleep[receiver] == WAITING:
        heard = begins + tables.delay[kind, rank]
        state.rank[receiver, WAKE] = min(state.rank[receiver, WAKE], heard)


@kernel
def _wait(tables, base, state, rank, now, until):  # type: ignore[no-untyped-def]
    """Sleeps until something comes in or is announced, or until the base would give up; at most a quarter beat where
    the base would not wait at all."""
    wake = min(_next_arrival(tables, state, rank, now), until)
    if until == np.inf:
        wake = min(wake, now + _AGAIN * base.beat)
    for kind in range(2):
        index = state.head[rank, kind]
        if index < tables.micro_batches:
            heard, _ = promise(tables, state, kind, rank, index)
            if heard > now:
                wake = min(wake, heard)
    state.rank[rank, WAKE], state.asleep[rank] = wake, WAITING


@kernel
def best_choice(weights, asked):  # type: ignore[no-untyped-def]
    """The allowed choice with the highest score; of equals what the base would do, else the first."""
    scores(weights, asked.seen, asked.says[0], asked.one, asked.two, asked.scores)
    found = asked.says[0]
    for choice in range(CHOICES):
        if asked.mask[choice] and asked.scores[choice] > asked.scores[found]:
            found = choice
    return found


@kernel
def play(tables, base, weights, draws, start, state, asked):  # type: ignore[no-untyped-def]
    """The makespan when every rank takes its best choice; writes the starts (3, p, m) where there is room for them."""
    begin(state)
    while True:
        rank = following(tables, base, state, draws, start, asked)
        if rank == ENDED:
            return state.total[0]
        choice = best_choice(weights, asked)
        act(tables, base, state, draws, start, rank, asked.until[0], choice, asked.until[1])
