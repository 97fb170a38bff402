"""The best layouts inside one domain: tensor width, data width, stages, micro-batch, recomputation, sharding.

Layouts come out one by one, fastest first by the closed form of a synchronous pipeline

    (m - 1) * slowest stage + sum of stages + 2 (p - 1) * transfer + the slowest stage's work once per step

(m waves, p stages; Megatron-LM, SC'21, section 2.2.1, with unequal stages), and only those that fit into memory. The
search is best first: a layout is worked out only when its lower bound (compute alone, no memory) is the smallest left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout
from hippo.planners.cuts import Cuts, bottleneck_cuts, even_cuts, fitting_cuts
from hippo.planners.memory import memory_estimate
from hippo.planners.placement import PipelineSketch, StageSketch, room_for_lanes
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
    def gpus(self) -> int:
        """GPUs in use, in context-parallel ranks."""
        return self.tp * self.dp * self.pp

    @property
    def sketch(self) -> PipelineSketch:
        """The pipeline, devices not yet chosen."""
        stages = zip(self.cuts[:-1], self.cuts[1:], strict=True)
        return PipelineSketch(tuple(StageSketch(self.domain, span, self.tp, self.dp) for span in stages), self.waves)


class LayoutDraft(NamedTuple):
    """A layout before anything is worked out."""

    tp: int
    dp: int
    pp: int
    recipe: Recipe
    waves: int


@dataclass(frozen=True)
class DomainSearch:
    """What is searched: ``sequences`` of the batch in one domain, within the limits given."""

    costs: CostModel
    domain: Domain
    sequences: int
    even: bool = False  # cut as Megatron-LM does by default; otherwise the slowest stage is made as fast as it can be
    tps: tuple[int, ...] | None = None  # None: every width inside a node
    pps: tuple[int, ...] | None = None  # None: every number of stages
    shardings: tuple[str, ...] = ("none", "optimizer", "gradients", "full")
    _tables: dict[tuple[int, int, str], tuple[Cuts, ...]] = field(default_factory=dict)

    def layouts(self, reject: Reject = lambda missing: None) -> Iterator[Inside]:
        """Layouts that fit, fastest (for cost: cheapest) first; ties: in the order they were made up, narrow first."""
        entries: list[tuple[float, int, bool, LayoutDraft | Inside]] = []
        entries += [
            (self._worth(bound, draft.tp * draft.dp * draft.pp), index, False, draft)
            for index, (bound, draft) in enumerate(self._drafts())
        ]
        heapify(entries)
        while entries:
            _, index, finished, entry = heappop(entries)
            if isinstance(entry, LayoutDraft):
                cut = self._cut(entry)
                heappush(entries, (self._worth(cut.seconds, cut.gpus), index, False, cut))
            elif finished:
                yield entry
            else:
                worked_out = self._worked_out(entry, reject)
                if worked_out is not None:
                    heappush(entries, (self._worth(worked_out.seconds, worked_out.gpus), index, True, worked_out))

    def _worth(self, seconds: float, gpus: int) -> float:
        """What is minimised: inside a domain nothing but rent costs money."""
        return seconds * gpus if self.costs.problem.objective.name == "cost" else seconds

    def best(self, count: int, reject: Reject = lambda missing: None) -> tuple[Inside, ...]:
        """The first ``count`` layouts."""
        return tuple(islice(self.layouts(reject), count))

    def _drafts(self) -> Iterator[tuple[float, LayoutDraft]]:
        """Every layout that the batch and the GPUs allow, with a lower bound on its seconds."""
        for tp in self.tps if self.tps is not None else tensor_widths(self.costs, self.domain):
            groups = room_for_lanes(self.domain, tp, self.costs.problem.context_parallel)
            for micro_batch in micro_batches(self.costs, tp, most=self.sequences):
                for recompute in recomputations(self.costs):
                    yield from self._of_recipe(tp, groups, Recipe(micro_batch, recompute))

    def _of_recipe(self, tp: int, groups: int, plain: Recipe) -> Iterator[tuple[float, LayoutDraft]]:
        """Layouts of one tensor width and recipe, for every number of stages and sharding."""
        seconds = compute_seconds(self.costs, self.domain.name, plain, tp=tp, dp=1)
        total, longest = float(seconds.sum()), float(seconds.max())
        recipes = {sharding: replace(plain, sharding=sharding) for sharding in self.shardings}
        most = min(groups, max(len(seconds) - 2, 1))
        for pp in (pp for pp in self.pps or range(1, groups + 1) if pp <= most):
            slowest, widths = max(total / pp, longest), self._widths(plain.micro_batch, groups // pp)
            for sharding in self._several if pp > 1 else self._single:
                for dp in widths:
                    waves = self.sequences // (plain.micro_batch * dp)
                    if dp * self.costs.problem.context_parallel > 1 or sharding == "none":
                        yield (waves - 1) * slowest + total, LayoutDraft(tp, dp, pp, recipes[sharding], waves)

    @cached_property
    def _single(self) -> tuple[str, ...]:
        return self._shardings(1)

    @cached_property
    def _several(self) -> tuple[str, ...]:
        return self._shardings(2)

    def _shardings(self, pp: int) -> tuple[str, ...]:
        """Beside a pipeline only shardings that do not gather parameters for every micro-batch."""
        wanted = self.shardings if pp == 1 else [name for name in self.shardings if name in STATE_SHARDINGS]
        return shardings(self.costs.problem, wanted, pipeline=pp > 1)

    def _cut(self, draft: LayoutDraft) -> Inside:
        """The layout with its cuts and the bound that they give."""
        seconds = compute_seconds(self.costs, self.domain.name, draft.recipe, tp=draft.tp, dp=draft.dp)
        cuts = self._cuts(draft, seconds)
        bound = (draft.waves - 1) * float(_spans(seconds, cuts).max()) + float(seconds.sum())
        return Inside(self.domain.name, draft.tp, draft.dp, cuts, draft.recipe, draft.waves, bound)

    def _cuts(self, draft: LayoutDraft, seconds: NDArray[np.float64]) -> Cuts:
        """Even, or those whose slowest stage is fastest."""
        layers = self.costs.problem.model.num_layers
        if self.even or self.costs.problem.uniform_cuts:
            return even_cuts(layers, draft.pp)
        if draft.pp == 1:
            return 0, layers
        key = draft.tp, draft.recipe.micro_batch, draft.recipe.recompute
        if key not in self._tables:
            groups = room_for_lanes(self.domain, draft.tp, self.costs.problem.context_parallel)
            self._tables[key] = bottleneck_cuts(seconds, min(groups, max(layers - 2, 1)))
        return self._tables[key][draft.pp - 1]

    def _widths(self, micro_batch: int, most: int) -> tuple[int, ...]:
        """The largest data width; where money counts, every smaller one too."""
        largest = largest_width(self.sequences, micro_batch, most)
        if largest == 0 or self.costs.problem.objective.name == "time":
            return (largest,) if largest else ()
        waves = self.sequences // micro_batch
        return tuple(dp for dp in range(1, largest + 1) if waves % dp == 0)

    def _worked_out(self, inside: Inside, reject: Reject) -> Inside | None:
        """The layout with all its seconds, recut where memory asks for it; None: it does not fit."""
        missing = missing_bytes(self.costs, inside)
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

        def reach(stage: int, start: int) -> int:
            return furthest(self.costs, inside, start, live=min(inside.waves, inside.pp - stage))

        cuts = fitting_cuts(seconds, inside.pp, reach)
        return None if cuts is None else replace(inside, cuts=cuts)


def inside_layout(costs: CostModel, inside: Inside) -> Layout:
    """The layout of the stages."""
    return inside.recipe.layout(costs.problem, tp=inside.tp, dp=inside.dp, stages=inside.pp)


def missing_bytes(costs: CostModel, inside: Inside) -> float:
    """Bytes per GPU that the fullest stage lacks under 1F1B (stage i keeps p - i micro-batches); at most 0: it fits."""
    if inside.recipe.sharding in STATE_SHARDINGS:
        return memory_estimate(costs).missing_bytes(inside.recipe, inside.tp, inside.dp, inside.cuts, inside.waves)
    layout = inside_layout(costs, inside)
    peak = max(
        costs.memory(inside.domain, start, stop, layout, live=min(inside.waves, inside.pp - stage)).peak_bytes
        for stage, (start, stop) in enumerate(zip(inside.cuts[:-1], inside.cuts[1:], strict=True))
    )
    return peak - costs.usable_memory_bytes()


def might_fit(costs: CostModel, inside: Inside) -> bool:
    """Whether what is kept, dealt evenly over the stages, leaves any room (quick, optimistic)."""
    kept = memory_estimate(costs).kept(inside.tp, inside.dp, inside.recipe.sharding)[-1]
    return kept / inside.pp < costs.usable_memory_bytes()


def furthest(costs: CostModel, inside: Inside, start: int, *, live: float) -> int:
    """Largest stop such that layers [start, stop) fit into one rank's memory; ``start``: not even one layer fits."""
    usable, room = costs.usable_memory_bytes(), memory_estimate(costs)
    low, high = start, costs.problem.model.num_layers
    while low < high:
        middle = (low + high + 1) // 2
        if room.peak_bytes(inside.recipe, inside.tp, inside.dp, (start, middle), live) <= usable:
            low = middle
        else:
            high = middle - 1
    return low


def step_seconds(costs: CostModel, inside: Inside) -> float:
    """The closed form at the top of this file."""
    layout = inside_layout(costs, inside)
    seconds = compute_seconds(costs, inside.domain, inside.recipe, tp=inside.tp, dp=inside.dp)
    spans = _spans(seconds, inside.cuts)
    spread = zip(inside.cuts[:-1], inside.cuts[1:], strict=True)
    unlike = {costs.distinct[1][start:stop].tobytes(): (start, stop) for start, stop in spread}
    stages = [costs.stage(inside.domain, *span, layout) for span in unlike.values()]
    once = max(stage.sync_s + stage.optimizer_s + stage.fixed_s for stage in stages)
    node = costs.problem.cluster.domain(inside.domain).gpus_per_node
    same_node = 2 * inside.tp * costs.problem.context_parallel * inside.dp <= node
    transfer = costs.p2p_seconds(inside.domain, stages[0].output_bytes, same_node=same_node) if inside.pp > 1 else 0.0
    return float((inside.waves - 1) * spans.max() + spans.sum() + 2 * (inside.pp - 1) * transfer + once)


def _spans(seconds: NDArray[np.float64], cuts: Cuts) -> NDArray[np.float64]:
    """Seconds (p,) of each stage."""
    return np.add.reduceat(seconds, np.array(cuts[:-1], dtype=np.int64))
