"""Figures of a replay that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.figures import fairness, figures
from hippo.jobs.job import Job
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.traces.mix import missed
from hippo.jobs.workload import JobWorkload
from hippo.registry import job_policy

TWO = site([DevicePool("here", "gpu", 1, 2)])


def test_three_jobs_on_two_devices():
    """FIFO: 0-10 on one device, 10-14 on both, 14-16 on one; the fourth is too large."""
    jobs = [
        Job("long", 0, 10, user="a", deadline_s=10),
        Job("wide", 0, 4, devices=2, user="b", deadline_s=13),
        Job("short", 1, 2, user="b"),
        Job("huge", 1, 2, devices=4, user="c", deadline_s=2),
    ]
    workload = JobWorkload.of(jobs)
    found = figures(play(workload, TWO, job_policy("fifo"), ReplayRules(restart_s=0)), workload, TWO)
    assert (found.policy, found.jobs, found.refused) == ("fifo", 3, 1)
    assert found.mean_completion_s == pytest.approx((10 + 14 + 15) / 3)
    assert found.p50_completion_s == 14
    assert found.mean_queueing_s == pytest.approx((0 + 10 + 13) / 3)
    assert found.makespan_s == 16
    assert found.utilization == pytest.approx((10 + 8 + 2) / 32)
    assert (found.deadline_jobs, found.deadline_misses) == (3, 2)  # wide is late, huge is refused
    told = missed(play(workload, TWO, job_policy("fifo"), ReplayRules(restart_s=0)), workload)
    assert (told.jobs, told.late) == (3, 2)
    shares = [1.0, (4 / 14 + 2 / 15) / 2]
    assert found.fairness == pytest.approx(sum(shares) ** 2 / 2 / sum(share**2 for share in shares))
    assert [(group.name, group.jobs, group.device_s) for group in found.users] == [("a", 1, 10.0), ("b", 2, 10.0)]
    assert [(group.name, group.mean_completion_s) for group in found.sizes] == [("1", 12.5), ("2", 14.0)]


def test_priorities_weigh_completion():
    """One after the other: 10 s of priority 1 counts twice, 30 s of priority -1 once."""
    jobs = [Job("first", 0, 10, devices=2, priority=1), Job("second", 0, 20, devices=2, priority=-1)]
    workload = JobWorkload.of(jobs)
    found = figures(play(workload, TWO, job_policy("fifo"), ReplayRules(restart_s=0)), workload, TWO)
    assert found.weighted_completion_s == pytest.approx((2 * 10 + 30) / 3)
    assert found.egress_gb == 0.0


def test_fairness_is_one_for_equals_and_one_over_users_for_one_alone():
    users, durations = np.arange(4), np.full(4, 10.0)
    assert fairness(np.full(4, 50.0), durations, users) == pytest.approx(1.0)
    assert fairness(np.array([10.0, 1e12, 1e12, 1e12]), durations, users) == pytest.approx(0.25)


def test_without_jobs_there_is_no_figure():
    workload = JobWorkload.of([Job("huge", 0, 1, devices=99)])
    found = figures(play(workload, TWO, job_policy("fifo")), workload, TWO)
    assert (found.jobs, found.refused) == (0, 1)
    assert math.isnan(found.mean_completion_s)
    assert math.isnan(found.utilization)


def test_utilization_goes_with_the_load():
    """Two of four GPUs for 10 s; neither the cores nor the devices that nobody may use count."""
    place = site([DevicePool("a", "gpu", 1, 4), DevicePool("a", "cpu", 1, 64), DevicePool("a", "tpu", 1, 8)])
    jobs = [Job("g", 0, 10, devices=2, runs_on=("gpu",)), Job("c", 0, 10, devices=32, runs_on=("cpu",))]
    workload, cores = JobWorkload.of(jobs), JobWorkload.of(jobs[1:])
    assert figures(play(workload, place, job_policy("fifo")), workload, place).utilization == pytest.approx(2 / 4)
    assert figures(play(cores, place, job_policy("fifo")), cores, place).utilization == pytest.approx(32 / 64)


def test_utilization_weighs_devices_by_their_speed():
    place = site([DevicePool("a", "quick", 1, 1, speed=4.0), DevicePool("a", "slow", 1, 4)])
    workload = JobWorkload.of([Job("j", 0, 10, devices=2, runs_on=("slow",)), Job("k", 0, 40, runs_on=("quick",))])
    assert figures(play(workload, place, job_policy("fifo")), workload, place).utilization == pytest.approx(6 / 8)


def test_durations_near_zero_are_no_trouble():
    workload = JobWorkload.of(
        [Job("tiny", 0, 1e-300), Job("next", 0, 1e-300), Job("wide", 0, 1e12, devices=2, user="b")]
    )
    found = figures(play(workload, TWO, job_policy("fifo")), workload, TWO)
    assert found.fairness == pytest.approx(1.0)
    assert fairness(np.array([1e300]), np.array([1e-300]), np.array([0])) == 1.0
