"""The best layouts inside one domain: tensor width, data width, stages, micro-batch, recomputation, sharding.

Layouts come out one by one, fastest first by the closed form of a synchronous pipeline

    (m - 1) * slowest stage + sum of stages + 2 (p - 1) * transfer + the slowest stage's work once per step

(m waves, p stages; Megatron-LM, SC'21, section 2.2.1, with unequal stages), and only those that fit into memory. The
search is best first: a layout is worked out only when its lower bound (compute alone, no memory) is the smallest left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout
from hippo.planners.cuts import Cuts, bottleneck_cuts, even_cuts, fitting_cuts
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.planners.recipe import (
    STATE_SHARDINGS,
    Recipe,
    compute_seconds,
    largest_width,
    micro_batches,
    recomputations,
    shardings,
    tensor_widths,
)
from hippo.problem.cluster import Domain

Reject = Callable[[float], None]
"""Called for every layout that does not fit, with the bytes per GPU that it lacks."""


@dataclass(frozen=True)
class Inside:
    """One layout inside one domain."""

    domain: str
    tp: int
    dp: int
    cuts: Cuts
    recipe: Recipe
    waves: int
    seconds: float  # closed form of the step; the judge plays it

    @property
    def pp(self) -> int:
        """Stages."""
        return len(self.cuts) - 1

    @property
    def sketch(self) -> PipelineSketch:
        """The pipeline, devices not yet chosen."""
        stages = zip(self.cuts[:-1], self.cuts[1:], strict=True)
        return PipelineSketch(tuple(StageSketch(self.domain, span, self.tp, self.dp) for span in stages), self.waves)


@dataclass(frozen=True)
class Search:
    """What is searched: ``sequences`` of the batch in one domain, within the limits given."""

    costs: CostModel
    domain: Domain
    sequences: int
    even: bool = False  # cut as Megatron-LM does by default; otherwise the slowest stage is made as fast as it can be
    tps: tuple[int, ...] | None = None  # None: every width inside a node
    pps: tuple[int, ...] | None = None  # None: every number of stages
    shardings: tuple[str, ...] = ("none", "optimizer", "gradients", "full")
    replicas: int = 1  # pipelines of the whole plan that hold the model (what a world-wide sharding divides by)

    def layouts(self, reject: Reject = lambda missing: None) -> Iterator[Inside]:
        """Layouts that fit, fastest first; ties: the order in which they were made up (narrow before wide)."""
        heap = [(inside.seconds, index, False, inside) for index, inside in enumerate(self._sketched())]
        heapify(heap)
        while heap:
            _, index, finished, inside = heappop(heap)
            if finished:
                yield inside
                continue
            worked_out = self._worked_out(inside, reject)
            if worked_out is not None:
                heappush(heap, (worked_out.seconds, index, True, worked_out))

    def best(self, count: int, reject: Reject = lambda missing: None) -> tuple[Inside, ...]:
        """The first ``count`` layouts."""
        return tuple(islice(self.layouts(reject), count))

    def _sketched(self) -> Iterator[Inside]:
        """Every layout that the batch and the GPUs allow, with a lower bound on its seconds."""
        for tp in self.tps if self.tps is not None else tensor_widths(self.costs, self.domain):
            groups = self.domain.nodes * (self.domain.gpus_per_node // tp)
            for micro_batch in micro_batches(self.costs, tp, most=self.sequences):
                for recompute in recomputations(self.costs):
                    yield from self._of_recipe(tp, groups, Recipe(micro_batch, recompute))

    def _of_recipe(self, tp: int, groups: int, recipe: Recipe) -> Iterator[Inside]:
        """Layouts of one tensor width and recipe, for every number of stages and sharding."""
        seconds = compute_seconds(self.costs, self.domain.name, recipe, tp=tp, dp=1)
        total = float(seconds.sum())
        for pp, cuts in self._cuts(seconds, groups):
            slowest = float(_spans(seconds, cuts).max())
            for sharding in self._shardings(pp):
                for dp in self._widths(recipe.micro_batch, groups // pp):
                    waves = self.sequences // (recipe.micro_batch * dp)
                    chosen = replace(recipe, sharding=sharding)
                    if dp > 1 or sharding == "none":
                        bound = (waves - 1) * slowest + total
                        yield Inside(self.domain.name, tp, dp, cuts, chosen, waves, bound)

    def _shardings(self, pp: int) -> tuple[str, ...]:
        """Beside a pipeline only shardings that do not gather parameters for every micro-batch."""
        wanted = self.shardings if pp == 1 else [name for name in self.shardings if name in STATE_SHARDINGS]
        return shardings(self.costs.problem, wanted, pipeline=pp > 1)

    def _cuts(self, seconds: NDArray[np.float64], groups: int) -> list[tuple[int, Cuts]]:
        blocks = max(len(seconds) - 2, 1)
        allowed = [pp for pp in self.pps or range(1, groups + 1) if pp <= min(groups, blocks)]
        if not allowed:
            return []
        if self.even or self.costs.problem.uniform_cuts:
            return [(pp, even_cuts(len(seconds), pp)) for pp in allowed]
        table = bottleneck_cuts(seconds, max(allowed))
        return [(pp, table[pp - 1]) for pp in allowed]

    def _widths(self, micro_batch: int, most: int) -> tuple[int, ...]:
        """The largest data width; where money counts, every smaller one too."""
        largest = largest_width(self.sequences, micro_batch, most)
        if largest == 0 or self.costs.problem.objective.name == "time":
            return (largest,) if largest else ()
        waves = self.sequences // micro_batch
        return tuple(dp for dp in range(1, largest + 1) if waves % dp == 0)

    def _worked_out(self, inside: Inside, reject: Reject) -> Inside | None:
        """The layout with all its seconds, recut where memory asks for it; None: it does not fit."""
        missing = missing_bytes(self.costs, inside, replicas=self.replicas * inside.dp)
        if missing > 0:
            recut = None if self.even or self.costs.problem.uniform_cuts or inside.pp == 1 else self._recut(inside)
            if recut is None:
                reject(missing)
                return None
            inside = recut
        return replace(inside, seconds=step_seconds(self.costs, inside))

    def _recut(self, inside: Inside) -> Inside | None:
        """The same layout cut under memory, or None."""
        if not might_fit(self.costs, inside):
            return None
        seconds = compute_seconds(self.costs, inside.domain, inside.recipe, tp=inside.tp, dp=inside.dp)
        layout = inside_layout(self.costs, inside, replicas=self.replicas * inside.dp)

        def reach(stage: int, start: int) -> int:
            return furthest(self.costs, inside.domain, layout, start, live=min(inside.waves, inside.pp - stage))

        cuts = fitting_cuts(seconds, inside.pp, reach)
        return None if cuts is None else replace(inside, cuts=cuts)


def inside_layout(costs: CostModel, inside: Inside, *, replicas: int | None = None) -> Layout:
    """The layout of the stages."""
    return inside.recipe.layout(costs.problem, tp=inside.tp, dp=inside.dp, stages=inside.pp, replicas=replicas)


def missing_bytes(costs: CostModel, inside: Inside, *, replicas: int | None = None) -> float:
    """Bytes per GPU that the fullest stage lacks under 1F1B (stage i keeps p - i micro-batches); at most 0: it fits."""
    layout = inside_layout(costs, inside, replicas=replicas)
    peak = max(
        costs.memory(inside.domain, start, stop, layout, live=min(inside.waves, inside.pp - stage)).peak_bytes
        for stage, (start, stop) in enumerate(zip(inside.cuts[:-1], inside.cuts[1:], strict=True))
    )
    return peak - costs.usable_memory_bytes()


def might_fit(costs: CostModel, inside: Inside) -> bool:
    """Whether what is kept, dealt evenly over the stages, leaves any room (quick, optimistic)."""
    layout = inside_layout(costs, inside)
    whole = costs.memory(inside.domain, 0, costs.problem.model.num_layers, layout, live=0.0)
    kept = whole.weights_bytes + whole.gradients_bytes + whole.optimizer_bytes
    return kept / inside.pp < costs.usable_memory_bytes()


def furthest(costs: CostModel, domain: str, layout: Layout, start: int, *, live: float) -> int:
    """Largest stop such that layers [start, stop) fit into one rank's memory; ``start``: not even one layer fits."""
    usable = costs.usable_memory_bytes()
    low, high = start, costs.problem.model.num_layers
    while low < high:
        middle = (low + high + 1) // 2
        if costs.memory(domain, start, middle, layout, live=live).peak_bytes <= usable:
            low = middle
        else:
            high = middle - 1
    return low


def step_seconds(costs: CostModel, inside: Inside) -> float:
    """The closed form at the top of this file."""
    layout = inside_layout(costs, inside)
    seconds = compute_seconds(costs, inside.domain, inside.recipe, tp=inside.tp, dp=inside.dp)
    spans = _spans(seconds, inside.cuts)
    stages = [
        costs.stage(inside.domain, start, stop, layout)
        for start, stop in zip(inside.cuts[:-1], inside.cuts[1:], strict=True)
    ]
    once = max(stage.sync_s + stage.optimizer_s + stage.fixed_s for stage in stages)
    node = costs.problem.cluster.domain(inside.domain).gpus_per_node
    same_node = 2 * inside.tp * inside.dp <= node
    transfer = costs.p2p_seconds(inside.domain, stages[0].output_bytes, same_node=same_node) if inside.pp > 1 else 0.0
    return float((inside.waves - 1) * spans.max() + spans.sum() + 2 * (inside.pp - 1) * transfer + once)


def _spans(seconds: NDArray[np.float64], cuts: Cuts) -> NDArray[np.float64]:
    """Seconds (p,) of each stage."""
    return np.add.reduceat(seconds, np.array(cuts[:-1], dtype=np.int64))
