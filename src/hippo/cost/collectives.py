"""Alpha-beta cost of collectives over the fabric of one domain.

A *group* of ranks is laid out with a stride (tensor parallel ranks are neighbours, data parallel ranks are
``tp * cp`` apart); what counts is how many of its ranks share a node and how many groups share the node's network.
Formulas: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), section 4;
rings as in NCCL.
"""

from __future__ import annotations

from dataclasses import dataclass

from hippo.cost.calibration import Calibration
from hippo.problem.cluster import Domain


@dataclass(frozen=True)
class Fabric:
    """What collectives see of a domain: bytes/s in one direction and seconds."""

    gpus_per_node: int
    intra_bytes_per_s: float  # per GPU
    inter_bytes_per_s: float  # per node
    inter_latency_s: float

    @classmethod
    def of(cls, domain: Domain) -> Fabric:
        """The fabric of a domain; equal fabrics share cached costs."""
        return cls(
            domain.gpus_per_node,
            domain.intra_node_bytes_per_s,
            domain.inter_node_bytes_per_s,
            domain.inter_node_latency_s,
        )


@dataclass(frozen=True)
class CollectiveGroup:
    """``size`` ranks, each ``stride`` devices from the next."""

    size: int
    stride: int = 1

    def ranks_per_node(self, fabric: Fabric) -> int:
        """Ranks of the group inside one node."""
        return max(1, min(self.size, fabric.gpus_per_node // self.stride))

    def crosses_nodes(self, fabric: Fabric) -> bool:
        """Whether the group reaches over more than one node."""
        return self.size > self.ranks_per_node(fabric)


def ring_latency(group: CollectiveGroup, fabric: Fabric, calibration: Calibration) -> float:
    """Seconds of start-up of one pass around the ring."""
    if not group.crosses_nodes(fabric):
        return calibration.latency_intra_s
    return calibration.latency_intra_s + fabric.inter_latency_s + group.size * calibration.hop_latency_s


def all_gather_s(num_bytes: float, group: CollectiveGroup, fabric: Fabric, calibration: Calibration) -> float:
    """Seconds until every rank holds all ``num_bytes`` (the gathered size). A reduce-scatter takes as long.

    Hierarchical: between nodes every byte enters a node once, inside the node it is passed on; both run at once.
    All groups of a node work at the same time and share its network.
    """
    if group.size == 1 or num_bytes <= 0:
        return 0.0
    per_node = group.ranks_per_node(fabric)
    inside = (per_node - 1) / per_node * num_bytes / (fabric.intra_bytes_per_s * calibration.bus_efficiency_intra)
    outside = 0.0
    if group.crosses_nodes(fabric):
        nodes, groups_per_node = group.size / per_node, fabric.gpus_per_node / per_node
        rate = fabric.inter_bytes_per_s * calibration.bus_efficiency_inter / groups_per_node
        outside = (nodes - 1) / nodes * num_bytes / rate
    return max(inside, outside) + ring_latency(group, fabric, calibration)


def ring_pass_s(num_bytes: float, group: CollectiveGroup, fabric: Fabric, calibration: Calibration) -> float:
    """Seconds until the ``num_bytes`` of every rank have been at every other, handed on from rank to rank.

    Those at the edge of a node send over their own share of its network alone.
    """
    if group.size == 1 or num_bytes <= 0:
        return 0.0
    rate = fabric.intra_bytes_per_s * calibration.bus_efficiency_intra
    latency = ring_latency(group, fabric, calibration)
    if group.crosses_nodes(fabric):
        rate = min(rate, fabric.inter_bytes_per_s * calibration.bus_efficiency_inter / fabric.gpus_per_node)
    return (group.size - 1) * num_bytes / rate + latency


def all_reduce_s(num_bytes: float, group: CollectiveGroup, fabric: Fabric, calibration: Calibration) -> float:
    """Seconds of an all-reduce of ``num_bytes`` per rank: reduce-scatter, then all-gather."""
    return 2 * all_gather_s(num_bytes, group, fabric, calibration)


def same_experts(ranks: int, apart: int) -> CollectiveGroup:
    """Those of ``ranks`` that hold the same experts, which ``apart`` ranks hold together; these have groups, too."""
    return CollectiveGroup(max(1, ranks // apart), apart)


def moved_s(num_bytes: float, group: CollectiveGroup, fabric: Fabric, calibration: Calibration) -> float:
    """Seconds of an ``all_gather_s`` behind another on the same ranks: without a start of its own."""
    if group.size == 1 or num_bytes <= 0:
        return 0.0
    return all_gather_s(num_bytes, group, fabric, calibration) - ring_latency(group, fabric, calibration)


def token_exchange_s(
    num_bytes: float, copies: int, group: CollectiveGroup, fabric: Fabric, calibration: Calibration, *, once: bool
) -> float:
    """Seconds until each token (a rank holds ``num_bytes`` of them) has reached the ranks of its ``copies`` experts.

    Experts are taken as spread evenly: of G equal places a token needs G (1 - (1 - 1/G) ^ copies). ``once``: it crosses
    the network once per node and goes to each rank there once (DeepSeek-V3, section 3.2.2); else each copy goes alone.
    """
    if group.size == 1 or num_bytes <= 0:
        return 0.0
    per_node = group.ranks_per_node(fabric)
    nodes = group.size / per_node

    def reached(places: float) -> float:
        return places * (1 - (1 - 1 / places) ** copies) if once else float(copies)

    passed_on = reached(group.size) * (per_node - 1) / per_node * num_bytes
    inside = passed_on / (fabric.intra_bytes_per_s * calibration.bus_efficiency_intra)
    crossing = reached(nodes) * (nodes - 1) / nodes * num_bytes
    outside = crossing * fabric.gpus_per_node / (fabric.inter_bytes_per_s * calibration.exchange_inter)
    return max(inside, outside) + ring_latency(group, fabric, calibration)
