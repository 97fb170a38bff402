"""What all stages of a plan share, and which values of it are worth trying.

A *recipe* is the part of a plan that names no device: micro-batch, recomputation, sharding, schedule, agreement of
replicas. Planners search over recipes times layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import lt

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.stage import Layout
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Sync
from hippo.problem.cluster import Domain
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS, RECOMPUTE, not_overlapped, tp_refusal
from hippo.simulate.routes import border_compression

LARGEST_MICRO_BATCH = 32  # sequences; beyond it no published layout goes, and activations grow out of memory
WIDEST = 8  # GPUs of a tensor-parallel group of whole small nodes
STATE_SHARDINGS = ("none", "optimizer", ACROSS, "gradients")  # shardings that leave the time of a micro-batch as it is


FITTED = "full:*"
"""Of all ``full:N`` the least N by which every stage of a plan fits; plans say the number."""


def fits_blocks(problem: Problem) -> bool:
    """Whether plans may compute some blocks of each chunk again whole, and others not."""
    return problem.rules.recompute_modules and problem.profile is None


def agreed(problem: Problem, sync: Sync, sharding: str, pipelines: int) -> Sync:
    """How so many pipelines agree: ``sync``, by sums that go as the problem's runtime and the user have it."""
    return sync if pipelines == 1 else replace(sync, all_reduce=problem.all_reduce_with(sharding))


@dataclass(frozen=True)
class Recipe:
    """Choices common to every stage of a plan."""

    micro_batch: int
    recompute: str = "none"
    sharding: str = "none"
    schedule: ScheduleChoice = ScheduleChoice()
    interleave: int = 1
    sync: Sync = Sync()

    def layout(self, problem: Problem, *, tp: int, dp: int, stages: int = 1, replicas: int | None = None) -> Layout:
        """Layout of a stage with ``dp`` lanes in a pipeline of ``stages``; ``replicas`` defaults to ``dp``."""
        return Layout(
            tp=tp,
            dp=dp,
            micro_batch=self.micro_batch,
            recompute=self.recompute,
            sharding=self.sharding,
            sequence_parallel=problem.rules.sequence_parallel,
            interleave=self.interleave,
            precision=problem.workload.precision,
            num_stages=stages,
            replicas=dp if replicas is None else replicas,
            cp=problem.context_parallel,
            ep=problem.expert_parallel,
            etp=problem.expert_tensor_parallel,
        )

    def plan(self, problem: Problem, pipelines: Sequence[Pipeline]) -> Plan:
        """The plan that runs these pipelines by this recipe."""
        return Plan(
            pipelines=tuple(pipelines),
            micro_batch=self.micro_batch,
            precision=problem.workload.precision,
            recompute=self.recompute,
            sharding=self.sharding,
            interleave=self.interleave,
            schedule=self.schedule,
            compression=border_compression(problem, pipelines),
            sync=agreed(problem, self.sync, self.sharding, len(pipelines)),
            sequence_parallel=problem.rules.sequence_parallel,
            context_parallel=problem.context_parallel,
            expert_parallel=problem.expert_parallel,
            expert_tensor_parallel=problem.expert_tensor_parallel,
        )


def compute_seconds(costs: CostModel, domain: str, recipe: Recipe, *, tp: int, dp: int) -> NDArray[np.float64]:
    """Seconds (N,) of one micro-batch per layer: forward, backward and weight gradient together.

    Unless parameters are gathered on the way, they do not depend on ``dp``; then one table serves every width.
    """
    if recipe.sharding in STATE_SHARDINGS:
        recipe, dp = Recipe(recipe.micro_batch, recipe.recompute), 1
    seconds: NDArray[np.float64] = costs.layer_seconds(domain, recipe.layout(costs.problem, tp=tp, dp=dp)).sum(axis=1)
    return seconds


def powers_of_two(limit: int) -> tuple[int, ...]:
    """1, 2, 4, .. up to ``limit``."""
    return tuple(1 << exponent for exponent in range(max(limit, 0).bit_length()))


def divisors(number: int) -> list[int]:
    """Divisors of a positive integer, increasing."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def every_width(problem: Problem, domain: Domain) -> list[int]:
    """tp degrees that divide what they split: divisors of a node's GPUs; of small nodes also several whole ones."""
    rules, node = problem.rules, domain.gpus_per_node
    wide = [node * nodes for nodes in range(2, min(domain.nodes, WIDEST // node) + 1)]
    fitting = [tp for tp in (*divisors(node), *wide) if tp_refusal(problem.model, tp, rules) is None]
    return [tp for tp in fitting if problem.workload.seq % (tp * problem.context_parallel) == 0]


def tensor_widths(costs: CostModel, domain: Domain) -> tuple[int, ...]:
    """Tensor-parallel degrees inside a node: powers of two that split the model (Megatron-LM, SC'21, takeaway 1)."""
    problem, allowed = costs.problem, costs.allowed_layouts()
    rules = problem.rules
    return tuple(
        tp
        for tp in powers_of_two(domain.gpus_per_node)
        if tp_refusal(problem.model, tp, rules) is None
        and problem.workload.seq % (tp * problem.context_parallel) == 0
        and (allowed is None or any(tp == other for other, _ in allowed))
    )


def micro_batches(costs: CostModel, tp: int, *, most: int) -> tuple[int, ...]:
    """Micro-batch sizes up to ``most`` sequences: powers of two, or what a measured profile holds for this ``tp``."""
    allowed = costs.allowed_layouts()
    if allowed is not None:
        return tuple(sorted(size for width, size in allowed if width == tp and size <= most))
    return powers_of_two(min(most, LARGEST_MICRO_BATCH))


def recompute_choices(problem: Problem) -> tuple[str, ...]:
    """Recomputations that are looked at: the runtime's own degrees and, where it has them, lists of modules.

    Lists are those of Megatron-LM's recipes that may be worth their work: all results of norms and activation functions
    (repeating one costs as much as repeating all), what latent attention projects up, whole feed-forward networks with
    the norms before them, and these together. ``selective`` stands for the list that it is; the square of unfused
    attention is the first to go, so every list has it.
    """
    degrees = tuple(mode for mode in RECOMPUTE if mode in problem.rules.recompute)
    if problem.profile is not None or not problem.rules.recompute_modules:
        return degrees
    blocks, attention = problem.model.distinct_layers, problem.workload.software.attention
    networks = [layer.feed_forward for layer in blocks if layer.feed_forward is not None]
    sparse = any(each.experts is not None for each in networks)
    dense = any(each.experts is None for each in networks)
    latent = any(layer.attention is not None and layer.attention.latent is not None for layer in blocks)
    core = {"core_attn"} if attention == "unfused" else set[str]()
    cheap = {"layernorm", *(["moe_act"] if sparse else [])}
    up = {"mla_up_proj"} if latent else set[str]()
    whole = {"layernorm", *(["mlp"] if dense else []), *(["moe"] if sparse else [])}
    meant = {"unfused": core, "tuned": cheap | up}.get(attention)
    lists = dict.fromkeys("+".join(sorted(each | core)) for each in (cheap, up, cheap | up, whole, whole | up))
    known = "+".join(sorted(meant)) if meant else ""
    return (*degrees[:-1], *(each for each in lists if each not in ("", known)), *degrees[-1:])


def overlapping(problem: Problem, recompute: Sequence[str]) -> list[str]:
    """Recomputations beside which the exchange of the problem's experts may run beside other work; none where the
    runtime, the numbers or the experts do not let it."""
    feeds = (layer.feed_forward for layer in problem.model.distinct_layers)
    sparse = any(feed is not None and feed.experts is not None for feed in feeds)
    if not sparse or problem.expert_parallel == 1 or not problem.rules.overlaps_exchange:
        return []
    precision = problem.workload.precision
    return [each for each in recompute if not_overlapped(each, precision, chunks=1, stages=1) is None]


def recomputations(costs: CostModel) -> tuple[str, ...]:
    """Recomputations, least work first; those that free no memory are left out (flash attention keeps no scores).

    With a profile only those that it has rows for.
    """
    problem, domain = costs.problem, costs.problem.cluster.domains[0].name
    modes = list(recompute_choices(problem))
    if problem.profile is not None:
        measured = {row.recompute for row in problem.profile.rows}
        return tuple(mode for mode in modes if mode in measured)
    layouts = {mode: Recipe(1, mode).layout(problem, tp=1, dp=1) for mode in modes}
    if len(modes) > len(RECOMPUTE):
        modes.sort(key=lambda mode: float(f"{costs.layer_seconds(domain, layouts[mode]).sum():.9g}"))
    first = np.unique(costs.distinct[1], return_index=True)[1].tolist()  # of each sort of layer
    kept = {
        mode: [costs.memory(domain, at, at + 1, layout, live=1.0).activation_bytes for at in first]
        for mode, layout in layouts.items()
    }
    return tuple(
        mode for index, mode in enumerate(modes) if all(any(map(lt, kept[mode], kept[less])) for less in modes[:index])
    )


def shardings(problem: Problem, wanted: Sequence[str], *, pipeline: bool) -> tuple[str, ...]:
    """Those of the ``wanted`` shardings that the runtime can express, beside a ``pipeline`` or without one.

    Beside a pipeline sharded gradients are whole until the last micro-batch, so they stand in for a sharded optimizer
    only where the runtime has no such (DeepSpeed refuses them, ``PipelineEngine``).
    """
    rules = problem.rules
    known = rules.shardings_with_pipeline if pipeline else rules.shardings
    found = [name for name in wanted if name in known]
    return tuple(name for name in found if not (pipeline and name == "gradients" and "optimizer" in found))


def largest_width(sequences: int, micro_batch: int, most: int) -> int:
    """Largest ``dp <= most`` that deals ``sequences`` evenly in waves of ``micro_batch * dp``; 0: none does."""
    if sequences % micro_batch:
        return 0
    waves = sequences // micro_batch
    return next((dp for dp in range(min(most, waves), 0, -1) if waves % dp == 0), 0)
