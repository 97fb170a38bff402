"""Ray Train without a plan: one worker per GPU, plain data parallelism over a placement group.

Ray's documentation (``ray.util.placement_group``, ``ray.train.ScalingConfig.placement_strategy``): STRICT_PACK puts all
workers on one node, PACK fills as few nodes as it can, SPREAD uses every node. Ray knows nodes and their resources, not
the network between them. Torch's DistributedDataParallel keeps everything on every GPU, FSDP shards it over all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hippo.plan.plan import Plan
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.baselines.zero import PlainReplicas, World, dealable_world
from hippo.planners.shortlist import ShortList
from hippo.problem.problem import Problem
from hippo.simulate.costs import cost_model

TRAINERS = ("none", "full")  # prepare_model(parallel_strategy="ddp" or "fsdp")
NOTES = (
    "One worker per GPU, DDP or FSDP, gradient accumulation; STRICT_PACK: one node, PACK: the first domains, SPREAD: "
    "one worker on every node. The best of them.",
    "Left out: Ray's elastic worker groups, and anything a user would write into the training function.",
)


@dataclass(frozen=True)
class Ray:
    """The best placement strategy, trainer, micro-batch and checkpointing."""

    name: str = "ray"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best data-parallel run over a placement group; see ``planners.base``."""
        shortlist, costs = ShortList.of(problem, stop), cost_model(problem)
        for world in _packed(problem):
            shortlist.try_all(PlainReplicas(costs, world, TRAINERS).plans(shortlist.reject_memory))
        for plan in PlainReplicas(costs, _spread(problem), TRAINERS).plans(shortlist.reject_memory):
            shortlist.consider(_one_per_node(plan))
        nothing = f"{problem.model.name} fits neither DDP nor FSDP on any placement group."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)


def _packed(problem: Problem) -> Iterator[World]:
    """STRICT_PACK: one node. PACK: one domain, then the first two, .., then all."""
    domains = problem.cluster.domains
    yield ((domains[0].name, domains[0].gpus_per_node),)
    for count in range(1, len(domains) + 1):
        world = dealable_world(problem, [domain.name for domain in domains[:count]])
        if world:
            yield world


def _spread(problem: Problem) -> World:
    """SPREAD with as many workers as nodes."""
    return tuple((domain.name, domain.nodes) for domain in problem.cluster.domains)


def _one_per_node(plan: Plan) -> Plan:
    """The same plan with worker i of a domain on the first GPU of node i."""
    pipelines = []
    for pipeline in plan.pipelines:
        (stage,) = pipeline.stages
        devices = tuple(f"{stage.domain}/{node}/0" for node in range(len(stage.devices)))
        pipelines.append(replace(pipeline, stages=(replace(stage, devices=devices),)))
    return replace(plan, pipelines=tuple(pipelines))
