"""Priority first, then the earliest deadline."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DEADLINE_FIRST as CODE
from hippo.jobs.engine.columns import KEY
from hippo.jobs.policies.policy import Policy

DEADLINE = Policy(
    name="deadline",
    code=CODE,
    summary="higher priority first, then the earlier deadline; stops those behind",
    knows="nothing",
    source="Liu, Layland, Scheduling algorithms for multiprogramming in a hard-real-time environment, 1973",
    preempts=True,
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Its place among all jobs by priority, then deadline; equal ones share a place."""
    return w.job[job, KEY]
