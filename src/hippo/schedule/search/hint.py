"""Search around a schedule of a plain pipeline: shift when some operations are due, play again, keep what is no worse.

Letters: p ranks, m micro-batches. The incumbent's start times are *due times*. A free rank takes the operation with the
smallest of max(now, arrival, due), and one whose message is not on its way yet counts as expected when it is due, so
that due times that nobody has shifted give the incumbent again, or a shorter one. A move adds a number to the due times
of one kind on some neighbouring ranks for some micro-batches in a row: parts of all periods move together, which single
moves in an order cannot do (``search.tabu``), and parts of the schedule differ, which one policy for all of it cannot
do (``search.policy``). Every play is made forwards or backwards in time, whichever is drawn: the forward-backward
improvement of project scheduling (Li and Willis 1992; Valls et al. 2005). Backwards, memory that B gives back counts as
taken from W on, so there the incumbent may come out longer, and such a play is not kept.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.engine.events import EXTRA, Rule, Written, board, play
from hippo.engine.program import BACKWARD, WEIGHT
from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.schedule import Schedule
from hippo.schedule.search.policy import pipe


class Shifts:
    """A search on its way from one schedule of a plain problem."""

    def __init__(self, problem: ScheduleProblem, schedule: Schedule, seed: list[int]) -> None:
        self.span, self.rng = makespan(problem, schedule), np.random.default_rng(seed)
        self.pipes = pipe(problem, mirrored=False), pipe(problem, mirrored=True)
        self.board = board(self.pipes[0])
        forwards = due_times(problem, schedule)
        self.due = forwards, np.empty_like(forwards)
        turned(self.pipes[0], forwards, self.span, self.due[1])

    def go(self, tries: int, goal: float) -> None:
        """Makes some tries, keeps what is not longer; stops at the goal."""
        self.span = shift(self.pipes, self.board, self.due, (self.span, goal, 0.0), tries, self.rng)

    def kick(self, tries: int, worse: float, goal: float) -> None:
        """Makes some tries, keeps all that are at most that share longer than the start: another place to search."""
        self.span = shift(self.pipes, self.board, self.due, (self.span, goal, worse), tries, self.rng)

    @property
    def rows(self) -> Rows:
        """The shortest schedule so far: every rank in the order of its due times."""
        _, p, m = self.due[0].shape
        place = np.argsort(self.due[0].transpose(1, 0, 2).reshape(p, 3 * m), axis=1, kind="stable").ravel()
        rows = np.stack([place // m, np.zeros_like(place), place % m], axis=1)
        return rows, 3 * m * np.arange(p + 1)


def due_times(problem: ScheduleProblem, schedule: Schedule) -> Floats:
    """Start times (3, p, m) of F, B, W."""
    played, p, m = replay(problem, schedule), problem.ranks, problem.micro_batches
    found = np.zeros((3, p, m))
    rank = np.repeat(np.arange(p), np.diff(schedule.order_start))
    found[schedule.order[:, 0], rank, schedule.order[:, 2]] = played.start
    if schedule.fused:
        found[WEIGHT] = found[BACKWARD] + np.array(problem.backward)[:, None]
    return found


@kernel
def turned(pipe, starts, span, found):  # type: ignore[no-untyped-def]
    """The same times seen from the other end of time."""
    m = pipe.waves
    for kind in range(3):
        other = kind if kind == EXTRA else 1 - kind
        # Down and up change places: what comes down forwards in time goes up backwards.
        for rank in range(len(pipe.length)):
            for nth in range(m):
                found[other, rank, m - 1 - nth] = span - starts[kind, rank, nth] - pipe.duration[kind, rank]


# -------------------------------------------------------------------------------------------------------------- search
@kernel
def shift(pipes, board, due, limits, tries, rng):  # type: ignore[no-untyped-def]
    """Makes ``tries`` moves from the ``due`` times, forwards and mirrored, and leaves the last that was kept there.

    Returns its makespan. ``limits`` = (makespan so far, the one to stop at, share that a kept one may be longer than
    the first; 0: none longer than the one before).
    """
    span, goal, worse = limits
    most = span * (1 + worse)
    unit, p, m = pipes[0].duration.mean(), len(pipes[0].length), pipes[0].waves
    trial, starts = np.empty((3, p, m)), np.empty((3, p, m))
    rule, written = Rule(None, trial, None, 0.0), Written(None, starts)
    for _ in range(tries):
        if span <= goal:
            break
        way = int(2 * rng.random())
        trial[:] = due[way]
        for _move in range(1 + int(2 * rng.random())):
            postpone(trial, unit, rng)
        found = play(pipes[way], board, rule, written, most)
        if found <= most:
            span = found
            if worse == 0.0:
                most = found
            due[way][:] = starts
            turned(pipes[way], starts, found, due[1 - way])
    return span


@kernel
def postpone(due, unit, rng):  # type: ignore[no-untyped-def]
    """Moves some operations of one kind by up to four operations' time, either way."""
    p, m = due.shape[1:]
    kind, first, begin = int(3 * rng.random()), int(p * rng.random()), int(m * rng.random())
    last, end = first + 1, m
    if rng.random() < 0.5:
        last += int((p - first) * rng.random())
    if rng.random() < 0.7:
        end = begin + 1 + int(min(m - begin, 1 + m * rng.random() * rng.random()) * rng.random())
    elif rng.random() < 0.3:
        begin = 0
    amount = (rng.random() + rng.random() - 1) * 4 * unit
    for rank in range(first, last):
        for nth in range(begin, min(end, m)):
            due[kind, rank, nth] += amount
