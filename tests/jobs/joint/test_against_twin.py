"""Worlds of elastic jobs and gangs, led by a scheduler without a plan: the engine and its SimPy twin agree.

Gangs may span domains; most of those are flows there, on random routes, and others hold a factor.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.jobs.engine import world as c
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.moment import Moment
from hippo.jobs.placement.offers import MOST_PARTS, OfferTable
from hippo.jobs.placement.slowdown import Exchange, Kind, Slowdown
from hippo.jobs.settings import Failures, ReplayRules, Tenants
from hippo.jobs.site import DevicePool, JobSite, LinkHistory
from hippo.jobs.workload import JobWorkload

from .noted import World, played

KINDS = (TrainingKind("small", 64, 1024), TrainingKind("large", 128, 2048))
MOST_PAUSES = 3  # of each job, so that all end


@given(seed=st.integers(0, 2**32), domains=st.integers(2, 4), jobs=st.integers(3, 12))
def test_engine_and_twin_agree(seed: int, domains: int, jobs: int):
    played(drawn(seed, domains, jobs), Restless(seed))


@pytest.mark.slow
@settings(max_examples=500)
@given(seed=st.integers(0, 2**32), domains=st.integers(2, 4), jobs=st.integers(3, 12))
def test_engine_and_twin_agree_on_many_worlds(seed: int, domains: int, jobs: int):
    played(drawn(seed, domains, jobs), Restless(seed))


def drawn(seed: int, domains: int, jobs: int) -> World:
    """A world, every number of it by chance, so that no two things happen at once that need not."""
    rng = np.random.default_rng(seed)
    site, offers = _site(rng, domains), _offers(rng)
    offers.check()
    failures = Failures(rng.uniform(300, 3000), rng.uniform(5, 60), rng.uniform(5, 60))
    rules = ReplayRules(
        restart_s=rng.choice([0.0, rng.uniform(1, 20)]),
        data=rng.choice(["while", "before"]),
        failures=failures if rng.random() < 0.5 else None,
        seed=seed % 1000,
        span=str(rng.choice(["must", "free"])),
    )
    workload, tenants = _workload(rng, site, jobs), _tenants(rng, site) if rng.random() < 0.5 else None
    return World(workload, site, offers, rules, tenants, _slowdown(rng, site, workload, offers))


def _site(rng: np.random.Generator, domains: int) -> JobSite:
    """Domains all joined, by links that move now and then, or carry nothing for a while, some one way only; devices of
    some domains are quicker."""
    unlike = rng.random() < 0.3
    pools = tuple(
        DevicePool(
            f"d{at}",
            "gpu",
            int(rng.integers(1, 4)),
            int(rng.choice([2, 4, 8])),
            speed=float(rng.choice([1.0, 0.5, 1.6])) if unlike else 1.0,
        )
        for at in range(domains)
    )
    size = (domains, domains)
    still = np.where(np.eye(domains) > 0, np.inf, 10 ** rng.uniform(8.3, 9.3, size))
    latency, usd = np.where(np.eye(domains) > 0, 0.0, rng.uniform(0.002, 0.08, size)), rng.uniform(0, 0.1, size)
    history = None
    if rng.random() < 0.7:
        times = np.cumsum(rng.exponential(30.0, rng.integers(1, 12)))
        share = rng.uniform(0.1, 1.5, (len(times), *size)) * (rng.random((len(times), *size)) > 0.2)
        share[:, rng.random(size) < rng.choice([0.0, 0.0, 0.2])] = 0.0  # out one way, until the last instant
        share[-1] = 1.0  # else who waits for an outage to end may wait for ever
        late = latency * rng.uniform(0.3, 3.0, share.shape) if rng.random() < 0.7 else None
        history = LinkHistory(times - 20.0, still * np.where(np.eye(domains) > 0, 1.0, share), latency_s=late)
    return JobSite(
        pools, *(tuple(map(tuple, each.tolist())) for each in (still, latency)), "drawn", history, usd.tolist()
    )


def _offers(rng: np.random.Generator) -> OfferTable:
    """One GPU and two in one domain for all; others of one to four parts, in chains and rings, quick and slow."""
    rows = []
    for kind in range(len(KINDS)):
        rows += [(kind, (1,), 1), (kind, (2,), 1)]
        for _ in range(rng.integers(3, 9)):
            block = int(rng.choice([1, 2, 4]))
            parts = sorted(rng.integers(1, 4, rng.choice([1, 2, 2, 3, 4])).tolist(), reverse=True)
            rows.append((kind, tuple(part * block for part in parts), block))
    count, latency, bandwidth = len(rows), np.array([0.01, 0.03, 0.06]), np.array([1e8, 3e8, 1e9])
    parts = np.array([len(gpus) for _, gpus, _ in rows])
    gpus = np.array([gpus + (0,) * (MOST_PARTS - len(gpus)) for _, gpus, _ in rows])
    rate = (
        np.sort(rng.uniform(0.3, 1.0, (count, 1, 3))) * np.sort(rng.uniform(0.6, 1.0, (count, 3, 1)), axis=1)[:, ::-1]
    )
    rate = np.where(parts[:, None, None] > 1, rate, rate[:, -1:, -1:]) * (gpus.sum(axis=1)[:, None, None] / 8.0) ** 0.8
    replicas = (parts > 1) & (rng.random(count) < 0.3)
    return OfferTable(
        kinds=KINDS,
        kind=np.array([kind for kind, _, _ in rows]),
        parts=parts,
        gpus=gpus,
        block=np.array([block for _, _, block in rows]),
        ring=(parts > 2) & (rng.random(count) < 0.5),
        layout=np.ones((count, 3), np.int64),
        rate=rate,
        hop_bytes=np.where(parts > 1, 10 ** rng.uniform(7.5, 9.5, count), 0.0),
        memory_left=np.full(count, 0.5),
        inside_comm=np.zeros(count),
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        tokens_per_s=10 ** rng.uniform(3.5, 5.5, len(KINDS)),
        state_bytes=10 ** rng.uniform(8.5, 10.5, len(KINDS)),
        state_share=np.where(replicas[:, None], gpus > 0, gpus / gpus.sum(axis=1, keepdims=True)),
    )


def _workload(rng: np.random.Generator, site: JobSite, jobs: int) -> JobWorkload:
    """Elastic jobs that fit into one domain and gangs that may not, with and without data; some serve in a bound."""
    found, largest = [], max(pool.devices for pool in site.pools)
    apart = rng.exponential(15.0, jobs) * (rng.random(jobs) >= rng.choice([0.0, 0.0, 0.4]))  # some come at once
    for number, arrival_s in enumerate(np.cumsum(apart).tolist()):
        terms = {"data_gb": float(rng.choice([0.0, rng.uniform(1, 60)])), "data_at": str(rng.choice(site.domains))}
        duration_s = float(np.exp(rng.normal(3.7, 0.8)))
        if rng.random() < 0.75:
            kind, most = KINDS[rng.integers(len(KINDS))], int(rng.integers(2, 25))
            terms |= {"model": kind.model, "batch": kind.batch, "seq": kind.seq, "tokens": 1e6}
            terms |= {"least": int(rng.integers(1, 3)), "most": most, "devices": most}
        else:
            terms["devices"] = int(rng.integers(1, largest + 1))
            if rng.random() < 0.5:
                terms["devices"] *= int(rng.choice([2, 2, 3, 4]))
            elif rng.random() < 0.5:
                bound_s = float(rng.uniform(0.01, 0.1))
                terms |= {"kind": "deploy", "clients_at": str(rng.choice(site.domains)), "latency_bound_s": bound_s}
        found.append(Job(str(number), arrival_s, duration_s, user=f"owner {number % 3}", **terms))
    return JobWorkload.of(found)


def _slowdown(rng: np.random.Generator, site: JobSite, workload: JobWorkload, offers: OfferTable) -> Slowdown:
    """Most sets can be spanned, over a chain or a ring of most of their domains; the grid is that of the offers."""
    gangs = [workload.job(row) for row in np.flatnonzero(~workload.elastic).tolist()]
    kinds = tuple(dict.fromkeys(Kind(job.devices, trains=job.kind == "train") for job in gangs if job.devices > 1))
    domains = len(site.domains)
    factor, row = np.full((1 + len(kinds), 1 << domains), np.inf), np.full((1 + len(kinds), 1 << domains), -1)
    factor[:, [1 << domain for domain in range(domains)]] = 1.0
    routes, ring, one_way = [], [], []
    for kind, number in np.argwhere(np.isinf(factor[1:])).tolist():
        spans = [domain for domain in range(domains) if number >> domain & 1]
        if len(spans) > 1 and rng.random() < 0.9:
            factor[1 + kind, number] = rng.uniform(1, 3)
            if rng.random() < 0.8:
                row[1 + kind, number] = len(routes)
                routes.append(rng.permutation(spans)[: rng.integers(2, len(spans) + 1)].tolist())
                ring.append(len(routes[-1]) > 2 and rng.random() < 0.6)
                one_way.append(ring[-1] and rng.random() < 0.5)
    found, parts = len(routes), np.array([len(each) for each in routes], np.int64)
    there = np.arange(MOST_PARTS) < parts[:, None]
    size = (found, len(offers.latency_s), len(offers.bandwidth_bytes_per_s))
    rate = np.sort(rng.uniform(0.3, 1.0, size)) * np.sort(rng.uniform(0.6, 1.0, (found, size[1], 1)), axis=1)[:, ::-1]
    table = OfferTable(
        kinds=(),
        kind=np.full(found, -1),
        parts=parts,
        gpus=there.astype(np.int64),
        block=np.ones(found, np.int64),
        ring=np.array(ring, bool),
        layout=np.ones((found, 3), np.int64),
        rate=rate,
        hop_bytes=10 ** rng.uniform(7.5, 9.5, found),
        memory_left=np.zeros(found),
        inside_comm=np.zeros(found),
        bandwidth_bytes_per_s=offers.bandwidth_bytes_per_s,
        latency_s=offers.latency_s,
        tokens_per_s=np.zeros(0),
        state_bytes=np.zeros(0),
        state_share=np.where(there, np.where(np.array(one_way, bool)[:, None], 1.0, 0.25), 0.0),
    )
    route = np.array([[*each, *(-1,) * (MOST_PARTS - len(each))] for each in routes], np.int64).reshape(-1, MOST_PARTS)
    usd_per_s = np.where(np.isfinite(factor), rng.uniform(0, 0.1, factor.shape), 0.0)
    return Slowdown(kinds, factor, usd_per_s, Exchange(row, route, table))


def _tenants(rng: np.random.Generator, site: JobSite) -> Tenants:
    """Now and then some of a node; at last all is given back."""
    nodes = [pool.per_node for pool in site.pools for _ in range(pool.nodes)]
    times = np.cumsum(rng.exponential(10.0, rng.integers(1, 30)))
    node, devices = rng.integers(0, len(nodes), len(times)), rng.integers(-4, 9, len(times))
    back = times[-1] + np.cumsum(rng.exponential(10.0, len(nodes)))
    whole = np.concatenate([node, np.arange(len(nodes))]), np.concatenate([devices, np.full(len(nodes), -8)])
    return Tenants(np.concatenate([times, back]) - 5.0, *whole)


class Restless:
    """Begins jobs anywhere they can run, pauses them without a reason, and now and then weighs one more or less."""

    name, summary, knows, preempts, learns = "restless", "By chance.", "nothing", True, False

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.paused: Counter[str] = Counter()  # by name: numbers change in a queue that lives

    def decide(self, moment: Moment) -> None:
        for job in moment.running.tolist():
            name = moment.workload.name(job)
            if self.rng.random() < 0.1:
                moment.weigh(job, self.rng.uniform(0.3, 3.0))
            if moment.workload.elastic[job] and self.rng.random() < 0.4 and self.paused[name] < 2 * MOST_PAUSES:
                self.paused[name] += self.go(moment, job)
            if self.rng.random() < 0.15 and self.paused[name] < MOST_PAUSES:
                self.paused[name] += 1
                self.move(moment, job)
        for job in self.rng.permutation(moment.waiting).tolist():
            if self.rng.random() < 0.7 or not len(moment.running):
                self.begin(moment, job)

    def go(self, moment: Moment, job: int) -> bool:
        """Go somewhere else in the background, or give that up."""
        if moment.moves(job):
            if self.rng.random() < 0.2:
                moment.stay(job)
            return False
        places = moment.places(job)
        return bool(places) and moment.move(job, places[self.rng.integers(len(places))])

    def move(self, moment: Moment, job: int) -> None:
        """Pause, or go on at once somewhere else or in another way."""
        places = moment.places(job) if moment.workload.elastic[job] and self.rng.random() < 0.5 else []
        if places:
            assert moment.resize(job, places[self.rng.integers(len(places))])
        else:
            moment.pause(job)

    def begin(self, moment: Moment, job: int) -> None:
        if not moment.workload.elastic[job]:
            moment.start(job)
            return
        places = moment.places(job)
        spanning = [place for place in places if len(place.domains) > 1]
        if spanning and self.rng.random() < 0.5:
            places = spanning
        if places:
            place = places[self.rng.integers(len(places))]
            assert moment.begin(job, place)
            if not moment.workload.data_gb[job] and not moment.world.mark[job, [c.STOPS, c.FAILED]].any():
                assert moment.running_at(job).rate == pytest.approx(place.rate), "not as promised"
