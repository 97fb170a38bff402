"""How unequally the domains of a plan work: the balance constraint of spec A9."""

from __future__ import annotations

from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.score.evaluate import domain_utilization
from hippo.simulate.lower import lower
from hippo.simulate.timeline import busy_s


def imbalance(problem: Problem, plan: Plan) -> float:
    """``(max T_k - min T_k) / mean T_k`` over the domains in use, T_k the mean seconds their GPUs compute in a step."""
    seconds = domain_utilization(problem, plan, busy_s(lower(problem, plan)), 1.0)
    used = [seconds[name] for name in plan.domains]
    return (max(used) - min(used)) * len(used) / sum(used)
