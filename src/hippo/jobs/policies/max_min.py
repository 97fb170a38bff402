"""Gavel's max-min fairness over jobs, in rounds: who is furthest behind an equal share goes first."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import BEGAN, KEY, RATE, RUNNING, SERVED, STATUS
from hippo.jobs.engine.columns import MAX_MIN as CODE
from hippo.jobs.policies.policy import Policy

MAX_MIN = Policy(
    name="max_min",
    code=CODE,
    summary="each job is entitled to an equal share (water-filling where jobs may use different pools); who is "
    "furthest behind goes first and takes the faster devices, in rounds",
    knows="nothing",
    source="Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning workloads, OSDI 2020",
    preempts=True,
    rounds=True,
)


@kernel(lean=True)
def key(w, job, now):  # type: ignore[no-untyped-def]
    """Service so far, plus what each had been entitled to when it came."""
    served = w.job[job, SERVED]
    if w.mark[job, STATUS] == RUNNING:
        served += (now - w.job[job, BEGAN]) * w.job[job, RATE]
    return served + w.job[job, KEY]
