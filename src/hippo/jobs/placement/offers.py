"""Offers: the sizes and shapes in which kinds of training can run, and how quick each is under what links give it.

Work of a job is told in seconds at its kind's reference rate: that of the largest offer inside one domain, undisturbed.
So a rate is relative, and an offer of rate 0.5 takes two seconds for a second of work. An offer over several domains
has *parts*, one in each, joined by *hops*: a chain (pipelines), or a ring (replicas, or weights that the first and the
last stage share). ``offer_plans`` fills the table; nothing here plans.

Letters: R kinds, O offers, L latencies, G bandwidths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.job import TrainingKind
from hippo.jobs.workload import JobWorkload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_PARTS = 4


@dataclass(frozen=True, eq=False)
class OfferTable:
    """Ways in which kinds of training can run: sizes, parts over domains, blocks of devices, and how quick they are."""

    kinds: tuple[TrainingKind, ...]  # (R,)
    kind: Ints  # (O,) row of kinds
    parts: Ints  # (O,) 1..MOST_PARTS domains
    gpus: Ints  # (O, MOST_PARTS) GPUs of each part, most first, 0: no such part
    block: Ints  # (O,) GPUs that must lie together in one node, in each part
    ring: NDArray[np.bool_]  # (O,) the last part is joined with the first, too
    layout: Ints  # (O, 3) dp over all pipelines, tp, pp of the longest: for people and exports
    rate: Floats  # (O, L, G) work per second at the latency and the bandwidth of the slowest hop; one part: constant
    hop_bytes: Floats  # (O,) bytes on the wire, each direction, over each hop per second of work; 0 for one part
    memory_left: Floats  # (O,) share of a device's memory that is left on the fullest device
    inside_comm: Floats  # (O,) share of the step that is communication inside domains, as planned
    bandwidth_bytes_per_s: Floats  # (G,) on the wire, ascending
    latency_s: Floats  # (L,) one way, ascending
    tokens_per_s: Floats  # (R,) at the reference
    state_bytes: Floats  # (R,) of weights and optimizer: what a move carries
    raised: float = 0.0  # most that a played rate was raised by, as a share: better links make no offer slower
    state_share: Floats = field(default_factory=lambda: np.empty(0))  # (O, MOST_PARTS) of the state that a part holds
    local: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))  # (O,) parts average every H steps

    def __post_init__(self) -> None:
        if not self.local.size:
            object.__setattr__(self, "local", np.zeros(len(self), np.bool_))
        if not self.state_share.size:  # nobody says: as a pipeline whose stages are alike; replicas hold all
            object.__setattr__(self, "state_share", self.gpus / self.gpus.sum(axis=1, keepdims=True))

    def __len__(self) -> int:
        return len(self.kind)

    def rate_at(self, offer: Ints, bandwidth_bytes_per_s: Floats, latency_s: Floats) -> Floats:
        """Work per second, (n,), of these offers (n,) where their slowest hop has so much bandwidth and latency (n,).

        Seconds per work are interpolated, linear in the latency and in seconds per byte: a step is the longest of many
        chains of work, bytes and latencies, so it is exact but where another chain becomes the longest. Beyond the last
        bandwidth nothing is gained; below the first the rate falls with the bandwidth; latencies are held inside the
        grid. One part asks for no link.
        """
        grid, seconds = 1.0 / self.bandwidth_bytes_per_s[::-1], 1.0 / self.rate[offer][:, :, ::-1]
        with np.errstate(divide="ignore"):
            asked = 1.0 / np.asarray(bandwidth_bytes_per_s, np.float64)
        row, column = np.arange(len(offer)), _cell(grid, asked)
        inside = np.clip(asked, grid[0], grid[-1])
        far = ((inside - grid[column]) / (grid[column + 1] - grid[column]))[:, None]
        of_latency = seconds[row, :, column] * (1.0 - far) + seconds[row, :, column + 1] * far
        late = np.clip(latency_s, self.latency_s[0], self.latency_s[-1])
        column = _cell(self.latency_s, late)
        far = (late - self.latency_s[column]) / (self.latency_s[column + 1] - self.latency_s[column])
        found = of_latency[row, column] * (1.0 - far) + of_latency[row, column + 1] * far
        slower = np.where(self.parts[offer] > 1, np.maximum(asked / grid[-1], 1.0), 1.0)
        result: Floats = 1.0 / (found * slower)
        return result

    def check(self) -> None:
        """``AssertionError`` where a column has another length, or says what cannot be."""
        columns = (self.kind, self.parts, self.gpus, self.block, self.ring, self.layout, self.rate, self.hop_bytes)
        assert {len(each) for each in (*columns, self.memory_left, self.inside_comm)} == {len(self)}, "lengths differ"
        assert len(self.tokens_per_s) == len(self.state_bytes) == len(self.kinds), "a figure a kind"
        assert self.gpus.shape[1] == MOST_PARTS, "a column a part"
        assert self.rate.shape[1:] == (len(self.latency_s), len(self.bandwidth_bytes_per_s)), "a rate a state"
        for grid in (self.latency_s, self.bandwidth_bytes_per_s):
            assert len(grid) > 1, "a grid has two points or more"
            assert (np.diff(grid, prepend=0.0) > 0).all(), "grids ascend from above 0"
        assert np.isin(np.arange(len(self.kinds)), self.kind).all(), "a kind without an offer"
        assert ((self.gpus > 0).sum(axis=1) == self.parts).all(), "as many sizes as parts"
        assert (np.diff(self.gpus, axis=1) <= 0).all(), "most GPUs first"
        assert (self.gpus % self.block[:, None] == 0).all(), "blocks that share out every part"
        assert (np.isfinite(self.rate) & (self.rate > 0)).all(), "rates above 0"
        assert (np.diff(self.rate, axis=2) >= 0).all(), "more bandwidth is never slower"
        assert (np.diff(self.rate, axis=1) <= 0).all(), "more latency is never quicker"
        alone = self.parts == 1
        assert (np.ptp(self.rate[alone], axis=(1, 2)) == 0).all(), "one part asks for no link"
        assert np.array_equal(self.state_share > 0, self.gpus > 0), "every part holds some of the state"
        assert (self.state_share <= 1.0).all(), "no part holds more than all of it"
        assert np.array_equal(self.hop_bytes > 0, ~alone), "bytes cross hops and nothing else"
        assert not self.ring[self.parts < 3].any(), "a ring has three parts or more"
        assert not self.local[alone].any(), "one part averages with nobody"
        assert (self.state_share[self.local] == (self.gpus[self.local] > 0)).all(), "replicas hold all of the state"

    @classmethod
    def none(cls) -> OfferTable:
        """No offers of no kinds."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(
            kinds=(),
            kind=whole,
            parts=whole,
            block=whole,
            gpus=np.zeros((0, MOST_PARTS), np.int64),
            ring=np.zeros(0, np.bool_),
            layout=np.zeros((0, 3), np.int64),
            rate=np.zeros((0, 2, 2)),
            hop_bytes=real,
            memory_left=real,
            inside_comm=real,
            tokens_per_s=real,
            state_bytes=real,
            bandwidth_bytes_per_s=np.array([1.0, 2.0]),
            latency_s=np.array([1.0, 2.0]),
        )

    @property
    def reference_gpus(self) -> Ints:
        """(R,) GPUs of the largest offer inside one domain, whose rate is 1."""
        alone = np.where(self.parts == 1, self.gpus[:, 0], 0)
        return np.array([alone[self.kind == row].max() for row in range(len(self.kinds))], np.int64)

    def quickest(self, workload: JobWorkload) -> Floats:
        """(n,) work per second of each elastic job on its most devices at best, inside one domain if it can, as if the
        links gave all; 1 for gangs."""
        row, sizes, best = self.rows(workload), self.gpus.sum(axis=1), self.rate[:, 0, -1]
        asked, of_job = np.unique(np.stack([row, workload.least, workload.most], axis=1), axis=0, return_inverse=True)
        found = np.ones(len(asked))
        for at, (kind, least, most) in enumerate(asked.tolist()):
            may = (self.kind == kind) & (sizes >= least) & (sizes <= most)
            alone = may & (self.parts == 1)
            found[at] = best[alone if alone.any() else may].max(initial=0.0) or 1.0
        return found[of_job.reshape(-1)]

    def prices(self, workload: JobWorkload) -> Floats:
        """(n,) what a second of each job in the system costs: 1 + its priority (negative ones as 0), as its work counts
        in goodput; of mean 1. So priced time is priority-weighted completion."""
        found = 1.0 + np.maximum(workload.priority, 0)
        result: Floats = found / found.mean() if len(found) else found
        return result

    def device_s(self, workload: JobWorkload) -> Floats:
        """(n,) device-seconds of each job: elastic ones as at the reference."""
        row = self.rows(workload)
        devices = np.where(row >= 0, self.reference_gpus[row] if len(self.kinds) else 0, workload.devices)
        found: Floats = workload.duration_s * devices
        return found

    def rows(self, workload: JobWorkload) -> Ints:
        """(n,) the kind of each job, -1: it is not elastic, or of none of them."""
        found = np.full(len(workload), -1, np.int64)
        for row, kind in enumerate(self.kinds):
            named = np.array([model == kind.model for model in workload.models])[workload.model]
            same = named & (workload.batch == kind.batch) & (workload.seq == kind.seq)
            found[same & workload.elastic] = row
        return found

    @classmethod
    def joined(cls, tables: Sequence[OfferTable]) -> OfferTable:
        """One table of several over the same grid, with the kinds of all in this order."""
        kinds = tuple(kind for each in tables for kind in each.kinds)
        before = np.cumsum([0] + [len(each.kinds) for each in tables])
        rows = [replace(each, kind=each.kind + at) for each, at in zip(tables, before, strict=False)]
        columns = {
            name: np.concatenate([getattr(each, name) for each in rows])
            for name in (each.name for each in fields(cls))
            if name not in ("kinds", "bandwidth_bytes_per_s", "latency_s", "raised")
        }
        return replace(tables[0], kinds=kinds, raised=max(each.raised for each in tables), **columns)


def _cell(grid: Floats, asked: Floats) -> Ints:
    """Index of the grid's interval that holds each value, the first or the last for those outside."""
    return np.clip(np.searchsorted(grid, asked, side="right") - 1, 0, len(grid) - 2)
