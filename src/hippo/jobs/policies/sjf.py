"""Shortest job first, without stopping any; it knows durations."""

from __future__ import annotations

from numba import njit

from hippo.jobs.engine.columns import DURATION
from hippo.jobs.engine.columns import SJF as CODE
from hippo.jobs.policies.policy import Policy
from hippo.simulate.compiling import LEAN

SJF = Policy(
    name="sjf",
    code=CODE,
    summary="shortest job first; jobs that run are left to run",
    knows="durations",
    source="Smith, Various optimizers for single-stage production, 1956",
)


@njit(**LEAN)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Seconds on devices of speed 1."""
    return w.job[job, DURATION]
