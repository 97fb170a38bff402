"""Gangs over two domains as flows, solved by hand; where elastic jobs are beside them, the twin agrees.

Two domains of a node of eight GPUs, joined by 1 GB/s. A gang of ten GPUs takes five in each, twice as long as inside
one, and sends 2 GB each way for a second of work: all of the link. At less of it, it is as much slower.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SRPT
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.placement.slowdown import Exchange, Kind, Slowdown
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import DevicePool, JobSite, LinkHistory, site
from hippo.jobs.workload import JobWorkload
from hippo.registry import job_policy

from .noted import World, played
from .test_play import BOTH, Scripted, offers, timed, train

TWO = replace(
    site([DevicePool("d0", "gpu", 1, 8), DevicePool("d1", "gpu", 1, 8)], 1e9), usd_per_gb=((0.0, 0.02), (0.01, 0.0))
)
GANG = Job("gang", 0, 100, devices=10)
SMALL = Job("small", 0, 10, devices=2)


def flows() -> Slowdown:
    factor = np.array([[np.inf, 1.0, 1.0, np.inf], [np.inf, 1.0, 1.0, 2.0]])
    table = replace(
        OfferTable.none(),
        kind=np.array([-1]),
        parts=np.array([2]),
        gpus=np.array([[5, 5, 0, 0]]),
        block=np.array([1]),
        ring=np.array([False]),
        layout=np.ones((1, 3), np.int64),
        rate=np.full((1, 2, 2), [0.05, 0.5]),
        hop_bytes=np.array([2e9]),
        memory_left=np.zeros(1),
        inside_comm=np.zeros(1),
        bandwidth_bytes_per_s=np.array([1e8, 1e9]),
        latency_s=np.array([0.01, 0.1]),
        state_share=np.array([[0.5, 0.5, 0.0, 0.0]]),
    )
    route = np.array([[0, 1]])
    assert table.gpus.shape[1] == MOST_PARTS
    exchange = Exchange(np.array([[-1] * 4, [-1, -1, -1, 0]]), route, table)
    return Slowdown((Kind(10),), factor, np.array([[0.0] * 4, [0.0, 0.0, 0.0, 0.03]]), exchange)


def moving(gb_per_s: dict[float, float]) -> JobSite:
    still = np.array(TWO.bandwidth_bytes_per_s)
    carries = np.stack([still * np.where(np.eye(2), 1, each) for each in gb_per_s.values()])
    return replace(TWO, history=LinkHistory(np.array(list(gb_per_s)), carries))


def ranked(name: str, jobs: list[Job], gb_per_s: dict[float, float]) -> Ledger:
    rules = ReplayRules(restart_s=0)
    return play(JobWorkload.of(jobs), moving(gb_per_s), job_policy(name), rules, slowdown=flows())


def beside(jobs: list[Job], rules: ReplayRules | None = None) -> Ledger:
    """With an elastic job over both domains that sends 1 GB for a second of work, if it is among them."""
    table = timed(offers(), 1.0)
    where = {row: BOTH for row, job in enumerate(jobs) if job.least}
    return played(World(JobWorkload.of(jobs), TWO, table, rules or ReplayRules(), None, flows()), Scripted(where))


def test_alone_on_links_that_stand_still_a_gang_takes_its_factor():
    """200 GB each way, at 2 and 1 cents; what was held as a price a second before."""
    alone, held = flows(), replace(flows(), exchange=None)
    found = [play(JobWorkload.of([GANG]), TWO, job_policy("fifo"), slowdown=each) for each in (alone, held)]
    assert [each.finish_s.tolist() for each in found] == [[200], [200]]
    assert [each.slowdown.tolist() for each in found] == [[2], [2]]
    assert found[0].link_gb.tolist() == pytest.approx(np.array([[0, 200], [200, 0]]))
    assert found[0].exchange_usd.tolist() == [0.0]
    assert not found[1].link_gb.any()
    assert found[1].exchange_usd.tolist() == pytest.approx([6.0])


def test_a_gang_and_an_elastic_job_share_a_link():
    """Half each: the elastic job has done its 50 s at 100 s, when the gang has done 25 s; it has 75 s left."""
    ledger = beside([train("a", 50), GANG])
    assert ledger.finish_s.tolist() == pytest.approx([100, 250])
    assert ledger.link_gb.tolist() == pytest.approx(np.array([[0, 250], [250, 0]]))
    assert ledger.exchange_usd.tolist() == pytest.approx([1.5, 6.0])


def test_a_gang_holds_up_a_transfer_and_is_held_up_by_it():
    """100 GB take half of one direction for 200 s; by then the gang has done 50 s of work."""
    far = Job("far", 0, 10, devices=3, data_gb=100, data_at="d0")
    others = Job("others", 0, 300, devices=3)
    ledger = beside([others, GANG, far])  # d0 is full with the others and the gang, so far goes to d1
    assert ledger.finish_s.tolist() == pytest.approx([300, 300, 200])


def test_a_link_that_halves_midway():
    """20 s of work in 40 s, then 80 s of work at a quarter."""
    assert ranked("fifo", [GANG], {0: 1.0, 40: 0.5}).finish_s.tolist() == pytest.approx([360])


def test_an_outage_stalls_a_gang():
    assert ranked("fifo", [GANG], {0: 1.0, 20: 0.0, 50: 1.0}).finish_s.tolist() == pytest.approx([230])


@pytest.mark.parametrize("name", ["fifo", "backfill", "srtf"])
def test_none_begins_over_a_link_that_is_out(name: str):
    ledger = ranked(name, [replace(GANG, arrival_s=30.0, estimate_s=100.0)], {0: 1.0, 20: 0.0, 50: 1.0})
    assert ledger.first_start_s.tolist() == [50]
    assert ledger.finish_s.tolist() == pytest.approx([250])


def test_a_gang_behind_a_link_that_is_out_for_ever_is_refused():
    ledger = ranked("srtf", [GANG, SMALL], {0: 0.0})
    words = "can never begin: what it needs waits behind the link d0 -> d1, which carries nothing from 0 s on"
    assert dict(ledger.refused) == {0: words}


def test_one_that_is_stopped_goes_on_from_what_it_has_done():
    """At 40 s 20 s are done, at the half of the link from 20 s on 15 s; the small ones take all of d0 for 10 s."""
    short = [Job(f"short {at}", 40.0, 10, devices=8) for at in range(2)]
    ledger = ranked("srtf", [GANG, *short], {0: 1.0, 20: 0.5})
    assert ledger.finish_s.tolist() == pytest.approx([50 + 85 / 0.25, 50, 50])
    assert ledger.preemptions.tolist() == [1, 0, 0]


def test_levels_of_attained_service_are_crossed_in_time():
    """Its devices count, not how quick it is: at 325 s it has had 3,250 s of them, and done 81.25 s of its work; at
    650 s so has the next, which comes to the second queue behind it."""
    two = replace(job_policy("two_queue"), levels=(3250.0,))
    jobs = JobWorkload.of([GANG, replace(GANG, name="next", arrival_s=1.0)])
    ledger = play(jobs, moving({0: 0.5}), two, ReplayRules(restart_s=0), slowdown=flows())
    assert ledger.first_start_s.tolist() == [0, 325]
    assert ledger.finish_s.tolist() == pytest.approx([650 + 75, 725 + 75])


def test_rules_for_elastic_jobs_begin_gangs_that_no_domain_holds_and_stop_others_for_them():
    """The elastic job alone in a domain does not hold up the gang, which fits beside it only at first sight."""
    holder = replace(train("a", 5000), tokens=1.0)
    jobs = JobWorkload.of([holder, replace(GANG, devices=14, duration_s=10.0, arrival_s=100.0)])
    table = replace(flows(), kinds=(Kind(14),))
    ledger = play_jointly(jobs, TWO, SRPT, ReplayRules(restart_s=0), offers=timed(offers(), 1.0), slowdown=table)
    assert ledger.finish_s[1] == pytest.approx(120)
    assert ledger.preemptions.tolist() == [1, 0]
    assert ledger.finish_s[0] == pytest.approx(5020)
