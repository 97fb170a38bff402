"""``hippo compare``: all planners side by side, scored by one judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hippo.cli.options import takes
from hippo.cli.output import finish, print_document, print_view
from hippo.cli.plan import write_decision
from hippo.cli.question import Question

if TYPE_CHECKING:
    from hippo.decide.decision import Decision


@takes(Question)
def compare(question: Question) -> None:
    """All planners side by side, scored by one judge.

    --planner names some of them, with commas. Each may take the whole --time-limit.
    """
    from hippo.front_door.planning import compare as side_by_side

    decision = question.answer(side_by_side, "comparing")
    if question.json:
        print_document({**decision.document(), "plan": None})
    else:
        _show(decision)
    if question.out is not None and decision.plan is not None:
        write_decision(question, decision)
    finish(feasible=decision.plan is not None)


def _show(decision: Decision) -> None:
    """The planners side by side, then the best plan and its reasons."""
    from hippo.report.terminal import comparison_view, layout_view, question_view, why_view

    print_view(question_view(decision.problem))
    print_view(comparison_view(decision.rows, best=decision.planner))
    if decision.plan is not None:
        print_view(layout_view(decision.plan))
    print_view(why_view(decision.reasons))
