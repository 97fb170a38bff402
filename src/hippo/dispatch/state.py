"""What a play of a pipeline knows between two decisions, as arrays that a kernel changes.

Letters: p ranks, m micro-batches. One chunk per rank, micro-batches in order; kinds F, B, W = 0, 1, 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD

# Columns of ``State.rank``. WAKE is a time of the clock; the last five are the rank's own history.
WAKE, LIVE, BUSY, PROMISED, DEVIATION, LATE, MESSAGES = range(7)
RANK_COLUMNS = 7
WORKING, STARVED, WAITING = 0, 1, 2  # how a rank spends the time until it wakes


class State(NamedTuple):
    """A play under way; arrays of one play, changed in place."""

    head: NDArray[np.int64]  # (p, 3) operations of each kind begun so far
    arrived: NDArray[np.float64]  # (2, p, m) when the input of F or B is there; inf: nobody knows yet
    begun: NDArray[np.float64]  # (2, p, m) when its producer began; inf: it did not
    told: NDArray[np.int64]  # (2, p, m, 3) F, B, W that the producer had begun when it began this one
    seen: NDArray[np.int64]  # (p, 2) messages of each kind that were there when the rank last looked, in order
    rank: NDArray[np.float64]  # (p, 7), see the columns
    port: NDArray[np.float64]  # (2, p) when the link that F or B of the rank goes out on is free
    asleep: NDArray[np.int64]  # (p,) WORKING, STARVED, WAITING
    total: NDArray[np.float64]  # (2,) makespan of what has ended, operations left


@kernel
def new_state(p, m):  # type: ignore[no-untyped-def]
    """Room for a play of p ranks and m micro-batches, at its beginning."""
    state = State(
        np.empty((p, 3), np.int64),
        np.empty((2, p, m)),
        np.empty((2, p, m)),
        np.empty((2, p, m, 3), np.int64),
        np.empty((p, 2), np.int64),
        np.empty((p, RANK_COLUMNS)),
        np.empty((2, p)),
        np.empty(p, np.int64),
        np.empty(2),
    )
    begin(state)
    return state


@kernel
def begin(state):  # type: ignore[no-untyped-def]
    """Nothing has run; every F of the first rank has its input."""
    p, m = state.arrived.shape[1], state.arrived.shape[2]
    state.head[:], state.arrived[:], state.begun[:], state.told[:] = 0, np.inf, np.inf, 0
    state.arrived[FORWARD, 0] = 0.0
    state.seen[:], state.rank[:], state.port[:], state.asleep[:] = 0, 0.0, 0.0, WORKING
    state.total[0], state.total[1] = 0.0, 3 * p * m


@kernel
def readiness(tables, state, rank, now):  # type: ignore[no-untyped-def]
    """Which of F, B, W can start at ``now``, and whether memory lets the next F run; inputs a rounding later count."""
    m, moment = tables.micro_batches, now + 1e-9 * now
    f, b, w = state.head[rank, 0], state.head[rank, 1], state.head[rank, 2]
    fits = state.rank[rank, LIVE] + tables.taken[rank] <= tables.limit[rank] * (1 + 1e-9)
    ready_f = f < m and fits and state.arrived[FORWARD, rank, f] <= moment
    ready_b = b < m and state.arrived[BACKWARD, rank, b] <= moment
    return ready_f, ready_b, w < b, fits and f < m
