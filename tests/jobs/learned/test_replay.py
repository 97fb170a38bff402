"""The learned policy in replays: what it learns, and what it must not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.learned.weights import untrained
from hippo.jobs.policies.heuristics import SRTF, TWO_QUEUE
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

SITE = site([DevicePool("one", "gpu", 1, 4), DevicePool("two", "gpu", 1, 4)])


def two_users(jobs: int, seed: int) -> JobWorkload:
    """One user's jobs last minutes, the other's hours; sizes and times of arrival are alike."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 2, jobs)
    columns = {
        "arrival_s": np.sort(rng.uniform(0.0, jobs * 900.0, jobs)),
        "duration_s": np.where(user == 0, 600.0, 6000.0) * rng.uniform(0.8, 1.2, jobs),
        "devices": rng.choice([1, 2], jobs),
        "user": user,
    }
    return JobWorkload.of_columns(columns, users=("quick", "slow"))


def mean_s(workload: JobWorkload, policy, learner: LearnedSetup | None = None) -> float:
    ledger = play(workload, SITE, policy, learner=learner)
    return float(np.mean(ledger.finish_s - workload.arrival_s))


def test_it_learns_who_is_quick():
    workload = two_users(400, 0)
    assert mean_s(workload, LEARNED) < mean_s(workload, TWO_QUEUE)
    assert mean_s(workload, LEARNED) < 1.15 * mean_s(workload, SRTF)


def test_it_knows_more_with_a_past():
    past, workload = two_users(400, 1), two_users(60, 2)
    learner = LearnedSetup(untrained(), past)
    assert mean_s(workload, LEARNED, learner) < mean_s(workload, LEARNED, LearnedSetup(untrained()))


@pytest.mark.parametrize("job", [10, 50, 90])
def test_nothing_that_happens_earlier_depends_on_how_long_a_job_will_run(job: int):
    """A job lasts ten times as long: until it would have ended, all goes as it went."""
    workload = two_users(120, 3)
    longer_s = workload.duration_s.copy()
    longer_s[job] *= 10.0
    before, after = (play(each, SITE, LEARNED) for each in (workload, replace(workload, duration_s=longer_s)))
    early = before.finish_s < before.finish_s[job]
    assert early.sum() > 5
    np.testing.assert_array_equal(before.finish_s[early], after.finish_s[early])


def test_a_replay_repeats_itself():
    workload = two_users(150, 4)
    one, other = (play(workload, SITE, LEARNED) for _ in range(2))
    np.testing.assert_array_equal(one.finish_s, other.finish_s)
