"""One judge of all plans: whether a plan counts, and the one number that plans are compared by."""

from __future__ import annotations

from collections.abc import Callable

from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.base import Stop
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate, fits, imbalance
from hippo.score.score import Score

Scored = list[tuple[Plan, Score]]
Search = Callable[[Problem, Scored, Stop], tuple[Scored, bool]]
"""Known plans in, those and others out, and whether every plan of its space is as good as met (``planners.front``)."""


def objective_value(objective: Objective, score: Score) -> float:
    """What is minimised: seconds a step, USD a step, or the reward with its sign turned."""
    if objective.name == "cost":
        return score.usd_per_step
    return -score.reward if objective.name == "weighted" else score.step_time_s


def worse_by(objective: Objective, score: Score, best: Score) -> float:
    """How much worse ``score`` is than ``best``: a share of it for time and cost, the difference of rewards."""
    value, reference = objective_value(objective, score), objective_value(objective, best)
    return value - reference if objective.name == "weighted" else value / reference - 1


def value_from_scratch(problem: Problem, plan: Plan, baseline: Plan | None) -> float:
    """Objective of a plan under a (changed) problem, scored anew; the baseline too where the reward needs it."""
    reference = None
    if problem.objective.name == "weighted" and baseline is not None:
        reference = evaluate(problem, baseline)
    return objective_value(problem.objective, evaluate(problem, plan, baseline=reference))


def flaw(problem: Problem, plan: Plan) -> str | None:
    """Why the plan does not count (it breaks a rule, does not fit, is out of balance), or None."""
    violations = check(problem, plan)
    if violations:
        return "; ".join(str(violation) for violation in violations[:3])
    if not fits(problem, plan):
        return "a GPU would need more memory than it has"
    delta = problem.objective.balance_delta
    if delta is not None and imbalance(problem, plan) > delta:
        return f"its domains' compute times are further apart than the {delta:g} allowed"
    return None
