"""A queue policy is data: one that the package does not know is played without a line of code for it."""

from __future__ import annotations

import numpy as np

from hippo import registry
from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.policies.policy import Key, QueuePolicy
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

SRSF = QueuePolicy(
    name="srsf",
    summary="least remaining device time first (Gu et al., Tiresias, NSDI 2019)",
    knows="durations",
    key=Key(remaining=1.0, factor=lambda workload: workload.devices),
    preempts=True,
)
JOBS = (Job("tall", 0, 10), Job("wide", 0, 6, devices=2), Job("late", 1, 3, devices=2))
TWO = site([DevicePool("here", "gpu", 1, 2)])


def test_data_make_a_policy():
    """Tall (10 device-seconds) goes before wide (12). Late (6) stops it at 1, while 9 are left, and ends at 4. Then
    tall, until 13, and wide after it. By time alone (``srtf``) wide would have been first."""
    found = play(JobWorkload.of(JOBS), TWO, SRSF, ReplayRules(restart_s=0))
    assert found.finish_s.tolist() == [13, 19, 4]
    assert found.preemptions.tolist() == [1, 0, 0]
    by_time = play(JobWorkload.of(JOBS), TWO, registry.job_policy("srtf"), ReplayRules(restart_s=0))
    assert by_time.finish_s.tolist() == [19, 9, 4]


def test_all_that_changes_in_a_key_counts():
    """Two jobs that could share nothing: who has had more work goes last (least attained service, levels at each
    second), so they take turns."""
    turns = QueuePolicy(
        name="las",
        summary="least attained service first",
        knows="nothing",
        key=Key(attained=1.0),
        preempts=True,
        levels=tuple(np.arange(2.0, 40.0, 2.0)),
    )
    jobs = JobWorkload.of([Job("one", 0, 4, devices=2), Job("other", 0, 4, devices=2)])
    found = play(jobs, TWO, turns, ReplayRules(restart_s=0))
    assert found.preemptions.sum() > 0
    assert found.finish_s.tolist() == [7, 8]
