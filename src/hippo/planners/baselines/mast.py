"""MAST (Choudhury et al., OSDI'24): a job runs whole in one region, which an exhaustive search over regions picks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hippo.cost.cost_model import CostModel
from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.baselines.single_domain import unlike_domains, variants
from hippo.planners.inside_domain import Inside
from hippo.planners.rules_of_thumb import megatron_layouts
from hippo.planners.shortlist import ShortList
from hippo.problem.cluster import Cluster, Domain
from hippo.problem.problem import Problem

NOTES = (
    "MAST places jobs and leaves the layout to the user: inside the region Megatron-LM's rules of thumb (SC'21) apply.",
    "Left out: other jobs in the queue, priorities, preemption, quotas, and where the data lies (section 4: one job, "
    "data everywhere); with one job its bids of all regions come down to trying every region.",
)


@dataclass(frozen=True)
class Mast:
    """Every region bids with its best Megatron-LM layout; the best bid wins (section 5, exhaustive search)."""

    name: str = "mast"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best region for the whole job; see ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        for domain in unlike_domains(problem.cluster):
            layouts = _bid(problem, domain, shortlist)
            shortlist.try_all(plan for inside in layouts for plan in variants(problem, inside))
        return shortlist.proposal(
            self.name, notes=NOTES, nothing=f"No region holds {problem.model.name} by Megatron-LM's rules of thumb."
        )


def _bid(problem: Problem, domain: Domain, shortlist: ShortList) -> tuple[Inside, ...]:
    """Megatron-LM's layouts of the whole job in this region alone."""

    def groups(tp: int) -> int:
        return domain.nodes * (domain.gpus_per_node // tp)

    region = Cluster(domain.name, problem.cluster.gpu, (domain,), ())
    return tuple(megatron_layouts(CostModel(replace(problem, cluster=region)), groups, shortlist.reject_memory))
