"""How fast no schedule can be: bounds from below on the makespan of a problem, each with its name.

Letters: p ranks, S slots, m micro-batches, K micro-batches that the memory of a slot holds; f, b, w the times of a
slot; ``head`` the earliest start of its first forward, ``away`` the time from the end of an F to the earliest start of
its B, ``home`` from the end of a B to that of the last W upstream.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hippo.engine.program import FORWARD, WEIGHT
from hippo.errors import InfeasibleError
from hippo.schedule.bound.heads import heads_and_tails, one_machine, raise_heads, shifts, turned
from hippo.schedule.bound.precedence import Rules, reverse, rules, smallest_limit
from hippo.schedule.problem import Floats, ScheduleProblem, chains

# ------------------------------------------------------------------------------------------------------------- shaving
# A tighter bound by contradiction: a makespan T is refuted when its windows leave some operation no time to start.
#
# With a makespan of at most T every operation has a latest start. Where two operations of a rank do not fit in one
# order they must run in the other; that raises heads and tails, which narrows windows, and so on, until nothing changes
# or some window is empty (destructive bounds: Klein and Scholl 1999, constraint-based scheduling: Carlier and Pinson
# 1990). If T is refuted every schedule is longer than T. Unlike Jackson's bound this sees that operations are not
# interrupted.

_RESOLUTION = 1e-5  # of the bound
_FIRST_STEP = 1e-4
_ROUNDS = 50


def shaved(found: Rules, head: Floats, tail: Floats, least: float) -> float:
    """The largest makespan found that is refuted, or ``least``, a bound known already; heads and tails are (G, m)."""
    step, low = _FIRST_STEP * least, least
    while refuted(found, head, tail, low + step):
        low, step = low + step, 2 * step
    while step > _RESOLUTION * least and low + step > least + _FIRST_STEP * least:
        step /= 2
        if refuted(found, head, tail, low + step):
            low += step
    return low


def refuted(found: Rules, head: Floats, tail: Floats, target: float) -> bool:
    """Whether no schedule is as short as ``target``."""
    backwards, real = reverse(found), np.arange(head.shape[1]) < found.passes[:, None]
    ahead, behind, lengths = head.copy(), turned(found, tail), found.duration[:, None]
    paths, paths_back = shifts(found), shifts(backwards)
    for _ in range(_ROUNDS):
        before = float(ahead[real].sum() + behind[real].sum())
        if raise_heads(found, paths, ahead, target - lengths - turned(found, behind)):
            return True
        if raise_heads(backwards, paths_back, behind, target - lengths - turned(found, ahead)):
            return True
        if float(ahead[real].sum() + behind[real].sum()) <= before * (1 + 1e-9):
            break
    after, machines = turned(found, behind), np.unique(found.machine[found.passes > 0])
    return any(one_machine(found, machine, ahead, after) > target * (1 + 1e-9) for machine in machines)


# -------------------------------------------------------------------------------------------------------------- bounds
def lower_bound(problem: ScheduleProblem, *, quick: bool = False) -> float:
    """The largest of ``bounds``: no schedule within memory has a smaller makespan."""
    return max(bounds(problem, quick=quick).values())


def bounds(problem: ScheduleProblem, *, quick: bool = False) -> Mapping[str, float]:
    """Each bound by its name, in the unit of the problem.

    ``chain``
        One micro-batch down and up again, then the W of the first slot and the reduction of its rank.
    ``work``
        A rank cannot start before the first micro-batch arrives, and has all its work to do, then its reduction.
    ``drain``
        After all F and B of a rank the last B still travels home, then one W and the reduction there.
    ``window``
        A micro-batch stays on a slot for ``f + away + b (+ w)``; with K places, F k + K starts that much after F k;
        the reduction follows the last.
    ``jackson``
        One-machine preemptive bound (Jackson 1955; Carlier 1982) of each rank and link, with heads and tails from
        ``heads``, and the longest way through any one operation.
    ``windows``
        The largest makespan that is refuted because some operation has no time left (``shaving``). It takes most of
        the time (p 16, m 128: 10 ms for the others, 35 ms in all); left out when ``quick``.

    Raises
    ------
    InfeasibleError
        One micro-batch does not fit into the memory of a rank.
    """
    must_fit(problem)
    found = rules(problem)
    head, tail = heads_and_tails(found)
    known = {**_simple(problem, found), "jackson": _jackson(found, head, tail)}
    return known if quick else {**known, "windows": shaved(found, head, tail, max(known.values()))}


def must_fit(problem: ScheduleProblem) -> None:
    """Raises ``InfeasibleError``, with the smallest limit that works, when no schedule keeps within memory."""
    need, limit = smallest_limit(problem), problem.limit
    short = [rank for rank in range(problem.ranks) if need[rank] > limit[rank] * (1 + 1e-9)]
    if short:
        worst = max(short, key=lambda rank: need[rank] / limit[rank])
        raise InfeasibleError(
            [
                f"One micro-batch needs {need[worst]:g} on rank {worst}, the limit is {limit[worst]:g}. "
                f"Nearest way out: --memory {max(need):g}."
            ]
        )


def _jackson(found: Rules, head: Floats, tail: Floats) -> float:
    machines = np.unique(found.machine[found.passes > 0])
    through = (head + found.duration[:, None] + tail)[found.passes > 0]
    return float(max(through.max(), *(one_machine(found, machine, head, tail) for machine in machines)))


def _simple(problem: ScheduleProblem, found: Rules) -> dict[str, float]:
    """The bounds that a person can work out by hand."""
    tables = problem.tables
    (f, b, w), rest = tables.duration, np.repeat(tables.reduction, tables.chunks)
    sent_down, sent_up = tables.delay + tables.transfer
    head, home = np.full(len(f), np.inf), np.full(len(f), np.inf)
    through = window = 0.0
    for along in (np.array(chain) for chain in chains(problem)):
        if not tables.passes[along[0]]:
            continue
        ahead, back = f[along] + sent_down[along], b[along] + sent_up[along]
        head[along] = np.cumsum(ahead) - ahead
        home[along] = np.cumsum(back) - b[along] + w[along[0]] + rest[along[0]]
        away = ahead.sum() - head[along] - f[along] + back[::-1].cumsum()[::-1] - back
        through = max(through, float(ahead.sum() + back.sum() + w[along[0]] + rest[along[0]]))
        for slot, gone in zip(along, away, strict=True):
            window = max(window, _window(found, int(slot), head[slot], float(gone)))
    on_rank = (problem.ranks, problem.chunks)
    turns, last = ((tables.passes * each).reshape(on_rank).sum(axis=1) for each in (f + b, w))
    soonest, home_again = (each.reshape(on_rank).min(axis=1) for each in (head, home))
    work = float((soonest + turns + last + tables.reduction).max())
    drain = float((soonest + turns + home_again).max())
    return {"chain": through, "work": work, "drain": drain, "window": window}


def _window(found: Rules, slot: int, head: float, away: float) -> float:
    """``head + q L + r f + L`` with (q, r) = divmod(m - 1, K): only every K-th micro-batch may start L later."""
    slots, m = len(found.passes) // 5, int(found.passes[slot])
    f, b, w = found.duration[slot : 3 * slots : slots]
    bound, through = 0.0, f + away + b + w
    for rule in range(found.first[slot], found.first[slot + 1]):
        kind = int(found.out_of[rule]) // slots
        if kind != FORWARD and found.out_of[rule] % slots == slot:
            whole, rest = divmod(m - 1, int(found.shift[rule]))
            stays = through if kind == WEIGHT else through - w
            bound = max(bound, head + whole * stays + rest * f + through + found.rest[slot])
    return float(bound)
