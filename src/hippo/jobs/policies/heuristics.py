"""The policies of the literature: what ranks jobs, and what may be done with the ranking. Each is a few lines of data.

A policy of your own is a file like this one, here or anywhere, and a line in ``hippo.registry.JOB_POLICIES``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.policies.policy import LAST, Key, QueuePolicy
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]

FIFO = QueuePolicy(
    name="fifo",
    summary="first come, first served; a job that does not fit holds up all behind it",
    knows="nothing",
    strict=True,
)


def _estimate(workload: JobWorkload) -> Floats:
    return np.where(np.isnan(workload.estimate_s), LAST, workload.estimate_s)


BACKFILL = QueuePolicy(
    name="backfill",
    summary="FIFO; later jobs pass a head that does not fit if by the submitters' estimates they do not hold it up, "
    "or without estimates while it has waited less than a day",
    knows="estimates",
    key=Key(known=_estimate),
    source="Lifka, The ANL/IBM SP scheduling system, 1995 (EASY)",
    backfills=True,
    patience_s=86400.0,
)


def _duration(workload: JobWorkload) -> Floats:
    return workload.duration_s


SJF = QueuePolicy(
    name="sjf",
    summary="shortest job first; jobs that run are left to run",
    knows="durations",
    key=Key(known=_duration),
    source="Smith, Various optimizers for single-stage production, 1956",
)

SRTF = QueuePolicy(
    name="srtf",
    summary="shortest remaining time first; stops those with more left",
    knows="durations",
    key=Key(remaining=1.0),
    source="Schrage, A proof of the optimality of the shortest remaining processing time discipline, 1968",
    preempts=True,
)
"""A limit for those who do not know durations, at equal speeds."""

FAIR = QueuePolicy(
    name="fair",
    summary="the user with the least attained device time goes next; who comes back starts with the least of those "
    "who are there",
    knows="nothing",
    key=Key(by_user=True),
    source="Goyal, Vin, Cheng, Start-time fair queueing, SIGCOMM 1996 (virtual time of users who come back)",
)

TWO_QUEUE = QueuePolicy(
    name="two_queue",
    summary="least attained device time in two queues, in each by when jobs started; none is stopped for its own queue",
    knows="nothing",
    key=Key(level=1.0, in_turn=1.0),
    source="Gu et al., Tiresias: a GPU cluster manager for distributed deep learning, NSDI 2019 (discretised 2D-LAS)",
    preempts=True,
    levels=(200_000.0,),
)
"""Nobody is promoted, as in the published runs: on the first 55 % of Philly's trace promotion after eight times the
service takes 1.17 to 1.39 times as long. There the border is within 2 % of the best of 3,250 to 800,000 at three loads;
the simulator's own two (3,250 and 7,200) take 1.12 times as long."""

MAX_MIN = QueuePolicy(
    name="max_min",
    summary="each job is entitled to an equal share (water-filling where jobs may use different pools); who is "
    "furthest behind goes first and takes the faster devices, in rounds",
    knows="nothing",
    key=Key(served=1.0, by_share=True),
    source="Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning workloads, OSDI 2020",
    preempts=True,
    rounds=True,
)


def _priority_then_deadline(workload: JobWorkload) -> Floats:
    """Its place among all jobs; equal ones share a place."""
    if not len(workload):
        return np.zeros(0)
    both = np.stack([-workload.priority.astype(np.float64), workload.deadline_s], axis=1)
    return np.unique(both, axis=0, return_inverse=True)[1].reshape(-1).astype(np.float64)


DEADLINE = QueuePolicy(
    name="deadline",
    summary="higher priority first, then the earlier deadline; stops those behind",
    knows="nothing",
    key=Key(known=_priority_then_deadline),
    source="Liu, Layland, Scheduling algorithms for multiprogramming in a hard-real-time environment, 1973",
    preempts=True,
)


def _deadline(workload: JobWorkload) -> Floats:
    return np.minimum(workload.deadline_s, LAST)


LEAST_SLACK = QueuePolicy(
    name="least_slack",
    summary="least time to the deadline less the work left (estimated, else known); stops those with more",
    knows="durations",
    # Slack plus the time of day, which is the same for all: so it stands still while a job waits.
    key=Key(known=_deadline, expected=-1.0),
    source="Mok, Fundamental design problems of distributed systems for the hard real-time environment, 1983",
    preempts=True,
)
