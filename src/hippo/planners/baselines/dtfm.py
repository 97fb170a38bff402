"""DT-FM (Yuan et al., NeurIPS 2022, arXiv 2206.01288): devices to tasklets by an evolutionary search.

Devices are cut into p groups of d, a group per stage. Its cost is communication alone (section 3): the group slowest
to agree on gradients, plus the cheapest open tour through the groups, where two groups pass activations on along the
perfect matching whose slowest pair is fastest. Partitions are bred; matching and tour follow from the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import gcd

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.cuts import Cuts, even_cuts
from hippo.planners.inside_domain import Reject
from hippo.planners.memory import MemoryEstimate, memory_estimate
from hippo.planners.placement import Lane, pipelines_of_lanes, place, room_for_lanes
from hippo.planners.recipe import (
    Recipe,
    compute_seconds,
    largest_width,
    micro_batches,
    recomputations,
    shardings,
    tensor_widths,
)
from hippo.planners.shortlist import ShortList
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model
from hippo.simulate.routes import border_share

BRED_S = 0.02  # of work for their offspring (planners.effort)
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
        shortlist = ShortList.of(problem, stop)
        layouts = Layouts(cost_model(problem), shortlist.reject_memory)
        found: list[tuple[float, DeviceGrid, tuple[Lane, ...]]] = []
        for grid in sorted(layouts.grids(), key=lambda grid: (grid.pp > DEEP, grid.compute_s))[:BRED]:
            if found and shortlist.effort.over():
                break
            shortlist.effort.spend(BRED_S)
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
        alike = problem.rules.uniform_tp_dp
        sketches = pipelines_of_lanes(lanes, self.cuts, (self.tp,) * self.pp, self.waves, alike=alike)
        return self.recipe.plan(problem, place(problem.cluster, sketches, cp=problem.context_parallel))


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
        alike = gcd(*counts) if self.costs.problem.rules.uniform_tp_dp else min(counts)
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
    def _memory(self) -> MemoryEstimate:
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
                missing = self._memory.missing_bytes(recipe, tp, alike, cuts, waves)
                least = min(least, missing)
                if missing <= 0:
                    best = DeviceGrid(tp, cuts, dp, recipe, waves, compute_s)
                    break
        if best is None and least < float("inf"):
            self.reject(least)
        return best


def devices_of(problem: Problem, tp: int) -> tuple[int, ...]:
    """Devices of each domain: tensor-parallel groups, with context parallelism lanes of them."""
    return tuple(room_for_lanes(domain, tp, problem.context_parallel) for domain in problem.cluster.domains)


def bred(
    problem: Problem, grid: DeviceGrid, costs: CostModel, *, trials: int, seed: int
) -> Iterator[tuple[float, tuple[Lane, ...]]]:
    """COMM-COST and lanes of the best partitions, best first; those that need a missing link are left out."""
    from hippo.planners.baselines import dtfm_kernel as kernel

    sort = _devices_used(problem, grid)
    within_s, along_s = pair_seconds(problem, grid, costs)
    pairs = np.argsort(along_s, axis=None, kind="stable")
    tables = kernel.PairSeconds(within_s, along_s, pairs)
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
        along_s[k, other] = latency_s + activations * border_share(problem) * s_per_byte
    return within_s, along_s


def _there_and_back(problem: Problem, pair: tuple[str, str], grid: DeviceGrid) -> tuple[float, float]:
    """Latency and seconds per byte there and back of one device's share; infinite without links."""
    latency_s = s_per_byte = 0.0
    for source, destination in (pair, pair[::-1]):
        link = problem.cluster.link(source, destination)
        if link is None:
            return float("inf"), 0.0
        domain = problem.cluster.domain(source)
        nodes = min(domain.nodes, -(-grid.dp * grid.tp * problem.context_parallel // domain.gpus_per_node))
        latency_s += link.delay_s
        s_per_byte += grid.dp / max(link.rate_bytes_per_s(nodes), 1e-9)
    return latency_s, s_per_byte


def _devices_used(problem: Problem, grid: DeviceGrid) -> NDArray[np.int64]:
    """Domain (G,) of every device; where p * d leaves some idle, the largest domains give them up."""
    counts = list(devices_of(problem, grid.tp))
    for _ in range(sum(counts) - grid.pp * grid.dp):
        counts[counts.index(max(counts))] -= 1
    return np.repeat(np.arange(len(counts)), counts)
