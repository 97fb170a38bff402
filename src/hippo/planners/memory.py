"""Memory of many layouts at little cost: what layers keep and what a micro-batch leaves, as running sums.

What is kept does not depend on micro-batch and recomputation, what a micro-batch leaves does not depend on the data
width; so few questions to the cost floor answer all of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import StageMemory
from hippo.planners.recipe import STATE_SHARDINGS, Recipe

Sums = Sequence[float]
"""Running sums over layers: (N + 1,)."""


def memory_estimate(costs: CostModel) -> MemoryEstimate:
    """The estimate of a cost model; the same object for the same cost model, so that planners share its answers."""
    return costs.once("memory estimate", lambda: MemoryEstimate(costs))


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of any range of layers; answers are kept."""

    costs: CostModel
    _known: dict[tuple[object, ...], Sums] = field(default_factory=dict)

    def peak_bytes(self, recipe: Recipe, tp: int, dp: int, layers: tuple[int, int], live: float) -> float:
        """Peak of one rank that holds layers [start, stop) with ``live`` micro-batches in flight."""
        kept, each = self.parts(recipe, tp, dp, layers)
        return kept + each * live

    def parts(self, recipe: Recipe, tp: int, dp: int, layers: tuple[int, int]) -> tuple[float, float]:
        """Bytes kept with what is temporary, and bytes of each micro-batch in flight."""
        start, stop = layers
        piped = stop - start < self.costs.problem.model.num_layers
        kept, left = self.kept(tp, dp, recipe.sharding, piped=piped), self.left(tp, recipe)
        return kept[stop] - kept[start] + max(self.temporary(tp, recipe)[start:stop]), left[stop] - left[start]

    def missing_bytes(self, recipe: Recipe, tp: int, dp: int, cuts: Sequence[int], waves: int) -> float:
        """Bytes per GPU that the fullest stage lacks under 1F1B (stage i keeps p - i micro-batches)."""
        stages = len(cuts) - 1
        peaks = (
            self.peak_bytes(recipe, tp, dp, (cuts[stage], cuts[stage + 1]), min(waves, stages - stage))
            for stage in range(stages)
        )
        return max(peaks) - self.costs.usable_memory_bytes()

    def kept(self, tp: int, dp: int, sharding: str, *, piped: bool | None = None, groups: int = 1) -> Sums:
        """Running sums of weights, gradients and optimizer state of one stage alone, or of several (``piped``);
        ``groups``: pipelines of ``dp`` lanes each, over which a sharding may go.

        None: nobody knows. Then those of several where the model does not fit one: what pipelines keep beside
        (``state_bytes``) would make a plan of one stage seem too large, and where that fits, stages have room.
        """
        if piped is None:
            piped = self.kept(tp, dp, sharding, piped=False, groups=groups)[-1] > self.costs.usable_memory_bytes()
        key = "kept", tp, dp if sharding != "none" else 1, sharding, piped, groups
        if key not in self._known:
            each = self._per_layer(Recipe(1, sharding=sharding), tp, dp, _state, stages=1 + piped, groups=groups)
            self._known[key] = [0.0, *accumulate(each)]
        return self._known[key]

    def left(self, tp: int, recipe: Recipe) -> Sums:
        """Running sums of what one micro-batch leaves."""
        key = "left", tp, recipe.micro_batch, recipe.recompute
        if key not in self._known:
            plain = Recipe(recipe.micro_batch, recipe.recompute)
            each = self._per_layer(plain, tp, 1, lambda layer: layer.activation_bytes)
            self._known[key] = [0.0, *accumulate(each)]
        return self._known[key]

    def temporary(self, tp: int, recipe: Recipe, *, dp: int = 1, piped: bool = False) -> Sequence[float]:
        """(N,) what is temporary or reserved; ``dp`` matters where parameters are gathered, which one stage of several
        (``piped``) keeps whole instead."""
        gathered = recipe.sharding not in STATE_SHARDINGS and dp * self.costs.problem.context_parallel > 1 and not piped
        key = "temporary", tp, recipe.micro_batch, recipe.recompute, gathered
        if key not in self._known:
            asked = Recipe(recipe.micro_batch, recipe.recompute, recipe.sharding if gathered else "none")
            passing = self._per_layer(asked, tp, dp, lambda layer: layer.workspace_bytes + layer.reserved_bytes)
            self._known[key] = passing
        return self._known[key]

    def _per_layer(
        self,
        recipe: Recipe,
        tp: int,
        dp: int,
        of: Callable[[StageMemory], float],
        *,
        stages: int = 1,
        groups: int = 1,
    ) -> list[float]:
        """(N,) of one figure, asked once per distinct layer."""
        problem, known = self.costs.problem, dict[int, float]()
        layout = recipe.layout(problem, tp=tp, dp=dp, stages=stages, replicas=dp * groups)
        domain = problem.cluster.domains[0].name
        index = self.costs.distinct[1].tolist()
        for layer, kind in enumerate(index):
            if kind not in known:
                known[kind] = of(self.costs.memory(domain, layer, layer + 1, layout, live=0.0))
        return [known[kind] for kind in index]


def _state(layer: StageMemory) -> float:
    return layer.weights_bytes + layer.gradients_bytes + layer.optimizer_bytes
