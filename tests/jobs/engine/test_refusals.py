"""Jobs that can never run are refused with the reason, and the rest goes on."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.placement.slowdown import Kind, Slowdown
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.workload import JobWorkload
from hippo.registry import job_policy

SITE = site([DevicePool("a", "gpu", 2, 4, memory_gb=80), DevicePool("b", "gpu", 1, 4, memory_gb=80)])
UNLINKED = JobSite(SITE.pools, ((np.inf, 0.0), (0.0, np.inf)), ((0.0, 0.0), (0.0, 0.0)))


@pytest.mark.parametrize(
    ("job", "place", "settings", "reason"),
    [
        (Job("j", 0, 1, devices=9), SITE, ReplayRules(span="never"), "the largest domain has 8, and jobs may not span"),
        (Job("j", 0, 1, devices=13), SITE, ReplayRules(), "and all together 12"),
        (Job("j", 0, 1, devices=10), SITE, ReplayRules(), "over several domains nobody can plan it on these devices"),
        (Job("j", 0, 1, runs_on=("tpu",)), SITE, ReplayRules(), "runs on tpu only; the site has gpu"),
        (Job("j", 0, 1, memory_gb=81), SITE, ReplayRules(), "needs 81 GB per device; the largest has 80 GB"),
        (Job("j", 0, 1, data_gb=1, data_at="c"), SITE, ReplayRules(), "data lie in 'c', which the site has not"),
        (Job("j", 0, 1, devices=8, data_gb=1, data_at="b"), UNLINKED, ReplayRules(), "the largest domain has 4"),
        (
            *(Job("j", 0, 1e5, devices=8), SITE),
            *(ReplayRules(failures=Failures(mtbf_s=100.0)), "would hardly ever end"),
        ),
        (
            *(Job("j", 0, 1e4, devices=40), site([DevicePool("a", "gpu", 10, 4)])),
            *(
                ReplayRules(failures=Failures(mtbf_s=1e5, repair_s=1e6)),
                "needs 10 nodes at once, and so many are up 4e-11",
            ),
        ),
    ],
)
def test_the_reason_is_given(job: Job, place: JobSite, settings: ReplayRules, reason: str):
    ledger = play(JobWorkload.of([job, Job("ok", 0, 5, memory_gb=1)]), place, job_policy("fifo"), settings)
    assert [index for index, _ in ledger.refused] == [0]
    assert reason in ledger.refused[0][1]
    assert np.isnan(ledger.finish_s[0])
    assert ledger.finish_s[1] == 5


def test_parts_that_no_domain_has_room_for():
    """10 devices would be 5 in each domain, and one has 4."""
    table = Slowdown((Kind(10),), np.array([[np.inf, 1, 1, np.inf], [np.inf, 1, 1, 1.5]]), np.zeros((2, 4)))
    ledger = play(JobWorkload.of([Job("j", 0, 1, devices=10)]), SITE, job_policy("fifo"), slowdown=table)
    assert ledger.refused[0][1].endswith("and no set of domains can run it in equal parts")


def test_nodes_do_not_fail_where_nobody_runs():
    """They would 10^13 times before the last job comes."""
    jobs = [Job("j", 0, 1e4), Job("late", 1e9, 1e4)]
    ledger = play(JobWorkload.of(jobs), SITE, job_policy("fifo"), ReplayRules(failures=Failures(1e-4, repair_s=1e-4)))
    assert (len(ledger.refused), ledger.events) == (2, 0)


def test_data_without_a_link_keep_a_job_at_home():
    jobs = [Job("j", 0, 5, data_gb=1, data_at="b"), Job("k", 0, 5, devices=4, data_gb=1, data_at="b")]
    ledger = play(JobWorkload.of(jobs), UNLINKED, job_policy("fifo"))
    assert ledger.pool.tolist() == [1, 1]
    assert ledger.finish_s.tolist() == [5, 10]


def test_all_refused_is_an_account_without_times():
    ledger = play(JobWorkload.of([Job("j", 0, 1, devices=99)]), SITE, job_policy("srtf"))
    assert len(ledger.refused) == 1
    assert not ledger.ran.any()
