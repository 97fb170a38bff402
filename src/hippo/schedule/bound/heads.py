"""Earliest starts of all operations, and with time reversed the least time after them: longest paths and load.

Letters as in ``precedence``: G groups, R rules, m micro-batches.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.schedule.bound.precedence import Rules, reverse
from hippo.schedule.problem import Floats

UNRELATED = 1 << 40  # shift between groups that no path joins


def heads_and_tails(rules: Rules) -> tuple[Floats, Floats]:
    """Least time before the start and after the end of each operation in every schedule, both (G, m).

    What ``raise_heads`` finds for the rules, and for the rules with time reversed: there a rank starts when the time
    is over that it takes in the end to reduce its gradients.
    """
    shape = len(rules.passes), int(rules.passes.max())
    head, behind, never = np.zeros(shape), np.zeros(shape), np.full(shape, np.inf)
    raise_heads(rules, shifts(rules), head, never)
    behind += rules.rest[:, None]
    backwards = reverse(rules)
    raise_heads(backwards, shifts(backwards), behind, never)
    return head, turned(rules, behind)


def turned(rules: Rules, found: Floats) -> Floats:
    """Each group from its last operation to its first, (G, m)."""
    back = np.zeros_like(found)
    for group, count in enumerate(rules.passes):
        back[group, :count] = found[group, :count][::-1]
    return back


@kernel
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


@kernel
def raise_heads(rules, least, found, latest):  # type: ignore[no-untyped-def]
    """Raises earliest starts (G, m) in place: by the rules, and by the load of what must run before on the machine.

    Of the operations that come before one on its machine, those that start at t or later take all their time after t:
    it starts no earlier than t plus that time, for every t. Before it come those that a path of rules puts there
    (``least``, of ``shifts``), and those that would start after their ``latest`` start (G, m) if it went first
    (Carlier and Pinson 1990; Vilim 2004 calls these precedences detectable). True when some start is past its latest.
    """
    groups = len(rules.passes)
    same, left, ahead = np.empty(groups, np.int64), np.empty(groups, np.int64), np.empty(groups, np.int64)
    for index in range(found.shape[1]):
        for group in rules.turn:
            if index >= rules.passes[group]:
                continue
            start = found[group, index]
            for rule in range(rules.first[group], rules.first[group + 1]):
                source, before = rules.out_of[rule], index - rules.shift[rule]
                if before >= 0:
                    start = max(start, found[source, before] + rules.duration[source] + rules.lag[rule])
            count = 0
            for other in range(groups):
                if rules.machine[other] == rules.machine[group] and rules.passes[other] > 0:
                    same[count] = other
                    ahead[count] = max(0, min(rules.passes[other], index + 1 - least[other, group]))
                    if other == group:
                        ahead[count] = index
                    count += 1
            while True:
                load = 0.0
                for place in range(count):
                    other = same[place]
                    if other != group:
                        ends = (start + rules.duration[group]) * (1 - 1e-12) - 1e-9
                        while ahead[place] < rules.passes[other] and latest[other, ahead[place]] < ends:
                            ahead[place] += 1
                    left[place] = ahead[place]
                    load += ahead[place] * rules.duration[other]
                raised = _after_load(rules, found, same[:count], left, load, start)
                if raised <= start:
                    break
                start = raised
                if start > latest[group, index] + 1e-6:
                    return True
            found[group, index] = start
            if start > latest[group, index] + 1e-6:
                return True
    return False


@kernel
def _after_load(rules, found, same, left, load, start):  # type: ignore[no-untyped-def]
    """The largest of ``start`` and t plus the load that starts at t or later; takes the operations latest first.

    Later operations of a group may not have been raised yet: t is the least of all starts taken so far.
    """
    busy, since = 0.0, np.inf
    while True:
        latest, at = -1.0, -1
        for place in range(len(same)):
            if left[place] > 0 and found[same[place], left[place] - 1] > latest:
                latest, at = found[same[place], left[place] - 1], place
        since = min(since, latest)
        if at < 0 or since + load <= start:
            return start
        left[at] -= 1
        busy += rules.duration[same[at]]
        start = max(start, since + busy)


@kernel
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
