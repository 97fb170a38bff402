"""Verdicts and measurements by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.online.guard import Margins, TwoQueueGuard, judge, time_in_system, watch
from hippo.jobs.online.learner import JobHistory, guessed_s, history_of
from hippo.jobs.online.log import KnownJob, Transition
from hippo.jobs.policies.heuristics import TWO_QUEUE
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, site
from hippo.jobs.workload import JobWorkload

from .worlds import Fixed

MARGINS = Margins(worse=0.1, better=0.02, judged_jobs=5, watched_jobs=5, history_jobs=10)


def history(takes_s: float, *, jobs: int = 10, now_s: float = 1e6, apart_s: float = 1000.0) -> JobHistory:
    """Jobs that took so long."""
    workload = JobWorkload.of_columns({"arrival_s": apart_s * np.arange(jobs), "duration_s": np.full(jobs, 1.0)})
    return JobHistory(workload, np.ones(jobs, bool), workload.arrival_s + takes_s, now_s)


@pytest.mark.parametrize(
    ("new_s", "present_s", "guard_s", "accepted", "why"),
    [
        (90.0, 100.0, 100.0, True, "better"),
        (99.0, 100.0, 100.0, False, "no better"),
        (100.0, 120.0, 100.0, True, "better"),  # worse than nobody
        (109.0, 120.0, 100.0, True, "better"),  # inside the margin
        (111.0, 120.0, 100.0, False, "worse than the guard"),
        (111.0, 100.0, 100.0, False, "worse than the guard"),
    ],
)
def test_a_new_policy_must_beat_who_serves_and_stay_near_the_guard(
    new_s: float, present_s: float, guard_s: float, accepted: bool, why: str
) -> None:
    found = judge(Fixed(new_s), Fixed(present_s), Fixed(guard_s), history(0.0), MARGINS)
    assert (found.new_s, found.present_s, found.guard_s) == (new_s, present_s, guard_s)
    assert found.accepted is accepted
    assert why in found.why


@pytest.mark.parametrize("takes_s", [float("nan"), float("inf")])
def test_a_policy_that_lets_jobs_never_end_is_not_accepted(takes_s: float) -> None:
    found = judge(Fixed(takes_s), Fixed(100.0), Fixed(100.0), history(0.0), MARGINS)
    assert not found.accepted


def test_all_that_is_in_the_system_counts_up_to_now() -> None:
    """Jobs came at 0, 10, .. 40 and take 30 s; at 50 s two are still there: 30, 30, 30, 20, 10 s.

    Since the last but one came at 30 s: the second is there until 40, the third until 50, the last two 20 and 10 s.
    """
    found = history(30.0, jobs=5, now_s=50.0, apart_s=10.0)
    assert time_in_system(found.workload, found.finish_s, until_s=50.0, jobs=5) == 24.0
    assert time_in_system(found.workload, found.finish_s, until_s=50.0, jobs=2) == (10 + 20 + 20 + 10) / 2
    assert time_in_system(found.workload, found.finish_s, jobs=1) == 10 + 20 + 30


def test_a_job_that_is_left_aside_is_paid_for_in_every_window() -> None:
    found = history(5.0, jobs=10, now_s=100.0, apart_s=10.0)
    starved = np.where(np.arange(10) == 0, np.inf, found.finish_s)
    assert time_in_system(found.workload, found.finish_s, until_s=100.0, jobs=5) == 5.0
    assert time_in_system(found.workload, starved, until_s=100.0, jobs=5) == 5.0 + 50.0 / 5


@pytest.mark.parametrize(("takes_s", "fallen"), [(109.0, False), (111.0, True)])
def test_the_watch_falls_back_beyond_the_margin(takes_s: float, fallen: bool) -> None:
    seen = watch(Fixed(100.0), history(takes_s), MARGINS)
    assert (seen.measured_s, seen.guard_s, seen.fallen) == (takes_s, 100.0, fallen)


def test_the_guard_replays_two_queues() -> None:
    rng = np.random.default_rng(0)
    columns = {"arrival_s": np.cumsum(rng.exponential(300, 80)), "duration_s": rng.lognormal(7, 1.5, 80)}
    workload, where = JobWorkload.of_columns(columns), site([DevicePool("a", "gpu", 1, 3)])
    found = TwoQueueGuard(where, ReplayRules()).finishes(workload)
    np.testing.assert_array_equal(found, play(workload, where, TWO_QUEUE).finish_s)
    refused = JobWorkload.of([Job("wide", 0.0, 1.0, devices=4), Job("one", 0.0, 1.0)])
    assert TwoQueueGuard(where, ReplayRules()).finishes(refused).tolist() == [np.inf, 1.0]


def test_the_guard_takes_the_first_that_is_allowed() -> None:
    guard = TwoQueueGuard(site([DevicePool("a", "gpu", 1, 1)]), ReplayRules())
    assert guard.probabilities(np.zeros(3, np.float32), np.array([False, True, True])).tolist() == [0, 1, 0]


def test_durations_that_are_not_known_are_guessed_and_never_taken_from_the_job() -> None:
    known = tuple(
        KnownJob(Job(name, at, 12345.0), finish, ran)
        for name, at, finish, ran in [
            ("a", 0.0, 40.0, 30.0),
            ("b", 1.0, 90.0, 50.0),
            ("waits", 2.0, None, None),
            ("runs", 3.0, None, None),
        ]
    )
    found = history_of(known, {"runs": 100.0}, now_s=200.0)
    assert found.workload.duration_s.tolist() == [30.0, 50.0, 50.0, 200.0]  # drawn from both; longer than anybody
    assert found.ended.tolist() == [True, True, False, False]
    assert found.finish_s.tolist() == [40.0, 90.0, np.inf, np.inf]
    assert found.older(1).workload.names == ("a", "b", "waits")


def test_an_update_is_given_no_decisions_about_the_jobs_on_which_it_is_judged() -> None:
    """Jobs came at 0, 1000, .. 9000; the last three are judged: decisions from 7000 on are cut."""
    seen, mask = np.zeros(1, np.float32), np.ones(1, np.bool_)
    decisions = tuple(Transition(500.0 * number, 1, seen, mask, 0, 1.0) for number in range(20))
    older = replace(history(5.0), transitions=decisions).older(3)
    assert older.workload.arrival_s.max() == 6000.0
    assert [each.time_s for each in older.transitions] == [500.0 * number for number in range(14)]
    assert len(replace(history(5.0), transitions=decisions).older(0).transitions) == 20


def test_a_job_that_left_is_in_the_system_no_longer_in_the_guards_replay_either() -> None:
    """It was cancelled 30 s after it came; its length stays a guess and it is no teacher."""
    known = (KnownJob(Job("a", 0.0, 1.0), 40.0, 40.0), KnownJob(Job("cancelled", 0.0, 1.0), 30.0, None))
    found = history_of(known, {}, now_s=1000.0)
    assert found.ended.tolist() == [True, False]
    assert found.workload.duration_s.tolist() == [40.0, 40.0]
    seen = watch(Fixed(900.0), found, replace(MARGINS, watched_jobs=2))
    assert (seen.measured_s, seen.guard_s) == ((40.0 + 30.0) / 2, (900.0 + 30.0) / 2)


def test_a_guess_follows_the_jobs_of_the_same_size_that_ran_longer() -> None:
    """Single devices ran 10 s ten times and 100 s ten times, gangs of eight 1000 s.

    Of single jobs .545 live on after 10 s, and .05 after 100 s; shares .618 and .236 of those that are left are drawn.
    """
    ran_s = np.array([10.0] * 10 + [100.0] * 10 + [1000.0] * 20 + [np.nan] * 4)
    devices = np.array([1] * 20 + [8] * 20 + [1, 1, 1, 8])
    had_s = np.array([0.0] * 40 + [0.0, 50.0, 500.0, 0.0])
    assert guessed_s(ran_s, had_s, devices)[40:].tolist() == [100.0, 100.0, 1000.0, 1000.0]


@pytest.mark.parametrize("seed", range(3))
def test_guesses_are_not_too_short_where_the_longest_jobs_have_not_ended(seed: int) -> None:
    """Without memory, half of what is left is above 693 s, whatever a job has had; those that ended ran 600 s."""
    rng = np.random.default_rng(seed)
    whole_s, had_s = rng.exponential(1000.0, 4000), rng.uniform(0.0, 3000.0, 4000)
    ran_s = np.where(whole_s < had_s, whole_s, np.nan)
    open_ = np.isnan(ran_s)
    left_s = (guessed_s(ran_s, had_s, np.ones(4000, np.int64)) - had_s)[open_]
    assert (left_s > 0).all()
    assert np.median(left_s) == pytest.approx(1000.0 * np.log(2.0), rel=0.1)


@pytest.mark.parametrize("wrong", [{"worse": -0.1}, {"better": float("nan")}, {"judged_jobs": 5000}])
def test_wrong_margins_are_told(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="margins: "):
        Margins(**wrong)  # type: ignore[arg-type]
