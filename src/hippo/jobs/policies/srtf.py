"""Shortest remaining time first, stopping others; it knows durations: a limit for those who do not, at equal speeds."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DURATION, LEFT, RATE, READY, RUNNING, STATUS
from hippo.jobs.engine.columns import SRTF as CODE
from hippo.jobs.policies.policy import Policy

SRTF = Policy(
    name="srtf",
    code=CODE,
    summary="shortest remaining time first; stops those with more left",
    knows="durations",
    source="Schrage, A proof of the optimality of the shortest remaining processing time discipline, 1968",
    preempts=True,
)


@kernel(lean=True)
def remaining(w, job, now):  # type: ignore[no-untyped-def]
    """Work that is left, in seconds on devices of speed 1."""
    left = w.job[job, LEFT]
    if w.mark[job, STATUS] == RUNNING and now > w.job[job, READY]:
        left = max(0.0, left - (now - w.job[job, READY]) * w.job[job, RATE])
    return left


@kernel(lean=True)
def done(w, job, now):  # type: ignore[no-untyped-def]
    """Work that is done."""
    return w.job[job, DURATION] - remaining(w, job, now)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """What is left."""
    return remaining(w, job, now)
