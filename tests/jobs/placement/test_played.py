"""What a placement costs, in a whole replay."""

from __future__ import annotations

import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.data import egress_usd, prices_usd_per_gb
from hippo.jobs.placement.slowdown import Kind, kinds_that_span
from hippo.jobs.placement.step_time import slowdown, step_time
from hippo.jobs.policies.heuristics import FIFO
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

from .worlds import Counting, cluster

ANY = float("inf")


@pytest.mark.parametrize("gbps", [1.0, pytest.param(100.0, marks=pytest.mark.slow)])
def test_a_job_over_two_domains_takes_the_planners_factor_longer(gbps: float):
    world = cluster("ab", gbps=gbps, nodes=1)
    here, large = JobSite.of(world), JobWorkload.of([Job("large", 0.0, 1000.0, devices=16)])
    played = play(large, here, FIFO, slowdown=slowdown(world, kinds_that_span(large, here, "must")))
    factor = step_time(world, {"a": 8, "b": 8}) / step_time(cluster("a"), {"a": 16})
    assert played.finish_s[0] == pytest.approx(1000.0 * factor)
    assert factor == pytest.approx(1.989 if gbps == 1.0 else 1.004, abs=0.002)


def test_what_crosses_is_paid_by_the_second():
    """10 s inside and 15 s over two by the planner of these tests, which charges 1 USD a step: 1500 s are 100 steps."""
    world = cluster("ab", nodes=1)
    table = slowdown(world, [Kind(16)], planner=Counting(), most=ANY)
    played = play(JobWorkload.of([Job("large", 0.0, 1000.0, devices=16)]), JobSite.of(world), FIFO, slowdown=table)
    assert played.run_s[0] == pytest.approx(1500.0)
    assert played.exchange_usd[0] == pytest.approx(100.0)


def comes_late(span: str, held: tuple[int, int]) -> Ledger:
    """A job of 6 devices and 100 s comes at 10 s; of the 8 in each domain so many are held until 1000 s."""
    world = cluster("ab", nodes=1)
    first = [Job(f"holder {index}", 0.0, 1000.0, devices=devices) for index, devices in enumerate(held)]
    workload = JobWorkload.of([*first, Job("comes", 10.0, 100.0, devices=6)])
    table = slowdown(world, kinds_that_span(workload, JobSite.of(world), span), planner=Counting(), most=ANY)
    return play(workload, JobSite.of(world), FIFO, ReplayRules(span=span), slowdown=table)


@pytest.mark.parametrize(("span", "finish_s"), [("never", 1100.0), ("must", 1100.0), ("free", 10.0 + 1.5 * 100.0)])
def test_a_job_that_fits_into_a_domain_spans_only_where_it_is_free_to(span: str, finish_s: float):
    assert comes_late(span, (5, 5)).finish_s[2] == pytest.approx(finish_s)


def test_parts_are_equal_so_two_and_four_free_devices_do_not_do():
    assert comes_late("free", (6, 4)).finish_s[2] == pytest.approx(1100.0)


@pytest.mark.parametrize(("data", "first", "second"), [("before", 170.02, 151.02), ("while", 110.0, 111.0)])
def test_two_transfers_by_hand(data: str, first: float, second: float):
    """Both jobs' data lie in a, which is full until 500 s; b has room for both.

    1.25 GB/s, of which each has half from 11 s on: the 25 GB of the second take 40 s, when the first has 23.75 GB left,
    19 s of the whole link. The last byte comes 0.02 s later.
    """
    world = cluster("ab", nodes=1)
    far = {"data_at": "a", "devices": 4}
    workload = JobWorkload.of(
        [
            Job("holds a", 0.0, 500.0, devices=8, data_at="a", data_gb=1.0),
            Job("first", 10.0, 100.0, data_gb=50.0, **far),
            Job("second", 11.0, 100.0, data_gb=25.0, **far),
        ]
    )
    played = play(workload, JobSite.of(world), FIFO, ReplayRules(data=data))
    assert played.finish_s[1:].tolist() == pytest.approx([first, second], abs=0.02)
    assert played.moved_gb.tolist() == [0.0, 50.0, 25.0]
    prices = prices_usd_per_gb(world, JobSite.of(world).domains)
    assert egress_usd(played.link_gb, prices) == pytest.approx(1.5)
