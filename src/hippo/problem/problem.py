"""The whole question: model, cluster, workload, objective, and what the user allows."""

from __future__ import annotations

from dataclasses import dataclass, field

from hippo.problem.cluster import Cluster
from hippo.problem.model import Model
from hippo.problem.objective import Objective
from hippo.problem.profile import Profile
from hippo.problem.workload import Workload


@dataclass(frozen=True)
class Problem:
    """Given: everything a planner may look at. Frozen; two equal problems get equal plans."""

    model: Model
    cluster: Cluster
    workload: Workload
    objective: Objective = field(default_factory=Objective)
    profile: Profile | None = None
    runtime: str = "any"  # any, megatron, torch, deepspeed: what may be expressed (plan/check)
    uniform_cuts: bool = False
    allow_local_sgd: bool = False
