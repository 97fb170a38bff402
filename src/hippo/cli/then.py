"""``--then PLAN.json@STEP`` of ``hippo run``: what it says, and what is told of the move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from hippo.cli.plan_file import read_plan
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.run.job import RunJob
    from hippo.run.move import PlanMoved, Then

OPTION = "--then"


def read_then(text: str, job: RunJob) -> Then:
    """The plan under which a run goes on, checked against the run and its model.

    Raises
    ------
    InputError
        It names no step, another model, or a move that cannot be made.
    """
    from hippo.run.fits import check_job
    from hippo.run.move import Then, check_then

    name, _, step = text.rpartition("@")
    if not name or not step.isdecimal() or len(step) > 9:
        remedy = "write PLAN.json@STEP, the last step under the first plan, for instance b.json@5"
        raise InputError("names no step", source=OPTION, value=text, remedy=remedy)
    problem, plan = read_plan(Path(name))
    if problem.model != job.problem.model or problem.workload != job.problem.workload:
        remedy = "make both plans from the same model and workload"
        raise InputError("is for another model or workload", source=name, value=problem.model.name, remedy=remedy)
    if problem.cluster.links != job.problem.cluster.links:
        remedy = "make both plans for the same cluster"
        raise InputError("is for other links", source=name, value=problem.cluster.name, remedy=remedy)
    check_job(replace(job, plan=plan), source=name)
    then = Then(plan, int(step))
    check_then(job, then, source=OPTION)
    return then


def told_of(moved: PlanMoved, job: RunJob, then: Then, *, emulated: bool) -> dict[str, Any]:
    """The move and the steps after it, as data."""
    from hippo.run.move import after
    from hippo.run.predict import RunNetwork, predicted_s

    seconds = [step.seconds for step in moved.after.steps]
    move = moved.move
    return {
        "after_step": move.after_step,
        "wan_bytes": {f"{one}->{two}": size for (one, two), size in sorted(move.wan_bytes.items())},
        "sent_bytes": move.sent_bytes,
        "measured_s": move.measured_s,
        "predicted_s": move.predicted_s if emulated else None,
        "stopped_s": move.stopped_s,
        "processes": len(moved.after.workers),
        "median_step_s": median(seconds[1:] or seconds),
        "predicted_step_s": predicted_s(after(job, then), RunNetwork.around(job.problem.cluster), result=moved.after),
    }
