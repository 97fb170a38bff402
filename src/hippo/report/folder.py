"""What ``--out`` writes of a decision: file names and whole contents; writing them is the command line's."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.decide.decision import Decision
from hippo.files import json_text
from hippo.plan.codec import plan_to_document
from hippo.plan.plan import Plan
from hippo.report.html import report
from hippo.report.perfetto import trace
from hippo.report.story import tell
from hippo.score.score import Score


def decision_files(decision: Decision, *, front: Sequence[tuple[Plan, Score]] = ()) -> dict[str, str]:
    """``plan.json``, ``report.html`` and ``trace.json`` of a decision that has a plan.

    Raises
    ------
    ValueError
        The decision has no plan: there is nothing to write.
    """
    story = tell(decision, front=front)
    return {
        "plan.json": json_text(plan_to_document(story.problem, story.plan)),
        "report.html": report(story),
        "trace.json": trace(story),
    }
