"""A policy that knows nothing of durations decides alike, whatever becomes of the jobs that have not ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.policies.learned import suited
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.workload import JobWorkload
from hippo.registry import JOB_POLICIES, load

SITE = site([DevicePool(name, "gpu", nodes=2, per_node=4) for name in ("north", "south")])


def _workload(jobs: int = 400) -> JobWorkload:
    rng = np.random.default_rng(5)
    columns = {
        "arrival_s": np.sort(rng.uniform(0, 9e4, jobs)),
        "duration_s": rng.lognormal(7.2, 1.6, jobs) + 1,
        "devices": rng.choice([1, 1, 1, 2, 4, 8], jobs),
        "user": rng.integers(0, 4, jobs),
    }
    return JobWorkload.of_columns(columns, users=("a", "b", "c", "d"))


@pytest.mark.parametrize("name", ["fifo", "backfill", "fair", "two_queue", "max_min", "learned"])
def test_what_is_not_over_cannot_be_seen(name: str) -> None:
    decides_alike(_workload(), SITE, load(JOB_POLICIES, "policy", name))


@pytest.mark.parametrize("name", ["max_min", "learned"])
def test_what_is_not_over_cannot_be_seen_where_kinds_of_devices_differ(name: str) -> None:
    workload = replace(_workload(), runs_on=np.arange(400) % 3, device_kinds=(("gpu",), ("tpu",), ()))
    mixed = site([DevicePool("north", "gpu", nodes=2, per_node=4), DevicePool("south", "tpu", nodes=3, per_node=4)])
    decides_alike(workload, mixed, load(JOB_POLICIES, "policy", name))


def decides_alike(workload: JobWorkload, where: JobSite, policy: QueuePolicy) -> None:
    """Until a moment everything happens as it does if what is there then takes longer."""
    rng = np.random.default_rng(6)
    played = play(workload, where, policy)
    for now in np.quantile(workload.arrival_s, [0.2, 0.5, 0.8]):
        open_yet = played.finish_s > now
        longer = np.where(open_yet, rng.uniform(1, 5, len(workload)) * workload.duration_s + 10, workload.duration_s)
        again = play(replace(workload, duration_s=longer), where, policy)
        begun = played.first_start_s <= now
        assert 0 < open_yet.sum() < len(workload)
        assert np.array_equal(played.finish_s[~open_yet], again.finish_s[~open_yet])
        assert np.array_equal(played.first_start_s[begun], again.first_start_s[begun])


@pytest.mark.parametrize("name", ["deadline", "learned"])
def test_deadlines_that_tell_nothing_of_durations_tell_nothing(name: str) -> None:
    """Slack is drawn apart from the durations, so nothing can be read off the deadlines."""
    workload, rng = _workload(), np.random.default_rng(7)
    workload = replace(workload, deadline_s=workload.arrival_s + rng.lognormal(8.5, 1.0, len(workload)))
    decides_alike(workload, SITE, suited(load(JOB_POLICIES, "policy", name), workload))


def test_a_clairvoyant_is_caught() -> None:
    workload, policy = _workload(), load(JOB_POLICIES, "policy", "srtf")
    played = play(workload, SITE, policy)
    now = float(np.quantile(workload.arrival_s, 0.8))
    open_yet = played.finish_s > now
    turned = np.where(open_yet, workload.duration_s[::-1] + workload.duration_s.max(), workload.duration_s)
    again = play(replace(workload, duration_s=turned), SITE, policy)
    assert not np.array_equal(
        played.first_start_s[played.first_start_s <= now], again.first_start_s[played.first_start_s <= now]
    )
