"""A day that is told to the service, submission by submission, point by point, leads to the decisions of its
replay, one for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hippo.jobs.engine import world as c
from hippo.jobs.job import Job
from hippo.jobs.joint.live import TenantNow
from hippo.jobs.joint.moment import Moment, Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.settings import ReplayRules, Tenants
from hippo.jobs.site import JobSite, LinkHistory
from hippo.jobs.workload import JobWorkload
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load
from hippo.serve.domains import DomainNow, domains_written
from hippo.serve.records import LinkPoint
from hippo.serve.site import job_of
from hippo.serve.telemetry import written

from .worlds import JOB, KIND, Clock, Served, offers, url

EPOCH_S = 1_800_000_000.0
Stands = Mapping[float, tuple[tuple[str, int, int, tuple[int, ...], float], ...]]


class Diary:
    """Writes down how all jobs stand after every decision."""

    name = "diary"

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner
        self.rows: dict[float, Any] = {}

    def decide(self, moment: Moment) -> None:
        self.inner.decide(moment)
        world, found = moment.world, []
        for job in (*moment.waiting.tolist(), *moment.running.tolist()):
            mark = world.mark[job]
            runs = mark[c.STATUS] == c.RUNNING
            where = tuple(world.part[job].tolist()) if runs and mark[c.ELASTIC] else (int(mark[c.POOL]),) * int(runs)
            row = (moment.workload.name(job), int(mark[c.STATUS]), int(mark[c.OFFER]), where)
            found.append((*row, float(world.job[job, c.FINISH])))
        self.rows[moment.now_s] = tuple(sorted(found))


def day(seed: int) -> tuple[list[tuple[float, dict[str, Any]]], list[tuple[float, np.ndarray]]]:
    """Submissions, and what links carry from a time on; every time is a whole half of a second of its own."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.choice(40_000, 44, replace=False)) / 2.0 + 1.0
    domains = len(load_cluster("four-hubs").domains)
    jobs, links = [], []
    for at, time_s in enumerate(times.tolist()):
        if at % 4 == 3:
            rate = np.full((domains, domains), np.inf)
            rate[~np.eye(domains, dtype=bool)] = 1.25e9 * rng.uniform(0.02, 1.0, domains * (domains - 1))
            links.append((time_s, rate))
        elif rng.random() < 0.4:
            jobs.append((time_s, {"devices": int(rng.choice([4, 8, 16])), "duration_s": float(rng.integers(60, 4000))}))
        else:
            sizes = {"least": int(rng.choice([8, 16])), "most": 16, "priority": int(rng.integers(0, 3))}
            jobs.append((time_s, {**JOB, **sizes, "tokens": float(rng.integers(1, 40)) * 1e7}))
    return jobs, links


def nodes(seed: int) -> list[tuple[float, DomainNow]]:
    """How many GPUs of a domain can be used from a time on; at the end all."""
    rng, names = np.random.default_rng([seed, 1]), [each.name for each in load_cluster("four-hubs").domains]
    times = np.sort(rng.choice(20_000, 24, replace=False)) + 1.25
    rows = [(each, names[rng.integers(4)], int(rng.integers(0, 17)) * 4) for each in times.tolist()]
    rows += [(20_100.25 + at, name, 64) for at, name in enumerate(names)]
    return [(time_s, DomainNow(EPOCH_S + time_s, name, gpus, "me")) for time_s, name, gpus in rows]


def replayed(seed: int, name: str, taken: Sequence[TenantNow] = ()) -> Stands:
    jobs, links = day(seed)
    others = np.array([[each.time_s, each.node, each.devices] for each in taken]).reshape(-1, 3)
    tenants = Tenants(others[:, 0], others[:, 1].astype(np.int64), others[:, 2].astype(np.int64)) if taken else None
    site = JobSite.of(load_cluster("four-hubs"))
    late = np.array(site.latency_s)
    times = np.array([-1e6, *(time_s for time_s, _ in links)])
    carries = np.array([np.array(site.bandwidth_bytes_per_s), *(rate for _, rate in links)])
    site = replace(site, history=LinkHistory(times, carries, "a day", np.array([late] * len(times))))
    told: list[Job] = [job_of(spec, f"j{at + 1}", "me", time_s) for at, (time_s, spec) in enumerate(jobs)]
    workload = JobWorkload.of(told)
    diary = Diary(load(JOB_SCHEDULERS, "policy", name))
    table = offers()
    pace = dict(zip(table.kinds, table.tokens_per_s.tolist(), strict=True))
    play_jointly(workload.timed(pace), site, diary, ReplayRules(), offers=table, tenants=tenants)  # type: ignore[arg-type]
    return diary.rows


def served(seed: int, name: str, folder: Path, *, nodes_too: bool = False) -> tuple[Stands, int, list[TenantNow]]:
    jobs, links = day(seed)
    taken = list[TenantNow]()
    clock = Clock(EPOCH_S)
    made = Served.of(url(folder), clock, scheduler=name)
    diary = Diary(made.loop._held.scheduler)
    made.loop._held.scheduler = diary  # type: ignore[assignment]
    domains, tell = made.loop.site.live.site.domains, made.loop.site.live.tell

    def told(*, tenants: Sequence[TenantNow] = (), **rest: Any) -> None:
        taken.extend(tenants)
        tell(tenants=tenants, **rest)

    made.loop.site.live.tell = told  # type: ignore[method-assign]
    down = nodes(seed) if nodes_too else []
    news: list[tuple[float, Any]] = sorted([*jobs, *links, *down], key=lambda each: each[0])
    for time_s, what in news:
        clock.now_s = EPOCH_S + time_s
        if isinstance(what, dict):
            made.submit(**{key: what.get(key, type(value)()) for key, value in JOB.items()}, **only(what))
        elif isinstance(what, DomainNow):
            made.store.write(domains_written(made.loop.site.live.site, [what], clock.now_s)).result()
            made.loop.tell_domains([what])
        else:
            points = [
                LinkPoint(clock.now_s, a, b, float(what[at, to]), None, "me")
                for at, a in enumerate(domains)
                for to, b in enumerate(domains)
                if at != to
            ]
            made.store.write(written(points)).result()
            made.loop.points(points)
        made.turn()
    for _ in range(60):
        made.turn(3000.0)
    decisions = made.decisions()
    assert all(each.state in ("ordered", "carried out") for each in decisions)
    made.close()
    return diary.rows, len(decisions), taken


def only(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in JOB}


@pytest.mark.parametrize("name", ["srpt", "sla_morl", "hi_ppo"])
@pytest.mark.parametrize("seed", range(2))
def test_a_day_told_to_the_service_leads_to_the_decisions_of_its_replay(seed: int, name: str, tmp_path: Path):
    assert KIND.model == JOB["model"]
    second, decisions, _ = served(seed, name, tmp_path)
    assert decisions > 20
    alike(replayed(seed, name), second)


@pytest.mark.parametrize("name", ["srpt", pytest.param("hi_ppo", marks=pytest.mark.slow)])
def test_so_does_one_on_which_nodes_go_and_come(name: str, tmp_path: Path):
    """The replay has other tenants where the queue took them, which the queue is asked for: the store keeps counts."""
    second, decisions, taken = served(3, name, tmp_path, nodes_too=True)
    assert decisions > 20
    assert sum(each.devices for each in taken) == 0
    assert sum(each.devices > 0 for each in taken) > 20
    alike(replayed(3, name, taken), second)


def alike(first: Stands, second: Stands) -> None:
    times, again = ([time_s for time_s, rows in each.items() if rows] for each in (first, second))  # somebody is there
    assert np.array(again) == pytest.approx(np.array(times), abs=1e-5)
    for one, other in zip(times, again, strict=True):
        assert [row[:4] for row in first[one]] == [row[:4] for row in second[other]], one
        assert [row[4] for row in second[other]] == pytest.approx([row[4] for row in first[one]], abs=1e-4)
