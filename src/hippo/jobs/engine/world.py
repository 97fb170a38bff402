"""All that a replay holds, for the kernels: what stands and what changes, in one tuple.

n jobs, S shapes, C classes, P pools, K domains, B bins, E pieces, U users, G groups, R rows of the table of slowdowns,
L levels, T instants of the series. Columns: ``columns``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.learned.memory import Memory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class World(NamedTuple):
    """Tables and state of one replay; kernels share it (``compiling.shared``)."""

    policy: int
    preempts: bool
    strict: bool  # nobody passes a head that does not fit
    by_arrival: bool  # classes are in order of arrival, whatever their keys (backfill keeps estimates there)
    rounds: bool  # jobs are stopped at ends of rounds only
    per_device: bool  # levels count device-seconds, else seconds
    before: bool  # jobs wait for their data before they compute
    fails: bool
    learns: bool  # a learned policy's state is kept up to date
    restart_s: float
    round_s: float
    mtbf_s: float
    repair_s: float
    checkpoint_s: float
    seed: int
    numbers: Floats  # (8,) of the policy
    levels: Floats  # (L,) of attained service
    job: Floats  # (n, JOB_COLUMNS)
    mark: Ints  # (n, MARK_COLUMNS)
    order: Ints  # (n,) jobs by class, then arrival
    klass: Ints  # (C, 7)
    head_key: Floats  # (C,) of the head, inf: nobody waits
    tree: Floats  # smallest keys, of all classes
    active: Ints  # (C,) classes in which somebody waits
    passed: NDArray[np.bool_]  # (C,) whose head has been tried in this instant
    shape: Ints  # (S, 3)
    allowed: NDArray[np.bool_]  # (S, P) pools that are large enough for the whole job
    partly: NDArray[np.bool_]  # (S, P) pools that could hold a part of it
    sets: Ints  # (S, M) sets of domains that it may span, best first, then -1
    pool: Ints  # (P, 8)
    speed: Floats  # (P,)
    bin: Ints  # (B, 6)
    piece: Ints  # (E, 6)
    link: Floats  # (K, K, 3) bytes/s, latency, when it is free
    link_gb: Floats  # (K, K) moved
    there: Floats  # (n, K, 2) or (0, K, 2): GB in each domain or on their way, and when the last is there
    factor: Floats  # (R, 2^K) of time when spanning
    usd_per_s: Floats  # (R, 2^K)
    user: Floats  # (U, 4)
    group: Floats  # (G, 3)
    reach: Ints  # (G,) the pools (as a set) that jobs of a group may use, -1: all
    due: Floats  # (n + B + 1,) next event of each job and node, and of the rounds; inf: none
    heap: Ints  # (n + B + 1,)
    place: Ints  # (n + B + 1,) in the heap, -1: not there
    victim: Ints  # (running jobs,)
    clock: Floats  # (3,)
    tally: Ints  # (12,)
    series: Floats  # (T, P + 1) device-seconds and waiting seconds per bin of time
    segment: Ints  # (s, 3) or (0, 3)
    segment_s: Floats  # (s, 2)
    learned: Memory  # of the learned policy; of no jobs where ``learns`` is False
