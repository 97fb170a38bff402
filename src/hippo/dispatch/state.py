"""What a play of a pipeline knows between two decisions, as arrays that kernels change.

Letters: p ranks, m micro-batches. One chunk per rank, micro-batches in order; kinds F, B, W = 0, 1, 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.events import NEAR, Board, Pipe, Written, board, varying, wipe
from hippo.engine.program import FORWARD
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import choosing

# Columns of ``DispatchState.history``: of the rank's own operations and of the messages that it has got.
BUSY, PROMISED, DEVIATION, LATE, MESSAGES = range(5)


class DispatchState(NamedTuple):
    """A play under way; arrays of one play, changed in place."""

    pipe: Pipe  # with what this play takes, see ``engine.events.vary``
    board: Board  # messages are announced
    written: Written  # the starts (3, p, m), where there is room for them
    limit: Floats  # (p,) most memory as given; inf: no limit
    told: NDArray[np.int64]  # (2, p, m, 3) F, B, W that the producer of an input had begun when it began this one
    seen: NDArray[np.int64]  # (p, 2) messages of each kind that were there when the rank last looked, in order
    history: Floats  # (p, 5), see the columns
    waiting: NDArray[np.bool_]  # (p,) for what is announced: the rank has something that it could run
    left: NDArray[np.int64]  # (1,) operations still to run


def new_state(problem: ScheduleProblem, start: Floats | None = None) -> DispatchState:
    """Room for plays of a problem, which ``begin`` with it; ``start`` (3, p, m): where their starts are written."""
    p, m, pipe = problem.ranks, problem.micro_batches, varying(choosing(problem))
    return DispatchState(
        pipe,
        board(pipe, announces=True),
        Written(None, np.empty((0, 0, 0)) if start is None else start),
        problem.tables.limit,
        told=np.empty((2, p, m, 3), np.int64),
        seen=np.empty((p, 2), np.int64),
        history=np.empty((p, 5)),
        waiting=np.empty(p, np.bool_),
        left=np.empty(1, np.int64),
    )


@kernel(lean=True)
def begin(state):  # type: ignore[no-untyped-def]
    """Nothing has run."""
    wipe(state.pipe, state.board)
    state.told[:], state.seen[:], state.history[:], state.waiting[:] = 0, 0, 0.0, False
    state.left[0] = 3 * len(state.pipe.length) * state.pipe.waves


@kernel(lean=True)
def readiness(state, rank, now):  # type: ignore[no-untyped-def]
    """Which of F, B, W can start at ``now``, and whether memory lets the next F run; inputs a rounding later count."""
    pipe, board, moment = state.pipe, state.board, now + NEAR * now
    f, b, w = board.begun[rank, 0], board.begun[rank, 1], board.begun[rank, 2]
    fits = board.live[rank] + pipe.memory[FORWARD, rank] <= pipe.limit[rank]
    ready_f, ready_b = fits and board.arrived[rank, f] <= moment, board.arrived[pipe.slots + rank, b] <= moment
    return ready_f, ready_b, w < b, fits and f < pipe.waves
