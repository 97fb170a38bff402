"""What agents are paid: minus the jobs in the system, integrated over time.

Summed over an episode in which every job ends, that is minus the sum of all completion times (Little 1961); so whoever
earns most has the least mean completion time.
"""

from __future__ import annotations

import numpy as np

from hippo.jobs.workload import Workload


def paid(job_seconds: float, *, scale_s: float) -> float:
    """For seconds that jobs have spent waiting or running, all together."""
    return -job_seconds / scale_s


def scale_of(workload: Workload) -> float:
    """Seconds that make a reward of 1: the durations of the jobs that run, together. An episode in which nobody waits
    pays -1."""
    return float(np.sum(workload.duration_s)) if len(workload) else 1.0
