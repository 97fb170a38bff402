"""Worlds played under several schedulers: a row for each world and scheduler, of plain values that any process can send
back, and that whoever reads them can derive every figure from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.figures import figures
from hippo.jobs.joint.env import WorldScene, prices
from hippo.jobs.joint.evaluate.hindsight import search
from hippo.jobs.joint.evaluate.relaxation import bound
from hippo.jobs.joint.evaluate.worlds import WorldDraw, WorldGround
from hippo.jobs.joint.figures import world_figures
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.record import Recorder
from hippo.jobs.joint.rules import Ranked
from hippo.jobs.joint.settings import fitting
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.data import egress_usd
from hippo.machine import shared_out
from hippo.planners.base import Progress

Floats = NDArray[np.float64]
Row = dict[str, Any]

COUNTED = ("verified", "changed", "degraded")
"""Of ``Moment.counts``: in a row of every method."""
BOUNDS = ("relaxation", "search")
"""What no scheduler can undercut (``relaxation``), and the best that is found with hindsight (``hindsight``)."""


@dataclass(frozen=True)
class WorldMethod:
    """Who plays: a name, and the scheduler. Several of one name are policies of several seeds."""

    name: str
    scheduler: Scheduler
    policy: str = ""  # file of what was learned


@dataclass(frozen=True, eq=False)
class WorldSuite:
    """What is played."""

    ground: WorldGround
    methods: Sequence[WorldMethod]
    bounds: Sequence[str] = ()  # of ``BOUNDS``
    rules: Sequence[Scheduler] = ()  # that the search starts from, beside the methods


def stays_s(ledger: Ledger, arrival_s: Floats) -> Floats:
    """(n,) seconds in the system; a job that never ended counts as if it ended at twice the last one's end."""
    ended = ledger.ran
    last_s = float(ledger.finish_s[ended].max()) if ended.any() else float(arrival_s[-1])
    found: Floats = np.where(ended, ledger.finish_s, 2.0 * last_s) - arrival_s
    return found


def priced_s(scene: WorldScene, scheduler: Scheduler) -> float:
    """What a scheduler costs in a world: the mean of the jobs' time in the system, each by its price (of mean 1)."""
    ledger = play_jointly(
        scene.workload, scene.site, scheduler, scene.settings, offers=scene.offers, tenants=scene.tenants
    )
    return float(np.mean(stays_s(ledger, scene.workload.arrival_s) * prices(scene)))


def played(scene: WorldScene, scheduler: Scheduler) -> Row:
    """The figures of one play: those of ``jobs.figures`` and ``joint.figures``, and when each job ended."""
    work, site, recorder = scene.workload, scene.site, Recorder()
    terms = {"offers": scene.offers, "tenants": scene.tenants}
    began = time.process_time()
    ledger = play_jointly(work, site, scheduler, scene.settings, recorder=recorder, **terms)  # type: ignore[arg-type]
    cpu_s = time.process_time() - began
    needed = replace(work, duration_s=work.duration_s / scene.offers.quickest(work))
    all_of, stay_s = figures(ledger, needed, site), stays_s(ledger, work.arrival_s)
    record = recorder.record()
    world = world_figures(record, ledger, work, site, scene.offers)
    promised = np.isfinite(work.deadline_s)
    late = stay_s + work.arrival_s > work.deadline_s
    usd = np.array(site.usd_per_gb) if site.usd_per_gb else np.zeros_like(ledger.link_gb)
    return {
        "priced_s": float(np.mean(stay_s * prices(scene))),
        "mean_completion_s": float(stay_s.mean()),
        "p95_completion_s": float(np.quantile(stay_s, 0.95)),
        "goodput": world.goodput,
        "deadlines_missed": float(late[promised].mean()) if promised.any() else None,
        "fairness": all_of.fairness,
        "egress_gb": all_of.egress_gb,
        "egress_usd": egress_usd(ledger.link_gb, usd) + float(np.nansum(ledger.exchange_usd)),
        "interruption_s": world.interruption_s,
        "fragmentation": world.fragmentation,
        "unwanted": world.unwanted,
        "stops": float(ledger.preemptions.mean()),
        "moves": world.moves,
        "not_ended": int((~ledger.ran).sum()),
        "cpu_s": cpu_s,
        **{f"decisions_{name}": record.counts.get(name, 0) for name in COUNTED},
        "finish_s": [end if np.isfinite(end) else None for end in ledger.finish_s.tolist()],
    }


def jobs_of(scene: WorldScene) -> list[Row]:
    """What a world asks: a row for each job, in the order of ``finish_s``."""
    work, price = scene.workload, prices(scene)
    return [
        {
            "job": work.name(job),
            "user": work.users[work.user[job]],
            "arrival_s": float(work.arrival_s[job]),
            "work_s": float(work.duration_s[job]),
            "told_s": float(work.told_s[job]),
            "devices": int(work.devices[job]),
            "priority": int(work.priority[job]),
            "deadline_s": float(work.deadline_s[job]) if np.isfinite(work.deadline_s[job]) else None,
            "price": float(price[job]),
        }
        for job in range(len(work))
    ]


def rows_of(draw: WorldDraw, suite: WorldSuite) -> tuple[list[Row], list[Row]]:
    """One world played by everybody: a row each; and its jobs."""
    scene = suite.ground.scene(draw)
    world = {"world": draw.name, **vars(draw)}
    rows = []
    for method in suite.methods:
        who = {"method": method.name, "policy": method.policy}
        rows.append({**world, **who, **{key: _plain(value) for key, value in played(scene, method.scheduler).items()}})
    limits = _limits(scene, draw, suite, rows)
    for row in rows:
        row |= _beside(row, limits)
    return rows, [{"world": draw.name, **job} for job in jobs_of(scene)]


def _limits(scene: WorldScene, draw: WorldDraw, suite: WorldSuite, rows: Sequence[Row]) -> Row:
    """Bounds of a world, whoever plays it."""
    found, price = Row(), prices(scene)
    if "relaxation" in suite.bounds:
        limit = bound(scene, price)
        found |= {f"bound_{key}": _plain(value) for key, value in vars(limit).items()}
    if "search" in suite.bounds:
        stops = scene.settings.stops
        given = [fitting(each, stops) for each in (*suite.rules, *(each.scheduler for each in suite.methods))]
        rules = {each.name: each for each in given if isinstance(each, Ranked)}
        others = [
            (row["method"], np.array([np.nan if end is None else end for end in row["finish_s"]]))
            for row, each in zip(rows, suite.methods, strict=True)
            if not isinstance(fitting(each.scheduler, stops), Ranked) and not row["not_ended"]
        ]
        best = search(scene, price, tuple(rules.values()), others, seed=draw.seed)
        reached = min(best.cost / len(price), *(row["priced_s"] for row in rows))
        found |= {"best_priced_s": reached, "best_plays": best.plays, "best_start": best.start}
    return found


def _beside(row: Row, limits: Row) -> Row:
    """A row's figures beside the bounds of its world; none where jobs that can run never ended."""
    found = dict(limits)
    if row["not_ended"] > limits.get("bound_never", 0):
        return found
    for key, limit in (("of_bound", "bound_priced_s"), ("of_best", "best_priced_s")):
        if limit in limits:
            found[key] = limits[limit] / row["priced_s"]
    if limits.get("bound_goodput") and row["goodput"] is not None:
        found["goodput_of_bound"] = row["goodput"] / limits["bound_goodput"]
    return found


def _plain(value: Any) -> Any:
    """Nothing to measure is None: JSON has no nan."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def play_worlds(
    suite: WorldSuite,
    draws: Sequence[WorldDraw],
    *,
    processes: int = 1,
    ray: bool = False,
    watch: Progress | None = None,
) -> tuple[list[Row], list[Row]]:
    """Rows of all worlds, and of their jobs, in the order of the draws whatever the number of processes; ``ray``: or of
    workers of a Ray cluster."""
    found: dict[int, tuple[list[Row], list[Row]]] = {}
    for place, rows in shared_out(partial(rows_of, suite=suite), draws, processes, ray=ray):
        found[place] = rows
        if watch is not None:
            watch(draws[place].name, len(found) / len(draws))
    rows, jobs = zip(*(found[place] for place in range(len(draws))), strict=True)
    return [row for each in rows for row in each], [row for each in jobs for row in each]
