"""Where jobs run: pools of equal devices in domains, and the links between the domains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hippo.errors import InputError
from hippo.problem.cluster import Cluster

LEAST_SPEED = 1e-6
"""Of a device: on a slower one a job of a second would take more than eleven days."""


@dataclass(frozen=True)
class DevicePool:
    """Equal devices of one domain: ``nodes`` x ``per_node`` of one kind (a GPU type, "cpu", another accelerator).

    ``speed`` is relative: a job's duration is that on devices of speed 1. ``memory_gb`` is of one device.
    """

    domain: str
    kind: str
    nodes: int
    per_node: int
    speed: float = 1.0
    memory_gb: float = math.inf

    def __post_init__(self) -> None:
        where = f"pool {self.domain}/{self.kind}"
        for key in ("nodes", "per_node"):
            if not 1 <= getattr(self, key) <= 1_000_000:
                remedy = "write a whole number from 1 to 1000000"
                raise InputError("no such number", source=where, key=key, value=getattr(self, key), remedy=remedy)
        for key in ("speed", "memory_gb"):
            value = getattr(self, key)
            if key == "speed" and 0 < value < LEAST_SPEED:
                remedy = f"write {LEAST_SPEED:g} or more"
                raise InputError("too slow", source=where, key=key, value=value, remedy=remedy)
            if not value > 0 or (key == "speed" and math.isinf(value)):
                raise InputError("not above 0", source=where, key=key, value=value, remedy="write a number above 0")

    @property
    def devices(self) -> int:
        """Devices of the pool."""
        return self.nodes * self.per_node


@dataclass(frozen=True)
class JobSite:
    """Pools of K domains, and what the directed links between the domains carry.

    Domains stand in the order in which ``pools`` names them first.
    """

    pools: tuple[DevicePool, ...]
    bandwidth_bytes_per_s: tuple[tuple[float, ...], ...]  # (K, K) from, to; 0: no link; inf on the diagonal
    latency_s: tuple[tuple[float, ...], ...]  # (K, K) one way
    name: str = ""

    def __post_init__(self) -> None:
        if not self.pools:
            raise InputError("a site without devices", source=self.name or "site", remedy="give one pool or more")
        size = len(self.domains)
        for table in (self.bandwidth_bytes_per_s, self.latency_s):
            assert [len(row) for row in table] == [size] * size, "links: a row and a column per domain"

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Names of the K domains."""
        return tuple(dict.fromkeys(pool.domain for pool in self.pools))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of device, each once."""
        return tuple(dict.fromkeys(pool.kind for pool in self.pools))

    @property
    def devices(self) -> int:
        """Devices of all pools."""
        return sum(pool.devices for pool in self.pools)

    @property
    def capacity(self) -> float:
        """Devices of speed 1 that would do the same."""
        return sum(pool.devices * pool.speed for pool in self.pools)


def site_of(cluster: Cluster) -> JobSite:
    """The site of a cluster: one pool per domain, speed 1, the links' bandwidth shared by all flows.

    A link that only caps its senders carries what all nodes of the source may send together.
    """
    names = [domain.name for domain in cluster.domains]
    kind, memory_gb = cluster.gpu.name, cluster.gpu.memory_bytes / 1e9
    pools = tuple(
        DevicePool(each.name, kind, each.nodes, each.gpus_per_node, 1.0, memory_gb) for each in cluster.domains
    )
    bandwidth = [[math.inf if a == b else 0.0 for b in names] for a in names]
    latency = [[0.0] * len(names) for _ in names]
    for link in cluster.links:
        a, b = cluster.domain_index[link.source], cluster.domain_index[link.destination]
        bandwidth[a][b] = link.rate_bytes_per_s(cluster.domains[a].nodes)
        latency[a][b] = link.latency_s
    return JobSite(pools, _frozen(bandwidth), _frozen(latency), cluster.name)


def site(pools: Sequence[DevicePool], bandwidth_bytes_per_s: float = math.inf, latency_s: float = 0.0) -> JobSite:
    """A site whose domains are all joined by equal links (default: links that cost no time)."""
    names = tuple(dict.fromkeys(pool.domain for pool in pools))
    bandwidth = [[math.inf if a == b else bandwidth_bytes_per_s for b in names] for a in names]
    latency = [[0.0 if a == b else latency_s for b in names] for a in names]
    return JobSite(tuple(pools), _frozen(bandwidth), _frozen(latency))


def _frozen(table: list[list[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table)
