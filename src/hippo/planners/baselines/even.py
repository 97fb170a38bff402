"""Megatron-LM as it comes: one uniform layout over all domains, by its own rules of thumb (Narayanan et al., SC'21)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.baselines.single_domain import CHUNKS
from hippo.planners.placement import pipelines_of_lanes, place, rank_order_lanes, room_for_lanes
from hippo.planners.rules_of_thumb import megatron_layouts
from hippo.planners.shortlist import ShortList
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model

NOTES = (
    "Hosts in the order of the cluster file, ranks in Megatron-LM's default order tp-dp-pp; blind to the network.",
    "Interleaved 1F1B is tried on the best plan alone. Left out: tensor parallelism over several nodes.",
)


@dataclass(frozen=True)
class Even:
    """Tensor parallelism inside nodes, pipeline over the domains in file order, even split, micro-batch swept."""

    name: str = "even"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best of the uniform layouts over all domains; see ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        shortlist.try_all(_plans(problem, shortlist))
        if shortlist.best is not None:
            shortlist.try_all(interleaved(shortlist.best.plan))
        nothing = f"No uniform layout of {problem.model.name} over all {problem.cluster.gpus} GPUs fits."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)


def interleaved(plan: Plan) -> Iterator[Plan]:
    """The plan with several chunks of layers per rank (section 2.2.2), where there is a pipeline."""
    shortest = min(stage.num_layers for pipeline in plan.pipelines for stage in pipeline.stages)
    for chunks in CHUNKS:
        if len(plan.pipelines[0].stages) > 1 and chunks <= shortest:
            yield replace(plan, interleave=chunks, schedule=ScheduleChoice("interleaved"))


def _plans(problem: Problem, shortlist: ShortList) -> Iterator[Plan]:
    """First as many stages as spread evenly over the domains, then the smallest model-parallel size to the letter."""
    costs, cluster, cp = cost_model(problem), problem.cluster, problem.context_parallel

    def groups(tp: int) -> int:
        return sum(room_for_lanes(domain, tp, cp) for domain in cluster.domains)

    for multiple in dict.fromkeys((len(cluster.domains), 1)):
        for inside in megatron_layouts(costs, groups, shortlist.reject_memory, multiple=multiple):
            lanes = rank_order_lanes(cluster, tp=inside.tp, dp=inside.dp, pp=inside.pp, cp=cp)
            sketches = pipelines_of_lanes(lanes, inside.cuts, (inside.tp,) * inside.pp, inside.waves)
            yield inside.recipe.plan(problem, place(cluster, sketches, cp=cp))
