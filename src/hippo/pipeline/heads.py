"""Earliest starts of all operations, and with time reversed the least time after them: longest paths and load.

Letters as in ``precedence``: G groups, R rules, m micro-batches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hippo.pipeline.precedence import Rules, reverse
from hippo.pipeline.problem import Floats

UNRELATED = 1 << 40  # shift between groups that no path joins


def heads_and_tails(rules: Rules) -> tuple[Floats, Floats]:
    """Least time before the start and after the end of each operation in every schedule, both (G, m).

    What ``heads`` finds for the rules, and for the rules with time reversed.
    """
    most = int(rules.passes.max())
    behind = heads(reverse(rules), most)
    tail = np.zeros_like(behind)
    for group, count in enumerate(rules.passes):
        tail[group, :count] = behind[group, :count][::-1]
    return heads(rules, most), tail


@njit(cache=True)
def shifts(rules):  # type: ignore[no-untyped-def]
    """(G, G): operation k of the second group comes after operation ``k - shift`` of the first, along some path."""
    groups = len(rules.passes)
    least = np.full((groups, groups), UNRELATED)
    for group in range(groups):
        least[group, group] = 0
        for rule in range(rules.first[group], rules.first[group + 1]):
            least[rules.out_of[rule], group] = min(least[rules.out_of[rule], group], rules.shift[rule])
    for via in range(groups):
        if rules.passes[via] > 0:
            for before in range(groups):
                first = least[before, via]
                if first < UNRELATED:
                    for after in range(groups):
                        least[before, after] = min(least[before, after], first + least[via, after])
    return least


@njit(cache=True)
def heads(rules, most):  # type: ignore[no-untyped-def]
    """Earliest starts (G, ``most``): by the rules, and by the load of what must run before on the same machine.

    Of the operations that come before one on its machine, those that start at t or later take all their time after t:
    it starts no earlier than t plus that time, for every t.
    """
    groups = len(rules.passes)
    least, found = shifts(rules), np.zeros((groups, most))
    same, left = np.empty(groups, np.int64), np.empty(groups, np.int64)
    for index in range(most):
        for group in rules.turn:
            if index >= rules.passes[group]:
                continue
            start = 0.0
            for rule in range(rules.first[group], rules.first[group + 1]):
                source, before = rules.out_of[rule], index - rules.shift[rule]
                if before >= 0:
                    start = max(start, found[source, before] + rules.duration[source] + rules.lag[rule])
            count, load = 0, 0.0
            for other in range(groups):
                if rules.machine[other] == rules.machine[group] and other != group:
                    before = min(rules.passes[other], index + 1 - least[other, group])
                    if before > 0:
                        same[count], left[count] = other, before
                        load += before * rules.duration[other]
                        count += 1
            same[count], left[count] = group, index
            found[group, index] = _after_load(
                rules, found, same[: count + 1], left, load + index * rules.duration[group], start
            )
    return found


@njit(cache=True)
def _after_load(rules, found, same, left, load, start):  # type: ignore[no-untyped-def]
    """The largest of ``start`` and t plus the load that starts at t or later; takes the operations latest first."""
    busy = 0.0
    while True:
        latest, at = -1.0, -1
        for place in range(len(same)):
            if left[place] > 0 and found[same[place], left[place] - 1] > latest:
                latest, at = found[same[place], left[place] - 1], place
        if at < 0 or latest + load <= start:
            return start
        left[at] -= 1
        busy += rules.duration[same[at]]
        start = max(start, latest + busy)


@njit(cache=True)
def one_machine(rules, machine, head, tail):  # type: ignore[no-untyped-def]
    """Preemptive bound of one machine (Jackson 1955): always run what has the longest tail of what is there.

    Within a group heads rise and tails fall, so the first operation left of each group is its best.
    """
    groups = np.flatnonzero((rules.machine == machine) & (rules.passes > 0))
    following, rest = np.zeros(len(groups), np.int64), rules.duration[groups]
    now, bound = 0.0, 0.0
    while True:
        chosen, soonest = -1, np.inf
        for place, group in enumerate(groups):
            index = following[place]
            if index == rules.passes[group]:
                continue
            if head[group, index] > now:
                soonest = min(soonest, head[group, index])
            elif chosen < 0 or tail[group, index] > tail[groups[chosen], following[chosen]]:
                chosen = place
        if chosen < 0:
            if soonest == np.inf:
                return bound
            now = soonest
            continue
        # Runs until it is done, or until something arrives that may be more urgent.
        run = min(rest[chosen], soonest - now)
        now, rest[chosen] = now + run, rest[chosen] - run
        if rest[chosen] <= 1e-12 * now:
            bound = max(bound, now + tail[groups[chosen], following[chosen]])
            following[chosen] += 1
            rest[chosen] = rules.duration[groups[chosen]]
