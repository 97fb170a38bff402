"""The account of a command that replays jobs: what was asked, and one play per policy; as data for tables and pages."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hippo.jobs.engine.play import play
from hippo.jobs.figures import JobGroup, ReplayFigures, figures
from hippo.jobs.joint.figures import WorldFigures, stopped_s, world_figures
from hippo.jobs.joint.moment import Scheduler
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.record import Recorder, Run, WorldRecord
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.data import egress_usd, prices_usd_per_gb
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.placement.slowdown import Slowdown
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import ReplayRules
from hippo.jobs.site import JobSite
from hippo.jobs.traces.load import JobTrace
from hippo.jobs.workload import JobWorkload
from hippo.problem.cluster import Cluster

MOST_NAMED = 10_000
"""Refused jobs, and stops, that a document names; figures count all."""


@dataclass(frozen=True, eq=False)
class Play:
    """One replay."""

    policy: QueuePolicy | Scheduler
    ledger: Ledger
    figures: ReplayFigures
    egress_usd: float  # for data moved and for what spanning jobs exchanged
    seconds: float  # that the replay took
    record: WorldRecord | None = None  # where jobs are elastic
    world: WorldFigures | None = None  # of it


@dataclass(frozen=True, eq=False)
class ReplayAccount:
    """What was asked, and what came of it; the first play is the one that was asked for."""

    source: str
    trace: JobTrace
    workload: JobWorkload
    cluster: Cluster
    site: JobSite
    settings: ReplayRules
    slowdown: Slowdown | None
    load: float  # offered, on the devices that the jobs run on
    left_out: Mapping[str, int]  # reason -> jobs
    remarks: tuple[str, ...]
    offers: OfferTable | None = None  # of elastic jobs; None: all are gangs
    learner: LearnedSetup | None = None  # weights and past of policies that learn; None: the shipped weights, no past
    plays: tuple[Play, ...] = ()

    @property
    def first(self) -> Play:
        """The play that was asked for."""
        return self.plays[0]

    @property
    def ran(self) -> bool:
        """Whether any job ran."""
        return bool(self.plays) and self.first.figures.jobs > 0

    @property
    def refused(self) -> tuple[tuple[str, int], ...]:
        """Reasons for which jobs were refused, and how many, the most frequent first."""
        return tuple(Counter(reason for _, reason in self.first.ledger.refused).most_common())

    def document(self) -> dict[str, Any]:
        """The document of ``hippo jobs replay --json``: the keys of the first play, all plays in ``rows``."""
        names = self.workload
        return {
            **row(self.first),
            "trace": self.source,
            "format": self.trace.format,
            "cluster": self.cluster.name,
            "devices": self.site.devices,
            "load": _told(self.load),
            "span": self.settings.span,
            "data": self.settings.data,
            "restart_s": self.settings.restart_s,
            "seed": self.settings.seed,
            "past_jobs": 0 if self.learner is None or self.learner.past is None else len(self.learner.past),
            "passed_over": dict(self.trace.passed),
            "left_out": dict(self.left_out),
            "refused_jobs": [
                {"job": names.name(job), "devices": int(names.devices[job]), "reason": reason}
                for job, reason in self.first.ledger.refused[:MOST_NAMED]
            ],
            "users": [_group(each) for each in self.first.figures.users],
            "sizes": [_group(each) for each in self.first.figures.sizes],
            "rows": [row(each) for each in self.plays],
            **({} if self.first.record is None else self._happened(self.first.record)),
        }

    def job_rows(self) -> list[dict[str, Any]]:
        """A row a job of the first play, from which its figures can be derived. Where jobs are elastic also
        ``work_device_s``: what was done when the last job came, in device-seconds at the reference."""
        jobs, ledger, record = self.workload, self.first.ledger, self.first.record
        columns = {
            "arrival_s": jobs.arrival_s,
            "first_start_s": ledger.first_start_s,
            "finish_s": ledger.finish_s,
            "run_s": ledger.run_s,
            "devices": jobs.devices,
            "priority": jobs.priority,
            "stops": ledger.preemptions,
            "failures": ledger.failures,
            "moved_gb": ledger.moved_gb,
        }
        if record is not None and self.offers is not None:
            columns["work_device_s"] = record.work_s * self.offers.device_s(jobs) / jobs.duration_s
        told = {name: column.tolist() for name, column in columns.items()}
        return [
            {"job": jobs.name(job), **{name: _told(column[job]) for name, column in told.items()}}
            for job in range(len(jobs))
        ]

    def _happened(self, record: WorldRecord) -> dict[str, Any]:
        """Stops of the first play, and what went over each link."""
        domains, jobs, gb = self.site.domains, self.workload, self.first.ledger.link_gb

        def held(run: Run) -> dict[str, int]:
            return {domains[domain]: devices for domain, devices in run.gpus}

        stops = [
            {
                "job": jobs.name(before.job),
                "time_s": before.end_s,
                "why": before.ended,
                "for": jobs.name(before.for_job) if before.for_job >= 0 else None,
                "from": held(before),
                "to": held(after),
                "again_s": after.begin_s,
                "stopped_s": stopped_s(before, after),
                "state_gb": after.state_gb,
                "state_usd": after.state_usd,
            }
            for before, after in record.stops[:MOST_NAMED]
        ]
        links = [
            {"from": domains[here], "to": domains[there], "gb": float(gb[here, there])}
            for here, there in np.argwhere(gb > 0).tolist()
        ]
        return {"stops": stops, "links": links}


def played(
    account: ReplayAccount, policy: QueuePolicy | Scheduler, *, watch: Callable[[int, int], None] | None = None
) -> ReplayAccount:
    """The account with one replay more; elastic jobs take a scheduler."""
    begun = time.perf_counter()
    asked, record, world = (account.workload, account.site), None, None
    if account.offers is None:
        assert isinstance(policy, QueuePolicy), "gangs are ranked"
        learner = account.learner if policy.learns else None
        ledger = play(*asked, policy, account.settings, slowdown=account.slowdown, watch=watch, learner=learner)
        needed = account.workload
    else:
        assert not isinstance(policy, QueuePolicy), "elastic jobs are scheduled"
        recorder = Recorder()
        spans = account.slowdown
        ledger = play_jointly(
            *asked, policy, account.settings, offers=account.offers, slowdown=spans, recorder=recorder, watch=watch
        )
        record = recorder.record()
        world = world_figures(record, ledger, *asked, account.offers)
        needed = replace(
            account.workload, duration_s=account.workload.duration_s / account.offers.quickest(account.workload)
        )
    took_s = time.perf_counter() - begun
    prices = prices_usd_per_gb(account.cluster, account.site.domains)
    paid = egress_usd(ledger.link_gb, prices) + float(np.nansum(ledger.exchange_usd))
    found = Play(policy, ledger, figures(ledger, needed, account.site), paid, took_s, record, world)
    return replace(account, plays=(*account.plays, found))


def row(each: Play) -> dict[str, Any]:
    """The keys of one play."""
    found = {
        field.name: _told(getattr(each.figures, field.name))
        for field in fields(ReplayFigures)
        if field.name not in ("users", "sizes")
    }
    if each.world is not None:
        found |= {field.name: _told(getattr(each.world, field.name)) for field in fields(WorldFigures)}
    found["knows"], found["preempts"] = each.policy.knows, each.policy.preempts
    found["egress_usd"] = _told(each.egress_usd)
    found["events_per_s"] = round(each.figures.events / max(each.seconds, 1e-9))
    found["replay_s"] = round(each.seconds, 3)
    return found


def _group(group: JobGroup) -> dict[str, Any]:
    return {field.name: _told(getattr(group, field.name)) for field in fields(JobGroup)}


def _told(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
