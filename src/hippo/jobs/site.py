"""Where jobs run: pools of equal devices in domains, and the links between the domains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hippo.errors import InputError
from hippo.problem.cluster import Cluster
from hippo.problem.links import Trace

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


@dataclass(frozen=True, eq=False)
class LinkHistory:
    """What the links between K domains carry over time: a value holds until the next of T instants, the last for ever.

    Before the first instant its values hold.
    """

    time_s: NDArray[np.float64]  # (T,) ascending, on the clock of the jobs' arrivals
    bandwidth_bytes_per_s: NDArray[np.float64]  # (T, K, K) from, to; 0: no link or an outage; inf on the diagonal
    source: str = ""
    latency_s: NDArray[np.float64] | None = None  # (T, K, K) one way; None: latencies stand still

    def __post_init__(self) -> None:
        size = len(self.time_s)
        shape = self.bandwidth_bytes_per_s.shape
        assert len(shape) == 3, "a table per instant"
        assert shape == (size, shape[1], shape[1]), "a row and a column per domain"
        steps = np.diff(self.time_s)
        if not size or not np.isfinite(self.time_s).all() or (steps <= 0).any():
            instant = int(np.argmax(~(steps > 0))) + 1 if size > 1 else 0
            value = float(self.time_s[instant]) if size else None
            self._refuse("times do not ascend", "time_s", value, "write one instant or more, each later than the last")
        wrong = ~(self.bandwidth_bytes_per_s >= 0)
        if wrong.any():
            value = float(self.bandwidth_bytes_per_s[wrong][0])
            self._refuse("not a number of 0 or more", "bandwidth_bytes_per_s", value, "write 0 for an outage")
        if self.latency_s is not None:
            assert self.latency_s.shape == shape, "a latency per link and instant"
            late = ~(np.isfinite(self.latency_s) & (self.latency_s >= 0))
            if late.any():
                value = float(self.latency_s[late][0])
                self._refuse("not a finite number of 0 or more", "latency_s", value, "write seconds")

    def at(self, time_s: float) -> NDArray[np.float64]:
        """(K, K) what the links carry at a time."""
        found: NDArray[np.float64] = self.bandwidth_bytes_per_s[
            max(int(np.searchsorted(self.time_s, time_s, side="right")) - 1, 0)
        ]
        return found

    def _refuse(self, problem: str, key: str, value: object, remedy: str) -> None:
        raise InputError(problem, source=self.source or "network", key=key, value=value, remedy=remedy)


@dataclass(frozen=True)
class JobSite:
    """Pools of K domains, and what the directed links between the domains carry.

    Domains stand in the order in which ``pools`` names them first. Where the network moves, ``bandwidth_bytes_per_s``
    is what the links are bought as, and says which there are; what they carry is in ``history``.
    """

    pools: tuple[DevicePool, ...]
    bandwidth_bytes_per_s: tuple[tuple[float, ...], ...]  # (K, K) from, to; 0: no link; inf on the diagonal
    latency_s: tuple[tuple[float, ...], ...]  # (K, K) one way
    name: str = ""
    history: LinkHistory | None = None  # None: the links stand still
    usd_per_gb: tuple[tuple[float, ...], ...] = ()  # (K, K) egress; empty: free

    def __post_init__(self) -> None:
        if not self.pools:
            raise InputError("a site without devices", source=self.name or "site", remedy="give one pool or more")
        size = len(self.domains)
        for table in (self.bandwidth_bytes_per_s, self.latency_s):
            assert [len(row) for row in table] == [size] * size, "links: a row and a column per domain"
        if self.history is not None:
            moving = self.history.bandwidth_bytes_per_s
            assert moving.shape[1] == size, "moving links: a row and a column per domain"
            strange = np.argwhere((moving > 0).any(axis=0) & (np.array(self.bandwidth_bytes_per_s) <= 0))
            if len(strange):
                link = ",".join(self.domains[place] for place in strange[0])
                remedy = "leave it out of the network, or add the link to the cluster"
                raise InputError(
                    "the site has no such link", source=self.history.source, key="src,dst", value=link, remedy=remedy
                )

    @classmethod
    def of(cls, cluster: Cluster, network: Trace | None = None) -> JobSite:
        """The site of a cluster: one pool per domain, speed 1, the links' bandwidth shared by all flows.

        A link that only caps its senders carries what all nodes of the source may send together. The network's clock is
        that of the jobs' arrivals.
        """
        kind, memory_gb = cluster.gpu.name, cluster.gpu.memory_bytes / 1e9
        pools = tuple(
            DevicePool(each.name, kind, each.nodes, each.gpus_per_node, 1.0, memory_gb) for each in cluster.domains
        )
        still = np.diag(np.full(len(pools), math.inf))
        latency_s, usd_per_gb = np.zeros_like(still), np.zeros_like(still)
        index = cluster.domain_index
        ends = [index[link.source] for link in cluster.links], [index[link.destination] for link in cluster.links]
        still[ends] = [link.rate_bytes_per_s(cluster.domain(link.source).nodes) for link in cluster.links]
        latency_s[ends] = [link.latency_s for link in cluster.links]
        usd_per_gb[ends] = [link.price_usd_per_gb for link in cluster.links]
        history = None
        if network is not None:
            moving = np.repeat(still[None], len(network.time_s), axis=0)
            moving[:, *ends] = network.bandwidth_bytes_per_s
            late = np.repeat(latency_s[None], len(network.time_s), axis=0)
            late[:, *ends] = network.latency_s
            history = LinkHistory(network.time_s, moving, network.source, late if (late != latency_s).any() else None)
        tables = (_frozen(still.tolist()), _frozen(latency_s.tolist()))
        return cls(pools, *tables, cluster.name, history, _frozen(usd_per_gb.tolist()))

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Names of the K domains."""
        return tuple(dict.fromkeys(pool.domain for pool in self.pools))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of device, each once."""
        return tuple(dict.fromkeys(pool.kind for pool in self.pools))

    @property
    def moving_latency_s(self) -> NDArray[np.float64]:
        """(T, K, K) one way, at the instants of ``history``; (1, K, K) where latencies stand still."""
        if self.history is None or self.history.latency_s is None:
            return np.array([self.latency_s])
        return self.history.latency_s

    @property
    def devices(self) -> int:
        """Devices of all pools."""
        return sum(pool.devices for pool in self.pools)

    @property
    def capacity(self) -> float:
        """Devices of speed 1 that would do the same."""
        return sum(pool.devices * pool.speed for pool in self.pools)


def site(pools: Sequence[DevicePool], bandwidth_bytes_per_s: float = math.inf, latency_s: float = 0.0) -> JobSite:
    """A site whose domains are all joined by equal links (default: links that cost no time)."""
    names = tuple(dict.fromkeys(pool.domain for pool in pools))
    bandwidth = [[math.inf if a == b else bandwidth_bytes_per_s for b in names] for a in names]
    latency = [[0.0 if a == b else latency_s for b in names] for a in names]
    return JobSite(tuple(pools), _frozen(bandwidth), _frozen(latency))


def _frozen(table: list[list[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table)
