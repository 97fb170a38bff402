"""The chosen plan once more, its pipeline ordered by ``schedule.best``: the last word on the schedule.

The planners order their plans by one quick generator. Here the portfolio and its search get a moment for the one plan
that was chosen, where its order is short enough and is not already at its bound.
"""

from __future__ import annotations

from dataclasses import replace

from hippo.decide.decision import Decision
from hippo.decide.wording import percent
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Status
from hippo.problem.problem import Problem
from hippo.score.judge import flaw, judge
from hippo.score.score import objective_value

MOST_OPERATIONS = 20_000  # longer orders fill and drain so little of their time that the quick one does
LIMIT_S = 0.5  # of work for the search
OPEN = 1.002  # times its lower bound: an order closer to it is left as it is
CLOSE = 1e-6  # gaps below this are none
CUT = "The clock ended the search for a better order of its operations: asked again, it may find one."
GAIN = 1e-4  # share of the objective below which nothing changes


def with_best_order(decision: Decision, limit_s: float, seed: int = 0) -> Decision:
    """The decision with a better order of its plan, where ``best`` finds one; else as it is.

    Only for plans of one pipeline and for objectives of time or cost: the bounds that stand hold for such orders.
    """
    problem, plan, score = decision.problem, decision.plan, decision.score
    if plan is None or score is None or limit_s <= 0 or problem.objective.name == "weighted":
        return decision
    found = _ordered(problem, plan, min(limit_s, LIMIT_S), seed)
    if found is None or flaw(problem, found[0]) is not None:
        return decision
    own, method, cut = found
    if cut:
        told = (replace(row, cut_short=row.cut_short or CUT) if row.plan == plan else row for row in decision.rows)
        decision = replace(decision, rows=tuple(told))
    against = None if decision.baseline is None else decision.baseline.score
    better = judge(problem, own).under(problem, baseline=against)
    before, after = (objective_value(problem.objective, each) for each in (score, better.score))
    if after > before * (1 - GAIN):
        return decision
    note = (
        f"Its operations were ordered by {method}: {percent(1 - after / before)} better than the planner's own order."
    )
    gap = None if decision.gap is None else 1 - (1 - decision.gap) * before / after
    if gap is not None and gap < -CLOSE:  # the bound is that of another kind of plan
        decision, gap = replace(decision, lower_bound_s=None), None
    status = Status.OPTIMAL if gap is not None and gap <= CLOSE else Status.FEASIBLE
    gap = None if gap is None else max(gap, 0.0)
    rows = tuple(
        replace(row, best=better, notes=(*row.notes, note)) if row.plan == plan else row for row in decision.rows
    )
    return replace(decision, best=better, gap=gap, status=status, rows=rows)


def _ordered(problem: Problem, plan: Plan, limit_s: float, seed: int) -> tuple[Plan, str, bool] | None:
    """The plan with the order that ``best`` finds, who found it, and whether the clock ended the search; None: nothing
    to gain, or not for this plan."""
    rules, line = problem.rules, plan.pipelines[0]
    operations = 3 * len(line.stages) * line.num_micro_batches
    alone = len(plan.pipelines) == 1 and plan.interleave == 1 and len(line.stages) > 1
    if not alone or rules.schedules is not None or operations > MOST_OPERATIONS:
        return None
    from hippo.schedule.bound.lower_bound import lower_bound
    from hippo.schedule.replay import makespan
    from hippo.schedule.schedule import letters_of, order_of
    from hippo.simulate.ordering import ordering

    asked = ordering(problem, plan)
    if makespan(asked, order_of(plan, line)) <= OPEN * lower_bound(asked):
        return None
    from hippo.schedule.best import best

    found = best(asked, time_limit_s=limit_s, seed=seed)
    own = replace(line, warm_up=(), order=letters_of(found.schedule))
    return replace(plan, pipelines=(own,), schedule=ScheduleChoice("best")), found.method, found.cut_short
