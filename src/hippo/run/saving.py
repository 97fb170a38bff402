"""Which runs can be saved, such that going on equals a run that was never ended. No torch."""

from __future__ import annotations

from hippo.errors import InputError
from hippo.run.job import Job


def check_saving(job: Job, *, source: str) -> None:
    """``InputError`` where a checkpoint, which holds each layer once, would lose what replicas have of their own."""
    plan = job.plan
    if plan.sync.method == "local_sgd" and len(plan.pipelines) > 1:
        remedy = "leave out --checkpoint, or give a plan whose replicas agree on gradients every step"
        told = "replicas that train alone cannot be saved yet (their moments and the outer momentum would be lost)"
        raise InputError(told, source=source, key="sync.method", value=plan.sync.method, remedy=remedy)
