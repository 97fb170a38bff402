"""The learned policy: an index from estimated durations (``jobs.learned``)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hippo.jobs.learned.past import EDGES_S
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.workload import JobWorkload

DEADLINE_REFRESH_S = 600.0
"""The same where jobs have deadlines, which draw nearer."""

REFRESH_S = 1800.0
"""All keys are worked out again this often: what others have done since tells of a job, too."""

LEARNED = QueuePolicy(
    name="learned",
    summary="index from estimated durations (Gittins rank of what the past of like jobs says) times devices; gangs "
    "first of those that fill the site",
    knows="nothing",
    preempts=True,
    levels=tuple(EDGES_S.tolist()),
    per_device=False,
    learns=True,
    refresh_s=REFRESH_S,
)

LEARNED_DEADLINES = replace(
    LEARNED,
    name="learned_deadlines",
    summary="worth per device-second of a job that can still be in time, as the past of like jobs tells; others last",
    refresh_s=DEADLINE_REFRESH_S,
    for_deadlines=True,
)
"""What ``learned`` means where jobs have deadlines."""


def suited(policy: QueuePolicy, workload: JobWorkload) -> QueuePolicy:
    """The policy itself, or the learned one's form for deadlines, where some job of the workload has one."""
    return LEARNED_DEADLINES if policy is LEARNED and bool(np.isfinite(workload.deadline_s).any()) else policy
