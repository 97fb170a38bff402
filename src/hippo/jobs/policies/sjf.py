"""Shortest job first, without stopping any; it knows durations."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DURATION
from hippo.jobs.engine.columns import SJF as CODE
from hippo.jobs.policies.policy import Policy

SJF = Policy(
    name="sjf",
    code=CODE,
    summary="shortest job first; jobs that run are left to run",
    knows="durations",
    source="Smith, Various optimizers for single-stage production, 1956",
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Seconds on devices of speed 1."""
    return w.job[job, DURATION]
