"""The key for deadlines: beliefs, the index cut at the deadline, and its coefficients, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.job import Job
from hippo.jobs.learned import deadline
from hippo.jobs.learned.deadline import (
    DueMemory,
    DueWeights,
    due,
    linear,
    packed,
    ranks,
    shipped,
    unpacked,
)
from hippo.jobs.learned.past import BINS, EDGES_S
from hippo.jobs.workload import JobWorkload

FLAT = np.full(BINS, 0.15)


def two_jobs(weights: DueWeights | None = None, **more: bool) -> DueMemory:
    jobs = (
        Job("urgent", 0.0, 1000.0, deadline_s=3000.0, priority=5, estimate_s=900.0),
        Job("whenever", 0.0, 100.0, devices=4),
    )
    return due(JobWorkload.of(jobs), weights or linear(slack=10.0), devices=8.0, **more)


def certain(duration_s: float) -> np.ndarray:
    """A belief that is sure of the bin."""
    belief = np.zeros(BINS, np.float32)
    belief[deadline.bin_at(duration_s)] = 1.0
    return belief


def test_bins_are_those_of_the_past():
    times = np.concatenate([[0.0, 9.999], EDGES_S, EDGES_S * 1.01, [1e9]])
    found = [deadline.bin_at(time) for time in times]
    assert found == np.searchsorted(EDGES_S, times, side="right").tolist()


def test_a_sure_belief_ends_in_the_middle_of_its_bin():
    low, high = EDGES_S[9], EDGES_S[10]
    found = np.zeros(2)
    deadline.weigh(certain(low), 0.0, np.inf, found)
    assert found[1] == pytest.approx((low + high) / 2)
    assert found[0] == pytest.approx(1.0 / found[1])


def test_the_index_is_cut_at_the_deadline():
    low, high = EDGES_S[9], EDGES_S[10]
    found = np.zeros(2)
    deadline.weigh(certain(low), 0.0, low + 0.25 * (high - low), found)
    assert found[0] * found[1] == pytest.approx(0.25)  # a quarter of the bin lies before the deadline
    deadline.weigh(certain(low), 0.0, 0.5 * low, found)
    assert found[0] == 0.0


def test_a_job_older_than_its_belief_is_thought_to_run_as_long_again():
    found = np.zeros(2)
    deadline.weigh(certain(100.0), 5000.0, np.inf, found)
    assert found[1] == 5000.0
    assert found[0] == pytest.approx(1 / 5000.0)


def test_rules_rank_by_slack_and_put_what_is_over_last():
    known = two_jobs()
    deadline.arrived(known, 0, 1)
    for job in (0, 1):
        deadline.believe(known, job, FLAT, 0)
    live = deadline.key(known, 0, 1, 2000.0, 100.0, 900.0)
    none = deadline.key(known, 1, 4, np.inf, 0.0, 100.0)
    over = deadline.key(known, 0, 1, -1.0, 100.0, 900.0)
    assert live == pytest.approx(np.log(2000.0), rel=1e-6)
    assert live < deadline.BEHIND < min(none, over)
    assert known.live[0] == 0.0


def test_finished_jobs_teach_what_windows_and_estimates_are_worth():
    """Every job of this class ends after half of its window; the belief of the next one moves there."""
    jobs = [Job(str(i), 0.0, 1000.0, deadline_s=2000.0, estimate_s=4000.0) for i in range(40)]
    known = due(JobWorkload.of(jobs), linear(slack=10.0), devices=8.0)
    deadline.believe(known, 39, FLAT, 0)
    own = deadline.bin_at(1000.0)
    before = known.belief[39, own - 1 : own + 2].sum()
    for job in range(30):
        deadline.arrived(known, job, 1)
        deadline.finished(known, job, 1, 1000.0)
    deadline.believe(known, 39, FLAT, 0)
    after = known.belief[39, own - 1 : own + 2].sum()
    assert known.belief[39].sum() == pytest.approx(1.0, rel=1e-5)
    assert after > 0.95 > before


def test_clairvoyants_know_what_cannot_be_in_time():
    known = two_jobs(linear(index=10.0), clairvoyant=True)
    in_time = deadline.key(known, 0, 1, 2000.0, 0.0, 1500.0)
    too_late = deadline.key(known, 0, 1, 1000.0, 0.0, 1500.0)
    assert in_time == pytest.approx(np.log(1500.0), rel=1e-5)
    assert too_late > deadline.BEHIND


def test_ranks_of_priorities():
    assert ranks(np.array([7, -2, 7, 0, 100, 101])).tolist() == [2, 0, 2, 1, 3, 3]
    assert ranks(np.zeros(0, np.int64)).tolist() == []


def test_weights_survive_a_file_and_damage_is_told():
    found = unpacked(packed(shipped()), "again")
    assert all(np.array_equal(one, other) for one, other in zip(found, shipped(), strict=True))
    with pytest.raises(InputError, match="broken"):
        unpacked(packed(shipped())[:100], "cut")
    with pytest.raises(InputError, match="no index"):
        unpacked(packed(shipped()._replace(line=np.zeros(3))), "short")
    with pytest.raises(InputError, match="no index"):
        unpacked(packed(shipped()._replace(windows=np.full((BINS, BINS), np.nan, np.float32))), "nan")
