"""Replays solved by hand: one pool of two devices, or what the test says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.engine.running import time_to_failure
from hippo.jobs.job import Job
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.slowdown import Kind, Slowdown
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.workload import JobWorkload
from hippo.registry import job_policy

TWO = site([DevicePool("here", "gpu", 1, 2)])
THREE_JOBS = (Job("long", 0, 10), Job("wide", 0, 4, devices=2), Job("short", 1, 2))
FREE_RESTARTS = ReplayRules(restart_s=0)


def finish(
    name: str, jobs: tuple[Job, ...] = THREE_JOBS, place: JobSite = TWO, settings: ReplayRules = FREE_RESTARTS, **own
):
    return replay(name, jobs, place, settings, **own).finish_s.tolist()


def replay(name: str, jobs: tuple[Job, ...], place: JobSite, settings: ReplayRules, **own) -> Ledger:
    policy = replace(job_policy(name), **own)
    return play(JobWorkload.of(jobs), place, policy, settings)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fifo", [10, 14, 16]),  # wide waits for long, short waits for wide
        ("backfill", [10, 14, 3]),  # no estimates: short may pass wide
        ("sjf", [14, 4, 6]),  # wide, then long and short side by side
        ("srtf", [14, 6, 3]),  # short stops wide (3 s left), wide stops long (8 s left)
    ],
)
def test_three_jobs_on_two_devices(name: str, expected: list[float]):
    assert finish(name) == expected


def test_a_restart_takes_its_time():
    """Wide has 3 s left at 3 s and is ready at 33 s; long has 8 s left, goes on at 36 s and is ready at 66 s."""
    assert finish("srtf", settings=ReplayRules(restart_s=30)) == [74, 36, 3]


def test_who_has_had_little_service_goes_first():
    """One queue up to 4 device-seconds: long is there at 4 s and makes room for wide, which is there at 6 s, when long,
    that came first, goes on; wide's last 2 s follow."""
    assert finish("two_queue", levels=(4.0,), promotes_after=1e9) == [12, 14, 3]


def test_who_starves_is_promoted():
    """Past 4 s of service each gives way to the other; promoted once it has waited 4 s, it comes back."""
    jobs = (Job("old", 0, 20), Job("young", 0, 20))
    one = site([DevicePool("here", "gpu", 1, 1)])
    never, soon = ({"levels": (4.0,), "promotes_after": knob} for knob in (1e9, 1.0))
    assert finish("two_queue", jobs, one, **never) == [24, 40]
    assert finish("two_queue", jobs, one, **soon) == [36, 40]


def test_backfill_keeps_the_promise_to_the_head():
    """By its estimate short would end at 21 s, after wide could start at 10 s."""
    jobs = (replace(THREE_JOBS[0], estimate_s=10), THREE_JOBS[1], replace(THREE_JOBS[2], estimate_s=20))
    assert finish("backfill", jobs) == [10, 14, 16]
    assert finish("backfill", (*jobs[:2], replace(jobs[2], estimate_s=9))) == [10, 14, 3]


def test_without_estimates_a_head_is_passed_for_so_long_only():
    assert finish("backfill", (*THREE_JOBS[:2], replace(THREE_JOBS[2], arrival_s=5)), patience_s=5.0) == [10, 14, 16]


def test_the_user_who_has_had_least_goes_next():
    """b comes back at 1 s with the 1 s that a has had, so is next at 10 s, and behind a's 10 s at 20 s."""
    jobs = tuple(Job(f"a{i}", 0, 10, user="a") for i in range(3)) + (Job("b", 1, 10, user="b"),)
    one = site([DevicePool("here", "gpu", 1, 1)])
    assert finish("fair", jobs, one) == [10, 30, 40, 20]


def test_rounds_share_a_device_by_turns():
    jobs, one = (Job("a", 0, 20), Job("b", 0, 20)), site([DevicePool("here", "gpu", 1, 1)])
    assert finish("max_min", jobs, one, ReplayRules(restart_s=0, round_s=5)) == [35, 40]


def test_shares_are_filled_like_water():
    """The job that may run on the CPU alone has it for half of the time: the other one, too, has half of its own."""
    pools = [DevicePool("here", "gpu", 1, 1), DevicePool("here", "cpu", 1, 1)]
    jobs = (Job("g", 0, 40, runs_on=("gpu",)), Job("c0", 0, 20, runs_on=("cpu",)), Job("c1", 0, 20, runs_on=("cpu",)))
    assert finish("max_min", jobs, site(pools), ReplayRules(restart_s=0, round_s=5)) == [40, 35, 40]


def test_priority_goes_before_deadline():
    jobs = (Job("a", 0, 10, deadline_s=50), Job("b", 1, 10, deadline_s=20), Job("c", 2, 10, priority=1))
    one = site([DevicePool("here", "gpu", 1, 1)])
    assert finish("deadline", jobs, one) == [30, 21, 12]


def test_least_slack_looks_at_the_work_left():
    """b's deadline is later, but so long that it must begin at once; deadlines alone would let a end first."""
    jobs = (Job("a", 0, 5, deadline_s=20), Job("b", 1, 30, deadline_s=32))
    one = site([DevicePool("here", "gpu", 1, 1)])
    assert finish("least_slack", jobs, one) == [35, 31]
    assert finish("deadline", jobs, one) == [5, 35]


def test_the_faster_device_is_taken_first():
    pools = [DevicePool("here", "cpu", 1, 1, speed=0.5), DevicePool("here", "gpu", 1, 1, speed=2.0)]
    jobs = (Job("a", 0, 10), Job("b", 0, 10), Job("c", 0, 1, runs_on=("cpu",)))
    assert finish("fifo", jobs, site(pools)) == [5, 20, 22]


@pytest.mark.parametrize(("data", "expected"), [("before", 28.0), ("while", 18.0)])
def test_data_move_before_or_while_a_job_runs(data: str, expected: float):
    """32 GB over 2 GB/s take 16 s and arrive 2 s later; they lie where there are no devices of the right kind."""
    pools = [DevicePool("far", "cpu", 1, 1), DevicePool("near", "gpu", 1, 1)]
    place = site(pools, bandwidth_bytes_per_s=2e9, latency_s=2.0)
    jobs = (Job("a", 0, 10, runs_on=("gpu",), data_gb=32, data_at="far"),)
    ledger = replay("fifo", jobs, place, ReplayRules(data=data))
    assert ledger.finish_s.tolist() == [expected]
    assert (ledger.moved_gb.tolist(), ledger.link_gb[0, 1]) == ([32.0], 32.0)


def test_transfers_share_a_link():
    place = site([DevicePool("far", "cpu", 1, 1), DevicePool("near", "gpu", 1, 2)], bandwidth_bytes_per_s=2e9)
    jobs = tuple(Job(name, 0, 1, runs_on=("gpu",), data_gb=32, data_at="far") for name in "ab")
    assert finish("fifo", jobs, place) == [32, 32]


def test_what_has_arrived_stays():
    """a is stopped at 4 s with its data still on the way, which get there all the same at 16 s."""
    place = site([DevicePool("far", "cpu", 1, 1), DevicePool("near", "gpu", 1, 1)], bandwidth_bytes_per_s=2e9)
    jobs = (
        Job("a", 0, 10, runs_on=("gpu",), data_gb=32, data_at="far"),
        Job("b", 4, 2, runs_on=("gpu",)),
    )
    ledger = replay("srtf", jobs, place, FREE_RESTARTS)
    assert ledger.finish_s.tolist() == [16, 6]
    assert ledger.moved_gb.tolist() == [32.0, 0.0]


def test_a_job_goes_where_its_data_lie():
    place = site([DevicePool("a", "gpu", 1, 1), DevicePool("b", "gpu", 1, 2)], bandwidth_bytes_per_s=1e9)
    assert finish("fifo", (Job("j", 0, 5, data_gb=100, data_at="b"),), place) == [5]


def spanning(factor: float) -> Slowdown:
    table = np.array([[np.inf, 1.0, 1.0, np.inf], [np.inf, 1.0, 1.0, factor]])
    return Slowdown((Kind(4),), table, np.array([[0.0] * 4, [0.0, 0.0, 0.0, 0.5]]))


def test_a_job_over_two_domains_is_slower_and_its_parts_cost():
    place = site([DevicePool("a", "gpu", 1, 2), DevicePool("b", "gpu", 1, 2)])
    workload = JobWorkload.of([Job("big", 0, 10, devices=4), Job("small", 0, 5)])
    ledger = play(workload, place, job_policy("srtf"), ReplayRules(restart_s=0), slowdown=spanning(1.5))
    assert ledger.finish_s.tolist() == [20, 5]  # first small, then 15 s on both
    assert ledger.exchange_usd.tolist() == [7.5, 0.0]
    assert ledger.slowdown.tolist() == [1.5, 1.0]


@pytest.mark.parametrize(("span", "expected"), [("never", 20.0), ("must", 20.0), ("free", 15.0)])
def test_only_who_may_span_freely_starts_at_once(span: str, expected: float):
    """Half of both domains is taken for 10 s; over both, the last job takes 1.5 times its 10 s."""
    place = site([DevicePool("a", "gpu", 1, 4), DevicePool("b", "gpu", 1, 4)])
    halves = [Job(f"half of {name}", 0, 10, devices=2, data_gb=1, data_at=name) for name in "ab"]
    workload = JobWorkload.of([*halves, Job("whole", 0, 10, devices=4)])
    ledger = play(workload, place, job_policy("fifo"), ReplayRules(span=span), slowdown=spanning(1.5))
    assert ledger.finish_s.tolist() == [10, 10, expected]


def test_work_since_the_checkpoint_is_lost_when_a_node_fails():
    failures = Failures(mtbf_s=1000.0, repair_s=100.0, checkpoint_every_s=50.0)
    first_s = time_to_failure(3, 0, 0, 1000.0)
    again_s = time_to_failure(3, 0, 1, 1000.0)
    duration_s = math.floor(first_s) + 20.0
    kept_s = math.floor(first_s / 50) * 50
    expected = first_s + 100 + 30 + duration_s - kept_s
    assert again_s > 30 + duration_s - kept_s, "choose a seed without a second failure"
    one = site([DevicePool("here", "gpu", 1, 1)])
    ledger = play(
        JobWorkload.of([Job("a", 0, duration_s)]), one, job_policy("fifo"), ReplayRules(failures=failures, seed=3)
    )
    assert ledger.finish_s[0] == pytest.approx(expected)
    assert (ledger.failures[0], ledger.preemptions[0]) == (1, 0)


def test_only_jobs_of_the_broken_node_stop():
    failures = Failures(mtbf_s=5000.0, repair_s=10.0, checkpoint_every_s=1e6)
    due = [time_to_failure(1, node, 0, 5000.0) for node in range(2)]
    first, duration_s = int(np.argmin(due)), (min(due) + max(due)) / 2
    place = site([DevicePool("here", "gpu", 2, 1)])
    ledger = play(
        JobWorkload.of([Job("a", 0, duration_s), Job("b", 0, duration_s)]),
        place,
        job_policy("fifo"),
        ReplayRules(failures=failures, seed=1),
    )
    assert ledger.finish_s[1 - first] == pytest.approx(duration_s)
    assert ledger.failures[first] >= 1


def test_segments_say_who_held_what_when():
    workload = JobWorkload.of(THREE_JOBS)
    ledger = play(workload, TWO, job_policy("srtf"), FREE_RESTARTS, segments=True)
    assert ledger.segments is not None
    held = ledger.segments[0][:, 2] * np.diff(ledger.segments[1], axis=1)[:, 0]
    assert held.sum() == ledger.busy_device_s.sum() == (ledger.run_s * workload.devices).sum()
    assert sorted(zip(ledger.segments[0][:, 0].tolist(), ledger.segments[1].tolist(), strict=True))[0] == (
        0,
        [1.0, 3.0],
    )


def test_the_series_adds_up():
    ledger = replay("srtf", THREE_JOBS, TWO, FREE_RESTARTS)
    lasts = np.diff(ledger.time_s, prepend=0.0)
    assert (ledger.busy_devices[:, 0] * lasts).sum() == pytest.approx(ledger.busy_device_s[0])
    waited = (ledger.finish_s - [0, 0, 1] - ledger.run_s).sum()
    assert (ledger.waiting_jobs * lasts).sum() == pytest.approx(waited)


def test_a_clock_that_starts_late_changes_nothing():
    late = tuple(replace(job, arrival_s=job.arrival_s + 1e6) for job in THREE_JOBS)
    assert finish("srtf", late) == [1e6 + 14, 1e6 + 6, 1e6 + 3]


def test_no_jobs_are_no_trouble():
    ledger = replay("fifo", (), TWO, FREE_RESTARTS)
    assert (len(ledger.finish_s), ledger.events, ledger.refused) == (0, 0, ())


def test_who_watches_is_told():
    seen: list[tuple[int, int]] = []
    jobs = JobWorkload.of_columns({"arrival_s": np.arange(25_000.0), "duration_s": np.ones(25_000)})
    play(jobs, TWO, job_policy("fifo"), watch=lambda done, of: seen.append((done, of)))
    assert seen
    assert all(of == 25_000 and 0 < done <= of for done, of in seen)


def test_rounds_must_leave_time_to_work():
    with pytest.raises(InputError, match="would never get on"):
        finish("max_min", settings=ReplayRules(restart_s=60, round_s=60))


def test_data_move_to_the_right_one_of_many_domains():
    """Seventy domains of one device: all but the job at home move their data, each where it runs."""
    place = site([DevicePool(f"d{number}", "gpu", 1, 1) for number in range(70)], 1e9)
    jobs = tuple(Job(str(number), 0, 10, data_gb=10, data_at="d0") for number in range(70))
    ledger = replay("fifo", jobs, place, ReplayRules(data="before"))
    assert ledger.link_gb[0].tolist() == [0.0] + [10.0] * 69


def test_a_head_that_spans_is_given_a_time_too():
    """Wide needs half of both domains; who would hold a device beyond 10 s does not pass it, who ends by then does."""
    place = site([DevicePool("a", "gpu", 1, 2), DevicePool("b", "gpu", 1, 2)])
    jobs = [Job("first", 0, 10, estimate_s=10), Job("wide", 1, 5, devices=4, estimate_s=5)]
    jobs += [Job("long", 2, 50, estimate_s=50), Job("short", 3, 4, devices=2, estimate_s=4)]
    kinds = (Kind(4),)
    factor = np.array([[np.inf, 1, 1, np.inf], [np.inf, 1, 1, 1.0]])
    table = Slowdown(kinds, factor, np.zeros_like(factor))
    ledger = play(JobWorkload.of(jobs), place, job_policy("backfill"), slowdown=table)
    assert ledger.finish_s.tolist() == [10, 15, 65, 7]


def test_rounds_share_the_quick_device_by_turns():
    """Speeds 4 and 1: by turns each gets 2.5 a second, so 1,000 s end at some 400 s, not at 250 and 1,000."""
    place = site([DevicePool("a", "quick", 1, 1, speed=4.0), DevicePool("a", "slow", 1, 1)])
    jobs = (Job("x", 0, 1000), Job("y", 0, 1000))
    found = finish("max_min", jobs, place, ReplayRules(restart_s=0, round_s=10))
    assert found == pytest.approx([400, 400], abs=10)


def test_nobody_moves_for_less_than_a_restart_costs():
    """A round of 10 s there, 2 s of restart: 8 s at speed 1.25 are the 10 s that it does where it is."""
    place = site([DevicePool("a", "quick", 1, 1, speed=1.25), DevicePool("a", "slow", 1, 1)])
    ledger = replay("max_min", (Job("x", 0, 100), Job("y", 0, 100)), place, ReplayRules(restart_s=2, round_s=10))
    assert ledger.preemptions.tolist() == [0, 0]
    assert ledger.finish_s.tolist() == [80, 100]


def test_devices_that_nobody_may_use_change_nothing():
    rng = np.random.default_rng(3)
    kinds = [("slow",), ("slow", "quick"), ("quick",)]
    jobs = [
        Job(str(number), float(rng.integers(0, 2000)), float(rng.integers(10, 900)), runs_on=kinds[rng.integers(0, 3)])
        for number in range(80)
    ]
    pools = [DevicePool("a", "slow", 1, 5), DevicePool("a", "quick", 1, 2, speed=2.0)]
    plain, more = site(pools), site([*pools, DevicePool("a", "other", 1, 3, speed=16.0)])
    expected = finish("max_min", tuple(jobs), plain, ReplayRules(restart_s=4, round_s=60))
    assert finish("max_min", tuple(jobs), more, ReplayRules(restart_s=4, round_s=60)) == expected
