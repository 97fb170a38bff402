"""Small worlds of jobs as Hypothesis draws them: times in whole seconds, speeds in powers of two, so sums are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from hippo.jobs.job import Job
from hippo.jobs.placement.slowdown import Kind, Slowdown
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import DevicePool, JobSite, site
from hippo.jobs.workload import JobWorkload
from hippo.registry import JOB_POLICIES, job_policy

NAMES = tuple(name for name in JOB_POLICIES if not job_policy(name).learns)
OWN = {"two_queue": {"levels": (24.0,), "promotes_after": 2.0}, "backfill": {"patience_s": 30.0}}
"""Levels and patience on the scale of these worlds."""


@dataclass(frozen=True)
class Drawn:
    """What a replay takes."""

    workload: JobWorkload
    site: JobSite
    settings: ReplayRules
    slowdown: Slowdown


@st.composite
def sites(draw: st.DrawFn) -> JobSite:
    """One to three domains of a pool or two."""
    pools = []
    for domain in range(draw(st.integers(1, 3))):
        for kind in draw(st.sampled_from([("gpu",), ("gpu",), ("gpu", "cpu")])):
            nodes, per_node = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
            speed, memory_gb = draw(st.sampled_from([1.0, 2.0, 0.5])), draw(st.sampled_from([80.0, 16.0]))
            pools.append(DevicePool(f"d{domain}", kind, nodes, per_node, speed, memory_gb))
    return site(pools, draw(st.sampled_from([math.inf, 1e9, 4e9])), draw(st.sampled_from([0.0, 1.0])))


@st.composite
def jobs(draw: st.DrawFn, name: str, arrival_s: float) -> Job:
    """A job of any sort, at times one that can never run."""
    duration_s = draw(st.sampled_from([1.0, 5.0, 10.0, 40.0, 100.0, 300.0]))
    return Job(
        name,
        arrival_s,
        duration_s,
        draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8, 12])),
        user=draw(st.sampled_from("abc")),
        runs_on=draw(st.sampled_from([(), (), ("gpu",), ("cpu",), ("tpu",)])),
        memory_gb=draw(st.sampled_from([0.0, 40.0])),
        priority=draw(st.integers(0, 2)),
        deadline_s=draw(st.sampled_from([None, arrival_s + 2 * duration_s, arrival_s + duration_s + 5])),
        estimate_s=draw(st.sampled_from([None, duration_s, 2 * duration_s, 20.0])),
        data_gb=draw(st.sampled_from([0.0, 8.0])),
        data_at=draw(st.sampled_from(["", "d0", "d1"])),
    )


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """A world with all that the rules know."""
    place, arrival_s, found = draw(sites()), 0.0, []
    for number in range(draw(st.integers(1, 12))):
        arrival_s += draw(st.sampled_from([0.0, 1.0, 5.0, 20.0]))
        found.append(draw(jobs(str(number), arrival_s)))
    failures = st.builds(Failures, st.sampled_from([200.0, 1000.0]), st.just(16.0), st.sampled_from([4.0, 16.0]))
    settings = st.builds(
        ReplayRules,
        restart_s=st.sampled_from([0.0, 2.0, 8.0]),
        span=st.sampled_from(["never", "must", "free"]),
        data=st.sampled_from(["before", "while"]),
        failures=st.none() | failures,
        seed=st.integers(0, 9),
        round_s=st.sampled_from([16.0, 64.0]),
    )
    workload = JobWorkload.of(found)
    return Drawn(workload, place, draw(settings), draw(slowdowns(workload, len(place.domains))))


@st.composite
def slowdowns(draw: st.DrawFn, workload: JobWorkload, domains: int) -> Slowdown:
    """Any table: most sets can be spanned, at a price."""
    there = {(job.devices, job.runs_on) for job in map(workload.job, range(len(workload)))}
    kinds = tuple(Kind(devices, runs_on=runs_on) for devices, runs_on in sorted(there) if devices > 1)
    factor = np.full((1 + len(kinds), 1 << domains), np.inf)
    factor[:, [1 << domain for domain in range(domains)]] = 1.0
    for row in range(1, len(factor)):
        for chosen in range(1, 1 << domains):
            if chosen.bit_count() > 1:
                factor[row, chosen] = draw(st.sampled_from([np.inf, 1.0, 2.0, 4.0]))
    return Slowdown(kinds, factor, np.zeros_like(factor))
