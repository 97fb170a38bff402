"""What a job reads: how much where a trace does not say, where it lies, and what moving it costs.

Assumptions, as no public trace of GPU jobs names its data. *Volume*: ``GB_PER_DEVICE`` by what the job does, times its
devices. *Home*: the data of one user lies in one domain, drawn by a hash of the user's name; a domain draws in
proportion to its devices, so larger sites hold more users' data. Letters: n jobs, K domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.jobs.job import KINDS, MOST_GB
from hippo.jobs.site import JobSite
from hippo.jobs.workload import JobWorkload
from hippo.problem.cluster import Cluster

Floats = NDArray[np.float64]

GB_PER_DEVICE: Mapping[str, float] = MappingProxyType(
    {
        "train": 20.0,  # ImageNet-1k has 150 GB and was trained on 8 GPUs; 5 billion tokens as 4-byte numbers
        "preprocess": 100.0,  # reads raw data, before it is filtered
        "predict": 20.0,
        "deploy": 5.0,  # weights, not data
    }
)


def with_data(workload: JobWorkload, site: JobSite, gb_per_device: float | None = None) -> JobWorkload:
    """The workload with a volume and a home for every job that has no data.

    ``gb_per_device``: one volume for all kinds of jobs in place of ``GB_PER_DEVICE`` (0: jobs have no data).
    ``InputError`` where it is negative, no number or beyond ``MOST_GB``.
    """
    if gb_per_device is not None and not 0 <= gb_per_device <= MOST_GB:
        remedy = f"write GB per device, from 0 to {MOST_GB:g}"
        raise InputError("not a volume", source="--data-gb", value=gb_per_device, remedy=remedy)
    volume = np.array([GB_PER_DEVICE[kind] if gb_per_device is None else gb_per_device for kind in KINDS])
    bare = workload.data_gb == 0
    domains = tuple(dict.fromkeys((*workload.domains, *site.domains)))
    homes = np.array([domains.index(home_of(user, site)) for user in workload.users])
    return replace(
        workload,
        data_gb=np.where(bare, volume[workload.kind] * workload.devices, workload.data_gb),
        data_at=np.where(bare, homes[workload.user], workload.data_at),
        domains=domains,
    )


def home_of(user: str, site: JobSite) -> str:
    """The domain that holds a user's data: the same on every machine and in every run."""
    devices = {name: sum(pool.devices for pool in site.pools if pool.domain == name) for name in site.domains}
    draw = int.from_bytes(sha256(user.encode()).digest()[:6], "big") % site.devices
    return next(name for name, end in zip(devices, accumulate(devices.values()), strict=True) if draw < end)


def prices_usd_per_gb(cluster: Cluster, domains: Sequence[str]) -> Floats:
    """(K, K) egress price from, to; 0 inside a domain, nan where there is no link."""
    table = np.full((len(domains), len(domains)), np.nan)
    np.fill_diagonal(table, 0.0)
    for link in cluster.links:
        table[domains.index(link.source), domains.index(link.destination)] = link.price_usd_per_gb
    return table


def egress_usd(moved_gb: Floats, prices: Floats) -> float:
    """USD for volumes (K, K) moved from, to, at these prices (K, K)."""
    return float(np.where(moved_gb > 0, moved_gb * prices, 0.0).sum())
