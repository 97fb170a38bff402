"""Schedules of a plain pipeline made by a policy with a few numbers per rank, and a search for those numbers.

Letters: p ranks, m micro-batches. A policy plays the pipeline in time. Whenever a rank is free it looks at the first
operation of each kind that is still to come, at the time it could start (*known* once the message is on its way), and
takes the one with the smallest *start + patience*:

* the operation that goes down the ranks (F): ``patience_down``, at most ``ahead`` of them in front of those going up;
* the one that goes up the ranks (B): patience 0, so the others are measured against it;
* the extra one that no other rank waits for (W): ``patience_extra``; ``patience_urgent`` instead when memory keeps a
  forward that is there from starting, or when ``backlog`` of them have gathered.

A patience of one operation means "only where it fits before the next arrival"; a negative one "even if others must
wait". When the chosen operation is not there yet, the rank waits. Five numbers per rank cover the fill, the steady
state and the drain at once, so a small change of one moves every period of the schedule together: that is what local
moves on a finished order cannot do, and why a simple descent over these numbers reaches schedules far below those of
list scheduling with one rule for all ranks.

The same policy also plays the problem *backwards in time* (W, then B down the ranks, then F up): as good on average and
better on other problems, as forward and backward passes are in project scheduling (Li and Willis 1992). There a W must
come before its B, and takes all the memory at once; and a rank may not start before the time has passed that it takes
in the end to reduce its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.search.clock import Clock

DOWN, UP, EXTRA = 0, 1, 2
CLOCK, FREE, LIVE, LEFT = range(4)  # when a rank decides next, when it is free, its memory, its time still to take
PATIENCE_DOWN, PATIENCE_EXTRA, PATIENCE_URGENT, AHEAD, BACKLOG = range(5)
ROOM = 1 + 1e-9  # memory may exceed its limit by rounding, as in ``check``

Starts = Sequence[tuple[bool, Floats]]
"""Policies, (5, p) each, and whether they play backwards in time."""

STARTS = tuple((mirrored, which) for which in range(4) for mirrored in (False, True))
OPERATIONS_PER_S = 22_000_000  # of all tries, for each second: some 70 % of what one core plays
OPERATIONS_PER_CHUNK = 400_000  # between two looks at the clock: some 10 ms


class Pipe(NamedTuple):
    """A plain problem, forwards or backwards in time, as the policy sees it."""

    ranks: int  # p
    micro_batches: int  # m
    mirrored: bool  # backwards in time
    duration: Floats  # (3, p) of down, up, extra
    delay: Floats  # (2, p) of the message down to rank r + 1, up to rank r - 1
    transfer: Floats  # (2, p) time that it occupies its link
    taken: Floats  # (3, p) memory taken at the start, below 0: given back at the end
    limit: Floats  # (p,)
    most: Floats  # (p,) micro-batches that fit
    release: Floats  # (p,) when the rank may start
    rest: Floats  # (p,) time after its last operation until the end


class Board(NamedTuple):
    """Where a play stands; made once, wiped for each play."""

    state: Floats  # (4, p) rows CLOCK, FREE, LIVE, LEFT
    begun: NDArray[np.int64]  # (3, p) operations begun
    arrival: Floats  # (2, p, m) of the input of down and up; inf: not known
    link_free: Floats  # (2, p)


def pipe(problem: ScheduleProblem, *, mirrored: bool) -> Pipe:
    """The arrays of a plain problem."""
    p, m, tables = problem.ranks, problem.micro_batches, problem.tables
    down = np.array([[each.latency, each.transfer] for each in problem.down] + [[0.0, 0.0]])
    up = np.array([[0.0, 0.0]] + [[each.latency, each.transfer] for each in problem.up])
    taken, freed, nothing = tables.taken, tables.freed, np.zeros(p)
    most = np.minimum(m, np.floor(tables.limit * ROOM / taken))
    if mirrored:  # what went up to rank r now comes down from it
        down, up = np.roll(up, -1, axis=0), np.roll(down, 1, axis=0)
        duration, memory = tables.duration[[BACKWARD, FORWARD, WEIGHT]], np.stack([nothing, -taken, taken])
    else:
        duration, memory = tables.duration.copy(), np.stack([taken, -freed, freed - taken])
    delay, transfer = np.stack([down[:, 0], up[:, 0]]), np.stack([down[:, 1], up[:, 1]])
    release, rest = (tables.reduction, nothing) if mirrored else (nothing, tables.reduction)
    return Pipe(
        p, m, mirrored, duration, delay, transfer, memory, tables.limit * ROOM, most, release.copy(), rest.copy()
    )


def board(ranks: int, micro_batches: int) -> Board:
    """An empty board."""
    counts = np.zeros((3, ranks), np.int64)
    return Board(np.zeros((4, ranks)), counts, np.empty((2, ranks, micro_batches)), np.zeros((2, ranks)))


def rows_of(pipe_: Pipe, kinds: NDArray[np.int8]) -> Rows:
    """The orders of all ranks from the kinds (p, 3 m) that each rank ran one after the other."""
    p, m = pipe_.ranks, pipe_.micro_batches
    if pipe_.mirrored:
        kinds = np.array([BACKWARD, FORWARD, WEIGHT], np.int8)[kinds[:, ::-1]]
    rows = np.zeros((3 * p * m, 3), np.int64)
    rows[:, 0] = kinds.ravel()
    for kind in (FORWARD, BACKWARD, WEIGHT):
        rows[rows[:, 0] == kind, 2] = np.tile(np.arange(m), p)
    return rows, 3 * m * np.arange(p + 1)


# ------------------------------------------------------------------------------------------------------------ one play
@kernel
def play_policy(pipe, board, policy, kinds, give_up):  # type: ignore[no-untyped-def]
    """Makespan of the policy (5, p), inf when above ``give_up``; the kinds each rank runs go to ``kinds`` (p, 3 m)."""
    # Arrays one by one, and only numbers to the functions below: an array handed on costs more than the work on it.
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
        down = arrival[DOWN, rank, downs] if downs < m else np.inf
        up = arrival[UP, rank, ups] if ups < downs else np.inf
        fits = state[LIVE, rank] + taken[acquires, rank] <= room[rank]
        ahead, backlog = policy[AHEAD, rank], policy[BACKLOG, rank]
        if mirrored:
            down, extra, urgent = _mirrored(m, downs, ups, extras, down, now, fits, ahead, backlog)
        else:
            down, extra, urgent = _forwards(downs, ups, extras, down, now, fits, ahead, backlog)
        patience = policy[PATIENCE_URGENT, rank] if urgent else policy[PATIENCE_EXTRA, rank]
        kind, wake = _pick(max(down, now), max(up, now), extra, policy[PATIENCE_DOWN, rank], patience, now)
        if kind < 0:
            state[CLOCK, rank] = wake
            continue
        kinds[rank, downs + ups + extras] = kind
        nth, done = begun[kind, rank], now + duration[kind, rank]
        begun[kind, rank] += 1
        state[LIVE, rank] += taken[kind, rank]
        state[LEFT, rank] -= duration[kind, rank]
        state[FREE, rank] = state[CLOCK, rank] = done
        end = max(end, done + rest[rank])
        to_do -= 1
        receiver = rank + 1 if kind == DOWN else (rank - 1 if kind == UP else -1)
        if receiver == p:  # at the last rank the way down ends and the way up begins
            arrival[UP, rank, nth] = done
        elif receiver >= 0:
            if transfer[kind, rank] > 0:
                done = link_free[kind, rank] = max(done, link_free[kind, rank]) + transfer[kind, rank]
            done += delay[kind, rank]
            arrival[kind, receiver, nth] = done
            state[CLOCK, receiver] = min(state[CLOCK, receiver], max(done, state[FREE, receiver]))
    return end


@kernel
def wipe(pipe, board):  # type: ignore[no-untyped-def]
    """Nothing has run; the first rank has the inputs of all micro-batches."""
    board.state[:] = 0.0
    board.begun[:] = 0
    board.link_free[:] = 0.0
    board.arrival[:] = np.inf
    board.arrival[DOWN, 0] = 0.0
    for rank in range(pipe.ranks):
        board.state[FREE, rank] = pipe.release[rank]
        board.state[CLOCK, rank] = pipe.release[rank] if pipe.mirrored or rank == 0 else np.inf
        board.state[LEFT, rank] = pipe.rest[rank]
        for kind in range(3):
            board.state[LEFT, rank] += pipe.micro_batches * pipe.duration[kind, rank]


@kernel
def _forwards(downs, ups, extras, down, now, fits, ahead, backlog):  # type: ignore[no-untyped-def]
    """When F and W could start (inf: not yet), and whether W is urgent."""
    urgent = ups - extras >= backlog
    if downs - ups >= ahead:
        down = np.inf
    elif not fits:
        urgent = urgent or down <= now
        down = np.inf
    return down, (now if extras < ups else np.inf), urgent


@kernel
def _mirrored(m, downs, ups, extras, down, now, fits, ahead, backlog):  # type: ignore[no-untyped-def]
    """The same backwards in time, where W comes before B and takes the memory."""
    allowed = extras < m and fits and extras - ups < ahead and extras - downs < backlog
    urgent = extras == downs and down <= now
    return (down if downs < extras else np.inf), (now if allowed else np.inf), urgent


@kernel
def _pick(down, up, extra, patience_down, patience_extra, now):  # type: ignore[no-untyped-def]
    """What begins now, or -1 and when to look again: when the first of those that are on their way is there."""
    kind, start, least = UP, up, up
    if down + patience_down < least:
        kind, start, least = DOWN, down, down + patience_down
    if extra + patience_extra < least:
        kind, start = EXTRA, extra
    if start <= now:
        return kind, now
    if now < down < start:
        start = down
    if now < up < start:
        start = up
    return -1, start


# -------------------------------------------------------------------------------------------------------------- search
def search(
    problem: ScheduleProblem, clock: Clock, *, seed: int, goal: float, share: float = 1.0, starts: Starts | None = None
) -> list[Rows]:
    """Schedules of a plain problem that policies make, the shortest first.

    All starts get an equal share of half of the tries; then the better half of them an equal share of half of what is
    left, and so on until one is left (successive halving). The tries are a fixed number of operations for each second
    of that share of the clock's limit, which ends the search too. ``starts``: policies to climb from, (5, p) each, with
    whether they play backwards in time; None: the plain ones of ``first_policy``.
    """
    given = [(mirrored, first_policy(pipe(problem, mirrored=mirrored), which)) for mirrored, which in STARTS]
    every = [_Climber(problem, start, [seed, nth]) for nth, start in enumerate(given if starts is None else starts)]
    left, climbers = OPERATIONS_PER_S * share * clock.limit_s / (3 * problem.ranks * problem.micro_batches), every
    while True:
        for each in climbers:
            each.go(max(1, int(left / (2 * len(climbers)))), goal, clock, share)
        every.sort(key=lambda each: each.span)
        if every[0].span <= goal or clock.over("policies", share) or len(climbers) == 1:
            return [rows_of(each.pipe, each.kinds) for each in every]
        climbers, left = sorted(climbers, key=lambda each: each.span)[: (len(climbers) + 1) // 2], left / 2


class _Climber:
    """A policy on its way up, in chunks between which the clock is read."""

    def __init__(self, problem: ScheduleProblem, start: tuple[bool, Floats], seed: list[int]) -> None:
        p, m = problem.ranks, problem.micro_batches
        self.pipe, self.board = pipe(problem, mirrored=start[0]), board(p, m)
        self.kinds, self.span, self.policy = np.zeros((p, 3 * m), np.int8), np.inf, start[1].copy()
        self.rng = np.random.default_rng(seed)
        self.chunk = max(1, OPERATIONS_PER_CHUNK // (3 * p * m))

    def go(self, tries: int, goal: float, clock: Clock, share: float) -> None:
        """Climbs, one play at least, until the goal is met, the tries are made, or that share of the limit is over."""
        while tries > 0 and self.span > goal and (self.span == np.inf or not clock.over("policies", share)):
            limits, some = (self.span, goal), min(tries, self.chunk)
            self.span = climb(self.pipe, self.board, self.policy, self.kinds, limits, some, self.rng)
            tries -= some


def first_policy(pipe: Pipe, which: int) -> Floats:
    """Where a climb starts, (5, p): as many ahead as fit, 1F1B's warm-up, ZB-H2's, or as many with no W held back."""
    p, most, weight = pipe.ranks, pipe.most, pipe.duration[EXTRA]
    ranks, none, one = np.arange(p), np.zeros(p), np.ones(p)
    ahead = (most, np.minimum(most, p - ranks), np.minimum(most, 2 * (p - ranks) - 1), most)[which]
    backlog = one if which == 3 else most
    if pipe.mirrored:
        return np.stack([none, none, -0.1 * weight, ahead, backlog])
    return np.stack([none, weight, none, ahead, backlog])


@kernel
def climb(pipe, board, policy, kinds, limits, tries, rng):  # type: ignore[no-untyped-def]
    """Changes the policy ``tries`` times and keeps what is not worse; returns the makespan.

    ``limits`` = (makespan so far, inf: not yet played; the one to stop at). ``policy`` and ``kinds`` hold the best.
    """
    best, goal = limits
    unit = pipe.duration.mean()
    trial, trial_kinds = policy.copy(), kinds.copy()
    if best == np.inf:
        best = play_policy(pipe, board, policy, kinds, 1e300)
    for _ in range(tries):
        if best <= goal:
            break
        trial[:] = policy
        for _change_nth in range(1 + int(3 * rng.random())):
            _change(pipe, trial, unit, rng)
        found = play_policy(pipe, board, trial, trial_kinds, best)
        if found <= best:
            best = found
            policy[:], kinds[:] = trial, trial_kinds
    return best


@kernel
def _change(pipe, policy, unit, rng):  # type: ignore[no-untyped-def]
    """One number of one rank, of some neighbouring ranks, or of all."""
    which, spread, p = int(5 * rng.random()), rng.random(), pipe.ranks
    first, last = 0, p
    if spread < 0.7:
        first = int(p * rng.random())
        last = first + 1 if spread < 0.4 else first + 1 + int((p - first) * rng.random())
    if which >= AHEAD:
        _change_count(pipe, policy[which], first, last, rng, which == AHEAD)
        return
    how = int(3 * rng.random())
    if how == 0:
        policy[which, first:last] += (rng.random() + rng.random() + rng.random() - 1.5) * unit
    elif how == 1:
        policy[which, first:last] = (rng.random() * 3 - 1.5) * unit
    else:
        policy[which, first:last] = -5 * unit if rng.random() < 0.5 else pipe.duration[EXTRA, first]


@kernel
def _change_count(pipe, counts, first, last, rng, slope):  # type: ignore[no-untyped-def]
    """A little more or less, or drawn anew; ``slope``: perhaps one less from rank to rank, as in 1F1B."""
    fresh, down = rng.random() < 0.5, slope and rng.random() < 0.5
    step, start = int(5 * rng.random()) - 2, 1 + int(pipe.most[first] * rng.random())
    for rank in range(first, last):
        new = start - (rank if down else 0) if fresh else counts[rank] + step
        counts[rank] = min(max(1.0, new), pipe.most[rank])
