"""How much longer a job takes over several domains than inside one: the table that the queue's engine looks up.

Letters: R rows, K domains of the site (at most ``MOST_DOMAINS`` of them can be spanned), n jobs, O offers, M the most
domains that exchange. A set of domains is a number whose bit k says whether domain k is in it. Nothing here plans:
``step_time`` fills the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.job import KINDS
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_DOMAINS = 12  # domains beyond the twelfth are not spanned: a table has 2^K columns
INSIDE = 0  # the row of jobs that run inside one domain only


@dataclass(frozen=True)
class Kind:
    """What a row stands for: jobs of one size with one model, on the same kinds of device."""

    devices: int
    model: str = ""  # that the job names; "": its size picks one
    trains: bool = True
    runs_on: tuple[str, ...] = ()  # empty: any


@dataclass(frozen=True, eq=False)
class Exchange:
    """What gangs send between the domains that they span, and how quick they are under what links give them: an offer
    for each kind of job and set of domains, whose rate is work per second. Where it has the links of the cluster file
    for itself that is 1 / factor."""

    row: Ints  # (R, 2^K) offer, -1: nothing is sent
    route: Ints  # (O, M) domains that exchange, neighbours in their chain or ring beside each other, then -1
    offers: OfferTable  # of no kind of elastic job; devices and state of the first parts of more than ``MOST_PARTS``


@dataclass(frozen=True, eq=False)
class Slowdown:
    """Step time over a set of domains / step time inside one domain, for kinds of jobs.

    Row 0 is that of all jobs that must not span: 1 for single domains, infinite elsewhere. ``inf``: the job cannot run
    over this set (no equal parts, no link, no memory), or nobody asked. An equal part of the job's devices is taken
    from every domain of the set.
    """

    kinds: tuple[Kind, ...]  # (R - 1,), row r is kinds[r - 1]
    factor: Floats  # (R, 2^K), at least 1
    usd_per_s: Floats  # (R, 2^K), what the exchange between the domains costs while the job runs
    exchange: Exchange | None = None  # None: gangs hold their factor, and take no share of a link

    @classmethod
    def none(cls, domains: int) -> Slowdown:
        """No job spans: ``domains`` is the number of domains of the site."""
        width = 1 << min(domains, MOST_DOMAINS)
        factor = np.full((1, width), np.inf)
        factor[INSIDE, [1 << domain for domain in range(min(domains, MOST_DOMAINS))]] = 1.0
        return cls((), factor, np.zeros((1, width)))

    def rows(self, workload: JobWorkload) -> Ints:
        """(n,) the row of each job; ``INSIDE`` where the table has none for it."""
        alike, job = _alike(workload)
        place = {kind: row for row, kind in enumerate(self.kinds, 1)}
        return np.array([place.get(kind, INSIDE) for kind in alike], np.int64)[job]


def kinds_that_span(workload: JobWorkload, site: JobSite, span: str) -> tuple[Kind, ...]:
    """The kinds of jobs that may run over several domains: none (``never``), those that fit into no pool that they can
    use (``must``), all of two devices or more (``free``)."""
    if span == "never":
        return ()
    found = (kind for kind in _alike(workload)[0] if kind.devices > 1)
    return tuple(kind for kind in found if span == "free" or kind.devices > _largest(kind, site))


def _largest(kind: Kind, site: JobSite) -> int:
    """Devices of the largest pool that such a job can use."""
    usable = (pool.devices for pool in site.pools if not kind.runs_on or pool.kind in kind.runs_on)
    return max(usable, default=0)


def _alike(workload: JobWorkload) -> tuple[list[Kind], Ints]:
    """The kinds of jobs there are, by size, and (n,) which of them each job is."""
    trains = workload.kind == KINDS.index("train")
    model = np.where(trains, workload.model, -1)
    columns = np.stack((workload.devices, model, trains, workload.runs_on))
    unlike, job = np.unique(columns, axis=1, return_inverse=True)
    names, on = (*workload.models, ""), workload.device_kinds
    kinds = [
        Kind(devices, names[model], bool(trains), on[kinds]) for devices, model, trains, kinds in unlike.T.tolist()
    ]
    return kinds, job.reshape(-1)
