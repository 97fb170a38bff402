"""Where the model is trained: domains of GPUs of one type, joined by directed WAN links."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isinf
from types import MappingProxyType
from typing import Any

from hippo.problem.transport import Transport


def _frozen(held: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(held)


copyreg.pickle(MappingProxyType, lambda held: (_frozen, (dict(held),)))
"""What stands in frozen records goes to other processes as it is."""


@dataclass(frozen=True)
class Gpu:
    """One GPU type. Peak rates are dense (no sparsity); every figure's source stands in ``source``."""

    name: str
    peak_flops: Mapping[str, float]  # precision (bf16, fp16, fp32, fp8, nvfp4) -> FLOP/s
    memory_bytes: float
    hbm_bytes_per_s: float
    nvlink_bytes_per_s: float  # one direction, per GPU
    price_usd_per_hour: float
    source: str = ""
    family: str = ""  # whose efficiencies hold: "ampere", "hopper", ..
    node_bytes_per_s: float | None = None  # usual inter-node network of one node, one direction
    nvlink_domain: int = 8  # GPUs that share NVLink (72 for GB200 NVL72)

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.price_usd_per_hour))


@dataclass(frozen=True)
class Domain:
    """A data centre: ``nodes`` x ``gpus_per_node`` GPUs.

    ``intra_node_bytes_per_s`` is what one GPU sends inside its node (NVLink or PCIe), one direction;
    ``inter_node_bytes_per_s`` what one node sends to the fabric, one direction.
    """

    name: str
    nodes: int
    gpus_per_node: int
    intra_node_bytes_per_s: float
    inter_node_bytes_per_s: float
    inter_node_latency_s: float

    @property
    def gpus(self) -> int:
        """GPUs of the domain."""
        return self.nodes * self.gpus_per_node

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device as ``domain/node/gpu``, node by node."""
        return tuple(f"{self.name}/{node}/{gpu}" for node in range(self.nodes) for gpu in range(self.gpus_per_node))


@dataclass(frozen=True)
class Link:
    """Directed WAN edge. ``bandwidth_bytes_per_s`` is shared by all flows (None: only the per-node cap binds);
    ``per_node_bytes_per_s`` caps what one node sends into it. Both are bytes on the wire, as cluster files have them;
    what a runtime gets through is payload: ``goodput`` of them, ``overhead_s`` later a message."""

    source: str
    destination: str
    bandwidth_bytes_per_s: float | None
    latency_s: float  # one way
    price_usd_per_gb: float
    per_node_bytes_per_s: float | None = None
    goodput: float = 1.0
    overhead_s: float = 0.0

    def rate_bytes_per_s(self, sending_nodes: int) -> float:
        """Bytes/s of payload that ``sending_nodes`` nodes of the source reach together when alone on the link."""
        rates = []
        if self.bandwidth_bytes_per_s is not None:
            rates.append(self.bandwidth_bytes_per_s)
        if self.per_node_bytes_per_s is not None:
            rates.append(self.per_node_bytes_per_s * sending_nodes)
        return min(rates) * self.goodput

    @property
    def delay_s(self) -> float:
        """Seconds from the last byte's leaving to the receiver's having the message."""
        return self.latency_s + self.overhead_s


@dataclass(frozen=True)
class Dynamics:
    """How the links move: B(t) = B_base (1 + eps), eps Ornstein-Uhlenbeck clipped to +-``swing``."""

    swing: float = 0.3
    sigma: float = 0.1
    tau_s: float = 6 * 3600.0
    diurnal_peak_to_trough: float = 1.4
    outages_per_day: float = 0.0
    outage_s: float = 900.0


@dataclass(frozen=True)
class Cluster:
    """K domains of one GPU type and the directed links between them."""

    name: str
    gpu: Gpu
    domains: tuple[Domain, ...]
    links: tuple[Link, ...]
    dynamics: Dynamics = field(default_factory=Dynamics)
    source: str = ""
    congestion: str = ""  # TCP's congestion control on its hosts, cubic or bbr; empty: nobody said, links are filled

    @cached_property
    def domain_index(self) -> Mapping[str, int]:
        """Domain name to its position in ``domains``."""
        return MappingProxyType({domain.name: index for index, domain in enumerate(self.domains)})

    @cached_property
    def link_index(self) -> Mapping[tuple[str, str], int]:
        """(source, destination) to the position in ``links``."""
        return MappingProxyType({(link.source, link.destination): index for index, link in enumerate(self.links)})

    def domain(self, name: str) -> Domain:
        """The domain of that name; ``KeyError`` when there is none."""
        return self.domains[self.domain_index[name]]

    def link(self, source: str, destination: str) -> Link | None:
        """The directed link, or None: the two exchange nothing directly."""
        index = self.link_index.get((source, destination))
        return None if index is None else self.links[index]

    @property
    def gpus(self) -> int:
        """GPUs of all domains."""
        return sum(domain.gpus for domain in self.domains)

    def under(self, transport: Transport) -> Cluster:
        """The cluster with links that carry what a transport gets through them; itself where they do already.

        A window that is not endless bounds what a node sends over a link: a flow a GPU, a window a round trip. What the
        cluster's congestion control drains is no payload.
        """
        overhead_s, window = transport.overhead_s, transport.window_bytes
        control = transport.controlled(self.congestion).congestion
        goodputs = [transport.goodput * control.undrained(2 * link.latency_s) for link in self.links]
        told = [(link.goodput, link.overhead_s) for link in self.links]
        if isinf(window) and told == [(goodput, overhead_s) for goodput in goodputs]:
            return self

        def carried(link: Link, goodput: float) -> Link:
            most = inf if link.per_node_bytes_per_s is None else link.per_node_bytes_per_s
            if link.latency_s > 0:
                most = min(most, self.domain(link.source).gpus_per_node * window / (2 * link.latency_s))
            capped = None if isinf(most) else most
            return replace(link, goodput=goodput, overhead_s=overhead_s, per_node_bytes_per_s=capped)

        return replace(self, links=tuple(map(carried, self.links, goodputs)))
