"""Serving jobs whose clients must be near, and latencies that move, solved by hand: two domains of four GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.ledger import Ledger
from hippo.jobs.policies.heuristics import BACKFILL, FIFO, SRTF
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import DevicePool, LinkHistory, site
from hippo.jobs.workload import JobWorkload

TWO = site([DevicePool("d0", "gpu", 1, 4), DevicePool("d1", "gpu", 1, 4)], 1e9, 0.02)


def serve(name: str, last_s: float, *, arrival_s: float = 0.0, devices: int = 4, bound_s: float = 0.03) -> Job:
    return Job(name, arrival_s, last_s, devices, kind="deploy", clients_at="d1", latency_bound_s=bound_s)


def train(name: str, last_s: float, *, arrival_s: float = 0.0, devices: int = 4) -> Job:
    return Job(name, arrival_s, last_s, devices)


def played(
    jobs: list[Job], latency_ms: dict[float, float], policy: QueuePolicy = FIFO, rules: ReplayRules | None = None
) -> Ledger:
    """``latency_ms``: between the two from when on; inf: cut off."""
    moves = np.array(list(latency_ms.values()))[:, None, None]
    late = np.where(np.eye(2), 0.0, np.where(np.isinf(moves), 20.0, moves) * 1e-3)
    carries = np.where(np.eye(2), np.inf, np.where(np.isinf(moves), 0.0, 1e9))
    history = LinkHistory(np.array(list(latency_ms)), carries, latency_s=late)
    return play(JobWorkload.of(jobs), replace(TWO, history=history), policy, rules)


def test_who_serves_begins_where_its_clients_are_near():
    """In d0, the first, only once the link is quick enough."""
    far, near = played([serve("a", 10)], {0: 50.0}), played([serve("a", 10)], {0: 20.0})
    assert (far.pool.tolist(), near.pool.tolist()) == ([1], [0])


@pytest.mark.parametrize(("policy", "ends_s"), [(FIFO, (20, 40, 25)), (BACKFILL, (20, 40, 25)), (SRTF, (25, 40, 7))])
def test_it_waits_for_the_link_and_holds_nobody_up(policy: QueuePolicy, ends_s: tuple[float, ...]):
    """Its clients' own domain is too small; the other one is near enough from 30 s on."""
    jobs = [train("x", 20), serve("a", 10, arrival_s=1), train("b", 5, arrival_s=2)]
    workload = JobWorkload.of([replace(job, estimate_s=job.duration_s) for job in jobs])
    late = np.where(np.eye(2), 0.0, np.array([0.05, 0.03])[:, None, None])
    history = LinkHistory(np.array([0.0, 30.0]), np.stack([np.array(TWO.bandwidth_bytes_per_s)] * 2), latency_s=late)
    narrow = replace(TWO, pools=(DevicePool("d0", "gpu", 1, 4), DevicePool("d1", "gpu", 1, 2)), history=history)
    assert play(workload, narrow, policy, ReplayRules(restart_s=0.0)).finish_s.tolist() == list(ends_s)


@pytest.mark.parametrize("why", [50.0, np.inf])
def test_time_beyond_the_bound_is_counted_while_it_serves(why: float):
    """From 10 s to 25 s, and from 60 s on to its end at 80 s."""
    ledger = played([serve("a", 80)], {0: 20.0, 10: why, 25: 20.0, 60: why})
    assert (ledger.late_s.tolist(), ledger.finish_s.tolist()) == ([35], [80])


def test_a_job_beside_its_clients_is_never_late():
    ledger = played([train("hold", 1), serve("a", 80)], {0: 20.0, 10: 500.0})
    assert (ledger.pool.tolist(), ledger.late_s.tolist()) == ([0, 1], [0, 0])


def test_who_can_never_be_near_again_is_refused_when_that_is_known():
    """It waits for d0, which is too far from 5 s on for ever; nodes that fail now and then keep nobody waiting."""
    late = np.where(np.eye(2), 0.0, np.array([0.02, 0.05])[:, None, None])
    history = LinkHistory(np.array([0.0, 5.0]), np.stack([np.array(TWO.bandwidth_bytes_per_s)] * 2), latency_s=late)
    narrow = replace(TWO, pools=(DevicePool("d0", "gpu", 1, 4), DevicePool("d1", "gpu", 1, 2)), history=history)
    workload = JobWorkload.of([train("hold", 10), serve("a", 10, arrival_s=1)])
    ledger = play(workload, narrow, FIFO, ReplayRules(failures=Failures(1e9)))
    why = "its clients came to be farther than its bound from all devices that it could use, and stayed there"
    assert (ledger.refused, ledger.finish_s[0]) == (((1, why),), 10)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (serve("a", 10, bound_s=0.001, devices=8), "no devices that it could use"),
        (replace(serve("a", 10), clients_at="mars"), "its clients are in 'mars', which the site has not"),
    ],
)
def test_who_can_never_run_is_refused_with_the_reason(job: Job, reason: str):
    small = replace(TWO, pools=(DevicePool("d0", "gpu", 2, 4), DevicePool("d1", "cpu", 1, 4)))
    ledger = play(JobWorkload.of([replace(job, runs_on=("gpu",))]), small, FIFO)
    assert [why[: len(reason)] for _, why in ledger.refused] == [reason]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"kind": "train"}, "kind"),
        ({"latency_bound_s": None}, "clients_at"),
        ({"clients_at": ""}, "latency_bound_s"),
        ({"latency_bound_s": 0.0}, "latency_bound_s"),
    ],
)
def test_a_bound_without_sense_is_refused(change: dict[str, object], key: str):
    with pytest.raises(InputError) as refused:
        replace(serve("a", 10), **change)  # type: ignore[arg-type]
    assert refused.value.key == key


def test_a_transfer_takes_the_latency_of_when_its_last_byte_leaves():
    """10 GB take 10 s; then 7 s more, as the latency is by then."""
    job = replace(train("a", 1), data_gb=10.0, data_at="d1", runs_on=())
    only = replace(TWO, pools=(DevicePool("d0", "gpu", 1, 4), DevicePool("d1", "gpu", 1, 1)))
    late = np.where(np.eye(2), 0.0, np.array([1.0, 7.0, 3.0])[:, None, None])
    carries = np.stack([np.array(TWO.bandwidth_bytes_per_s)] * 3)
    history = LinkHistory(np.array([0.0, 5.0, 12.0]), carries, latency_s=late)
    ledger = play(JobWorkload.of([job]), replace(only, history=history), FIFO)
    assert ledger.finish_s.tolist() == pytest.approx([17])
