"""Which links a pair of domains uses, how fast a stage can send, how much compression saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from hippo.errors import InputError, UnknownNameError
from hippo.plan.plan import Compression, Pipeline, Plan
from hippo.problem.cluster import Cluster
from hippo.problem.problem import Problem

COMPRESSED_BITS: Mapping[str, float] = MappingProxyType(
    {"none": 0.0, "bf16": 16.0, "fp8": 8.0, "int8": 8.0, "fp4": 4.0, "int4": 4.0}
)
"""Bits per value of each kind of compression (0: as it is). The few bytes of scales are left out."""

USUAL = "fp8"
"""What borders are compressed to where the user allows it: hippo's executor sends it (``run.executor.channels``)."""


def border_share(problem: Problem) -> float:
    """Share of the bytes of an activation that has to cross from one domain to another; 1 where nobody compresses."""
    return _share(USUAL, problem.workload.precision) if problem.compresses else 1.0


def border_compression(problem: Problem, pipelines: Sequence[Pipeline]) -> tuple[Compression, ...]:
    """``USUAL`` on every border between domains, both ways; nothing where nobody compresses."""
    pairs: dict[tuple[str, str], None] = {}
    for line in pipelines if problem.compresses else ():
        for one, two in pairwise(line.stages):
            if one.domain != two.domain:
                pairs |= {(one.domain, two.domain): None, (two.domain, one.domain): None}
    return tuple(Compression(*pair, USUAL) for pair in pairs)


def _share(kind: str, precision: str) -> float:
    bits = COMPRESSED_BITS[kind]
    return min(1.0, bits / (32.0 if precision == "fp32" else 16.0)) if bits else 1.0


@dataclass(frozen=True)
class Routes:
    """Routes between the domains of a cluster under a plan's relays and compression."""

    cluster: Cluster
    relays: Mapping[tuple[str, str], str]
    kinds: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, cluster: Cluster, plan: Plan) -> Routes:
        """The routes of a plan."""
        relays = {(relay.source, relay.destination): relay.via for relay in plan.relays}
        return cls(cluster, relays, {(each.source, each.destination): each.kind for each in plan.compression})

    def links(self, source: str, destination: str) -> tuple[int, ...]:
        """Indices of the links from source to destination: one, or two through the plan's relay.

        Raises ``InputError`` when the pair has neither.
        """
        found = self.find(source, destination)
        if found is None:
            raise InputError(
                f"the plan sends from '{source}' to '{destination}', but no link joins them",
                source=self.cluster.source or None,
                key="links",
                remedy=f"add a link from '{source}' to '{destination}', or a relay through a domain that both reach",
            )
        return found

    def find(self, source: str, destination: str) -> tuple[int, ...] | None:
        """The same; None when the pair exchanges nothing."""
        via = self.relays.get((source, destination))
        hops = ((source, destination),) if via is None else ((source, via), (via, destination))
        indices = tuple(self.cluster.link_index.get(hop, -1) for hop in hops)
        return None if -1 in indices else indices

    def nic_bytes_per_s(self, link: int, sending_nodes: int) -> float:
        """Bytes/s that ``sending_nodes`` nodes may send into the link together (inf: no cap per node)."""
        edge = self.cluster.links[link]
        return np.inf if edge.per_node_bytes_per_s is None else edge.per_node_bytes_per_s * edge.goodput * sending_nodes

    def compressed(self, source: str, destination: str, precision: str) -> float:
        """Share of the bytes of an activation that is sent, in (0, 1]."""
        kind = self.kinds.get((source, destination), "none")
        if kind not in COMPRESSED_BITS:
            raise UnknownNameError("compression", kind, COMPRESSED_BITS, key="compression.kind")
        return _share(kind, precision)
