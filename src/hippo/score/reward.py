"""The reward of a plan against a baseline plan: R = w1 R_eff + w2 R_util - w3 R_cost (design, section 3; spec A5)."""

from __future__ import annotations

from hippo.problem.objective import Objective
from hippo.score.score import Score


def reward(score: Score, baseline: Score, objective: Objective) -> dict[str, float]:
    """``reward`` and its parts ``r_eff``, ``r_util``, ``r_cost``.

    ``R_eff = (T_base - T) / T_base``; ``R_util`` the mean utilisation of the domains in use; ``R_cost`` the egress over
    that of the baseline. A baseline without egress is no measure: then the whole price of its step is taken instead.
    Where GPUs cost nothing that is no measure either: egress is then all that the plan costs, and ``R_cost`` is 1.
    """
    r_eff = (baseline.step_time_s - score.step_time_s) / baseline.step_time_s
    measure = baseline.egress_usd_per_step or baseline.usd_per_step or score.egress_usd_per_step
    r_cost = score.egress_usd_per_step / measure if score.egress_usd_per_step else 0.0
    total = objective.w_eff * r_eff + objective.w_util * score.utilization - objective.w_cost * r_cost
    return {"reward": total, "r_eff": r_eff, "r_util": score.utilization, "r_cost": r_cost}
