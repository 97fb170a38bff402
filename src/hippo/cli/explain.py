"""``hippo explain``: what sets the pace of a plan, and what would have to change for another answer."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.cli.options import Json, Seed, TimeLimit, stop_after, takes
from hippo.cli.output import finish, print_document, print_view
from hippo.cli.plan_file import PlanFile, read_plan
from hippo.cli.progress import Watch


@dataclass(frozen=True)
class Choice:
    """Which plan, and how long to look for a better one."""

    plan: PlanFile
    time_limit: TimeLimit = 5.0
    seed: Seed = 0
    json: Json = False


@takes(Choice)
def explain(choice: Choice) -> None:
    """What sets the pace of a plan, and what would change it."""
    stop = stop_after(choice.time_limit)
    problem, plan = read_plan(choice.plan)
    from hippo.front_door.planning import explain as reasons_for
    from hippo.planners.base import Status

    with Watch("explaining"):
        decision = reasons_for(problem, plan, stop, seed=choice.seed)
    if choice.json:
        print_document(decision.document())
    else:
        from hippo.report.terminal import plan_view, why_view

        print_view(plan_view(decision))
        print_view(why_view(decision.reasons))
    finish(feasible=decision.status is not Status.INFEASIBLE)
