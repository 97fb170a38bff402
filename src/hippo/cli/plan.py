"""``hippo plan``: the best plan, how far from the optimum it can be, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import takes
from hippo.cli.output import finish, print_document, print_view, write_files
from hippo.cli.progress import Watch
from hippo.cli.question import Question
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.decide.decision import Decision
    from hippo.planners.base import Progress, Stop
    from hippo.planners.rollouts import RolloutAnswer
    from hippo.problem.problem import Problem


@dataclass(frozen=True)
class PlanQuestion(Question):
    """Whether reasons are wanted, and what generates samples where the model learns from its own."""

    no_why: Annotated[bool, typer.Option("--no-why", help="The plan alone, without what would change it.")] = False
    rollouts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Place a trainer, pools of replicas and weight pushes (RL).")
    ] = None


@takes(PlanQuestion)
def plan(question: PlanQuestion) -> None:
    """The best plan, how far from the optimum it can be, and why."""
    from hippo.front_door.planning import plan as best_plan

    if question.rollouts is not None:
        plan_with_rollouts(question)
        return
    everyone = question.out is not None  # the report shows all planners side by side
    decision = question.answer(partial(best_plan, everyone=everyone, why=False), "planning")
    if not question.json:
        from hippo.report.terminal import plan_view

        print_view(plan_view(decision))
    if not question.no_why:
        decision = with_why(question, decision)
    if question.json:
        print_document(decision.document())
    else:
        show_why(decision)
    if question.out is not None and decision.plan is not None:
        write_decision(question, decision)
    finish(feasible=decision.plan is not None)


def plan_with_rollouts(question: PlanQuestion) -> None:
    """Trainer, pools and pushes of ``--rollouts``; with ``--out`` as rollouts.json, the trainer's plan as plan.json."""
    from hippo.errors import InfeasibleError
    from hippo.files import json_text
    from hippo.front_door.rollouts import plan_rollouts
    from hippo.report.rollouts_terminal import rollouts_view

    apart = {"--planner": question.planner != "auto", "--allow-local-sgd": question.allow_local_sgd}
    for option in (name for name, given in apart.items() if given):
        remedy = "leave one of them out: the trainer lies in one domain and is planned exactly"
        raise InputError("does not go with --rollouts", source=option, remedy=remedy)

    def verb(problem: Problem, stop: Stop, *, progress: Progress, **_: object) -> RolloutAnswer:
        assert question.rollouts is not None
        return plan_rollouts(problem, question.rollouts, stop, progress=progress)

    try:
        answer = question.answer(verb, "placing")
    except InfeasibleError as error:
        if not question.json:
            raise
        print_document({"status": "infeasible", "reasons": list(error.reasons)})
        finish(feasible=False)
        return
    document = answer.document()
    print_document(document) if question.json else print_view(rollouts_view(answer))
    if question.out is not None:
        files = {"rollouts.json": document, "plan.json": document["plan"]}
        write_files(question.out, {name: json_text(each) for name, each in files.items()})


def write_decision(question: Question, decision: Decision) -> None:
    """Writes plan.json, report.html and trace.json of a decision into the folder asked for."""
    from hippo.report.folder import decision_files

    assert question.out is not None
    with Watch("writing the report"):
        files = decision_files(decision)
    write_files(question.out, files)


def with_why(question: Question, decision: Decision) -> Decision:
    """The decision with its reasons, which are looked for once it is told."""
    from hippo.cli.options import stop_after
    from hippo.front_door.planning import with_reasons

    with Watch("looking for what would change it"):
        return with_reasons(decision, stop_after(question.time_limit), planner=question.planner, seed=question.seed)


def show_why(decision: Decision) -> None:
    """The reasons, if there are any, and how long plan and reasons took."""
    from hippo.report.terminal import times_view, why_view

    if decision.reasons:
        print_view(why_view(decision.reasons))
        print_view(times_view(decision))
