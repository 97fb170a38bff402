"""Schedules for the ``v`` placement from a building block: the machinery of ZB-V, V-half and V-min.

A micro-batch goes down the ranks with chunk 0, up with chunk 1, and back the same way with its gradients: four passes
(Qi et al. 2024, arXiv 2405.15362, section 3). A *building block* says when each rank meets each pass; it repeats every
period, and how long a micro-batch stays over the period is the memory that it needs (section 2.2 there). Here:

1. ``_lay`` turns a pattern (``v_patterns``: gaps between ranks, and some habits) into the turn of every pass on every
   rank. The period is the work of the busiest rank, or longer where delays keep micro-batches for too long for memory.
2. ``_play`` squeezes: each rank runs F and B in that turn as soon as they can start, out of turn where the pattern
   allows it (the reordering of section 2.4), and fills the gaps with W. It may order by durations that it pretends,
   and tells the true makespan of that order.
3. ``schedule`` tries a table of patterns, then changes the best one gene at a time, for as many trials as the size of
   the problem leaves time for; the shortest true makespan wins. The same problem gives the same schedule.

No deadlock: a forward of chunk 0 starts only when afterwards the micro-batches on their way through the V leave room
for one more forward of chunk 1. Then the oldest of them can always go on, and W gives back what older ones hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.program import BACKWARD, WEIGHT
from hippo.schedule.generators.v_patterns import (
    B_TIME,
    DELAY,
    FIRST,
    GENES,
    HELD,
    LEVELS,
    NEVER_STUCK,
    PATIENCE,
    PERIOD,
    SHARE,
    SLOPE,
    SPARE,
    TURNING,
    WINDOW,
)
from hippo.schedule.problem import Floats, ScheduleProblem, Tables

Ints = NDArray[np.int64]

# Columns of a course, (p, COURSE): what a rank follows. Its passes: F of chunk 0, F of chunk 1, B of each, W of each.
DUE, LASTS, DUE_TURN, AHEAD = 0, 6, 12, 16  # 6: to order by; 6: truly; 4: of micro-batch 0; 2: most live out of turn
CAP, TAKEN, FREED, HOLDS, COURSE = 18, 19, 20, 21, 22

# Columns of a state, (p, STATE): where a rank is. Times as pretended, and as they truly are.
DONE, TURN, COMES = 0, 6, 10  # 6: operations; 4: turn of the next, inf: no more; 4: when its input is there
FREE, TRULY, BEGAN, MEMORY, STATE = 14, 15, 16, 17, 18  # end of the last operation, truly that, true first start

MOST_TRIALS, LEAST_TRIALS, OPERATIONS_TRIED = 400, 12, 140_000
"""Trials: as many as run some ``OPERATIONS_TRIED`` operations, in these limits."""


def schedule(problem: ScheduleProblem, cap: Floats, *, seed: int = 0) -> tuple[Ints, Ints]:
    """Rows (6 p m, 3) of all ranks and where each starts, (p + 1,), with at most ``cap`` (p,) memory on each rank.

    A cap below one micro-batch counts as one: nothing less would do.
    """
    p, m, tables = problem.ranks, problem.micro_batches, problem.tables
    cap = np.maximum(cap, whole(problem))
    in_flight = int(min(m, (cap / whole(problem)).max()))
    tried = _shortened(tables, min(m, max(3 * p, 2 * in_flight)))
    trials = min(MOST_TRIALS, max(LEAST_TRIALS, OPERATIONS_TRIED // (6 * p * tried.micro_batches)))
    levels = np.array([[each[index % len(each)] for index in range(_COMMON)] for each in LEVELS])
    cap = cap * (1 + 1e-9)  # sums of shares may miss the limit by a rounding
    found = _search(tried, cap, np.array(FIRST), levels, trials, np.random.default_rng(seed))
    rows = np.empty((6 * p * m, 3), np.int64)
    _choose(tables, cap, found, rows)
    return rows, 6 * m * np.arange(p + 1)


def whole(problem: ScheduleProblem) -> Floats:
    """Memory that both chunks of a rank keep of one micro-batch, (p,)."""
    return problem.tables.taken[0::2] + problem.tables.taken[1::2]


_COMMON = 120  # a multiple of the lengths of all levels, so that each value is as likely


def _shortened(tables: Tables, micro_batches: int) -> Tables:
    """The same with fewer micro-batches."""
    passes = np.full_like(tables.passes, micro_batches)
    passes.setflags(write=False)  # as all of the tables: one type, compiled once
    return tables._replace(micro_batches=micro_batches, passes=passes)


# ------------------------------------------------------------------------------------------------------------- kernels
@kernel
def _search(tables, cap, table, levels, trials, rng):  # type: ignore[no-untyped-def]
    """Patterns with shifts, (3, GENES + 2 S): the best found, the best of the table, one that is never stuck."""
    slots, nothing = 2 * tables.ranks, np.empty((0, 3), np.int64)
    best, found = np.inf, np.zeros((3, GENES + 2 * slots))
    found[2, :GENES] = table[NEVER_STUCK]
    for index in range(min(trials, len(table))):
        trial = np.zeros(GENES + 2 * slots)
        trial[:GENES] = table[index]
        length = _score(tables, cap, trial, nothing)
        if length < best or index == 0:
            best, found[0], found[1] = length, trial, trial
    for _ in range(trials - len(table)):
        trial = found[0].copy()
        shifted = rng.random() < 0.2
        for _ in range(1 + int(2 * rng.random())):
            if shifted:
                trial[GENES + int(2 * slots * rng.random())] += 2 * rng.random() - 1
            else:
                gene = int(GENES * rng.random())
                trial[gene] = levels[gene, int(levels.shape[1] * rng.random())]
        length = _score(tables, cap, trial, nothing)
        if length <= best:
            best, found[0] = length, trial
    return found


@kernel
def _choose(tables, cap, found, rows):  # type: ignore[no-untyped-def]
    """Writes the rows of the best of the patterns found, at full length."""
    best, chosen, nothing = np.inf, len(found) - 1, np.empty((0, 3), np.int64)
    for index in range(len(found)):
        length = _score(tables, cap, found[index], nothing)
        if length < best:
            best, chosen = length, index
    _score(tables, cap, found[chosen], rows)


@kernel
def _score(tables, cap, pattern, rows):  # type: ignore[no-untyped-def]
    """True makespan, with the longest stage to break ties; inf when the ranks come to a halt."""
    complete, makespan, longest = _play(tables, *_lay(tables, cap, pattern), rows)
    return makespan + 1e-6 * longest if complete else np.inf


@kernel
def _lay(tables, cap, pattern):  # type: ignore[no-untyped-def]
    """The course of each rank, (p, COURSE), and period, window, patience."""
    p, duration, shifts = tables.ranks, tables.duration, pattern[GENES:]
    course, period, delay = np.empty((p, COURSE)), 0.0, pattern[DELAY]
    for rank in range(p):
        for each in range(6):
            lasts, pretend = duration[each // 2, 2 * rank], 1.0 if each < 2 else pattern[B_TIME + each // 2 - 1]
            course[rank, LASTS + each] = lasts
            course[rank, DUE + each] = lasts * pretend if pretend > 0 else duration[0, 2 * rank]
    unit, at = course[:, DUE : DUE + 6].sum() / (6 * p), 0.0
    for passing in range(4):
        kind, chunk = passing // 2, (0, 1, 1, 0)[passing]
        for step in range(p):
            rank = step if passing % 2 == 0 else p - 1 - step
            course[rank, DUE_TURN + 2 * kind + chunk] = at
            if step < p - 1:
                at += pattern[passing] * unit + delay * tables.delay[kind, 2 * rank + chunk]
            else:
                at += course[rank, DUE + 2 * kind] + (pattern[TURNING] * unit if passing == 1 else 0.0)
    for rank in range(p):
        row, taken = course[rank], tables.taken[2 * rank]
        row[CAP], row[TAKEN], row[FREED] = cap[rank], taken, tables.freed[2 * rank]
        row[HOLDS] = pattern[HELD] + pattern[SLOPE] * rank
        room, spent = np.floor(cap[rank] / taken), row[DUE + 2] + row[DUE + 4]
        low, high = row[DUE_TURN + 2] - row[DUE_TURN] + spent, row[DUE_TURN + 3] - row[DUE_TURN + 1] + spent
        period = max(period, row[DUE : DUE + 6].sum(), (low + high) / room)
        row[AHEAD] = min(max(1.0, np.round(low / (low + high) * room + pattern[SHARE])), max(1.0, room - 1))
        row[AHEAD + 1] = max(1.0, room - row[AHEAD] + pattern[SPARE])
        if room >= 2 * tables.micro_batches:  # memory for all
            row[AHEAD], row[AHEAD + 1] = room, room
        for each in range(4):
            row[DUE_TURN + each] += unit * shifts[4 * rank + each]
    period *= pattern[PERIOD]
    return course, np.array([period, pattern[WINDOW] * period, pattern[PATIENCE], delay])


@kernel
def _play(tables, course, habits, rows):  # type: ignore[no-untyped-def]
    """Whether all operations ran, their true makespan and longest stage; writes rows (N, 3) where there is room."""
    p, m = tables.ranks, tables.micro_batches
    inputs, state, port_free = np.full((2, p, 4, m + 1), np.inf), np.zeros((p, STATE)), np.zeros((2, p * p))
    state[:, TURN:COMES], state[:, COMES:FREE] = course[:, DUE_TURN:AHEAD], np.inf
    inputs[:, 0, 0, :m], state[0, COMES], state[:, BEGAN] = 0.0, 0.0, -1.0
    wakes = np.zeros(p)  # when a rank looks for the next operation
    for _ in range(6 * p * m):
        picked = -1
        while picked < 0:
            rank = 0
            for other in range(1, p):
                if wakes[other] < wakes[rank]:
                    rank = other
            if wakes[rank] == np.inf:
                return False, np.inf, np.inf
            picked, wakes[rank] = _pick(course, habits, state, rank, wakes[rank], 2 * m)
        kind, slot, index = picked // 2, 2 * rank + picked % 2, int(state[rank, DONE + picked])
        if len(rows) > 0:
            row = rank * 6 * m + int(state[rank, DONE:TURN].sum())
            rows[row, 0], rows[row, 1], rows[row, 2] = kind, picked % 2, index
        end, truly = _run(course, state, rank, picked, wakes[rank], inputs[1, rank, picked % 4, index])
        wakes[rank] = end
        if kind == WEIGHT:
            continue
        state[rank, TURN + picked] += habits[0] if index + 1 < m else np.inf
        state[rank, COMES + picked] = inputs[0, rank, picked, index + 1]
        to = tables.onward[kind, slot]
        if to < 0 and kind == BACKWARD:
            continue
        port = tables.port[kind, slot]
        if port >= 0:
            end = port_free[0, port] = max(end, port_free[0, port]) + habits[3] * tables.transfer[kind, slot]
            truly = port_free[1, port] = max(truly, port_free[1, port]) + tables.transfer[kind, slot]
        end, truly = end + habits[3] * tables.delay[kind, slot], truly + tables.delay[kind, slot]
        to, waits = (slot // 2, 2 * BACKWARD + slot % 2) if to < 0 else (to // 2, 2 * kind + to % 2)
        inputs[0, to, waits, index], inputs[1, to, waits, index] = end, truly
        if state[to, DONE + waits] == index:
            state[to, COMES + waits] = end
            wakes[to] = min(wakes[to], max(end, state[to, FREE]))
    return True, (state[:, TRULY] + tables.reduction).max(), (state[:, TRULY] - state[:, BEGAN]).max()


@kernel
def _pick(course, habits, state, rank, now, forwards):  # type: ignore[no-untyped-def]
    """The pass that the rank runs now, and now; or -1 and when to look again."""
    window, patience = habits[1], habits[2]
    open_0 = state[rank, DONE + 2] - state[rank, DONE + 4]
    open_1 = state[rank, DONE + 3] - state[rank, DONE + 5]
    found, best, arrives = -1, np.inf, np.inf
    if open_0 + open_1 <= course[rank, HOLDS] or state[rank, DONE] + state[rank, DONE + 1] == forwards:
        head = np.inf
        for each in range(4):
            head = min(head, state[rank, TURN + each])
        for each in range(4):
            comes, turn = state[rank, COMES + each], state[rank, TURN + each]
            if turn > head + window or (comes >= arrives if comes > now else turn >= best):
                continue
            if each < 2 and not _fits(course, state, rank, each, turn > head):
                continue
            if comes > now:
                arrives = comes
            else:
                found, best = each, turn
    if found < 0 and open_0 + open_1 > 0 and (arrives == np.inf or arrives - now >= patience * course[rank, DUE + 4]):
        found = 5 if open_1 > 0 and (open_0 == 0 or state[rank, DONE + 5] <= state[rank, DONE + 4]) else 4
    return found, now if found >= 0 else arrives


@kernel
def _fits(course, state, rank, chunk, out_of_turn):  # type: ignore[no-untyped-def]
    """Whether memory lets a forward start, with room left for the way home of those it goes ahead of."""
    if state[rank, MEMORY] + course[rank, TAKEN] > course[rank, CAP]:
        return False
    live = state[rank, DONE + chunk] - state[rank, DONE + 4 + chunk]
    if out_of_turn and live >= course[rank, AHEAD + chunk]:
        return False
    on_the_way = state[rank, DONE] - state[rank, DONE + 1]
    return chunk == 1 or (on_the_way + 2) * course[rank, TAKEN] <= course[rank, CAP]


@kernel
def _run(course, state, rank, picked, now, there):  # type: ignore[no-untyped-def]
    """Runs the next operation of a pass, whose input is truly there at that time: its end, as pretended and truly."""
    start = max(state[rank, TRULY], there) if picked < 4 else state[rank, TRULY]
    if state[rank, BEGAN] < 0:
        state[rank, BEGAN] = start
    end, truly = now + course[rank, DUE + picked], start + course[rank, LASTS + picked]
    state[rank, FREE], state[rank, TRULY] = end, truly
    state[rank, DONE + picked] += 1
    if picked < 2:
        state[rank, MEMORY] += course[rank, TAKEN]
    elif picked < 4:
        state[rank, MEMORY] -= course[rank, FREED]
    else:
        state[rank, MEMORY] -= course[rank, TAKEN] - course[rank, FREED]
    return end, truly
