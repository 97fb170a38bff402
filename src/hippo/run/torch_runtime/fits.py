"""What ``torch.distributed.pipelining`` cannot run: refused before any process starts. No torch is needed here."""

from __future__ import annotations

from hippo.engine.program import FORWARD
from hippo.errors import InfeasibleError
from hippo.plan.plan import Pipeline, Plan
from hippo.run.job import Job
from hippo.schedule.schedule import order_of

NAME = "torch.distributed.pipelining"
BUILT_IN = {"1f1b": "Schedule1F1B", "gpipe": "ScheduleGPipe"}
"""Schedules that the runtime has itself; the others are handed over as CSV."""


def check_torch(job: Job) -> None:
    """``InfeasibleError`` for a plan that the runtime cannot express."""
    plan = job.plan
    if plan.compression:
        raise InfeasibleError([f"{NAME} sends activations as they are. Nearest plan: this one without compression."])
    if plan.sync.method != "allreduce":
        raise InfeasibleError(
            [f"{NAME} knows no outer steps here. Nearest plan: this one with gradients agreed every step."]
        )
    for pipeline in plan.pipelines:
        widths = {(stage.tp, stage.dp) for stage in pipeline.stages}
        if len(widths) > 1 and not job.options.stand_in:
            told = ", ".join(f"tp {tp} dp {dp}" for tp, dp in sorted(widths))
            raise InfeasibleError(
                [
                    f"{NAME} sends from one rank to one rank: all stages of a pipeline need the same tp and dp, these "
                    f"have {told}. Nearest plan: the same tp and dp on every stage."
                ]
            )
        _check_losses(plan, pipeline)


def _check_losses(plan: Plan, pipeline: Pipeline) -> None:
    """Losses are stored in the order of F on the last stage, and looked up by micro-batch."""
    rows = order_of(plan, pipeline).rank(len(pipeline.stages) - 1).tolist()
    waves = [wave for kind, chunk, wave in rows if (kind, chunk) == (FORWARD, plan.interleave - 1)]
    if waves != sorted(waves):
        raise InfeasibleError(
            [
                f"{NAME} looks up losses by the order of F on the last stage; out of order its gradients are wrong. "
                "Nearest plan: F in order there."
            ]
        )


def built_in(plan: Plan, pipeline: Pipeline) -> str | None:
    """The runtime's own class for the schedule; None: it is handed over as CSV."""
    plain = plan.interleave == 1 and plan.schedule.live_limit is None and not pipeline.run_ahead
    if not plain or pipeline.num_micro_batches < len(pipeline.stages):
        return None
    return BUILT_IN.get(plan.schedule.name)
