"""The devices of a placement as a cluster of their own, and what makes two placements alike.

Letters: n domains of a set, p devices in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

from hippo.problem.cluster import Cluster, Domain, Link

Signature = tuple[tuple[object, ...], ...]


def part(domain: Domain, devices: int) -> Domain:
    """``devices`` of this kind of domain, on the fewest equal nodes; more than the domain has is allowed.

    Up to a node's worth: one node. Above: the least number of nodes that shares them evenly, whole nodes where they
    divide.
    """
    least = -(-devices // domain.gpus_per_node)
    nodes = next(nodes for nodes in range(least, devices + 1) if devices % nodes == 0)
    return replace(domain, nodes=nodes, gpus_per_node=devices // nodes)


def rung(devices: int) -> int:
    """The nearest of 1, 2, 3, 4, 6, 8, 12, 16, 24, .. by ratio (ties: the smaller); parts are planned at these only."""
    ladder = sorted(base << power for base in (1, 3) for power in range(devices.bit_length() + 1))
    return min(ladder, key=lambda size: (round(abs(log(size / devices)), 9), size))


def parts(cluster: Cluster, names: Sequence[str], devices: int) -> Cluster:
    """The cluster of ``devices`` devices in each of the named domains, and the links between these."""
    chosen = frozenset(names)
    domains = tuple(part(domain, devices) for domain in cluster.domains if domain.name in chosen)
    links = tuple(link for link in cluster.links if {link.source, link.destination} <= chosen)
    return replace(cluster, domains=domains, links=links)


def joined(cluster: Cluster) -> bool:
    """Whether every domain reaches every other over the links there are."""
    return all(len(_reached(cluster, domain.name)) == len(cluster.domains) for domain in cluster.domains)


def signature(cluster: Cluster) -> Signature:
    """Equal for clusters that differ in names and order only; equal answers may be shared.

    Domains are put into an order of their own figures. Where figures tie, alike clusters may get two signatures (and
    are planned twice), never unlike ones the same.
    """
    first = sorted(cluster.domains, key=lambda domain: _profile(cluster, domain))
    own = tuple(_figures(domain) for domain in first)
    pairs = ((a.name, b.name) for a in first for b in first if a != b)
    return own, tuple(_line(cluster.link(*pair)) for pair in pairs)


def _reached(cluster: Cluster, start: str) -> set[str]:
    """Names of the domains that ``start`` can send to, itself included."""
    reached, edge = {start}, [start]
    while edge:
        here = edge.pop()
        new = {link.destination for link in cluster.links if link.source == here} - reached
        reached |= new
        edge.extend(new)
    return reached


def _profile(cluster: Cluster, domain: Domain) -> tuple[object, ...]:
    out = sorted(_line(link) for link in cluster.links if link.source == domain.name)
    back = sorted(_line(link) for link in cluster.links if link.destination == domain.name)
    return (_figures(domain), out, back)


def _figures(domain: Domain) -> tuple[float, ...]:
    network = (domain.intra_node_bytes_per_s, domain.inter_node_bytes_per_s, domain.inter_node_latency_s)
    return (domain.nodes, domain.gpus_per_node, *network)


def _line(link: Link | None) -> tuple[float, ...]:
    """What a link can do; nothing where there is none, -1 for a rate that does not bind."""
    if link is None:
        return ()
    rates = (link.bandwidth_bytes_per_s, link.per_node_bytes_per_s)
    return (*(-1.0 if rate is None else rate for rate in rates), link.latency_s, link.price_usd_per_gb)
