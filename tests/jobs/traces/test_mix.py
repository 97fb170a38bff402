"""Deadlines as they are drawn, and what counts as missed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.learned.deadline import linear
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.policies.heuristics import DEADLINE
from hippo.jobs.policies.learned import DEADLINE_REFRESH_S, LEARNED, LEARNED_DEADLINES, suited
from hippo.jobs.site import DevicePool, site
from hippo.jobs.traces.mix import SETTINGS, drawn, missed
from hippo.jobs.workload import JobWorkload


def long_trace(n: int = 2000) -> JobWorkload:
    rng = np.random.default_rng(0)
    columns = {"arrival_s": np.sort(rng.uniform(0, 1e6, n)), "duration_s": np.exp(rng.normal(7, 2, n))}
    return JobWorkload.of_columns(columns)


@pytest.mark.parametrize("setting", SETTINGS)
def test_whoever_runs_at_once_is_in_time(setting: str):
    found = drawn(long_trace(), setting, 3)
    assert (found.arrival_s + found.duration_s <= found.deadline_s).all()
    assert set(found.priority.tolist()) == {0, 1, 2}
    assert np.isnan(found.estimate_s).all()


def test_slacks_of_chronus_lie_between_their_bounds():
    found = drawn(long_trace(), "chronus", 3)
    window_s = found.deadline_s - found.arrival_s
    long = found.duration_s > 60.0
    ratio = window_s[long] / found.duration_s[long]
    assert ratio.min() >= 1.1 - 1e-6
    assert ratio.max() <= 2.0 + 1e-6
    assert window_s.min() >= 60.0 - 1e-6


def test_three_in_ten_are_without_a_guarantee():
    found = drawn(long_trace(), "best_effort", 3)
    assert np.isinf(found.deadline_s).mean() == pytest.approx(0.3, abs=0.03)
    assert (np.isinf(found.deadline_s) == (found.priority == 0)).all()


def test_estimates_are_off_by_as_much_as_asked_and_repeat_themselves():
    found = drawn(long_trace(), "gavel", 5, estimates=0.5)
    error = np.log(found.estimate_s / found.duration_s)
    assert error.std() == pytest.approx(0.5, rel=0.1)
    again = drawn(long_trace(), "gavel", 5, estimates=0.5)
    assert np.array_equal(found.deadline_s, again.deadline_s)
    assert np.array_equal(found.estimate_s, again.estimate_s)


def test_missed_counts_who_is_late_and_who_never_ran():
    jobs = [
        Job("in time", 0.0, 1.0, priority=0, deadline_s=10.0),
        Job("late", 0.0, 1.0, priority=3, deadline_s=10.0),
        Job("never", 0.0, 1.0, priority=0, deadline_s=10.0),
        Job("no deadline", 0.0, 1.0, priority=7),
    ]
    ledger = SimpleNamespace(finish_s=np.array([10.0, 10.1, np.nan, 99.0]))
    found = missed(ledger, JobWorkload.of(jobs))
    assert (found.jobs, found.late) == (3, 2)
    assert found.share == pytest.approx(2 / 3)
    assert found.weighted == pytest.approx((2 + 1) / (1 + 2 + 1))


def test_nothing_is_missed_where_nobody_has_a_deadline():
    workload = JobWorkload.of([Job("a", 0.0, 1.0)])
    found = missed(SimpleNamespace(finish_s=np.array([1.0])), workload)
    assert (found.jobs, found.late, found.share, found.weighted) == (0, 0, 0.0, 0.0)
    assert missed(SimpleNamespace(finish_s=np.zeros(0)), JobWorkload.of([])) == found


def test_learned_goes_by_deadlines_only_where_there_are_some():
    without = JobWorkload.of([Job("a", 0.0, 1.0)])
    some = JobWorkload.of([Job("a", 0.0, 1.0), Job("b", 0.0, 1.0, deadline_s=5.0)])
    assert suited(LEARNED, some) is LEARNED_DEADLINES
    assert suited(LEARNED, without) is LEARNED
    assert suited(DEADLINE, some) is DEADLINE


def test_what_is_too_late_makes_room():
    """One device. The first job cannot be in time; whoever keeps to the earliest deadline misses both."""
    jobs = [Job("lost", 0.0, 10_000.0, deadline_s=3000.0), Job("other", 1000.0, 2000.0, deadline_s=9000.0)]
    workload, one = JobWorkload.of(jobs), site([DevicePool("here", "gpu", 1, 1)])
    stubborn = missed(play(workload, one, DEADLINE), workload)
    found = play(workload, one, LEARNED_DEADLINES, learner=LearnedSetup(deadlines=linear(slack=10.0)))
    assert stubborn.late == 2
    assert missed(found, workload).late == 1
    assert 3000.0 <= found.first_start_s[1] <= 3000.0 + DEADLINE_REFRESH_S
    assert found.finish_s[1] == found.first_start_s[1] + 2000.0
