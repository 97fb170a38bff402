"""What is written down of worlds that can be worked out by hand: those of ``test_play``."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.job import Job
from hippo.jobs.joint.figures import interruptions_s, world_figures
from hippo.jobs.joint.moment import JobPlace
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.record import EVICTED, LEFT, PAUSED, SCATTERED, TOO_FEW, Recorder, WorldRecord
from hippo.jobs.ledger import Ledger
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import LinkHistory
from hippo.jobs.workload import JobWorkload

from .test_play import BOTH, HERE, STATE_GB, THERE, TWO, Act, Scripted, offers, train


def recorded(
    jobs: list[Job],
    where: list[JobPlace],
    *then: tuple[float, Act],
    tenants: Tenants | None = None,
) -> tuple[WorldRecord, Ledger, JobWorkload]:
    """The scheduler is asked at the times of ``then``, too: links of 1 GB/s that stay as they are."""
    times, workload, recorder = [0.0, *(time_s for time_s, _ in then)], JobWorkload.of(jobs), Recorder()
    still = np.array(TWO.bandwidth_bytes_per_s)
    site = replace(TWO, history=LinkHistory(np.array(times), np.stack([still] * len(times))))
    scheduler = Scripted(dict(enumerate(where)), then)
    ledger = play_jointly(workload, site, scheduler, ReplayRules(), offers=offers(), tenants=tenants, recorder=recorder)
    return recorder.record(), ledger, workload


def test_a_job_over_two_domains_and_what_it_exchanges():
    record, *_ = recorded([train("a", 100)], [BOTH])
    (run,) = record.runs
    assert (run.begin_s, run.computes_s, run.end_s, run.ended) == (0, 0, 100, "done")
    assert (run.gpus, run.nodes) == (((0, 2), (1, 2)), ((0, 2), (1, 2)))
    assert record.rates == ((0.0, 0, pytest.approx(1.0)), (100.0, 0, 0.0))
    there = [(each.time_s, each.capacity, each.exchange) for each in record.links if each.source == 0]
    assert there == [(0.0, 1e9, pytest.approx(1e9)), (100.0, 1e9, 0.0)]


def test_a_move_takes_its_state_and_time():
    """Stopped at 30 s, its 45 GB are there at 75 s."""
    record, ledger, workload = recorded([train("a", 100)], [HERE], (30.0, lambda moment: moment.resize(0, THERE)))
    before, after = record.runs
    assert (before.end_s, before.ended, before.for_job) == (30, PAUSED, 0)
    assert (after.begin_s, after.computes_s, after.end_s) == (30, 75, 145)
    assert (after.state_from, after.state_gb, after.state_usd) == (0, STATE_GB, pytest.approx(0.9))
    state = [(each.time_s, each.state) for each in record.links if (each.source, each.destination) == (0, 1)]
    assert state == [(0.0, 0.0), (30.0, 1e9), (75.0, 0.0)]
    assert interruptions_s(record, 1).tolist() == [45]
    found = world_figures(record, ledger, workload, TWO, offers())
    assert (found.interruption_s, found.moves, found.exchanged_gb) == (45, 1, 0)


def test_of_a_move_that_is_given_up_only_what_was_sent_counts():
    """20 GB of it, at 2 cents."""
    move, back = (30.0, lambda moment: moment.resize(0, THERE)), (50.0, lambda moment: moment.resize(0, HERE))
    record, *_ = recorded([train("a", 100)], [HERE], move, back)
    away = record.runs[1]
    assert math.isnan(away.computes_s)
    assert (away.state_gb, away.state_usd) == pytest.approx((20, 0.4))
    assert interruptions_s(record, 1).tolist() == [50]  # up to 80 s, when it has started anew


def test_who_is_paused_for_whom():
    pause = (20.0, lambda moment: (moment.pause(0), moment.begin(1, HERE)))
    record, *_ = recorded([train("a", 100), train("b", 10, arrival_s=20.0)], [HERE, HERE], pause)
    assert [(run.job, run.ended, run.for_job) for run in record.runs if run.ended == PAUSED] == [(0, PAUSED, 1)]
    (wait,) = record.waits
    assert (wait.job, wait.begin_s, wait.end_s, wait.why) == (0, 20, 30, LEFT)  # d1 has room


def test_why_a_gang_waits_and_how_much_it_could_use():
    """Two devices are free in each domain while a computes, which the gang of three cannot use and a job like a could;
    until 10 s, when the gang comes, a has done 10 s on four of eight devices. It counts twice."""
    jobs = [replace(train("a", 50), priority=1), Job("g", 10, 10, devices=3)]
    record, ledger, workload = recorded(jobs, [BOTH])
    assert [(each.job, each.begin_s, each.end_s, each.why) for each in record.waits] == [(1, 10, 50, SCATTERED)]
    found = world_figures(record, ledger, workload, TWO, offers())
    assert found.fragmentation == pytest.approx(0.5)
    assert found.unwanted == pytest.approx(1.0)
    assert found.goodput == pytest.approx(2 * 0.5)


def test_with_nothing_free_too_few_are_free():
    record, ledger, workload = recorded([train("a", 50), train("b", 50), Job("g", 0, 10)], [HERE, THERE])
    assert [(each.job, each.begin_s, each.end_s, each.why) for each in record.waits] == [(2, 0, 50, TOO_FEW)]
    found = world_figures(record, ledger, workload, TWO, offers())
    assert math.isnan(found.fragmentation)
    assert math.isnan(found.unwanted)
    assert found.goodput == pytest.approx((8 * 50 + 10) / (60 * 8))  # all came at once: until the last one ends


def test_a_tenant_puts_a_job_out():
    taken = Tenants(np.array([10.0, 40.0]), np.array([0, 0]), np.array([1, -1]))
    record, *_ = recorded([train("a", 100)], [HERE], tenants=taken)
    assert [(run.begin_s, run.end_s, run.ended) for run in record.runs][0] == (0, 10, EVICTED)
    (away,) = record.absences
    assert (away.node, away.devices, away.begin_s, away.end_s, away.broken) == (0, 1, 10, 40, False)


def test_runs_and_waits_fill_the_time_of_every_job_and_change_nothing():
    jobs = [train(f"j{n}", 20 + 7 * n, arrival_s=5.0 * n) for n in range(8)]
    where = [HERE, THERE, BOTH, HERE, BOTH, THERE, HERE, BOTH]
    record, ledger, workload = recorded(jobs, where)
    again = play_jointly(workload, TWO, Scripted(dict(enumerate(where))), ReplayRules(), offers=offers())
    assert ledger.finish_s.tolist() == again.finish_s.tolist()
    spent_s = np.zeros(len(jobs))
    for each in (*record.runs, *record.waits):
        spent_s[each.job] += each.end_s - each.begin_s
    assert spent_s == pytest.approx(ledger.finish_s - workload.arrival_s)
