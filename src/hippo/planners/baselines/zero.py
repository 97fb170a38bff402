"""DeepSpeed-ZeRO over the WAN: every GPU of every domain is a data-parallel rank (Rajbhandari et al., SC'20).

Plain replicas (``PlainReplicas``): every GPU holds (a shard of) the whole model, domains side by side, no pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.cuts import deal_waves, may_differ
from hippo.planners.inside_domain import Reject
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import Recipe, micro_batches, recomputations, shardings
from hippo.planners.shortlist import ShortList
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model

World = tuple[tuple[str, int], ...]
"""(domain, data-parallel ranks there); each is one GPU, with context parallelism as many as its degree."""


@dataclass(frozen=True)
class PlainReplicas:
    """Data-parallel plans over one world of GPUs."""

    costs: CostModel
    world: World
    shardings: tuple[str, ...]

    def plans(self, reject: Reject) -> Iterator[Plan]:
        """Every sharding, recomputation and micro-batch that fits; a larger micro-batch than one that does not fit is
        not tried."""
        batch = self.costs.problem.workload.global_batch
        for sharding in shardings(self.costs.problem, self.shardings, pipeline=False):
            for recompute in recomputations(self.costs):
                for micro_batch in micro_batches(self.costs, 1, most=batch):
                    recipe = Recipe(micro_batch, recompute, sharding)
                    missing = self._missing_bytes(recipe)
                    if missing > 0:
                        reject(missing)
                        break
                    plan = self._plan(recipe)
                    if plan is not None:
                        yield plan

    def _missing_bytes(self, recipe: Recipe) -> float:
        problem, ranks = self.costs.problem, sum(gpus for _, gpus in self.world)
        narrowest, gpus = min(self.world, key=lambda part: part[1])
        layout = recipe.layout(problem, tp=1, dp=gpus, replicas=ranks)
        whole = self.costs.memory(narrowest, 0, problem.model.num_layers, layout, live=1.0)
        return whole.peak_bytes - self.costs.usable_memory_bytes()

    def _plan(self, recipe: Recipe) -> Plan | None:
        problem, widths = self.costs.problem, [gpus for _, gpus in self.world]
        batch, size = problem.workload.global_batch, recipe.micro_batch
        waves = deal_waves(batch, size, widths, differ=may_differ(problem))
        if waves is None:
            return None
        layers = (0, problem.model.num_layers)
        sketches = [
            PipelineSketch((StageSketch(domain, layers, 1, gpus),), count)
            for (domain, gpus), count in zip(self.world, waves, strict=True)
        ]
        return recipe.plan(problem, place(problem.cluster, sketches, cp=problem.context_parallel))


def dealable_world(problem: Problem, domains: Sequence[str]) -> World:
    """The most GPUs of these domains to which the batch can be dealt in waves of one sequence per GPU.

    All of them where that works; otherwise as many in every domain, as many as deal evenly; no world: ().
    """
    cluster, batch = problem.cluster, problem.workload.global_batch
    full = tuple((name, cluster.domain(name).gpus // problem.context_parallel) for name in domains)
    if deal_waves(batch, 1, [gpus for _, gpus in full], differ=may_differ(problem)) is not None:
        return full
    for gpus in range(min(count for _, count in full), 0, -1):
        if deal_waves(batch, 1, [gpus] * len(full), differ=may_differ(problem)) is not None:
            return tuple((name, gpus) for name in domains)
    return ()


STAGES = ("optimizer", "gradients", "full")  # P_os, P_os+g, P_os+g+p: stages 1, 2 and 3 (section 5)
NOTES = (
    "World = the GPUs of all domains, no tensor or pipeline parallelism; the best of stages 1, 2 and 3 that fits, with "
    "activation checkpointing where that helps.",
    "Stages 1 and 2 share their state among the ranks of a domain, stage 3 among all.",
    "Left out: offload to CPU or disk, partitioned activations (they need tensor parallelism), ZeRO++'s quantised and "
    "hierarchical partitions (hpZ).",
)


@dataclass(frozen=True)
class Zero:
    """The best stage, micro-batch and checkpointing of ZeRO on all GPUs."""

    name: str = "zero"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best ZeRO configuration over all domains; see ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        names = [domain.name for domain in problem.cluster.domains]
        # A runtime that deals every rank as much may have no even deal over all domains: then over fewer of them.
        worlds = (dealable_world(problem, names[:count]) for count in range(len(names), 0, -1))
        world = next((world for world in worlds if world), ())
        if world:
            shortlist.try_all(PlainReplicas(cost_model(problem), world, STAGES).plans(shortlist.reject_memory))
        nothing = f"No stage of ZeRO fits {problem.model.name} on one GPU's share."
        if not shardings(problem, STAGES, pipeline=False):
            nothing = f"No stage of ZeRO runs under {problem.rules.told}, which shards nothing."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)
