"""First come, first served, and nobody passes the first who waits."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import FIFO as CODE
from hippo.jobs.policies.policy import Policy

FIFO = Policy(
    name="fifo",
    code=CODE,
    summary="first come, first served; a job that does not fit holds up all behind it",
    knows="nothing",
    strict=True,
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """All alike: ties go by arrival."""
    return 0.0
