"""How a policy ranks a job: one number, a switch over the policies' own keys."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import (
    BACKFILL,
    CLASS,
    CLASS_SHAPE,
    CLASS_USER,
    DEADLINE_FIRST,
    FAIR,
    FIFO,
    GROUP_ENTITLED,
    KEY,
    LEAST_SLACK,
    MAX_MIN,
    SHAPE_GROUP,
    SJF,
    SRTF,
    TWO_QUEUE,
)
from hippo.jobs.policies import backfill, deadline, fair, fifo, least_slack, max_min, sjf, srtf, two_queue


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Of a job that waits (there it stands still) or runs."""
    if w.policy == FIFO:
        return fifo.key(w, job, now)
    if w.policy == SRTF:
        return srtf.key(w, job, now)
    if w.policy == TWO_QUEUE:
        return two_queue.key(w, job, now)
    if w.policy == BACKFILL:
        return backfill.key(w, job, now)
    if w.policy == SJF:
        return sjf.key(w, job, now)
    if w.policy == FAIR:
        return fair.key(w, job, now)
    if w.policy == MAX_MIN:
        return max_min.key(w, job, now)
    if w.policy == DEADLINE_FIRST:
        return deadline.key(w, job, now)
    if w.policy == LEAST_SLACK:
        return least_slack.key(w, job, now)
    return w.job[job, KEY]


@kernel(lean=True)
def offset(w, kind, now):  # type: ignore[no-untyped-def]
    """What moves the keys of a whole class of jobs (``kind``) against the others' while they wait."""
    if w.policy == FAIR:
        return fair.served(w, w.klass[kind, CLASS_USER], now)
    if w.policy == MAX_MIN:
        return -w.group[w.shape[w.klass[kind, CLASS_SHAPE], SHAPE_GROUP], GROUP_ENTITLED]
    return 0.0


@kernel(lean=True)
def rank(w, job, now):  # type: ignore[no-untyped-def]
    """The number by which jobs of all classes are compared; ties go to the earlier job."""
    return key(w, job, now) + offset(w, w.mark[job, CLASS], now)
