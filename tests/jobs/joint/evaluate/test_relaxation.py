"""The relaxation: worlds solved by hand, its linear programme solved by HiGHS, and never above what anybody reaches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.evaluate.relaxation import FluidWorld, bound, fluid, least_cost, most_work
from hippo.jobs.joint.evaluate.suite import stays_s
from hippo.jobs.joint.figures import world_figures
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.record import Recorder
from hippo.jobs.joint.settings import SEPARATE, SRPT
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import Failures, ReplayRules, Tenants
from hippo.jobs.site import DevicePool, LinkHistory, site
from hippo.jobs.workload import JobWorkload

from ..test_against_twin import Restless, drawn

KIND = TrainingKind("a model", 64, 1024)
ONE = site([DevicePool("d0", "gpu", 1, 8)], 1e9)
PAIR = site([DevicePool("d0", "gpu", 1, 8), DevicePool("d1", "gpu", 1, 8)], 1e9)


def offers(rates: dict[tuple[int, int], float]) -> OfferTable:
    """GPUs of one part or two -> rate; over two parts at 1 GB/s, a tenth of it at a tenth of that."""
    gpus = np.array([[*key, 0, 0] for key in rates])
    alone, rate = gpus[:, 1] == 0, np.array(list(rates.values()))
    grid = np.where(alone[:, None], 1.0, [[0.1, 1.0]]) * rate[:, None]
    table = OfferTable(
        kinds=(KIND,),
        kind=np.zeros(len(rates), np.int64),
        parts=(gpus > 0).sum(axis=1),
        gpus=gpus,
        block=np.ones(len(rates), np.int64),
        ring=np.zeros(len(rates), bool),
        layout=np.ones((len(rates), 3), np.int64),
        rate=np.repeat(grid[:, None], 2, axis=1),
        hop_bytes=np.where(alone, 0.0, 1e8),
        memory_left=np.zeros(len(rates)),
        inside_comm=np.zeros(len(rates)),
        bandwidth_bytes_per_s=np.array([1e8, 1e9]),
        latency_s=np.array([0.01, 0.1]),
        tokens_per_s=np.ones(1),
        state_bytes=np.ones(1),
    )
    table.check()
    return table


EVEN = offers({(1, 0): 0.125, (8, 0): 1.0})  # eight GPUs do eight times the work of one


def train(name: str, work_s: float, arrival_s: float = 0.0, most: int = 8) -> Job:
    terms = {"model": KIND.model, "batch": KIND.batch, "seq": KIND.seq, "tokens": 1.0, "least": 1, "most": most}
    return Job(name, arrival_s, work_s, devices=most, **terms)  # type: ignore[arg-type]


def scene(jobs: list[Job], table: OfferTable = EVEN, where: object = ONE, **more: object) -> WorldScene:
    return WorldScene(JobWorkload.of(jobs), where, table, **more)  # type: ignore[arg-type]


def least(world: WorldScene, *price: float, stretches: int = 400) -> float:
    return least_cost(fluid(world, stretches), np.array(price))


# ------------------------------------------------------------------------------------------------------------- by hand
def test_a_job_alone_takes_as_long_as_on_its_most_gpus():
    assert least(scene([train("a", 100.0)]), 2.0) == pytest.approx(200.0)
    assert least(scene([train("a", 100.0, most=1)]), 1.0) == pytest.approx(800.0)


def test_jobs_that_come_at_once_go_by_price_over_work():
    """Smith's rule: 60 s at a price of 3, then 100 s at a price of 1: 180 + 160."""
    assert least(scene([train("long", 100.0), train("short", 60.0)]), 1.0, 3.0) == pytest.approx(340.0, rel=2e-3)


def test_who_comes_later_and_is_short_goes_first():
    """Shortest remaining first: the second takes 100 to 120, so the first ends at 220."""
    world = scene([train("long", 200.0), train("short", 20.0, arrival_s=100.0)])
    assert least(world, 1.0, 1.0) == pytest.approx(220.0 + 20.0, rel=2e-3)


def test_gangs_hold_what_they_hold():
    """Two of five of eight devices: the other has three until 100 s, so it lacks 40 s of its work then."""
    world = scene([Job("a", 0.0, 100.0, devices=5), Job("b", 0.0, 100.0, devices=5)])
    assert least(world, 1.0, 1.0) == pytest.approx(100.0 + 140.0, rel=2e-3)


def test_gpus_beyond_what_pays_are_left_to_others():
    """Eight GPUs are no quicker than four: both at once."""
    table = offers({(4, 0): 1.0, (8, 0): 1.0})
    assert least(scene([train("a", 100.0), train("b", 100.0)], table), 1.0, 1.0) == pytest.approx(200.0, rel=2e-3)


def test_what_is_over_the_links_goes_by_the_best_that_they_ever_carry_then():
    """Sixteen GPUs over two domains at twice the rate of eight, as far as the link carries 1 GB/s: here until 50 s."""
    table = offers({(8, 0): 1.0, (8, 8): 2.0})
    jobs, still = [train("a", 150.0, most=16)], np.array(PAIR.bandwidth_bytes_per_s)
    assert least(scene(jobs, table, PAIR), 1.0) == pytest.approx(75.0, rel=1e-3)
    where = replace(PAIR, history=LinkHistory(np.array([0.0, 50.0]), np.stack([still, 0.1 * still])))
    assert least(scene(jobs, table, where), 1.0, stretches=2000) == pytest.approx(100.0, rel=0.01)


def test_devices_that_others_have_do_no_work():
    """Others have half of the node until 100 s, when the first job ends; the second then takes 50 s."""
    tenants = Tenants(np.array([0.0, 100.0]), np.array([0, 0]), np.array([4, -4]))
    world = scene([train("a", 50.0), train("b", 50.0)], tenants=tenants)
    assert least(world, 1.0, 1.0) == pytest.approx(100.0 + 150.0, rel=0.03)


def test_a_job_may_be_wider_than_the_mean_of_a_stretch():
    """Others have the whole node from 10 s on until the second comes: the first has ended by then, on all eight."""
    tenants = Tenants(np.array([10.0, 100.0]), np.array([0, 0]), np.array([8, -8]))
    world = scene([train("a", 10.0), train("b", 10.0, arrival_s=100.0)], tenants=tenants)
    for stretches in (2, 400):
        assert least(world, 1.0, 1.0, stretches=stretches) <= 10.0 + 10.0 + 1e-9


def test_latencies_count_as_they_are_at_least_in_a_stretch():
    """Over two domains 2.0 at 10 ms; at ten times that half of it: until 50 s the way is far, then near."""
    table = offers({(8, 0): 1.0, (8, 8): 2.0})
    far = table.rate * np.where(
        np.arange(len(table.parts))[:, None, None] > 0, np.array([1.0, 0.5])[None, :, None], 1.0
    )
    table = replace(table, rate=far)
    size, still = np.array(PAIR.latency_s).shape, np.array(PAIR.bandwidth_bytes_per_s)
    late = np.where(np.eye(size[0]) > 0, 0.0, np.stack([np.full(size, 0.1), np.full(size, 0.01)]))
    where = replace(PAIR, history=LinkHistory(np.array([0.0, 50.0]), np.stack([still, still]), latency_s=late))
    assert least(scene([train("a", 150.0, most=16)], table, where), 1.0, stretches=2000) == pytest.approx(
        100.0, rel=0.01
    )


def test_work_until_the_last_job_comes_is_no_more_than_devices_do():
    """Two jobs of a thousand seconds each, worth 1 and 3; when the third comes the better one has run for 100 s."""
    world = scene([train("a", 1000.0), train("b", 1000.0), train("c", 1.0, arrival_s=100.0)])
    assert most_work(fluid(world), np.array([1.0, 3.0, 9.0])) == pytest.approx(300.0, rel=1e-3)


# ----------------------------------------------------------------------------------------------------- linear programme
def by_highs(world: FluidWorld, price: np.ndarray) -> float:
    """The relaxation by mean busy times (Goemans et al. 2002) on the same stretches: a job ends no sooner than half of
    its shortest time after the mean of its work, which in a stretch is no sooner than its begin."""
    n, (_, stretches, segments) = len(world.row), world.width.shape
    quickest = (world.width * world.slope).sum(axis=2).max(axis=1)[world.row]
    cells = [(j, t, s) for j in range(n) for t in range(world.first[j], stretches) for s in range(segments)]
    job, at, segment = np.array(cells).T
    slope, width = world.slope[world.row[job], at, segment], world.width[world.row[job], at, segment]
    cost = price[job] / world.work[job] * world.begin_s[at] * slope
    every, ones = np.arange(len(cells)), np.ones(len(cells))
    found = linprog(
        cost,
        A_ub=coo_matrix((ones, (at, every))),
        b_ub=(world.devices * world.length_s)[: at.max() + 1],
        A_eq=coo_matrix((slope, (job, every))),
        b_eq=world.work,
        bounds=np.stack([0 * ones, width * world.length_s[at]], axis=1),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun + price @ (0.5 * world.work / quickest - world.arrival_s))


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), jobs=st.integers(2, 8))
def test_it_is_above_the_programme_of_mean_busy_times(seed: int, jobs: int):
    made = drawn(seed, 3, jobs)
    world = fluid(WorldScene(made.workload, made.site, made.offers, made.rules, made.tenants), 60)
    price = np.random.default_rng(seed).uniform(0.2, 2.0, jobs)
    assert least_cost(world, price) >= by_highs(world, price) * (1.0 - 2e-3)


# ------------------------------------------------------------------------------------------------------------- property
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), domains=st.integers(2, 4), jobs=st.integers(2, 10), who=st.integers(0, 2))
def test_nobody_is_better(seed: int, domains: int, jobs: int, who: int):
    made = drawn(seed, domains, jobs)
    world = WorldScene(made.workload, made.site, made.offers, made.rules, made.tenants)
    scheduler: Scheduler = (SRPT, SEPARATE, Restless(seed))[who]
    recorder = Recorder()
    ledger = play_jointly(
        made.workload,
        made.site,
        scheduler,
        made.rules,
        offers=made.offers,
        tenants=made.tenants,
        recorder=recorder,
    )
    price, stays = prices(world), stays_s(ledger, made.workload.arrival_s)
    found = bound(world, price)
    assume((~ledger.ran).sum() <= found.never)  # of who waits for ever, far from its clients, nobody knows the time
    assert found.priced_s <= float(np.mean(price * stays)) * (1 + 1e-9)
    assert found.mean_completion_s <= float(stays.mean()) * (1 + 1e-9)
    reached = world_figures(recorder.record(), ledger, made.workload, made.site, made.offers).goodput
    assert np.isnan(reached) or np.isnan(found.goodput) or reached <= found.goodput * (1 + 1e-9)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_devices_that_are_there_are_those_of_the_engine(seed: int):
    made = drawn(seed, 3, 6)
    rules = ReplayRules(failures=Failures(200.0, 40.0, 20.0), seed=seed % 1000)
    recorder = Recorder()
    ledger = play_jointly(
        made.workload, made.site, SRPT, rules, offers=made.offers, tenants=made.tenants, recorder=recorder
    )
    world = fluid(WorldScene(made.workload, made.site, made.offers, rules, made.tenants))
    end_s = float(np.nanmax(ledger.finish_s))
    known = np.flatnonzero(world.begin_s[1:] <= end_s)
    there = np.full(len(known), float(made.site.devices))
    changes = [each for away in recorder.absences for each in (away.begin_s, away.end_s)]
    grid = np.unique(np.concatenate([world.begin_s, changes]))
    for at in known.tolist():
        inside = grid[(grid >= world.begin_s[at]) & (grid <= world.begin_s[at + 1])]
        for since, until in zip(inside, inside[1:], strict=False):
            lacks: dict[int, int] = {}  # of a broken node all, whoever had some
            for away in recorder.absences:
                if away.begin_s <= (since + until) / 2 < away.end_s:
                    lacks[away.node] = max(lacks.get(away.node, 0), away.devices)
            there[at] -= (until - since) * sum(lacks.values()) / world.length_s[at]
    assert world.devices[known] == pytest.approx(there, abs=1e-6)
