"""Small sites that are served in tests: four hubs, and offers of one model that nobody has to plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sql

from hippo.jobs.job import TrainingKind
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.settings import ReplayRules
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_cluster
from hippo.registry import JOB_SCHEDULERS, load
from hippo.serve import tables as t
from hippo.serve.actuators.base import Actuator
from hippo.serve.actuators.paper import Paper
from hippo.serve.loop import LoopTerms, ServeLoop
from hippo.serve.records import StoredDecision, StoredJob
from hippo.serve.site import ServedSite
from hippo.serve.steering import Steering
from hippo.serve.store import Store, decision_of_row, job_of_row

KIND = TrainingKind("gpt-2.7b", 64, 2048)
JOB = {"model": KIND.model, "batch": KIND.batch, "seq": KIND.seq, "tokens": 1e9, "least": 8, "most": 16}


def offers() -> OfferTable:
    """8 or 16 GPUs in one domain, 8 in each of two."""
    rate = np.array([0.55, 1.0, 0.95])[:, None, None] * np.ones((3, 2, 3))
    rate[2] *= np.array([0.2, 0.6, 1.0])
    table = OfferTable(
        kinds=(KIND,),
        kind=np.zeros(3, np.int64),
        parts=np.array([1, 1, 2]),
        gpus=np.array([[8, 0, 0, 0], [16, 0, 0, 0], [8, 8, 0, 0]]),
        block=np.array([8, 8, 8]),
        ring=np.zeros(3, np.bool_),
        layout=np.array([[1, 8, 1], [2, 8, 1], [1, 8, 2]]),
        rate=rate,
        hop_bytes=np.array([0.0, 0.0, 1e8]),
        memory_left=np.full(3, 0.3),
        inside_comm=np.full(3, 0.1),
        bandwidth_bytes_per_s=np.array([1e7, 1e8, 1e9]),
        latency_s=np.array([0.001, 0.1]),
        tokens_per_s=np.array([1e5]),
        state_bytes=np.array([4e10]),
    )
    table.check()
    return table


def whole_offer(kind: TrainingKind, gpus: Sequence[int]) -> OfferTable:
    """All devices of all domains (``gpus`` of each), at one rate wherever links stand."""
    table = OfferTable(
        kinds=(kind,),
        kind=np.zeros(1, np.int64),
        parts=np.array([len(gpus)]),
        gpus=np.array([[*gpus, *[0] * (4 - len(gpus))]]),
        block=np.array([min(8, gpus[0])]),  # of a node
        ring=np.zeros(1, np.bool_),
        layout=np.array([[1, min(8, gpus[0]), len(gpus)]]),
        rate=np.ones((1, 2, 3)),
        hop_bytes=np.array([1e4]),
        memory_left=np.full(1, 0.3),
        inside_comm=np.full(1, 0.1),
        bandwidth_bytes_per_s=np.array([1e6, 1e7, 1e8]),
        latency_s=np.array([0.001, 0.1]),
        tokens_per_s=np.array([1e4]),
        state_bytes=np.array([1e7]),
    )
    table.check()
    return table


@dataclass
class Clock:
    """Says what it is told."""

    now_s: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Served:
    """A loop that is turned by hand."""

    store: Store
    loop: ServeLoop
    clock: Clock
    numbers: list[int] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        url: str,
        clock: Clock,
        *actuators: Actuator,
        scheduler: str | Scheduler = "srpt",
        rules: ReplayRules | None = None,
        without: str = "",
        renamed: tuple[str, str] = ("", ""),
        cluster: str | Cluster = "four-hubs",
        steering: Steering | None = None,
        table: OfferTable | None = None,
        **terms: Any,
    ) -> Served:
        store = Store(url)
        rule = load(JOB_SCHEDULERS, "policy", "srpt")
        decides = load(JOB_SCHEDULERS, "policy", scheduler) if isinstance(scheduler, str) else scheduler
        cluster = load_cluster(cluster)
        domains = tuple(each for each in cluster.domains if each.name != without)
        links = tuple(each for each in cluster.links if without not in (each.source, each.destination))

        def named(name: str) -> str:
            return renamed[1] if name == renamed[0] else name

        domains = tuple(replace(each, name=named(each.name)) for each in domains)
        ends = [(named(each.source), named(each.destination)) for each in links]
        links = tuple(replace(each, source=a, destination=b) for each, (a, b) in zip(links, ends, strict=True))
        cluster = replace(cluster, domains=domains, links=links)
        site = ServedSite.of(cluster, decides, 1_800_000_000.0, rules)
        site.learn(offers() if table is None else table)
        told = LoopTerms(**{"mode": "act", **terms})
        loop = ServeLoop(store, site, actuators or (Paper(),), told, rule=rule, clock=clock, steering=steering)
        loop._held.limit_s = None  # no test asks a clock
        return cls(store, loop, clock)

    def submit(self, **spec: Any) -> str:
        from hippo.serve.jobs import take_in

        spec = {**JOB, **spec}
        key = f"k{len(self.numbers)}-{self.clock.now_s}"
        taken, new = self.store.write(take_in(spec, key, "me", self.clock.now_s)).result()
        self.loop.come(taken, new)
        self.numbers.append(taken.number)
        return taken.name

    def approve(self, number: int) -> None:
        """Say yes to a proposal."""
        row = sql.update(t.DECISIONS).where(t.DECISIONS.c.number == number)
        self.store.write(lambda at: at.execute(row.values(state="approved", by="me"))).result()

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.now_s += seconds
        self.loop.turn()

    def jobs(self) -> dict[str, StoredJob]:
        rows = self.store.read(lambda at: at.execute(sql.select(t.JOBS)).all())
        return {each.name: each for each in map(job_of_row, rows)}

    def decisions(self) -> list[StoredDecision]:
        rows = self.store.read(lambda at: at.execute(sql.select(t.DECISIONS).order_by("number")).all())
        return [decision_of_row(each) for each in rows]

    def close(self) -> None:
        self.loop.close()
        self.store.close()


def until(served: Served, what: Callable[[], object]) -> None:
    """Turn until something holds: actuators answer from threads of their own, however busy the machine is."""
    end_s = time.monotonic() + 900.0
    while not what():
        assert time.monotonic() < end_s, "it never came about"
        served.turn(0.02)
        time.sleep(0.005)


SERVER = "HIPPO_TEST_POSTGRESQL"
"""Environment variable: where PostgreSQL answers; the suite then runs on it (``test_postgresql``)."""


def url(folder: Path) -> str:
    """Of a store for what is tested in a folder."""
    server = os.environ.get(SERVER)
    if server is None:
        return f"sqlite:///{folder / 'store.db'}"
    name = "t" + sha256(str(folder).encode()).hexdigest()[:16]
    engine = sql.create_engine(f"postgresql+psycopg://hippo@/postgres?host={server}", isolation_level="AUTOCOMMIT")
    with engine.connect() as at:
        if not at.execute(sql.text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": name}).scalar():
            at.execute(sql.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"postgresql://hippo@/{name}?host={server}"
