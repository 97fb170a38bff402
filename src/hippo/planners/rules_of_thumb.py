"""The rules of thumb of Megatron-LM (Narayanan et al., SC'21), for planners that follow them.

Takeaway 1: tensor parallelism up to the GPUs of a node, then pipeline parallelism. Takeaway 2: the smallest
model-parallel size ``t * p`` that fits into memory, data parallelism for the rest. Takeaway 3: the best micro-batch
depends on everything else, so it is swept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hippo.cost.cost_model import CostModel
from hippo.planners.cuts import even_cuts
from hippo.planners.inside_domain import Inside, Reject, missing_bytes
from hippo.planners.recipe import Recipe, largest_width, micro_batches, recomputations, shardings, tensor_widths

SHARDINGS = ("optimizer", "gradients", "none")  # --use-distributed-optimizer, its nearest kin elsewhere, or neither

Groups = Callable[[int], int]
"""How many lanes of tensor-parallel groups of a width there is room for."""


def model_parallel_sizes(costs: CostModel, groups: Groups) -> Iterator[tuple[int, int]]:
    """(tp, pp) by growing ``tp * pp``: wider inside the node first, then more stages (takeaways 1 and 2)."""
    widths = tensor_widths(costs, costs.problem.cluster.domains[0])
    yield from ((tp, 1) for tp in widths)
    most = min(groups(widths[-1]), max(costs.problem.model.num_blocks, 1)) if widths else 0
    yield from ((widths[-1], pp) for pp in range(2, most + 1))


def megatron_layouts(costs: CostModel, groups: Groups, reject: Reject, *, multiple: int = 1) -> Iterator[Inside]:
    """Uniform layouts by the three takeaways, for every recomputation and with and without sharded optimizer state.

    The memory of a stage does not depend on where it is; layouts name the first domain. With ``multiple`` the number
    of stages is raised to the next multiple, so that every domain gets as many.
    """
    for recompute in recomputations(costs):
        for sharding in shardings(costs.problem, SHARDINGS, pipeline=True):
            size = smallest_size(costs, groups, Recipe(1, recompute, sharding), reject)
            if size is None:
                continue
            tp, pp = size
            if multiple > 1:
                tp, pp = tensor_widths(costs, costs.problem.cluster.domains[0])[-1], -(-pp // multiple) * multiple
            for micro_batch in micro_batches(costs, tp, most=costs.problem.workload.global_batch):
                inside = uniform_layout(costs, groups, (tp, pp), Recipe(micro_batch, recompute, sharding))
                if inside is None:
                    continue
                missing = missing_bytes(costs, inside)
                if missing > 0:
                    reject(missing)
                    break  # a larger micro-batch needs more
                yield inside


def smallest_size(costs: CostModel, groups: Groups, recipe: Recipe, reject: Reject) -> tuple[int, int] | None:
    """Takeaway 2: the first (tp, pp) whose smallest micro-batch fits.

    Megatron-LM wants tp * pp * dp to be all GPUs; sizes that leave some idle come after those that do not.
    """
    sized = []
    for size in model_parallel_sizes(costs, groups):  # a profile may have no rows for micro-batches of one sequence
        least = min(micro_batches(costs, size[0], most=costs.problem.workload.global_batch), default=recipe.micro_batch)
        sized.append((size, uniform_layout(costs, groups, size, replace(recipe, micro_batch=least))))
    idle = [(inside is None or inside.dp * inside.pp < groups(inside.tp), size, inside) for size, inside in sized]
    for _, size, inside in sorted(idle, key=lambda entry: entry[0]):
        if inside is None:
            continue
        missing = missing_bytes(costs, inside)
        if missing <= 0:
            return size
        reject(missing)
    return None


def uniform_layout(costs: CostModel, groups: Groups, size: tuple[int, int], recipe: Recipe) -> Inside | None:
    """The layout of that size with the widest ``dp`` that deals the batch evenly; None: the batch cannot be dealt."""
    (tp, pp), batch = size, costs.problem.workload.global_batch
    if recipe.micro_batch not in micro_batches(costs, tp, most=batch):
        return None
    if pp > max(costs.problem.model.num_blocks, 1):
        return None
    dp = largest_width(batch, recipe.micro_batch, groups(tp) // pp)
    if dp == 0:
        return None
    domain = costs.problem.cluster.domains[0].name
    waves = batch // (recipe.micro_batch * dp)
    return Inside(domain, tp, dp, even_cuts(costs.problem.model.num_layers, pp), recipe, waves, 0.0)
