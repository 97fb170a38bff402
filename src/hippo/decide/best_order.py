"""A planner's plan once more, its pipelines ordered by ``schedule.best``: the last word on the schedule, for everybody.

The planners order their plans by a quick generator, or not at all. Here the portfolio and its search get a moment for
the one plan that each proposes, where its order is short enough and is not already at its bound; so rows differ by what
their planners chose, not by who was given an order. Replicas get the generator's orders, as those of ``exact`` do.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hippo.decide.wording import percent, seconds
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Proposal, Status
from hippo.planners.orders import METHOD, ordered
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, flaw, judge
from hippo.score.score import objective_value

MOST_OPERATIONS = 20_000  # longer orders fill and drain so little of their time that the quick one does
LIMIT_S = 0.5  # of work for the search
OPEN = 1.002  # times its lower bound: an order closer to it is left as it is
CLOSE = 1e-6  # gaps below this are none
CUT = "The clock ended the search for a better order of its operations: asked again, it may find one."
GAIN = 1e-4  # share of the objective below which nothing changes


def with_best_order(found: Proposal, limit_s: float, seed: int = 0, below_s: float = inf) -> Proposal:
    """The proposal, judged, with a better order of its plan, where ``best`` finds one in so much work; else as it is,
    also where no order of its one pipeline takes less than ``below_s``.

    Only for objectives of time or cost: where more is weighed, nobody's plan is ordered anew.
    """
    before = found.best
    if not isinstance(before, Judged) or limit_s <= 0 or before.problem.objective.name == "weighted":
        return found
    limit_s, replicas = min(limit_s, LIMIT_S), found.lower_bound_s is None
    better, method, cut = in_best_order(before, limit_s, seed, replicas=replicas, below_s=below_s)
    found = replace(found, cut_short=found.cut_short or (CUT if cut else ""))
    if better is before:
        return found
    was, now = (objective_value(each.problem.objective, each.score) for each in (before, better))
    told = f"Its operations were ordered by {method}: {percent(1 - now / was)} better than the planner's own order."
    gap = None if found.gap is None else 1 - (1 - found.gap) * was / now
    notes, bound = (*found.notes, told), found.lower_bound_s
    if gap is not None and gap < -CLOSE:
        notes, bound, gap = (*notes, passed(found.planner, bound)), None, None
    status = Status.OPTIMAL if gap is not None and gap <= CLOSE else Status.FEASIBLE
    gap = None if gap is None else max(gap, 0.0)
    return replace(found, best=better, gap=gap, lower_bound_s=bound, status=status, notes=notes)


def passed(prover: str, bound_s: float | None) -> str:
    """What is said of a bound that a plan lies below."""
    bound = "" if bound_s is None else f", {seconds(bound_s)},"
    return f"The bound that {prover} proved{bound} does not hold for this kind of plan, so it says nothing of it."


def in_best_order(
    found: Judged, limit_s: float, seed: int = 0, *, replicas: bool = True, below_s: float = inf
) -> tuple[Judged, str, bool]:
    """The plan in the best order found in so much work, who found it, and whether the clock ended the search; itself
    where nothing is gained, or none of one pipeline is below ``below_s``. ``replicas``: several get orders, too."""
    problem, plan = found.problem, found.plan
    if problem.rules.schedules is not None or plan.interleave > 1:
        return found, "", False
    own, method, cut = found.plan, "", False
    if len(plan.pipelines) > 1:
        own, method = (ordered(problem, plan) if replicas else None) or plan, METHOD
    elif len(plan.pipelines[0].stages) > 1 and plan.operations <= MOST_OPERATIONS:
        own, method, cut = _searched(problem, plan, limit_s, seed, below_s)
    if own == plan or flaw(problem, own) is not None:
        return found, "", cut
    better = judge(problem, own)
    least = objective_value(problem.objective, found.score) * (1 - GAIN)
    return (better, method, cut) if objective_value(problem.objective, better.score) <= least else (found, "", cut)


def _searched(problem: Problem, plan: Plan, limit_s: float, seed: int, below_s: float) -> tuple[Plan, str, bool]:
    """The plan of one pipeline with the order that ``best`` finds; itself where it is at its bound, or that is not
    below ``below_s``."""
    from hippo.schedule.bound.lower_bound import lower_bound
    from hippo.schedule.replay import makespan
    from hippo.schedule.schedule import letters_of
    from hippo.simulate.lower import orders_of
    from hippo.simulate.ordering import ordering

    asked, (own,) = ordering(problem, plan), orders_of(problem, plan)
    if below_s < inf and lower_bound(asked, quick=True) >= below_s:
        return plan, "", False
    if makespan(asked, own) <= OPEN * lower_bound(asked):
        return plan, "", False
    from hippo.schedule.best import best

    found = best(asked, time_limit_s=limit_s, seed=seed)
    line = replace(plan.pipelines[0], warm_up=(), order=letters_of(found.schedule))
    return replace(plan, pipelines=(line,), schedule=ScheduleChoice("best")), found.method, found.cut_short
