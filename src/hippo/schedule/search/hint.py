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
from hippo.engine.program import BACKWARD, WEIGHT
from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.schedule import Schedule
from hippo.schedule.search.policy import CLOCK, DOWN, EXTRA, FREE, LEFT, LIVE, UP, board, pipe, wipe


class Shifts:
    """A search on its way from one schedule of a plain problem."""

    def __init__(self, problem: ScheduleProblem, schedule: Schedule, seed: list[int]) -> None:
        self.span, self.rng = makespan(problem, schedule), np.random.default_rng(seed)
        self.pipes = pipe(problem, mirrored=False), pipe(problem, mirrored=True)
        self.board = board(problem.ranks, problem.micro_batches)
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


# ------------------------------------------------------------------------------------------------------------ one play
@kernel
def play_due(pipe, board, due, kinds, starts, give_up):  # type: ignore[no-untyped-def]
    """Makespan, inf when above ``give_up``; the kinds that each rank runs (p, 3 m), and when they start (3, p, m)."""
    p, m, mirrored, duration, taken, room = pipe[0], pipe[1], pipe[2], pipe.duration, pipe.taken, pipe.limit
    delay, transfer, state, begun = pipe.delay, pipe.transfer, board.state, board.begun
    arrival, link_free, acquires = board.arrival, board.link_free, EXTRA if mirrored else DOWN
    rest = pipe.rest
    wipe(pipe, board)
    end, to_do = 0.0, 3 * p * m
    while to_do > 0:
        rank, now = 0, state[CLOCK, 0]
        for other in range(1, p):
            if state[CLOCK, other] < now:
                rank, now = other, state[CLOCK, other]
        if now + state[LEFT, rank] > give_up:  # also when no rank can go on
            return np.inf
        downs, ups, extras = begun[DOWN, rank], begun[UP, rank], begun[EXTRA, rank]
        fits = state[LIVE, rank] + taken[acquires, rank] <= room[rank]
        down = up = extra = (np.inf, np.inf)  # (when there, inf: not on its way; when due, inf: not its turn)
        if ups < downs:
            up = (arrival[UP, rank, ups], due[UP, rank, ups])
        if downs < m and ((downs < extras) if mirrored else fits):
            down = (arrival[DOWN, rank, downs], due[DOWN, rank, downs])
        if (extras < m and fits) if mirrored else (extras < ups):
            extra = (now, due[EXTRA, rank, extras])
        kind, wake = first_due(now, down, up, extra)
        if kind < 0:
            state[CLOCK, rank] = wake
            continue
        nth, done = begun[kind, rank], now + duration[kind, rank]
        kinds[rank, downs + ups + extras] = kind
        starts[kind, rank, nth] = now
        begun[kind, rank] += 1
        state[LIVE, rank] += taken[kind, rank]
        state[LEFT, rank] -= duration[kind, rank]
        state[FREE, rank] = state[CLOCK, rank] = done
        end = max(end, done + rest[rank])
        to_do -= 1
        receiver = rank + 1 if kind == DOWN else (rank - 1 if kind == UP else -1)
        if receiver == p:
            arrival[UP, rank, nth] = done
        elif receiver >= 0:
            if transfer[kind, rank] > 0:
                done = link_free[kind, rank] = max(done, link_free[kind, rank]) + transfer[kind, rank]
            done += delay[kind, rank]
            arrival[kind, receiver, nth] = done
            state[CLOCK, receiver] = min(state[CLOCK, receiver], max(done, state[FREE, receiver]))
    return end


@kernel
def first_due(now, down, up, extra):  # type: ignore[no-untyped-def]
    """What begins now, or -1 and when to look again. Of what would start together, the earlier due goes first."""
    kind, least, wanted, there, wake = -1, np.inf, np.inf, np.inf, np.inf
    for each in range(3):
        arrives, due = down if each == DOWN else (up if each == UP else extra)
        if due == np.inf:
            continue
        known = arrives < np.inf
        start = max(now, due, arrives) if known else max(now, due)
        if known and start < wake:
            wake = start  # by then it starts, whatever is only expected
        sooner = start < least or (start == least and known and there == np.inf)
        if sooner or (start == least and known == (there < np.inf) and due < wanted):
            kind, least, wanted, there = each, start, due, arrives
    if there <= now:
        return kind, now
    return -1, (there if there < np.inf else wake)


@kernel
def turned(pipe, starts, span, found):  # type: ignore[no-untyped-def]
    """The same times seen from the other end of time."""
    m = pipe.micro_batches
    for kind in range(3):
        other = kind if kind == EXTRA else 1 - kind
        # Down and up change places: what comes down forwards in time goes up backwards.
        for rank in range(pipe.ranks):
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
    unit, p, m = pipes[0].duration.mean(), pipes[0].ranks, pipes[0].micro_batches
    trial, starts, kinds = np.empty((3, p, m)), np.empty((3, p, m)), np.empty((p, 3 * m), np.int8)
    for _ in range(tries):
        if span <= goal:
            break
        way = int(2 * rng.random())
        trial[:] = due[way]
        for _move in range(1 + int(2 * rng.random())):
            postpone(trial, unit, rng)
        found = play_due(pipes[way], board, trial, kinds, starts, most)
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
