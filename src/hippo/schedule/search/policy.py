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
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine import events
from hippo.engine.events import AHEAD, DOWN, EXTRA, Pipe, Rule, Written, board, play
from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.schedule.methods import Rows
from hippo.schedule.problem import Floats, ScheduleProblem
from hippo.schedule.replay import choosing
from hippo.schedule.search.clock import Clock

Starts = Sequence[tuple[bool, Floats]]
"""Policies, (5, p) each, and whether they play backwards in time."""

STARTS = tuple((mirrored, which) for which in range(4) for mirrored in (False, True))
OPERATIONS_PER_S = 22_000_000  # of all tries, for each second: some 70 % of what one core plays
OPERATIONS_PER_CHUNK = 400_000  # between two looks at the clock: some 10 ms


def pipe(problem: ScheduleProblem, *, mirrored: bool) -> Pipe:
    """A plain problem forwards or backwards in time, for ranks that choose."""
    if not mirrored:
        return choosing(problem)
    # What went up to rank r now comes down from it; a W takes all the memory and its F gives it back.
    other = replace(problem, forward=problem.backward, backward=problem.forward, down=problem.up, up=problem.down)
    taken, waves = problem.tables.taken, np.full(problem.ranks, problem.micro_batches)
    memory = np.stack([np.zeros(problem.ranks), -taken, taken])
    limit = np.array(problem.limit)
    return events.pipe(other.packed[0], other.network, memory, limit, waves, mirrored=True)


def rows_of(pipe_: Pipe, kinds: NDArray[np.int8]) -> Rows:
    """The orders of all ranks from the kinds (p, 3 m) that each rank ran one after the other."""
    p, m = len(pipe_.length), pipe_.waves
    if pipe_.mirrored:
        kinds = np.array([BACKWARD, FORWARD, WEIGHT], np.int8)[kinds[:, ::-1]]
    rows = np.zeros((3 * p * m, 3), np.int64)
    rows[:, 0] = kinds.ravel()
    for kind in (FORWARD, BACKWARD, WEIGHT):
        rows[rows[:, 0] == kind, 2] = np.tile(np.arange(m), p)
    return rows, 3 * m * np.arange(p + 1)


# ------------------------------------------------------------------------------------------------------------ one play
@kernel(lean=True)
def play_policy(pipe, board, policy, kinds, give_up):  # type: ignore[no-untyped-def]
    """Makespan of the policy (5, p), inf when above ``give_up``; the kinds each rank runs go to ``kinds`` (p, 3 m)."""
    return play(pipe, board, Rule(policy, None, None, 0.0), Written(kinds, None), give_up)


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
        self.pipe = pipe(problem, mirrored=start[0])
        self.board = board(self.pipe)
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
    p, most, weight = len(pipe.length), most_fit(pipe), pipe.duration[EXTRA]
    ranks, none, one = np.arange(p), np.zeros(p), np.ones(p)
    ahead = (most, np.minimum(most, p - ranks), np.minimum(most, 2 * (p - ranks) - 1), most)[which]
    backlog = one if which == 3 else most
    if pipe.mirrored:
        return np.stack([none, none, -0.1 * weight, ahead, backlog])
    return np.stack([none, weight, none, ahead, backlog])


def most_fit(pipe: Pipe) -> Floats:
    """Micro-batches that fit on each rank, (p,)."""
    taken = pipe.memory[EXTRA if pipe.mirrored else DOWN]
    return np.asarray(np.minimum(pipe.waves, np.floor(pipe.limit / taken)))


@kernel
def climb(pipe, board, policy, kinds, limits, tries, rng):  # type: ignore[no-untyped-def]
    """Changes the policy ``tries`` times and keeps what is not worse; returns the makespan.

    ``limits`` = (makespan so far, inf: not yet played; the one to stop at). ``policy`` and ``kinds`` hold the best.
    """
    best, goal = limits
    unit = pipe.duration.mean()
    taken = pipe.memory[EXTRA if pipe.mirrored else DOWN]
    most = np.minimum(pipe.waves, np.floor(pipe.limit / taken))
    trial, trial_kinds = policy.copy(), kinds.copy()
    if best == np.inf:
        best = play_policy(pipe, board, policy, kinds, 1e300)
    for _ in range(tries):
        if best <= goal:
            break
        trial[:] = policy
        for _change_nth in range(1 + int(3 * rng.random())):
            _change(pipe, most, trial, unit, rng)
        found = play_policy(pipe, board, trial, trial_kinds, best)
        if found <= best:
            best = found
            policy[:], kinds[:] = trial, trial_kinds
    return best


@kernel
def _change(pipe, most, policy, unit, rng):  # type: ignore[no-untyped-def]
    """One number of one rank, of some neighbouring ranks, or of all."""
    which, spread, p = int(5 * rng.random()), rng.random(), len(most)
    first, last = 0, p
    if spread < 0.7:
        first = int(p * rng.random())
        last = first + 1 if spread < 0.4 else first + 1 + int((p - first) * rng.random())
    if which >= AHEAD:
        _change_count(most, policy[which], first, last, rng, which == AHEAD)
        return
    how = int(3 * rng.random())
    if how == 0:
        policy[which, first:last] += (rng.random() + rng.random() + rng.random() - 1.5) * unit
    elif how == 1:
        policy[which, first:last] = (rng.random() * 3 - 1.5) * unit
    else:
        policy[which, first:last] = -5 * unit if rng.random() < 0.5 else pipe.duration[EXTRA, first]


@kernel
def _change_count(most, counts, first, last, rng, slope):  # type: ignore[no-untyped-def]
    """A little more or less, or drawn anew; ``slope``: perhaps one less from rank to rank, as in 1F1B."""
    fresh, down = rng.random() < 0.5, slope and rng.random() < 0.5
    step, start = int(5 * rng.random()) - 2, 1 + int(most[first] * rng.random())
    for rank in range(first, last):
        new = start - (rank if down else 0) if fresh else counts[rank] + step
        counts[rank] = min(max(1.0, new), most[rank])
