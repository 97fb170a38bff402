"""``hippo pareto``: the plans that none beats in step time, utilisation and egress cost together."""

from __future__ import annotations

from dataclasses import asdict

from hippo.cli.options import takes
from hippo.cli.output import finish, print_document, print_view, write_files
from hippo.cli.question import Question


@takes(Question)
def pareto(question: Question) -> None:
    """Plans that none beats in time, utilisation and egress cost.

    --out writes pareto.json into its folder.
    """
    from hippo.cost.calibration import uncalibrated
    from hippo.files import json_text
    from hippo.front_door.planning import pareto as best_front
    from hippo.plan.codec import plan_to_document
    from hippo.score.interval import interval_document, interval_of

    front = question.answer(best_front, "looking for the front")
    document = {
        "points": [
            {
                "plan": plan_to_document(front.problem, plan),
                "score": asdict(score),
                **interval_document(interval_of(front.problem, plan, score.step_time_s)),
            }
            for plan, score in front.points
        ],
        "hypervolume": front.hypervolume,
        "closed": front.closed,
        "cut_short": front.cut_short or None,
        "uncalibrated": uncalibrated(front.problem),
    }
    if question.json:
        print_document(document)
    else:
        from hippo.report.terminal import front_view, question_view

        print_view(question_view(front.problem))
        print_view(front_view(front.points, hypervolume=front.hypervolume, cut_short=front.cut_short))
    if question.out is not None and front.points:
        write_files(question.out, {"pareto.json": json_text(document)})
    finish(feasible=bool(front.points))
