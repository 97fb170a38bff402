"""Least slack first: the time to the deadline less the work that is left."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import DEADLINE, DURATION, ESTIMATE, NEVER
from hippo.jobs.engine.columns import LEAST_SLACK as CODE
from hippo.jobs.policies.policy import Policy
from hippo.jobs.policies.srtf import done

LEAST_SLACK = Policy(
    name="least_slack",
    code=CODE,
    summary="least time to the deadline less the work left (estimated, else known); stops those with more",
    knows="durations",
    source="Mok, Fundamental design problems of distributed systems for the hard real-time environment, 1983",
    preempts=True,
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Slack plus the time of day, which is the same for all: so it stands still while a job waits."""
    deadline, expected = w.job[job, DEADLINE], w.job[job, ESTIMATE]
    if deadline >= NEVER:
        return NEVER
    if expected != expected:
        expected = w.job[job, DURATION]
    return deadline - max(0.0, expected - done(w, job, now))
