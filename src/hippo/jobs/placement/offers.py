"""Ways in which kinds of training can run: sizes, parts over domains, blocks of devices, and how quick they are.

Letters: O offers, R kinds of training, L latencies, G bandwidths. Nothing here plans: ``offer_plans`` fills the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_PARTS = 4


@dataclass(frozen=True)
class TrainingKind:
    """What a job trains."""

    model: str  # of the catalogue
    batch: int  # sequences a step
    seq: int  # tokens a sequence


@dataclass(frozen=True, eq=False)
class OfferTable:
    """Work is in seconds at a kind's reference rate: its largest offer inside one domain, undisturbed."""

    kinds: tuple[TrainingKind, ...]
    kind: Ints  # (O,) row of kinds
    parts: Ints  # (O,) 1..MOST_PARTS domains
    gpus: Ints  # (O, MOST_PARTS) GPUs of each part, most first, 0: no such part
    block: Ints  # (O,) GPUs that must lie together in one node, in each part
    ring: NDArray[np.bool_]  # (O,) the last part is joined with the first too (replicas); else a chain (pipeline)
    layout: Ints  # (O, 3) dp, tp, pp
    rate: Floats  # (O, L, G) work per second at the latency and bandwidth of the slowest hop
    hop_bytes: Floats  # (O,) bytes each direction over each hop per second of work; 0 for a single part
    memory_left: Floats  # (O,) share of a device's memory that is left
    inside_comm: Floats  # (O,) share of the step that is communication inside domains
    bandwidth_bytes_per_s: Floats  # (G,) ascending
    latency_s: Floats  # (L,) one way, ascending
    tokens_per_s: Floats  # (R,) at the reference
    state_bytes: Floats  # (R,) 16 bytes a parameter: what a move carries

    @classmethod
    def none(cls) -> OfferTable:
        """No offers."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(
            kinds=(), kind=whole, parts=whole, gpus=np.zeros((0, MOST_PARTS), np.int64), block=whole,
            ring=np.zeros(0, np.bool_), layout=np.zeros((0, 3), np.int64), rate=np.zeros((0, 1, 1)), hop_bytes=real,
            memory_left=real, inside_comm=real, bandwidth_bytes_per_s=np.ones(1), latency_s=np.zeros(1),
            tokens_per_s=real, state_bytes=real,
        )

    def rows(self, workload: JobWorkload) -> Ints:
        """(n,) the kind of each job, -1: none of them."""
        place = {(each.model, each.batch, each.seq): row for row, each in enumerate(self.kinds)}
        names, found = workload.models, np.full(len(workload), -1, np.int64)
        for job in np.flatnonzero(workload.elastic):
            terms = names[workload.model[job]], int(workload.batch[job]), int(workload.seq[job])
            found[job] = place.get(terms, -1)
        return found
