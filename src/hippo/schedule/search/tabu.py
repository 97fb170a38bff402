"""Tabu search on the orders of a schedule, any placement: operations of critical blocks move to the ends of the block.

Letters: N operations, p ranks, S slots, m micro-batches. The orders of all ranks with the messages form a graph whose
longest path is the makespan (job-shop scheduling). Only a move inside a *critical block*, operations that run without a
pause on one rank and lie on a longest path, can shorten it, and only one that changes the block's first or last
operation (Nowicki and Smutnicki 1996; insertion at the ends: Balas and Vazacopoulos 1998; Zhang et al. 2007). Each
step estimates all such moves of one longest path from heads and tails, makes the best that is not tabu, and repairs the
topological order; a move that would close a circle is found there and undone.

Groups (a kind of one chunk of one rank) stay in their order of micro-batches. Memory is a matter of the order of each
rank alone: taken at the start of F, given back at the end of B and W, so a move is looked at on its own rank only.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.schedule.methods import Rows
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan
from hippo.schedule.schedule import Schedule
from hippo.schedule.search.graph import (
    AFTER,
    AWAY,
    BEFORE,
    GIVES,
    GROUP,
    HEAD,
    INPUT,
    LIVE,
    LOCAL,
    MOVED,
    NTH,
    OUTPUT,
    PLACE,
    PORT,
    RANK,
    SLOT,
    TAIL,
    TAKES,
    THERE,
    TIME,
    graph,
    heads,
    longest_path,
    refresh,
    rows_of,
    tails,
)

REACH = 12  # operations from the end of a block that may move to that end
TENURE = 8  # steps for which a move may not be undone: from this to 2.5 times as many, drawn
MOST_TABU = 4_000_000  # entries of the table of forbidden orders; above, pairs of operations share them
PATIENCE = 2000  # steps without a better schedule after which the search goes back to the best


class Tabu:
    """A search on its way from one schedule."""

    def __init__(self, problem: ScheduleProblem, schedule: Schedule, seed: list[int]) -> None:
        self.problem, self.graph, self.span = problem, graph(problem, schedule), makespan(problem, schedule)
        n, most = len(self.graph.order), int(self.graph.facts[:, LOCAL].max()) + 1
        self.best, self.memo = self.graph.order.copy(), np.zeros(2, np.int64)
        self.tabu = np.zeros((n, min(most, max(16, MOST_TABU // n))), np.int64)
        self.rng = np.random.default_rng(seed)

    def go(self, steps: int, goal: float) -> None:
        """Makes some steps; stops at the goal."""
        self.span = tabu_steps(self.graph, self.best, self.memo, self.tabu, steps, (self.span, goal), self.rng)

    @property
    def rows(self) -> Rows:
        """The shortest schedule so far."""
        return rows_of(self.problem, self.graph.facts, self.best)


# --------------------------------------------------------------------------------------------------------------- moves
@kernel
def rearranged(facts, u, v, later, seq):  # type: ignore[no-untyped-def]
    """The operations from u to v in their new order (u behind v if ``later``, else v in front of u); 0: not allowed."""
    count, op, moving = 0, u, u if later else v
    if not later:
        seq[0], count = v, 1
    while True:
        if op != moving:
            if facts[op, SLOT] == facts[moving, SLOT] and (
                facts[op, NTH] == facts[moving, NTH] or facts[op, GROUP] == facts[moving, GROUP]
            ):
                return 0
            if facts[op, INPUT] == moving or facts[moving, INPUT] == op:
                return 0
            seq[count] = op
            count += 1
        if op == v:
            break
        op = facts[op, AFTER]
    if later:
        seq[count] = u
        count += 1
    return count


@kernel
def estimate(facts, times, limit, seq, count, u, v):  # type: ignore[no-untyped-def]
    """Longest path through the operations from u to v in the order of ``seq``; inf when memory does not do."""
    before, after, live, room = facts[u, BEFORE], facts[v, AFTER], times[u, LIVE], limit[facts[u, RANK]]
    now = times[before, HEAD] + times[before, TIME] if before >= 0 else 0.0
    for nth in range(count):
        op = seq[nth]
        if times[op, TAKES] > 0 and live + times[op, TAKES] > room:
            return np.inf
        live += times[op, TAKES] - times[op, GIVES]
        if facts[op, INPUT] >= 0 and times[op, THERE] > now:
            now = times[op, THERE]
        times[op, MOVED] = now
        now += times[op, TIME]
    tail, longest = times[after, TIME] + times[after, TAIL] if after >= 0 else 0.0, 0.0
    for nth in range(count - 1, -1, -1):
        op = seq[nth]
        tail = max(tail, times[op, AWAY]) + times[op, TIME]
        longest = max(longest, times[op, MOVED] + tail)
    return longest


@kernel
def forbidden(facts, tabu, seq, count, later, step):  # type: ignore[no-untyped-def]
    """Whether the move brings back an order that a recent move has undone."""
    wide = tabu.shape[1]
    for nth in range(count - 1):
        first, second = (seq[nth], seq[count - 1]) if later else (seq[0], seq[nth + 1])
        if tabu[first, facts[second, LOCAL] % wide] > step:
            return True
    return False


@kernel
def forbid(facts, tabu, seq, count, later, again, until):  # type: ignore[no-untyped-def]
    """Forbids to undo the move, or with ``again`` to make it again."""
    wide = tabu.shape[1]
    for nth in range(count - 1):
        first, second = (seq[nth], seq[count - 1]) if later else (seq[0], seq[nth + 1])
        if again:
            tabu[first, facts[second, LOCAL] % wide] = until
        else:
            tabu[second, facts[first, LOCAL] % wide] = until


@kernel
def best_move(facts, times, limit, path, length, tabu, step, aspired, seq, rng):  # type: ignore[no-untyped-def]
    """(u, v, later) of the best move of a longest path; u = -1: there is none. Ties are drawn."""
    chosen, least, ties, last = (-1, -1, False), np.inf, 0, 0
    while last < length:
        first = last
        while first + 1 < length and facts[path[first], BEFORE] == path[first + 1]:
            first += 1
        for later in (True, False):  # behind the last of the block, in front of the first
            for away in range(1 if later else 2, min(first - last, REACH) + 1):
                u, v = (path[last + away], path[last]) if later else (path[first], path[first - away])
                count = rearranged(facts, u, v, later, seq)
                if count == 0:
                    break
                span = estimate(facts, times, limit, seq, count, u, v)
                if span == np.inf or span > least:
                    continue
                if span >= aspired and forbidden(facts, tabu, seq, count, later, step):
                    continue
                ties = ties + 1 if span == least else 1
                if ties == 1 or rng.random() * ties < 1:
                    chosen, least = (u, v, later), span
        last = first + 1
    return chosen


@kernel
def make_move(facts, times, order, move, seq, mark, stamp):  # type: ignore[no-untyped-def]
    """Moves, and repairs the topological order; False, and nothing changed, when it would close a circle."""
    u, v, later = move
    low, high = facts[u, PLACE], facts[v, PLACE]
    size = high - low + 1
    if later:  # what follows from u goes behind v
        mark[u] = stamp
        for place in range(low + 1, high + 1):
            op = order[place]
            source, before = facts[op, INPUT], facts[op, BEFORE]
            if (source >= 0 and mark[source] == stamp) or (before >= 0 and before != u and mark[before] == stamp):
                mark[op] = stamp
    else:  # what v follows from goes in front of u
        mark[v] = stamp
        for place in range(high - 1, low - 1, -1):
            op = order[place]
            target, after = facts[op, OUTPUT], facts[op, AFTER]
            if (target >= 0 and mark[target] == stamp) or (after >= 0 and after != v and mark[after] == stamp):
                mark[op] = stamp
    if mark[v if later else u] == stamp:
        return False
    count, front = 0, not later
    for turn in range(2):
        for place in range(low, high + 1):
            if (mark[order[place]] == stamp) == (front if turn == 0 else not front):
                seq[count] = order[place]
                count += 1
    for nth in range(size):
        order[low + nth] = seq[nth]
        facts[seq[nth], PLACE] = low + nth
    rejoin(facts, times, u, v, later, seq)
    return True


@kernel
def rejoin(facts, times, u, v, later, seq):  # type: ignore[no-untyped-def]
    """Neighbours on the rank, and the memory along the way."""
    count = rearranged(facts, u, v, later, seq)
    before, after, live = facts[u, BEFORE], facts[v, AFTER], times[u, LIVE]
    for nth in range(count):
        op = seq[nth]
        facts[op, BEFORE] = before
        if before >= 0:
            facts[before, AFTER] = op
        times[op, LIVE] = live
        live += times[op, TAKES] - times[op, GIVES]
        before = op
    facts[before, AFTER] = after
    if after >= 0:
        facts[after, BEFORE] = before


# -------------------------------------------------------------------------------------------------------------- search
@kernel
def tabu_steps(graph, best_order, memo, tabu, steps, limits, rng):  # type: ignore[no-untyped-def]
    """Makes some steps; returns the makespan of ``best_order``.

    ``limits`` = (its makespan, the one to stop at); ``memo`` = (steps made, the one that found the best).
    """
    facts, times, order, limit = graph.facts, graph.times, graph.order, graph.limit
    n, links, ends = len(order), np.empty(facts[:, PORT].max() + 2), np.zeros(len(limit))
    path, seq, mark, whole = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64), len(links) > 1
    best, goal = limits
    refresh(facts, times, order, links, ends)
    for nth in range(steps):
        if best <= goal:
            break
        memo[0] += 1
        if memo[0] - memo[1] > PATIENCE:  # nothing new for long: back to the best
            order[:] = best_order
            tabu[:] = 0
            memo[1] = memo[0]
            refresh(facts, times, order, links, ends)
        length = longest_path(facts, times, order, ends.max(), path, rng)
        move = best_move(facts, times, limit, path, length, tabu, memo[0], best * (1 - 1e-9), seq, rng)
        if move[0] < 0:
            memo[1] = -PATIENCE
            continue
        u, v, later = move
        low, high = facts[u, PLACE], facts[v, PLACE]
        count = rearranged(facts, u, v, later, seq)
        forbid(facts, tabu, seq, count, later, False, memo[0] + TENURE + int(rng.random() * 1.5 * TENURE))
        if not make_move(facts, times, order, move, seq, mark, nth + 1):
            count = rearranged(facts, u, v, later, seq)
            forbid(facts, tabu, seq, count, later, True, memo[0] + 12 * TENURE)
            continue
        heads(facts, times, order, 0 if whole else low, links, ends)
        tails(facts, times, order, n - 1 if whole else high, links)
        if ends.max() < best * (1 - 1e-12):
            best = ends.max()
            best_order[:] = order
            memo[1] = memo[0]
    return best
