"""Worlds of elastic jobs solved by hand, on which the twin agrees.

Two domains of a node of four GPUs, joined by 1 GB/s. Jobs train on the four GPUs of one domain at rate 1, or on two of
each, at a rate of as many GB/s as they get of the link, up to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from hippo.jobs.engine.running import time_to_failure
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.moment import JobPlace, Moment
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import Failures, ReplayRules, Tenants
from hippo.jobs.site import DevicePool, LinkHistory, site
from hippo.jobs.workload import JobWorkload

from .noted import World, played

KIND = TrainingKind("a model", 64, 1024)
ALONE, BROAD = 0, 1
HERE, THERE = JobPlace(ALONE, (0,), 1.0, 4), JobPlace(ALONE, (1,), 1.0, 4)
BOTH = JobPlace(BROAD, (0, 1), 1.0, 4)
STATE_GB = 45.0
TWO = replace(
    site([DevicePool("d0", "gpu", 1, 4), DevicePool("d1", "gpu", 1, 4)], 1e9), usd_per_gb=((0.0, 0.02), (0.01, 0.0))
)
Act = Callable[[Moment], object]


def offers(hop_gb: float = 1.0) -> OfferTable:
    """A second of work moves ``hop_gb`` each way; on the grid a GB/s is a rate of 1."""
    table = OfferTable(
        kinds=(KIND,),
        kind=np.array([0, 0]),
        parts=np.array([1, 2]),
        gpus=np.array([[4, 0, 0, 0], [2, 2, 0, 0]]),
        block=np.array([4, 2]),
        ring=np.array([False, False]),
        layout=np.ones((2, 3), np.int64),
        rate=np.stack([np.ones((2, 2)), np.full((2, 2), [0.1, 1.0])]),
        hop_bytes=np.array([0.0, hop_gb * 1e9]),
        memory_left=np.zeros(2),
        inside_comm=np.zeros(2),
        bandwidth_bytes_per_s=np.array([1e8, 1e9]),
        latency_s=np.array([0.01, 0.1]),
        tokens_per_s=np.ones(1),
        state_bytes=np.array([STATE_GB * 1e9]),
    )
    table.check()
    return table


def timed(table: OfferTable, tokens_per_s: float) -> OfferTable:
    """With so many tokens a second at the reference."""
    return replace(table, tokens_per_s=np.array([tokens_per_s]))


def train(name: str, work_s: float, arrival_s: float = 0.0, data_gb: float = 0.0) -> Job:
    terms = {"model": KIND.model, "batch": KIND.batch, "seq": KIND.seq, "tokens": 1.0, "least": 4, "most": 4}
    return Job(name, arrival_s, work_s, devices=4, data_gb=data_gb, data_at="d0" if data_gb else "", **terms)


@dataclass
class Scripted:
    """Begins each job where it is told, as soon as there is room, and does the rest at the times that it is told."""

    where: dict[int, JobPlace]
    then: tuple[tuple[float, Act], ...] = ()
    name = "scripted"

    def decide(self, moment: Moment) -> None:
        while self.then and self.then[0][0] <= moment.now_s:
            self.then[0][1](moment)
            self.then = self.then[1:]
        for job in moment.waiting.tolist():
            if moment.workload.elastic[job]:
                moment.begin(job, self.where[job])
            else:
                moment.start(job)


def solved(
    jobs: list[Job],
    where: list[JobPlace],
    *then: tuple[float, Act],
    gb_per_s: dict[float, float] | None = None,
    rules: ReplayRules | None = None,
    tenants: tuple[tuple[float, int, int], ...] = (),
    hop_gb: float = 1.0,
    tokens_per_s: float = 1.0,
) -> Ledger:
    """``gb_per_s``: what the links carry from when on; a scheduler is asked at these times, too."""
    times = gb_per_s or dict.fromkeys([0.0, *(time_s for time_s, _ in then)], 1.0)
    still = np.array(TWO.bandwidth_bytes_per_s)
    history = LinkHistory(
        np.array(list(times)), np.stack([still * np.where(np.eye(2), 1, each) for each in times.values()])
    )
    others = Tenants(*(np.array(each) for each in zip(*tenants, strict=True))) if tenants else None
    table = timed(offers(hop_gb), tokens_per_s)
    world = World(JobWorkload.of(jobs), replace(TWO, history=history), table, rules or ReplayRules(), others)
    return played(world, Scripted(dict(enumerate(where)), then))


def test_alone_a_job_does_its_work_at_the_reference_rate():
    assert solved([train("a", 100)], [HERE]).finish_s.tolist() == [100]


def test_a_job_with_a_link_for_itself_pays_for_what_it_exchanges():
    """A GB a second each way, at 2 and 1 cents."""
    ledger = solved([train("a", 100)], [BOTH])
    assert ledger.finish_s.tolist() == [100]
    assert ledger.link_gb.tolist() == pytest.approx(np.array([[0, 100], [100, 0]]))
    assert ledger.exchange_usd.tolist() == pytest.approx([3.0])


def test_two_jobs_share_a_link():
    """Half each; b has done its 50 s at 100 s, when a has 50 s left and the link for itself."""
    assert solved([train("a", 100), train("b", 50)], [BOTH, BOTH]).finish_s.tolist() == pytest.approx([150, 100])


def test_a_job_of_more_weight_has_more_of_the_link():
    """Three parts of four: a has done its 75 s at 100 s, when b has 75 s left."""
    ledger = solved([train("a", 75), train("b", 100)], [BOTH, BOTH], (0.0, lambda moment: moment.weigh(0, 3.0)))
    assert ledger.finish_s.tolist() == pytest.approx([100, 175])


def test_who_wants_little_leaves_the_rest():
    """At rate 1 each asks for 0.2 GB/s, so the other has 0.8 GB/s for its bursts: rate 0.8 till b's 50 s are done."""
    ledger = solved([train("a", 100), train("b", 50)], [BOTH, BOTH], hop_gb=0.2)
    assert ledger.finish_s.tolist() == pytest.approx([112.5, 62.5])


def test_a_link_halves_midway():
    """40 s of work at rate 1, 60 s at rate 0.5."""
    assert solved([train("a", 100)], [BOTH], gb_per_s={0: 1.0, 40: 0.5}).finish_s.tolist() == pytest.approx([160])


def test_an_outage_stalls_a_job_until_it_ends():
    ledger = solved([train("a", 100)], [BOTH], gb_per_s={0: 1.0, 20: 0.0, 50: 1.0})
    assert ledger.finish_s.tolist() == pytest.approx([130])


def test_a_network_that_has_moved_before_the_first_job_came():
    ledger = solved([train("a", 100, arrival_s=1e6)], [BOTH], gb_per_s={0: 1.0, 40: 0.25, 80: 0.5})
    assert ledger.finish_s.tolist() == pytest.approx([1e6 + 200])


def test_a_transfer_beside_an_exchange():
    """The gang's 50 GB take half of one direction for 100 s, and hold up a's 50 s of work in that time by as much."""
    gang = Job("g", 0, 10, devices=2, data_gb=50, data_at="d0")
    there = replace(THERE, gpus=2)
    ledger = solved([train("a", 100), replace(gang, name="h", data_gb=0), gang], [BOTH, there, there])
    assert ledger.finish_s.tolist() == pytest.approx([150, 10, 100])
    assert ledger.link_gb.tolist() == pytest.approx(np.array([[0, 150], [100, 0]]))


def test_work_that_is_done_frees_the_link_and_data_that_lack_hold_the_devices():
    """The half of 50 GB that d1 needs has half of the link till a's 20 s of work are done at 40 s: 5 GB are left."""
    ledger = solved([train("a", 20, data_gb=50)], [BOTH])
    assert ledger.finish_s.tolist() == pytest.approx([45])
    assert ledger.exchange_usd.tolist() == pytest.approx([0.6])


@pytest.mark.parametrize(("restart_s", "finish_s"), [(30.0, 145.0), (60.0, 160.0)])
def test_a_job_that_moves_takes_its_state_along_and_restarts_meanwhile(restart_s: float, finish_s: float):
    """At 30 s 70 s are left; 45 GB take 45 s."""
    move = (30.0, lambda moment: moment.resize(0, THERE))
    ledger = solved([train("a", 100)], [HERE], move, rules=ReplayRules(restart_s=restart_s))
    assert ledger.finish_s.tolist() == pytest.approx([finish_s])
    assert (ledger.moved_gb.tolist(), ledger.link_gb[0, 1]) == ([STATE_GB], STATE_GB)


def test_a_move_that_is_given_up_sends_no_more():
    """20 GB are over at 50 s, when it goes back to where its state still lies; 30 s later it computes."""
    move, back = (30.0, lambda moment: moment.resize(0, THERE)), (50.0, lambda moment: moment.resize(0, HERE))
    ledger = solved([train("a", 100)], [HERE], move, back)
    assert ledger.finish_s.tolist() == pytest.approx([150])
    assert ledger.moved_gb.tolist() == pytest.approx([20])


def stay(moment: Moment) -> None:
    moment.stay(0)


def away(moment: Moment) -> None:
    assert moment.move(0, THERE)


SLOW = 64 * 1024.0  # tokens a second: a step
STILL = 1e-9  # hardly ever one


def test_a_job_that_goes_over_in_the_background_computes_meanwhile():
    """From 10 s on 45 GB come, and no gradients; at 55 s it stops for 5.6 GB, but restarts longer."""
    ledger = solved([train("a", 100)], [HERE], (10.0, away), tokens_per_s=STILL)
    assert ledger.finish_s.tolist() == pytest.approx([55 + 30 + 45])
    assert ledger.moved_gb.tolist() == pytest.approx([STATE_GB * 1.125])
    assert (ledger.pool.tolist(), ledger.preemptions.tolist()) == ([1], [1])


def test_gradients_of_what_has_come_take_their_part_of_the_link():
    """A step a second changes 5.6 GB of 45, more than the link of 1 GB/s carries: when 37 GB lack, 8 are kept in step
    and nothing is won any more. At a step in ten seconds all has come after 80 ln(1 / (1 - 0.5625)) s."""
    never = solved([train("a", 100)], [HERE], (10.0, away), tokens_per_s=SLOW)
    assert (never.finish_s.tolist(), never.pool.tolist()) == ([100], [0])
    assert never.link_gb[0, 1] == pytest.approx(90)
    comes_s = 80 * np.log(1 / (1 - 0.5625))
    ledger = solved([train("a", 100)], [HERE], (10.0, away), tokens_per_s=SLOW / 10)
    assert ledger.finish_s.tolist() == pytest.approx([100 + 30])
    assert ledger.link_gb[0, 1] == pytest.approx(comes_s + STATE_GB / 8)


def test_what_streams_takes_what_others_leave():
    """b exchanges at most 0.8 of 1 GB/s, which it has as if it were alone; 0.2 are left till its work is done at 100 s.
    By then 18 of 45 GB are there; the others take 27 s."""
    four = site([DevicePool("d0", "gpu", 2, 4), DevicePool("d1", "gpu", 2, 4)], 1e9)
    history = LinkHistory(np.array([0.0, 10.0]), np.stack([np.array(four.bandwidth_bytes_per_s)] * 2))
    workload = JobWorkload.of([train("a", 300), train("b", 100)])
    world = World(workload, replace(four, history=history), timed(offers(0.8), STILL), ReplayRules())
    ledger = played(world, Scripted({0: HERE, 1: BOTH}, ((10.0, away),)))
    assert ledger.finish_s.tolist() == pytest.approx([300 + 30, 100])


def test_devices_of_both_places_are_held_meanwhile():
    """b finds no room until a has gone over at 55 s, and then where a was."""
    ledger = solved([train("a", 100), train("b", 10, arrival_s=20)], [HERE, HERE], (10.0, away), tokens_per_s=STILL)
    assert ledger.first_start_s.tolist() == pytest.approx([0, 55])


def test_a_move_that_is_given_up_frees_what_it_held():
    ledger = solved([train("a", 100)], [HERE], (10.0, away), (30.0, stay), tokens_per_s=STILL)
    assert (ledger.finish_s.tolist(), ledger.moved_gb.tolist()) == ([100], pytest.approx([20]))


def test_a_tenant_that_takes_the_new_place_leaves_the_job_where_it_is():
    ledger = solved([train("a", 100)], [HERE], (10.0, away), tenants=((30.0, 1, 1),), tokens_per_s=STILL)
    assert (ledger.finish_s.tolist(), ledger.preemptions.tolist()) == ([100], [0])


def test_a_tenant_evicts_a_job_until_it_gives_back():
    """At 10 s 90 s are left; from 40 s on it restarts."""
    ledger = solved([train("a", 100)], [HERE], tenants=((10.0, 0, 1), (40.0, 0, -1)))
    assert (ledger.finish_s.tolist(), ledger.preemptions.tolist()) == ([160], [1])


def test_a_failure_takes_the_work_since_the_last_checkpoint():
    """Its link halves at 40 s. It saves at 60 s, 50 s of work, and fails at 65 s. The node is back at 80 s, and half
    of the state there 45 s later; 50 s of work take 100 s."""
    seed, node = 295, 0  # of whose failures the second, and the first of the other node, come late
    failures = Failures(65.0 / time_to_failure(seed, node, 0, 1.0), repair_s=15.0, checkpoint_every_s=20.0)
    rules = ReplayRules(failures=failures, seed=seed)
    ledger = solved([train("a", 100)], [BOTH], gb_per_s={0: 1.0, 40: 0.5}, rules=rules)
    assert (ledger.finish_s.tolist(), ledger.failures.tolist()) == (pytest.approx([225]), [1])


def test_a_job_begins_only_where_its_state_can_come():
    """During the outage it has room in both domains, but goes on where its state lies."""
    seen = []

    def look(moment: Moment) -> None:
        moment.pause(0)
        seen.extend(moment.places(0))
        assert not moment.begin(0, THERE)

    ledger = solved([train("a", 100)], [HERE], (30.0, look), gb_per_s={0: 1.0, 30: 0.0, 90: 1.0})
    assert [place.domains for place in seen] == [(0,)]
    assert ledger.finish_s.tolist() == [130]


@pytest.mark.parametrize(("share", "back_gb"), [(1.0, 0.0), (0.5, 100.0)])
def test_replicas_send_around_the_ring_one_way(share: float, back_gb: float):
    """A GPU in each of three domains, 1 GB a hop and second of work; stages that meet again send both ways."""
    three = site([DevicePool(name, "gpu", 1, 4) for name in ("d0", "d1", "d2")], 1e9)
    gpus = np.array([[4, 0, 0, 0], [1, 1, 1, 0]])
    shares = np.array([[1, 0, 0, 0], [share, share, share, 0]])
    ring = {"parts": np.array([1, 3]), "gpus": gpus, "block": np.array([4, 1]), "ring": np.array([False, True])}
    table = replace(offers(), state_share=shares, **ring)
    table.check()
    jobs = JobWorkload.of([replace(train("a", 100), least=3)])
    around = JobPlace(BROAD, (0, 1, 2), 1.0, 3)
    ledger = played(World(jobs, three, table, ReplayRules()), Scripted({0: around}))
    assert ledger.finish_s.tolist() == pytest.approx([100])
    expected = np.array([[0, 100, back_gb], [back_gb, 0, 100], [100, back_gb, 0]])
    assert ledger.link_gb.tolist() == pytest.approx(expected)
