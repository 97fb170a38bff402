"""``hippo compare``: all planners side by side, scored by one judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import takes
from hippo.cli.output import finish, print_document, print_view
from hippo.cli.plan import show_why, with_why, write_decision
from hippo.cli.question import Question
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.decide.decision import Decision


@dataclass(frozen=True)
class Comparison(Question):
    """And whether it is runtimes that are compared."""

    runtimes: Annotated[bool, typer.Option("--runtimes", help="The best plan of every runtime instead.")] = False


@takes(Comparison)
def compare(question: Comparison) -> None:
    """All planners side by side, scored by one judge.

    --planner names some of them, with commas. Each may take the whole --time-limit.
    --runtimes: the best plan for each runtime, chosen and timed under that runtime.
    """
    from hippo.front_door.planning import compare as side_by_side

    if question.runtimes:
        _runtimes(question)
        return
    decision = question.answer(partial(side_by_side, why=False), "comparing")
    if not question.json:
        _show(decision)
    decision = with_why(question, decision)
    if question.json:
        print_document({**decision.document(), "plan": None})
    else:
        show_why(decision)
    if question.out is not None and decision.plan is not None:
        write_decision(question, decision)
    finish(feasible=decision.plan is not None)


def _runtimes(question: Comparison) -> None:
    """The best plan of every runtime, in a table or as JSON."""
    from hippo.front_door.planning import compare_runtimes
    from hippo.report.terminal import question_view, runtimes_view

    if question.out is not None:
        raise InputError("does not go with --runtimes", source="--out", remedy="leave one of them out")
    if question.runtime != Comparison.runtime:
        remedy = "leave it out: every runtime has its row"
        raise InputError("does not go with --runtimes", source="--runtime", value=question.runtime, remedy=remedy)
    decisions = question.answer(compare_runtimes, "comparing runtimes")
    if question.json:
        print_document({"runtimes": [each.document() for each in decisions]})
    else:
        print_view(question_view(decisions[0].problem, runtime=False))
        print_view(runtimes_view(decisions))
    finish(feasible=any(each.plan is not None for each in decisions))


def _show(decision: Decision) -> None:
    """The planners side by side, then the best plan."""
    from hippo.report.terminal import comparison_view, layout_view, question_view

    print_view(question_view(decision.problem))
    print_view(comparison_view(decision.rows, best=decision.planner))
    if decision.plan is not None:
        print_view(layout_view(decision.plan))
