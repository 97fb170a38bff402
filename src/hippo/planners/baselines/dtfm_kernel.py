"""The cost model and the evolutionary search of DT-FM (Yuan et al., NeurIPS 2022, section 3), compiled.

Letters: G devices, of K sorts (devices of one domain are alike), in p groups of d; ``counts`` (p, K) says how many
devices of each sort a group has. A group holds one stage; its devices are the stage's data-parallel ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

EXACT = 8  # up to so many groups the open-loop tour is exact (Held and Karp); beyond, nearest neighbour and 2-opt
POINTS = 5  # of the crossover (the authors' code: five-point crossover)


class PairSeconds(NamedTuple):
    """Seconds between devices of two sorts, there and back, and the order in which a matching tries the pairs."""

    within_s: NDArray[np.float64]  # (K, K) to agree on gradients, 2 (alpha + c_dp / (d beta))
    along_s: NDArray[np.float64]  # (K, K) to pass activations on, 2 (alpha + c_pp / beta)
    pairs: NDArray[np.int64]  # (K * K,) flat indices of ``along_s``, cheapest first


class Breeding(NamedTuple):
    """How long to search: parents, offspring, swaps tried on each."""

    population: int = 16
    trials: int = 32
    swaps: int = 4


def state(seed: int) -> NDArray[np.uint64]:
    """State (1,) of the generator, never 0."""
    return np.array([(seed + 1) * 0x9E3779B97F4A7C15 % 2**64 or 1], dtype=np.uint64)


@kernel
def data_parallel_s(counts, within_s):  # type: ignore[no-untyped-def]
    """max over groups and their devices of the sum over the other devices of the group (section 3)."""
    slowest = 0.0
    for group in range(counts.shape[0]):
        for sort in range(counts.shape[1]):
            if counts[group, sort] > 0:
                total = -within_s[sort, sort]
                for other in range(counts.shape[1]):
                    if counts[group, other] > 0:
                        total += counts[group, other] * within_s[sort, other]
                slowest = max(slowest, total)
    return slowest


@kernel
def matching(first, second, costs, flow):  # type: ignore[no-untyped-def]
    """Perfect matching of two groups whose slowest pair is fastest; fills ``flow`` (K, K), returns that pair's seconds.

    Pairs of sorts are admitted cheapest first and the matching is augmented until it is perfect.
    """
    sorts = len(first)
    flow.fill(0)
    left, right = first.copy(), second.copy()
    missing = left.sum()
    admitted = np.zeros((sorts, sorts), dtype=np.bool_)
    slowest = 0.0
    for flat in costs.pairs:
        if missing == 0:
            break
        a, b = flat // sorts, flat % sorts
        if first[a] == 0 or second[b] == 0:
            continue
        admitted[a, b] = True
        while missing > 0:
            pushed = _augment(left, right, admitted, flow)
            if pushed == 0:
                break
            missing -= pushed
            slowest = costs.along_s[a, b]
    return slowest if missing == 0 else np.inf


@kernel
def _augment(left, right, admitted, flow):  # type: ignore[no-untyped-def]
    """One augmenting path (breadth first) in the graph of admitted pairs; returns how many devices it matches."""
    sorts = len(left)
    from_left = np.full(sorts, -2, dtype=np.int64)  # right node before a left one; -1: source
    from_right = np.full(sorts, -2, dtype=np.int64)  # left node before a right one
    queue = np.empty(2 * sorts, dtype=np.int64)
    head, tail, end = 0, 0, -1
    for a in range(sorts):
        if left[a] > 0:
            from_left[a], queue[tail], tail = -1, a, tail + 1
    while head < tail and end < 0:
        a, head = queue[head], head + 1
        for b in range(sorts):
            if admitted[a, b] and from_right[b] == -2:
                from_right[b] = a
                if right[b] > 0:
                    end = b
                    break
                for back in range(sorts):
                    if flow[back, b] > 0 and from_left[back] == -2:
                        from_left[back], queue[tail], tail = b, back, tail + 1
    return 0 if end < 0 else _push(left, right, flow, from_left, from_right, end)


@kernel
def _push(left, right, flow, from_left, from_right, end):  # type: ignore[no-untyped-def]
    """Sends as much as the path to ``end`` carries."""
    pushed = right[end]
    b = end
    while from_left[from_right[b]] >= 0:
        a = from_right[b]
        b = from_left[a]
        if flow[a, b] < pushed:
            pushed = flow[a, b]
    if left[from_right[b]] < pushed:
        pushed = left[from_right[b]]
    b = end
    while True:
        a = from_right[b]
        flow[a, b] += pushed
        if from_left[a] == -1:
            left[a] -= pushed
            break
        b = from_left[a]
        flow[a, b] -= pushed
    right[end] -= pushed
    return pushed


@kernel
def open_tour(distance):  # type: ignore[no-untyped-def]
    """Cheapest path through all groups (open-loop travelling salesman): its seconds and the groups in order."""
    return _exact_tour(distance) if len(distance) <= EXACT else _greedy_tour(distance)


@kernel
def _exact_tour(distance):  # type: ignore[no-untyped-def]
    count = len(distance)
    total = np.full((1 << count, count), np.inf)
    before = np.full((1 << count, count), -1, dtype=np.int64)
    for group in range(count):
        total[1 << group, group] = 0.0
    for visited in range(1, 1 << count):
        for last in range(count):
            if total[visited, last] == np.inf:
                continue
            for following in range(count):
                if visited >> following & 1:
                    continue
                joined = visited | 1 << following
                seconds = total[visited, last] + distance[last, following]
                if seconds < total[joined, following]:
                    total[joined, following], before[joined, following] = seconds, last
    order = np.arange(count)
    visited = (1 << count) - 1
    last = int(np.argmin(total[visited]))
    seconds = total[visited, last]
    if seconds == np.inf:
        return seconds, order
    for place in range(count - 1, -1, -1):
        order[place] = last
        visited, last = visited ^ (1 << last), before[visited, last]
    return seconds, order


@kernel
def _greedy_tour(distance):  # type: ignore[no-untyped-def]
    """Nearest neighbour from every group, the best of them improved by 2-opt."""
    count = len(distance)
    best, order = np.inf, np.arange(count)
    for start in range(count):
        tour, used = np.empty(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
        tour[0], used[start], seconds = start, True, 0.0
        for place in range(1, count):
            nearest = -1
            for group in range(count):
                if not used[group] and (
                    nearest < 0 or distance[tour[place - 1], group] < distance[tour[place - 1], nearest]
                ):
                    nearest = group
            seconds += distance[tour[place - 1], nearest]
            tour[place], used[nearest] = nearest, True
        if seconds < best:
            best, order = seconds, tour
    return _two_opt(distance, order)


@kernel
def _two_opt(distance, order):  # type: ignore[no-untyped-def]
    count, better = len(order), True
    while better:
        better = False
        for i in range(count - 1):
            for j in range(i + 1, count):
                old = new = 0.0
                if i > 0:
                    old, new = distance[order[i - 1], order[i]], distance[order[i - 1], order[j]]
                if j < count - 1:
                    old, new = old + distance[order[j], order[j + 1]], new + distance[order[i], order[j + 1]]
                if new < old - 1e-12 * abs(old):
                    for step in range((j - i + 1) // 2):
                        order[i + step], order[j - step] = order[j - step], order[i + step]
                    better = True
    seconds = 0.0
    for place in range(1, count):
        seconds += distance[order[place - 1], order[place]]
    return seconds, order


@kernel
def group_distances(counts, costs, distance, which):  # type: ignore[no-untyped-def]
    """Fills rows and columns ``which`` of ``distance`` (p, p) with the matchings between groups."""
    flow = np.zeros((counts.shape[1], counts.shape[1]), dtype=np.int64)
    for a in which:
        for b in range(counts.shape[0]):
            if a != b:
                distance[a, b] = distance[b, a] = matching(counts[a], counts[b], costs, flow)


@kernel
def communication_s(counts, costs):  # type: ignore[no-untyped-def]
    """COMM-COST of a partition: DATAP-COST + PIPELINEP-COST (section 3)."""
    distance = np.zeros((counts.shape[0], counts.shape[0]))
    group_distances(counts, costs, distance, np.arange(counts.shape[0]))
    return data_parallel_s(counts, costs.within_s) + open_tour(distance)[0]


@kernel
def evolve(sort, groups, costs, breeding, draw):  # type: ignore[no-untyped-def]
    """Partitions (population, G) of devices into ``groups``, and their COMM-COST, after all offspring.

    ``sort`` (G,) is each device's domain, ``draw`` the state of a generator. The first two ancestors are rank order and
    dealing round, the others random. A child takes five devices' groups from one parent and all others' from the other,
    is balanced again, improved by swaps, and replaces its worse parent when it is better than that.
    """
    devices, size, sorts = len(sort), len(sort) // groups, len(costs.within_s)
    owners = np.empty((breeding.population, devices), dtype=np.int64)
    seconds = np.empty(breeding.population)
    for member in range(breeding.population):
        for device in range(devices):
            owners[member, device] = device // size if member != 1 else device % groups
        if member > 1:
            shuffled(owners[member], draw)
        seconds[member] = communication_s(counted(owners[member], sort, groups, sorts), costs)
    for _ in range(breeding.trials):
        one, two = drawn(draw, breeding.population), drawn(draw, breeding.population)
        child = crossed(owners[one], owners[two], groups, draw)
        child_s = improve(child, sort, groups, costs, breeding.swaps, draw)
        worse = one if seconds[one] > seconds[two] else two
        if child_s < seconds[worse]:
            owners[worse], seconds[worse] = child, child_s
    return owners, seconds


@kernel
def laid_out(owner, sort, groups, costs):  # type: ignore[no-untyped-def]
    """``counts`` (p, K), groups in the order of the cheapest tour, and matchings with the next one (p - 1, K, K)."""
    sorts = len(costs.within_s)
    counts, distance = counted(owner, sort, groups, sorts), np.zeros((groups, groups))
    group_distances(counts, costs, distance, np.arange(groups))
    order = open_tour(distance)[1]
    flows = np.zeros((groups - 1, sorts, sorts), dtype=np.int64)
    for place in range(groups - 1):
        matching(counts[order[place]], counts[order[place + 1]], costs, flows[place])
    return counts, order, flows


@kernel
def drawn(draw, below):  # type: ignore[no-untyped-def]
    """The next random integer from 0 to ``below`` - 1; ``draw`` (1,) is the state (xorshift64*, Vigna 2016)."""
    state = draw[0]
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    draw[0] = state
    return np.int64((state * np.uint64(2685821657736338717) >> np.uint64(32)) % np.uint64(below))


@kernel
def shuffled(owner, draw):  # type: ignore[no-untyped-def]
    """Puts ``owner`` into random order (Fisher and Yates)."""
    for place in range(len(owner) - 1, 0, -1):
        other = drawn(draw, place + 1)
        owner[place], owner[other] = owner[other], owner[place]


@kernel
def counted(owner, sort, groups, sorts):  # type: ignore[no-untyped-def]
    """``counts`` (p, K) of a partition."""
    counts = np.zeros((groups, sorts), dtype=np.int64)
    for device in range(len(owner)):
        counts[owner[device], sort[device]] += 1
    return counts


@kernel
def crossed(one, two, groups, draw):  # type: ignore[no-untyped-def]
    """Child of two partitions: five devices as in ``one``, the others as in ``two``, groups equally large again."""
    child, size = two.copy(), len(two) // groups
    for _ in range(POINTS):
        device = drawn(draw, len(two))
        child[device] = one[device]
    sizes = np.zeros(groups, dtype=np.int64)
    for owner in child:
        sizes[owner] += 1
    for device in range(len(child)):
        if sizes[child[device]] > size:
            smallest = int(np.argmin(sizes))
            sizes[child[device]] -= 1
            sizes[smallest] += 1
            child[device] = smallest
    return child


@kernel
def improve(owner, sort, groups, costs, swaps, draw):  # type: ignore[no-untyped-def]
    """Swaps devices of two groups as long as COMM-COST falls; changes ``owner``, returns its COMM-COST."""
    counts = counted(owner, sort, groups, len(costs.within_s))
    distance = np.zeros((groups, groups))
    group_distances(counts, costs, distance, np.arange(groups))
    best = data_parallel_s(counts, costs.within_s) + open_tour(distance)[0]
    kept, touched = np.empty((groups, groups)), np.empty(2, dtype=np.int64)
    for _ in range(swaps):
        v, w = drawn(draw, len(owner)), drawn(draw, len(owner))
        if owner[v] == owner[w] or sort[v] == sort[w]:
            continue
        touched[0], touched[1] = owner[v], owner[w]
        _copy(distance, kept)
        _swap(owner, counts, sort, v, w)
        seconds = data_parallel_s(counts, costs.within_s)
        if seconds < best:
            group_distances(counts, costs, distance, touched)
            seconds += open_tour(distance)[0]
        if seconds < best:
            best = seconds
        else:
            _swap(owner, counts, sort, v, w)
            _copy(kept, distance)
    return best


@kernel
def _copy(source, target):  # type: ignore[no-untyped-def]
    for row in range(source.shape[0]):
        for column in range(source.shape[1]):
            target[row, column] = source[row, column]


@kernel
def _swap(owner, counts, sort, v, w):  # type: ignore[no-untyped-def]
    for device, target in ((v, owner[w]), (w, owner[v])):
        counts[owner[device], sort[device]] -= 1
        counts[target, sort[device]] += 1
        owner[device] = target
