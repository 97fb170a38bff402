"""How good a plan is: the numbers of the ``score`` contract, and its reward against a baseline plan.

R = w1 R_eff + w2 R_util - w3 R_cost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hippo.problem.objective import Objective
from hippo.records import html_table


@dataclass(frozen=True)
class Score:
    """Figures of one plan; keys of the ``score`` document are these field names."""

    step_time_s: float
    utilization: float  # mean of U_k = T_k^compute / T_step over the domains in use
    utilization_all: float  # the same mean over all domains of the cluster
    cross_domain_gb_per_step: float
    egress_usd_per_step: float
    usd_per_step: float  # rent of the GPUs in use + egress
    tokens_per_s: float
    mfu: float
    peak_memory_gb: float
    reward: float  # w1 R_eff + w2 R_util - w3 R_cost against the baseline plan; 0 when no baseline was given
    r_eff: float = 0.0
    r_util: float = 0.0  # the utilisation; needs no baseline
    r_cost: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """Figures by name, the keys of the ``score`` document; units stand in the names."""
        return asdict(self)

    def __repr__(self) -> str:
        names = ("step_time_s", "tokens_per_s", "mfu", "usd_per_step", "peak_memory_gb")
        return f"Score({', '.join(f'{name}={getattr(self, name):.6g}' for name in names)}, ...)"

    def _repr_html_(self) -> str:
        return html_table([{"figure": name, "value": value} for name, value in self.to_dict().items()], title="Score")


def objective_value(objective: Objective, score: Score) -> float:
    """What is minimised: seconds a step, USD a step, or the reward with its sign turned."""
    if objective.name == "cost":
        return score.usd_per_step
    return -score.reward if objective.name == "weighted" else score.step_time_s


def worse_by(objective: Objective, score: Score, best: Score) -> float:
    """How much worse ``score`` is than ``best``: a share of it for time and cost, the difference of rewards."""
    value, reference = objective_value(objective, score), objective_value(objective, best)
    return value - reference if objective.name == "weighted" else value / reference - 1


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
