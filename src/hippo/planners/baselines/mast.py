"""MAST (Choudhury et al., OSDI'24): a job runs whole in one region, which an exhaustive search over regions picks."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.planners.base import Progress, Proposal, Stop
from hippo.planners.baselines.single_domain import bids
from hippo.planners.shortlist import ShortList
from hippo.problem.problem import Problem

NOTES = (
    "MAST places jobs and leaves the layout to the user, who is given the best of each region (as single_domain).",
    "Left out: other jobs in the queue, priorities, preemption, quotas, and where the data lies (section 4: one job, "
    "data everywhere); with one job its bids of all regions come down to trying every region.",
)


@dataclass(frozen=True)
class Mast:
    """Every region bids with its best layout; the best bid wins (section 5, exhaustive search)."""

    name: str = "mast"

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """The best region for the whole job; see ``planners.base``."""
        shortlist = ShortList.of(problem, stop)
        bids(shortlist, progress)
        return shortlist.proposal(self.name, notes=NOTES, nothing=f"No region holds {problem.model.name}.")
