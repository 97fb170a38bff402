"""How long a job would wait: the queue as it stands with the job in it, played ahead, again and again, each time with
work that is left drawn anew around what was told, as nobody knows how long jobs really take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hippo.errors import InputError
from hippo.jobs.engine import world as c
from hippo.jobs.job import Job, TrainingKind
from hippo.jobs.joint.live import LiveWorld
from hippo.jobs.joint.rules import SRPT
from hippo.serve.loop import ServeLoop

DRAWS = 40
SPREAD = 0.5
"""Of the logarithm of work over what was told."""
LONGEST_S = 30 * 86400.0
INSIDE = (5.0, 95.0)
"""Percentiles between which nine of ten draws lie."""


def expected_wait(loop: ServeLoop, job: Job, *, seed: int = 0) -> dict[str, Any]:
    """Seconds until a job that came now would begin: the median and where nine of ten draws lie.

    Raises
    ------
    InputError
        It is not known what such training can run under, or the job can never run here.
    """
    with loop.lock:
        live, site = loop.site.live, loop.site
        now_s = max(live.now_s if live.moment is not None else 0.0, loop.now_s() - site.epoch_s)
        packed = live.packed() if live.moment is not None else None
        jobs = list(live.jobs)
        lacks = job.least > 0 and site.lacks(TrainingKind(job.model, job.batch, job.seq))
    if lacks:
        remedy = "submit one such job first: it is planned once, and kept"
        raise InputError(
            "nobody has planned such training here yet", source="job", key="model", value=job.model, remedy=remedy
        )
    (timed,) = site.timed([replace(job, arrival_s=now_s)])
    if why := _never(loop, timed):
        raise InputError(why, source="job", remedy="ask for less")
    found = [_wait_s(loop, timed, packed, jobs, np.random.default_rng([seed, draw])) for draw in range(DRAWS)]
    low, mid, high = (float(np.percentile(found, each)) for each in (INSIDE[0], 50.0, INSIDE[1]))
    return {
        "expected_wait_s": mid,
        "interval_s": [low, high],
        "interval_covers": 0.9,
        "draws": DRAWS,
        "ahead": "the rule srpt, work drawn around what was told, nobody else coming",
    }


def _never(loop: ServeLoop, job: Job) -> str:
    from hippo.jobs.joint.play import opened
    from hippo.jobs.workload import JobWorkload

    site = loop.site
    refused = opened(JobWorkload.of([job]), site.live.site, site.rules, offers=site.offers).refused
    return refused[0][1] if refused else ""


def _wait_s(loop: ServeLoop, job: Job, packed: bytes | None, jobs: list[Job], rng: np.random.Generator) -> float:
    site = loop.site
    trial = LiveWorld(site.live.site, SRPT, site.offers, site.rules, site.live.slowdown)
    if packed is not None:
        trial.restore(packed, jobs)
        assert trial.moment is not None
        left = trial.moment.world.job[:, c.LEFT]
        left *= np.exp(SPREAD * rng.standard_normal(len(left)))
        for each in trial.moment.running.tolist():
            work = trial.moment.world.job[each]
            share = float(work[c.LEFT] / work[c.DURATION])
            trial.progress(trial.moment.workload.name(each), share, job.arrival_s)
    trial.submit([job])
    site.heed(job.arrival_s + site.epoch_s, stops=False, trial=trial)
    for moment in trial.until(job.arrival_s + LONGEST_S):
        row = next((at for at, each in enumerate(trial.jobs) if each.name == job.name), None)
        if row is not None and np.isfinite(moment.world.job[row, c.FIRST]):
            return float(moment.world.job[row, c.FIRST]) - job.arrival_s
    return LONGEST_S
