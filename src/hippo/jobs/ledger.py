"""What a replay wrote down: when each job started and ended, what it held, who was refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ledger:
    """The account of one replay of n jobs on P pools, in the order of the workload.

    Times are seconds on the workload's clock; nan where a job was refused.
    """

    policy: str
    first_start_s: Floats  # (n,)
    finish_s: Floats  # (n,)
    run_s: Floats  # (n,) time on devices, restarts and waiting for data on them included
    moved_gb: Floats  # (n,) over links
    late_s: Floats  # (n,) that it served with its clients farther than its bound
    preemptions: Ints  # (n,) stops before the end, by the policy
    failures: Ints  # (n,) stops by a failed node
    slowdown: Floats  # (n,) factor of its last placement on its duration: 1 / speed, times what spanning costs
    pool: Ints  # (n,) where it ended (the first pool, if it spans); -1: refused
    refused: tuple[tuple[int, str], ...]  # (job, reason)
    events: int  # arrivals, starts, stops, finishes, levels crossed, rounds, failures, repairs
    busy_device_s: Floats  # (P,)
    link_gb: Floats  # (K, K) moved from domain to domain
    exchange_usd: Floats  # (n,) for what its parts exchange while a job spans domains
    time_s: Floats  # (T,) instants of the next two, T at most a few hundred
    busy_devices: Floats  # (T, P) mean since the instant before
    waiting_jobs: Floats  # (T,) mean since the instant before
    segments: tuple[Ints, Floats] | None = None  # if asked: (s, 3) job, pool, devices; (s, 2) start, end

    @property
    def ran(self) -> NDArray[np.bool_]:
        """(n,) which jobs finished."""
        return np.isfinite(self.finish_s)
