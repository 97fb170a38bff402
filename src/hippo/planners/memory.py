"""Memory of many layouts at little cost: what layers keep and what a micro-batch leaves, as running sums.

What is kept does not depend on micro-batch and recomputation, what a micro-batch leaves does not depend on the data
width; so few questions to the cost floor answer all of a search. Only for shardings of ``recipe.STATE_SHARDINGS``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import StageMemory
from hippo.planners.recipe import Recipe, micro_batches, recomputations

Sums = Sequence[float]
"""Running sums over layers: (N + 1,)."""

_REMEMBERED = 8
_KNOWN: OrderedDict[int, MemoryEstimate] = OrderedDict()


def memory_estimate(costs: CostModel) -> MemoryEstimate:
    """The estimate of a cost model; the same object for the same cost model, so that planners share its answers."""
    found = _KNOWN.get(id(costs))
    if found is None or found.costs is not costs:
        found = _KNOWN[id(costs)] = MemoryEstimate(costs)
        while len(_KNOWN) > _REMEMBERED:
            _KNOWN.popitem(last=False)
    return found


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of any range of layers; answers are kept."""

    costs: CostModel
    _kept: dict[tuple[int, int, str], Sums] = field(default_factory=dict)
    _left: dict[tuple[int, int, str], tuple[Sums, Sequence[float]]] = field(default_factory=dict)

    def peak_bytes(self, recipe: Recipe, tp: int, dp: int, layers: tuple[int, int], live: float) -> float:
        """Peak of one rank that holds layers [start, stop) with ``live`` micro-batches in flight."""
        kept, each = self.parts(recipe, tp, dp, layers)
        return kept + each * live

    def parts(self, recipe: Recipe, tp: int, dp: int, layers: tuple[int, int]) -> tuple[float, float]:
        """Bytes kept with what is temporary, and bytes of each micro-batch in flight."""
        start, stop = layers
        kept = self.kept(tp, dp, recipe.sharding)
        left, temporary = self.left(tp, recipe)
        return kept[stop] - kept[start] + max(temporary[start:stop]), left[stop] - left[start]

    def missing_bytes(self, recipe: Recipe, tp: int, dp: int, cuts: Sequence[int], waves: int) -> float:
        """Bytes per GPU that the fullest stage lacks under 1F1B (stage i keeps p - i micro-batches)."""
        stages = len(cuts) - 1
        peaks = (
            self.peak_bytes(recipe, tp, dp, (cuts[stage], cuts[stage + 1]), min(waves, stages - stage))
            for stage in range(stages)
        )
        return max(peaks) - self.costs.usable_memory_bytes()

    def kept(self, tp: int, dp: int, sharding: str) -> Sums:
        """Running sums of weights, gradients and optimizer state."""
        key = tp, dp if sharding != "none" else 1, sharding
        if key not in self._kept:
            recipe = Recipe(self._size(tp), self._mode, sharding)
            each = self._per_layer(
                recipe, tp, dp, lambda one: one.weights_bytes + one.gradients_bytes + one.optimizer_bytes
            )
            self._kept[key] = _running(each)
        return self._kept[key]

    def _size(self, tp: int) -> int:
        """A micro-batch that may be asked about: any without a profile, else one that was measured at this width."""
        return next(iter(micro_batches(self.costs, tp, most=self.costs.problem.workload.global_batch)), 1)

    @cached_property
    def _mode(self) -> str:
        return next(iter(recomputations(self.costs)), "none")

    def left(self, tp: int, recipe: Recipe) -> tuple[Sums, Sequence[float]]:
        """Running sums of what one micro-batch leaves, and (N,) of what is temporary or reserved."""
        key = tp, recipe.micro_batch, recipe.recompute
        if key not in self._left:
            plain = Recipe(recipe.micro_batch, recipe.recompute)
            left = self._per_layer(plain, tp, 1, lambda one: one.activation_bytes)
            temporary = self._per_layer(plain, tp, 1, lambda one: one.workspace_bytes + one.reserved_bytes)
            self._left[key] = _running(left), temporary.tolist()
        return self._left[key]

    def _per_layer(self, recipe: Recipe, tp: int, dp: int, of: Callable[[StageMemory], float]) -> NDArray[np.float64]:
        """(N,) of one figure, asked once per distinct layer."""
        problem = self.costs.problem
        distinct, index = self.costs.distinct
        layout, domain = recipe.layout(problem, tp=tp, dp=dp), problem.cluster.domains[0].name
        firsts = [int(np.argmax(index == kind)) for kind in range(len(distinct))]
        each = [of(self.costs.memory(domain, first, first + 1, layout, live=1.0)) for first in firsts]
        found: NDArray[np.float64] = np.array(each)[index]
        return found


def _running(each: NDArray[np.float64]) -> Sums:
    return [0.0, *accumulate(each.tolist())]
