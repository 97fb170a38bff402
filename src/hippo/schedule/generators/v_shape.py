"""Schedules for the ``v`` placement from a building block: the machinery of ZB-V, V-half and V-min.

A micro-batch goes down the ranks with chunk 0, up with chunk 1, and back the same way with its gradients: four passes
(Qi et al. 2024, arXiv 2405.15362, section 3). A *building block* says when each rank meets each pass; it repeats every
period, and how long a micro-batch stays over the period is the memory that it needs (section 2.2 there). Here:

1. ``_lay`` turns a pattern (a row of genes: gaps between ranks, and some habits) into the turn of every pass on every
   rank. The period is the work of the busiest rank, or longer where delays keep micro-batches for too long for memory.
2. ``_order`` squeezes: each rank runs F and B in that turn as soon as they can start, out of turn where the pattern
   allows it (the reordering of section 2.4), and fills the gaps with W. It may pretend durations and delays while it
   orders; the true makespan is that of the order, played as any other.
3. ``schedule`` tries a table of patterns, then changes the best one gene at a time, for as many trials as the size of
   the problem leaves time for; the shortest true makespan wins. The same problem gives the same schedule.

No deadlock: a forward of chunk 0 starts only when afterwards the micro-batches on their way through the V leave room
for one more forward of chunk 1. Then the oldest of them can always go on, and W gives back what older ones hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.engine.events import NOTHING, Board, Pipe, board, earliest, sleep, start, wipe
from hippo.engine.fixed_order import play
from hippo.engine.program import NEVER_PLAYED, Network, Packed, Record
from hippo.engine.program import NOTHING as NOTHING_RECORDED
from hippo.schedule.problem import Floats, ScheduleProblem, Tables
from hippo.schedule.replay import choosing

# ------------------------------------------------------------------------------------------------------------ patterns
# A pattern is a row of genes: what makes a building block. ``FIRST`` holds those that the search tries before it
# changes the best of them: picked one after the other from 1,400 random patterns (and the blocks of Qi et al. 2024,
# section 3), each the one that most lowered the mean gap to the best of all 1,400 over 170 random problems (3 to 16
# ranks, p to 4 p micro-batches, delays from 0 to 5 F, the memory of V-min, V-half and ZB-V). Twelve of them leave 0.4 %
# on average, all of them 0.2 %.

# Genes, (GENES,). Gaps are in mean operation times.
F_DOWN, F_UP, B_DOWN, B_UP = range(4)  # from the start of a pass on one rank to the next, on top of the link's delay
PERIOD = 4  # times the period that work and memory ask for
SHARE = 5  # chunks of memory that chunk 0 may use above its part when it runs out of turn
SPARE = 6  # the same for chunk 1, on top of what chunk 0 leaves
WINDOW = 7  # periods that a pass may run ahead of its turn
PATIENCE = 8  # waits for an input that comes within this part of a W instead of running the W
HELD = 9  # Ws that may wait while forwards are left
SLOPE = 10  # and more of them per rank
B_TIME, W_TIME = 11, 12  # durations to pretend while ordering, times the true ones; EVEN: those of F
DELAY = 13  # delays to pretend, times the true ones
TURNING = 14  # gap between the last F and the first B
GENES = 15

ALWAYS, EVEN = 1e9, -1.0

LEVELS: tuple[tuple[float, ...], ...] = (
    *((0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0),) * 4,
    (0.9, 0.95, 1.0, 1.05, 1.1),
    (-1.0, -0.5, 0.0, 0.5),
    (-1.0, 0.0, 1.0, 2.0),
    (0.0, 0.25, 0.5, 1.0, 2.0, ALWAYS),
    (0.0, 0.25, 0.5, 0.75),
    (0.0, 1.0, 2.0, 4.0, ALWAYS),
    (0.0, 0.25, 0.5, 1.0),
    (0.9, 1.0, 1.0, 1.0, 1.15, EVEN),
    (0.8, 1.0, 1.0, 1.0, 1.1, EVEN),
    (0.0, 1.0, 1.0, 1.0),
    (0.0, 0.0, 1.0, 2.0, 3.0),
)
"""Values that the search gives each gene; those that stand there twice are twice as likely."""

# Gap down and up (of F and B alike), then the genes from PERIOD on.
_FIRST: tuple[tuple[float, ...], ...] = (
    (2.5, 2.5, 1.0, 0.5, 2.0, 0.5, 0.5, 4.0, 1.0, 0.9, 1.0, 1.0, 0.0),
    (4.0, 4.0, 0.95, -0.5, 1.0, 1.0, 0.5, ALWAYS, 0.5, 1.0, 1.0, 1.0, 2.0),
    (4.0, 0.0, 1.05, -1.0, -1.0, ALWAYS, 0.5, 4.0, 1.0, 1.0, 1.0, 1.0, 3.0),
    (2.5, 1.0, 0.95, -0.5, 2.0, ALWAYS, 0.5, 4.0, 0.5, 1.0, 1.0, 1.0, 2.0),
    (1.5, 4.0, 1.05, 0.0, 2.0, 0.25, 0.75, 2.0, 0.25, 1.0, 1.0, 1.0, 3.0),
    (2.0, 4.0, 1.0, 0.0, 0.0, ALWAYS, 0.0, 0.0, 0.0, EVEN, EVEN, 0.0, 0.0),
    (0.5, 3.0, 1.1, 0.5, 0.0, 0.25, 0.5, ALWAYS, 0.5, 1.0, 1.0, 1.0, 2.0),
    (0.5, 2.5, 1.0, -1.0, 0.0, 0.5, 0.5, 4.0, 1.0, 1.0, 1.0, 1.0, 0.0),
    (1.5, 4.0, 0.95, -0.5, -1.0, 2.0, 0.25, ALWAYS, 0.25, 1.0, 1.0, 0.0, 0.0),
    (1.0, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 4.0, 0.0, EVEN, EVEN, 0.0, 2.0),
    (4.0, 2.0, 0.95, 0.5, 2.0, 1.0, 0.75, ALWAYS, 0.0, 1.0, 1.0, 1.0, 0.0),
    (2.5, 2.0, 1.0, 0.5, 2.0, 0.5, 0.5, 1.0, 0.0, 1.0, 1.0, 1.0, 3.0),
    (3.0, 2.0, 0.9, 0.0, -1.0, ALWAYS, 0.75, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0),
    (3.0, 4.0, 1.0, -1.0, 0.0, 0.0, 0.75, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0),
    (1.0, 4.0, 1.05, -1.0, 2.0, 0.5, 0.75, ALWAYS, 0.0, 1.0, 1.0, 0.0, 0.0),
    (2.0, 4.0, 0.9, -1.0, -1.0, 0.5, 0.75, 2.0, 0.5, 1.0, 1.0, 1.0, 3.0),
    (2.0, 0.0, 0.9, -0.5, 2.0, 0.5, 0.0, 4.0, 0.5, 1.15, 0.8, 1.0, 3.0),
    (3.0, 2.0, 1.1, -0.5, 1.0, ALWAYS, 0.5, 4.0, 0.25, 1.0, 1.0, 0.0, 0.0),
    (0.0, 2.5, 0.95, 0.0, 2.0, 1.0, 0.0, 4.0, 0.0, 1.0, 1.0, 1.0, 3.0),
    (1.5, 1.0, 1.0, 0.5, 1.0, 0.5, 0.75, 2.0, 0.5, 1.0, 1.0, 1.0, 0.0),
    (4.0, 4.0, 0.9, -1.0, -1.0, 2.0, 0.75, ALWAYS, 0.0, 1.0, 1.0, 1.0, 0.0),
    (2.5, 0.5, 1.0, 0.0, 1.0, 0.5, 0.75, 0.0, 0.5, EVEN, 1.0, 1.0, 3.0),
    (4.0, 0.5, 0.9, 0.5, 1.0, 0.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0),
    (0.0, 3.0, 1.05, 0.0, 0.0, 2.0, 0.75, ALWAYS, 0.0, EVEN, EVEN, 1.0, 3.0),
)

FIRST = tuple((down, up, down, up, *others) for down, up, *others in _FIRST)
"""Patterns to begin with, (24, GENES), the best first."""

NEVER_STUCK = 2
"""One of them whose window is always open: nothing ready waits for its turn."""


Ints = NDArray[np.int64]

# Columns of a course, (p, COURSE): what a rank follows. Its passes: F of chunk 0, F of chunk 1, B of each, W of each.
DUE, DUE_TURN, AHEAD = 0, 6, 10  # 6: how long it pretends that they take; 4: of micro-batch 0; 2: most live out of turn
CAP, TAKEN, HOLDS, COURSE = 12, 13, 14, 15

MOST_TRIALS, LEAST_TRIALS, OPERATIONS_TRIED = 400, 12, 140_000
"""Trials: as many as run some ``OPERATIONS_TRIED`` operations, in these limits."""


def schedule(problem: ScheduleProblem, cap: Floats, *, seed: int = 0) -> tuple[Ints, Ints]:
    """Rows (6 p m, 3) of all ranks and where each starts, (p + 1,), with at most ``cap`` (p,) memory on each rank.

    A cap below one micro-batch counts as one: nothing less would do.
    """
    p, m = problem.ranks, problem.micro_batches
    cap = np.maximum(cap, whole(problem))
    in_flight = int(min(m, (cap / whole(problem)).max()))
    waves = min(m, max(3 * p, 2 * in_flight))
    trials = min(MOST_TRIALS, max(LEAST_TRIALS, OPERATIONS_TRIED // (6 * p * waves)))
    levels = np.array([[each[index % len(each)] for index in range(_COMMON)] for each in LEVELS])
    cap = cap * (1 + 1e-9)  # sums of shares may miss the limit by a rounding
    tried = _squeezing(replace(problem, micro_batches=waves), cap)
    found = _search(tried, np.array(FIRST), levels, trials, np.random.default_rng(seed))
    at_length = _squeezing(problem, cap)
    _choose(at_length, found)
    return at_length.order, at_length.packed.order_start.copy()


def whole(problem: ScheduleProblem) -> Floats:
    """Memory that both chunks of a rank keep of one micro-batch, (p,)."""
    return problem.tables.taken[0::2] + problem.tables.taken[1::2]


_COMMON = 120  # a multiple of the lengths of all levels, so that each value is as likely


class Squeezing(NamedTuple):
    """A problem on which patterns are tried."""

    tables: Tables
    cap: Floats  # (p,) most memory
    pipe: Pipe  # with the durations and delays that a pattern pretends
    board: Board
    done: Ints  # (p, 6) operations of each pass
    turn: Floats  # (p, 4) of the next F and B of each chunk; inf: no more
    order: Ints  # (6 p m, 3) of the last play; what ``packed`` holds
    packed: Packed
    network: Network
    record: Record


def _squeezing(problem: ScheduleProblem, cap: Floats) -> Squeezing:
    p, m, pipe = problem.ranks, problem.micro_batches, choosing(problem)
    pipe = pipe._replace(duration=pipe.duration.copy(), delay=pipe.delay.copy(), sending=pipe.sending.copy())
    order, (begins, ends) = np.zeros((6 * p * m, 3), np.int64), np.empty((2, 6 * p * m + 2 * p))
    return Squeezing(
        *(problem.tables, cap, pipe, board(pipe), np.zeros((p, 6), np.int64), np.zeros((p, 4)), order),
        packed=problem.program(order, 6 * m * np.arange(p + 1), fused=False),
        network=problem.network,
        record=NOTHING_RECORDED._replace(op_start=begins, op_end=ends),
    )


# ------------------------------------------------------------------------------------------------------------- kernels
@kernel
def _search(squeezing, table, levels, trials, rng):  # type: ignore[no-untyped-def]
    """Patterns with shifts, (3, GENES + 2 S): the best found, the best of the table, one that is never stuck."""
    slots = squeezing.pipe.slots
    best, found = np.inf, np.zeros((3, GENES + 2 * slots))
    found[2, :GENES] = table[NEVER_STUCK]
    for index in range(min(trials, len(table))):
        trial = np.zeros(GENES + 2 * slots)
        trial[:GENES] = table[index]
        length = _score(squeezing, trial)
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
        length = _score(squeezing, trial)
        if length <= best:
            best, found[0] = length, trial
    return found


@kernel
def _choose(squeezing, found):  # type: ignore[no-untyped-def]
    """Writes the order by the best of the patterns found, at full length."""
    best, chosen = np.inf, len(found) - 1
    for index in range(len(found)):
        length = _score(squeezing, found[index])
        if length < best:
            best, chosen = length, index
    _score(squeezing, found[chosen])


@kernel
def _score(squeezing, pattern):  # type: ignore[no-untyped-def]
    """True makespan, with the longest stage to break ties; inf when the ranks come to a halt."""
    if not _order(squeezing, *_lay(squeezing, pattern)):
        return np.inf
    packed, record, longest = squeezing.packed, squeezing.record, 0.0
    packed.known[0] = NEVER_PLAYED  # in this order
    makespan, starts = play(packed, squeezing.network, record), packed.order_start
    for rank in range(len(starts) - 1):
        longest = max(longest, record.op_end[starts[rank + 1] - 1] - record.op_start[starts[rank]])
    return makespan + 1e-6 * longest


@kernel
def _lay(squeezing, pattern):  # type: ignore[no-untyped-def]
    """The course of each rank, (p, COURSE), and period, window, patience."""
    tables, cap = squeezing.tables, squeezing.cap
    p, duration, shifts = tables.ranks, tables.duration, pattern[GENES:]
    course, period, delay = np.empty((p, COURSE)), 0.0, pattern[DELAY]
    for rank in range(p):
        for each in range(6):
            lasts, pretend = duration[each // 2, 2 * rank], 1.0 if each < 2 else pattern[B_TIME + each // 2 - 1]
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
        row[CAP], row[TAKEN] = cap[rank], taken
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


@kernel(lean=True)
def _order(squeezing, course, habits):  # type: ignore[no-untyped-def]
    """Writes the order in which ranks run their operations, as far as they get; whether all ran."""
    pipe, board, done, turn = squeezing.pipe, squeezing.board, squeezing.done, squeezing.turn
    p, m, tables = len(pipe.length), pipe.waves, squeezing.tables
    for slot in range(pipe.slots):
        for kind in range(3):
            pipe.duration[kind, slot] = course[slot // 2, DUE + 2 * kind + slot % 2]
        for kind in range(2):
            pipe.delay[kind, slot] = habits[3] * tables.delay[kind, slot]
            pipe.sending[kind, slot] = habits[3] * tables.transfer[kind, slot]
    wipe(pipe, board)
    done[:] = 0
    for rank in range(p):
        for each in range(4):
            turn[rank, each] = course[rank, DUE_TURN + each]
    for _ in range(6 * p * m):
        rank, now, picked = 0, 0.0, -1
        while picked < 0:
            rank, now = earliest(board.wake)
            if now == np.inf:
                return False
            picked, later = _pick(squeezing, course, habits, rank, now)
            if picked < 0:
                sleep(board, rank, later)
        kind, chunk, index = picked // 2, picked % 2, done[rank, picked]
        row = rank * 6 * m + board.begun[rank, 0] + board.begun[rank, 1] + board.begun[rank, 2]
        squeezing.order[row, 0], squeezing.order[row, 1], squeezing.order[row, 2] = kind, chunk, index
        start(pipe, board, NOTHING, rank, kind, 2 * rank + chunk, index, now)
        done[rank, picked] += 1
        if picked < 4:
            turn[rank, picked] += habits[0] if index + 1 < m else np.inf
    return True


@kernel(lean=True)
def _pick(squeezing, course, habits, rank, now):  # type: ignore[no-untyped-def]
    """The pass that the rank runs now, and now; or -1 and when to look again."""
    window, patience, slots = habits[1], habits[2], squeezing.pipe.slots
    done, turns = squeezing.done[rank], squeezing.turn[rank]
    open_0, open_1 = done[2] - done[4], done[3] - done[5]
    found, best, arrives = -1, np.inf, np.inf
    if open_0 + open_1 <= course[rank, HOLDS] or done[0] + done[1] == 2 * squeezing.pipe.waves:
        head = np.inf
        for each in range(4):
            head = min(head, turns[each])
        for each in range(4):
            comes = squeezing.board.arrived[each // 2 * slots + 2 * rank + each % 2, done[each]]
            turn = turns[each]
            if turn > head + window or (comes >= arrives if comes > now else turn >= best):
                continue
            if each < 2 and not _fits(squeezing, course, rank, each, turn > head):
                continue
            if comes > now:
                arrives = comes
            else:
                found, best = each, turn
    if found < 0 and open_0 + open_1 > 0 and (arrives == np.inf or arrives - now >= patience * course[rank, DUE + 4]):
        found = 5 if open_1 > 0 and (open_0 == 0 or done[5] <= done[4]) else 4
    return found, now if found >= 0 else arrives


@kernel(lean=True)
def _fits(squeezing, course, rank, chunk, out_of_turn):  # type: ignore[no-untyped-def]
    """Whether memory lets a forward start, with room left for the way home of those it goes ahead of."""
    done = squeezing.done[rank]
    if squeezing.board.live[rank] + course[rank, TAKEN] > course[rank, CAP]:
        return False
    if out_of_turn and done[chunk] - done[4 + chunk] >= course[rank, AHEAD + chunk]:
        return False
    return chunk == 1 or (done[0] - done[1] + 2) * course[rank, TAKEN] <= course[rank, CAP]
