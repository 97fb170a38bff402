"""From a planner's own ranking to its proposal: the judge checks, fits and scores every plan on the short list.

Planners rank by their own estimate (their paper's) and hand over the plans they would try, best first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.effort import CHECK_S, Effort, play_s
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, fits, judge, memory
from hippo.score.score import Score, objective_value
from hippo.simulate.costs import cost_model
from hippo.simulate.ring import NoRingError
from hippo.units import gb_from_bytes


@dataclass
class ShortList:
    """The best plan so far, and why the others were dropped. One per call of a planner; the only thing it mutates."""

    problem: Problem
    effort: Effort
    best: Judged | None = None
    rejected: Counter[str] = field(default_factory=Counter)
    missing_bytes: float = float("inf")  # least memory by which a plan failed to fit
    judged: int = 0
    _first: Score | None = None

    @classmethod
    def of(cls, problem: Problem, stop: Stop) -> ShortList:
        """An empty one, for work that begins now."""
        return cls(problem, Effort.of(stop))

    def try_all(self, plans: Iterable[Plan], *, most: int | None = None) -> Judged | None:
        """Tries plans until ``most`` of them were scored or the work is done, though never before one was scored; the
        one that was scored last."""
        scored, last = 0, None
        for plan in plans:
            if self.best is not None and self.effort.over():
                break
            found = self.consider(plan)
            if found is not None:
                scored, last = scored + 1, found
            if most is not None and scored >= most:
                break
        return last

    def consider(self, plan: Plan) -> Judged | None:
        """Scores the plan and keeps it when it is the best; None: it breaks a rule or does not fit."""
        self.effort.spend(CHECK_S)
        violations = check(self.problem, plan)
        if violations:
            self.rejected[_cause(self.problem, violations[0])] += 1
            return None
        if not fits(self.problem, plan):
            self.reject_memory(missing_memory(self.problem, plan))
            return None
        self.effort.spend(play_s(plan))
        try:
            found = judge(self.problem, plan)
        except NoRingError:
            self.rejected["links"] += 1
            return None
        self.judged += 1
        self._first = self._first or found.score
        if self.best is None or self.value(found.score) < self.value(self.best.score):
            self.best = found
        return found

    def reject_memory(self, missing_bytes: float) -> None:
        """Notes a candidate that does not fit by so many bytes per GPU."""
        self.rejected["memory"] += 1
        self.missing_bytes = min(self.missing_bytes, missing_bytes)

    def proposal(self, planner: str, *, notes: tuple[str, ...], nothing: str) -> Proposal:
        """The answer: the best plan, or ``nothing`` (one sentence) with how much memory is missing."""
        if self.best is None:
            if self.missing_bytes < float("inf"):
                nothing += f" The closest one lacks {gb_from_bytes(self.missing_bytes):.1f} GB per GPU."
            notes = (nothing,)
        return Proposal(
            planner,
            Status.INFEASIBLE if self.best is None else Status.FEASIBLE,
            self.best,
            planning_s=self.effort.cpu_s,
            rejected=dict(self.rejected),
            notes=notes,
            work_s=self.effort.spent_s,
            cut_short=self.effort.cut,
        )

    def value(self, score: Score) -> float:
        """What the objective minimises; the first plan scales time and cost where it weighs them."""
        objective, first = self.problem.objective, self._first or score
        if objective.name != "weighted":
            return objective_value(objective, score)
        slower = score.step_time_s / first.step_time_s
        egress = score.egress_usd_per_step / first.egress_usd_per_step if first.egress_usd_per_step > 0 else 0.0
        return objective.w_eff * slower - objective.w_util * score.utilization + objective.w_cost * egress


def missing_memory(problem: Problem, plan: Plan) -> float:
    """Bytes per GPU by which the fullest stage exceeds what a plan may use (0 when it fits)."""
    peak = max(stage.peak_bytes for stage in memory(problem, plan))
    return max(0.0, peak - cost_model(problem).usable_memory_bytes())


def _cause(problem: Problem, violation: object) -> str:
    rule = getattr(violation, "rule", None)
    return str(rule) if rule else f"not expressible in {problem.runtime}"
