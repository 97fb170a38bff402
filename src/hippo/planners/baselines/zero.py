"""DeepSpeed-ZeRO over the WAN: every GPU of every domain is a data-parallel rank (Rajbhandari et al., SC'20)."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.replicas import Replicas, dealable_world
from hippo.planners.shortlist import Clock, ShortList
from hippo.problem.problem import Problem
from hippo.simulate.layouts import cost_model

STAGES = ("optimizer", "gradients", "full")  # P_os, P_os+g, P_os+g+p: stages 1, 2 and 3 (section 5)
NOTES = (
    "World = the GPUs of all domains, no tensor or pipeline parallelism; the best of stages 1, 2 and 3 that fits, with "
    "activation checkpointing where that helps.",
    "Stages 1 and 2 share their state among the ranks of a domain (plans know no wider partition), stage 3 among all.",
    "Left out: offload to CPU or disk, partitioned activations (they need tensor parallelism), ZeRO++'s quantised and "
    "hierarchical partitions (hpZ).",
)


@dataclass(frozen=True)
class Zero:
    """The best stage, micro-batch and checkpointing of ZeRO on all GPUs."""

    name: str = "zero"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best ZeRO configuration over all domains; see ``planners.base``."""
        shortlist = ShortList(problem, Clock.of(stop))
        names = [domain.name for domain in problem.cluster.domains]
        # A runtime that deals every rank as much may have no even deal over all domains: then over fewer of them.
        worlds = (dealable_world(problem, names[:count]) for count in range(len(names), 0, -1))
        world = next((world for world in worlds if world), ())
        if world:
            shortlist.try_all(Replicas(cost_model(problem), world, STAGES).plans(shortlist.reject_memory))
        nothing = f"No stage of ZeRO fits {problem.model.name} on one GPU's share."
        return shortlist.proposal(self.name, notes=NOTES, nothing=nothing)
