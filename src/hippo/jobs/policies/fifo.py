"""First come, first served, and nobody passes the first who waits."""

from __future__ import annotations

from numba import njit

from hippo.jobs.engine.columns import FIFO as CODE
from hippo.jobs.policies.policy import Policy
from hippo.simulate.compiling import LEAN

FIFO = Policy(
    name="fifo",
    code=CODE,
    summary="first come, first served; a job that does not fit holds up all behind it",
    knows="nothing",
    strict=True,
)


@njit(**LEAN)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """All alike: ties go by arrival."""
    return 0.0
