"""DT-FM (Yuan et al., NeurIPS 2022, arXiv 2206.01288): devices to tasklets by an evolutionary search.

Devices are cut into p groups of d, a group per stage. Its cost is communication alone (section 3): the group slowest
to agree on gradients, plus the cheapest open tour through the groups, where two groups pass activations on along the
perfect matching whose slowest pair is fastest. Partitions are bred; matching and tour follow from the partition.

Letters: G devices, of K sorts (devices of one domain are alike), in p groups of d; ``counts`` (p, K) says how many
devices of each sort a group has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel
from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan
from hippo.plan.runtimes import runtime_rules
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.cuts import Cuts, even_cuts
from hippo.planners.inside_domain import Reject
from hippo.planners.memory import MemoryEstimate, memory_estimate
from hippo.planners.placement import Lane, pipelines_of_lanes, place
from hippo.planners.recipe import (
    Recipe,
    compute_seconds,
    largest_width,
    micro_batches,
    recomputations,
    shardings,
    tensor_widths,
)
from hippo.planners.shortlist import ShortList, StopClock
from hippo.problem.problem import Problem
from hippo.simulate.layouts import cost_model

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
    for position in range(count - 1, -1, -1):
        order[position] = last
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
        for position in range(1, count):
            nearest = -1
            for group in range(count):
                if not used[group] and (
                    nearest < 0 or distance[tour[position - 1], group] < distance[tour[position - 1], nearest]
                ):
                    nearest = group
            seconds += distance[tour[position - 1], nearest]
            tour[position], used[nearest] = nearest, True
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
    for position in range(1, count):
        seconds += distance[order[position - 1], order[position]]
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
    for position in range(groups - 1):
        matching(counts[order[position]], counts[order[position + 1]], costs, flows[position])
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
    for position in range(len(owner) - 1, 0, -1):
        other = drawn(draw, position + 1)
        owner[position], owner[other] = owner[other], owner[position]


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


BRED = 12  # (tp, p) whose partitions are bred, those with the least seconds of compute
DEEP = 24  # stages; deeper pipelines come last (a generation takes time with the square of p; the paper has 8)
TRIALS = 32  # offspring of each with up to SHALLOW stages, fewer of deeper ones (the authors, 8 stages: 4900)
SHALLOW = 8
KEPT = 2  # partitions kept of each (tp, p)
TRIED = 10  # partitions that the judge plays, those with the least compute and communication
SHARDINGS = ("none", "optimizer", "gradients")
NOTES = (
    "Devices are tensor-parallel groups inside a node (the paper's are single GPUs), stages are equal, p * d takes all "
    "devices; degrees, micro-batch and recomputation, which the paper leaves to the user, are swept and the judge "
    "picks. A pair's bandwidth is its share of the link while every device of a group sends.",
    f"Left out: the cyclic moves of the local search (swaps that lower the cost instead), and most of its offspring "
    f"({TRIALS} instead of 4900): devices of a domain are alike here, so that partitions are few.",
)


@dataclass(frozen=True)
class Dtfm:
    """The partition with the least communication for each (tp, p); the best played plan of them."""

    name: str = "dtfm"
    trials: int = TRIALS

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best played plan of the bred partitions; see ``planners.base``."""
        shortlist = ShortList(problem, StopClock.of(stop))
        layouts = Layouts(cost_model(problem), shortlist.reject_memory)
        found: list[tuple[float, DeviceGrid, tuple[Lane, ...]]] = []
        for grid in sorted(layouts.grids(), key=lambda grid: (grid.pp > DEEP, grid.compute_s))[:BRED]:
            if found and shortlist.clock.rang:
                break
            for seconds, lanes in bred(problem, grid, layouts.costs, trials=self.trials, seed=seed):
                fitted = layouts.fitted(grid, lanes)
                found += [] if fitted is None else [(fitted.compute_s + seconds, fitted, lanes)]
        found.sort(key=lambda entry: entry[0])
        shortlist.try_all((grid.plan(problem, lanes) for _, grid, lanes in found), most=TRIED)
        nothing = f"No equal split of {problem.model.name} over the devices of all domains fits."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)


@dataclass(frozen=True)
class DeviceGrid:
    """D_PP x D_DP devices of ``tp`` GPUs, and the recipe with the least compute that fits."""

    tp: int
    cuts: Cuts
    dp: int
    recipe: Recipe
    waves: int
    compute_s: float

    @property
    def pp(self) -> int:
        """D_PP, the number of stages."""
        return len(self.cuts) - 1

    def plan(self, problem: Problem, lanes: Sequence[Lane]) -> Plan:
        """The grid with its lanes on named devices."""
        alike = runtime_rules(problem.runtime).uniform_tp_dp
        sketches = pipelines_of_lanes(lanes, self.cuts, (self.tp,) * self.pp, self.waves, alike=alike)
        return self.recipe.plan(problem, place(problem.cluster, sketches))


@dataclass(frozen=True)
class Layouts:
    """Every (tp, p) over all devices."""

    costs: CostModel
    reject: Reject
    _known: dict[int, list[tuple[Recipe, NDArray[np.float64]]]] = field(default_factory=dict)

    def grids(self) -> Iterator[DeviceGrid]:
        """The grid of every (tp, p) that fits with some recipe."""
        problem = self.costs.problem
        narrowest = min(problem.cluster.domains, key=lambda domain: domain.gpus_per_node)
        for tp in tensor_widths(self.costs, narrowest):
            devices = sum(devices_of(problem, tp))
            for pp in range(1, min(devices, max(problem.model.num_blocks, 1)) + 1):
                dp = largest_width(problem.workload.global_batch, 1, devices // pp)
                if pp * dp == devices or (dp and not self._deals(devices)):
                    grid = self._grid(tp, pp, dp, dp)
                    if grid is not None:
                        yield grid

    def fitted(self, grid: DeviceGrid, lanes: Sequence[Lane]) -> DeviceGrid | None:
        """The grid with a recipe that fits these lanes: state is sharded among lanes that visit the same domains."""
        counts = Counter(lanes).values()
        alike = gcd(*counts) if runtime_rules(self.costs.problem.runtime).uniform_tp_dp else min(counts)
        return grid if alike == grid.dp else self._grid(grid.tp, grid.pp, grid.dp, alike)

    def _deals(self, devices: int) -> bool:
        """Whether some p * d takes all devices; otherwise a few stay idle."""
        batch, most = self.costs.problem.workload.global_batch, max(self.costs.problem.model.num_blocks, 1)
        return any(devices % pp == 0 and batch % (devices // pp) == 0 for pp in range(1, min(devices, most) + 1))

    def _recipes(self, tp: int) -> list[tuple[Recipe, NDArray[np.float64]]]:
        """Recipes with the seconds of each layer."""
        domain, batch = self.costs.problem.cluster.domains[0].name, self.costs.problem.workload.global_batch
        if tp not in self._known:
            sizes = micro_batches(self.costs, tp, most=batch)
            recipes = [Recipe(size, recompute) for size in sizes for recompute in recomputations(self.costs)]
            self._known[tp] = [(one, compute_seconds(self.costs, domain, one, tp=tp, dp=1)) for one in recipes]
        return self._known[tp]

    @cached_property
    def _rooms(self) -> MemoryEstimate:
        return memory_estimate(self.costs)

    def _grid(self, tp: int, pp: int, dp: int, alike: int) -> DeviceGrid | None:
        """The recipe with the least ``(m - 1) slowest stage + all stages`` that fits with state sharded ``alike``."""
        problem, best, least = self.costs.problem, None, float("inf")
        cuts, lots = even_cuts(problem.model.num_layers, pp), problem.workload.global_batch // dp
        for plain, seconds in self._recipes(tp):
            waves, rest = divmod(lots, plain.micro_batch)
            spans = np.add.reduceat(seconds, np.array(cuts[:-1], dtype=np.int64))
            compute_s = float((waves - 1) * spans.max() + spans.sum())
            if rest or (best is not None and compute_s >= best.compute_s):
                continue
            for sharding in shardings(problem, SHARDINGS, pipeline=pp > 1):
                recipe = replace(plain, sharding=sharding)
                missing = self._rooms.missing_bytes(recipe, tp, alike, cuts, waves)
                least = min(least, missing)
                if missing <= 0:
                    best = DeviceGrid(tp, cuts, dp, recipe, waves, compute_s)
                    break
        if best is None and least < float("inf"):
            self.reject(least)
        return best


def devices_of(problem: Problem, tp: int) -> tuple[int, ...]:
    """Tensor-parallel groups of each domain."""
    return tuple(domain.nodes * (domain.gpus_per_node // tp) for domain in problem.cluster.domains)


def bred(
    problem: Problem, grid: DeviceGrid, costs: CostModel, *, trials: int, seed: int
) -> Iterator[tuple[float, tuple[Lane, ...]]]:
    """COMM-COST and lanes of the best partitions, best first; those that need a missing link are left out."""
    from hippo.planners.baselines import dtfm_kernel as kernel

    sort = _devices_used(problem, grid)
    within_s, along_s = pair_seconds(problem, grid, costs)
    pairs = np.argsort(along_s, axis=None, kind="stable")
    tables = kernel.Costs(within_s, along_s, pairs)
    breeding = kernel.Breeding(trials=max(1, trials * SHALLOW // max(grid.pp, SHALLOW)))
    owners, seconds = kernel.evolve(sort, grid.pp, tables, breeding, kernel.state(seed))
    seen: set[tuple[Lane, ...]] = set()
    for member in np.argsort(seconds, kind="stable"):
        if len(seen) == KEPT or not np.isfinite(seconds[member]):
            return
        counts, order, flows = kernel.laid_out(owners[member], sort, grid.pp, tables)
        lanes = lanes_of(problem, counts[order[0]], flows)
        if lanes not in seen:
            seen.add(lanes)
            yield float(seconds[member]), lanes


def lanes_of(problem: Problem, first: NDArray[np.int64], flows: NDArray[np.int64]) -> tuple[Lane, ...]:
    """Domains that each lane visits; ``first`` (K,) counts the devices of the first group, ``flows`` (p - 1, K, K)
    those that are matched with the next group's."""
    names = [domain.name for domain in problem.cluster.domains]
    lanes: list[tuple[int, ...]] = [(sort,) for sort in np.repeat(np.arange(len(names)), first).tolist()]
    for flow in flows:
        onward = {sort: np.repeat(np.arange(len(names)), flow[sort]).tolist() for sort in range(len(names))}
        lanes = [(*lane, onward[lane[-1]].pop(0)) for lane in lanes]
    return tuple(tuple(names[sort] for sort in lane) for lane in sorted(lanes))


def pair_seconds(
    problem: Problem, grid: DeviceGrid, costs: CostModel
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds (K, K) there and back between two devices: for gradients of a stage, for activations of a step.

    A device sends ``c_dp / d`` of a stage's gradients to each of its group (sharded parameter servers), and the
    activations ``c_pp`` of its share of the batch to the next group.
    """
    model, workload, domains = problem.model, problem.workload, problem.cluster.domains
    layout = grid.recipe.layout(problem, tp=grid.tp, dp=grid.dp, stages=grid.pp)
    stage = costs.stage(domains[0].name, grid.cuts[0], grid.cuts[1], layout)
    gradients = model.parameters * workload.gradient_bytes_per_parameter / grid.pp / grid.dp
    activations = stage.output_bytes * grid.waves
    within_s, along_s = np.zeros((len(domains), len(domains))), np.zeros((len(domains), len(domains)))
    for k, domain in enumerate(domains):
        within_s[k, k] = 2 * costs.p2p_seconds(domain.name, gradients, same_node=False)
        along_s[k, k] = 2 * costs.p2p_seconds(domain.name, activations, same_node=False)
    for (k, a), (other, b) in permutations(enumerate(domains), 2):
        latency_s, s_per_byte = _there_and_back(problem, (a.name, b.name), grid)
        within_s[k, other] = latency_s + gradients * s_per_byte
        along_s[k, other] = latency_s + activations * s_per_byte
    return within_s, along_s


def _there_and_back(problem: Problem, pair: tuple[str, str], grid: DeviceGrid) -> tuple[float, float]:
    """Latency and seconds per byte there and back of one device's share; infinite without links."""
    latency_s = s_per_byte = 0.0
    for source, destination in (pair, pair[::-1]):
        link = problem.cluster.link(source, destination)
        if link is None:
            return float("inf"), 0.0
        domain = problem.cluster.domain(source)
        nodes = min(domain.nodes, -(-grid.dp * grid.tp // domain.gpus_per_node))
        latency_s += link.latency_s
        s_per_byte += grid.dp / max(link.rate_bytes_per_s(nodes), 1e-9)
    return latency_s, s_per_byte


def _devices_used(problem: Problem, grid: DeviceGrid) -> NDArray[np.int64]:
    """Domain (G,) of every device; where p * d leaves some idle, the largest domains give them up."""
    counts = list(devices_of(problem, grid.tp))
    for _ in range(sum(counts) - grid.pp * grid.dp):
        counts[counts.index(max(counts))] -= 1
    return np.repeat(np.arange(len(counts)), counts)
