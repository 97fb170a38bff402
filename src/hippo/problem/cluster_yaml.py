"""Clusters from YAML (or JSON), and back.

    gpu: A100-SXM-80GB                      # a name of the catalogue, or a mapping with all figures
    domains:
      - {name: east, nodes: 8, gpus_per_node: 8}
      - {name: west, nodes: 8, gpus_per_node: 8, inter_node_gbps: 800}
    links:
      - {from: east, to: west, bandwidth_gbps: 5, latency_ms: 20, price_usd_per_gb: 0.02, both: true}

Units are converted here, once: Gbit/s, ms, us and TFLOP/s in the file, bytes/s, seconds and FLOP/s inside.
Every key, unit and default: ``docs/contracts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from hippo.errors import InputError, UnknownNameError
from hippo.problem.cluster import Cluster, Domain, Dynamics, Gpu, Link
from hippo.problem.gpus import FAMILIES, GPUS
from hippo.problem.gpus import gpu as gpu_named
from hippo.problem.table import Table, open_table
from hippo.problem.transport import CONGESTIONS
from hippo.units import (
    bytes_per_s_from_gbps,
    flops_from_tflops,
    gbps_from_bytes_per_s,
    ms_from_s,
    s_from_ms,
    s_from_us,
)

MAX_DOMAINS = 1024  # that are served; how many a plan is sought over: ``load.MOST_PLANNED``
MAX_NODES = 100_000  # of one domain
MAX_GPUS_PER_NODE = 1024
MAX_GPUS = 1_000_000  # of the cluster
MAX_GBPS = 1e6

DEFAULT_INTER_NODE_GBPS = 200.0
"""One node's network where the GPU type names no usual one: the middle of the usual 100-400 Gbit/s."""

DEFAULT_INTER_NODE_LATENCY_US = 5.0
"""A message between two nodes of one fabric; the order of InfiniBand and RoCE with NCCL."""

NEAR_FAMILY = 0.82
"""Likeness from which one family's name is taken for a misspelling of another: one letter in six, but not cdna4."""

PRECISIONS = ("bf16", "fp16", "fp8", "fp32", "tf32", "mxfp8", "nvfp4")

_TOP = ("name", "source", "gpu", "domains", "links", "dynamics", "congestion")
_DOMAIN = ("name", "nodes", "gpus_per_node", "intra_node_gbps", "inter_node_gbps", "inter_node_latency_us")
_LINK = ("from", "to", "bandwidth_gbps", "latency_ms", "price_usd_per_gb", "both", "per_node_gbps")
_GPU = (
    *("like", "name", "family", "source", "peak_tflops", "memory_gb", "hbm_gb_per_s", "nvlink_gb_per_s"),
    *("price_usd_per_hour", "node_gbps", "nvlink_domain"),
)

_IN_GBPS = "write bandwidth_gbps, in Gbit/s (1 GB/s = 8 Gbit/s, 1000 Mbit/s = 1 Gbit/s)"
_IN_MS = "write latency_ms, one way, in milliseconds"
_PRICE = "write price_usd_per_gb, in US dollars per GB (1e9 bytes)"
_LINK_HINTS = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "bandwidth",
                "bandwidth_gb",
                "bandwidth_mbps",
                "bandwidth_gbit",
                "bandwidth_gbit_s",
                "bw",
                "bw_gbps",
                "gbps",
            )
            + ("bandwidth_gb_per_s", "bandwidth_bytes_per_s", "bandwidth_mb", "bandwidth_gbytes"),
            _IN_GBPS,
        ),
        **dict.fromkeys(("latency", "latency_s", "latency_us", "delay", "delay_ms", "latency_msec"), _IN_MS),
        **dict.fromkeys(("rtt", "rtt_ms", "ping_ms"), "write latency_ms, one way: half of the round trip"),
        **dict.fromkeys(("price", "cost", "price_usd", "price_per_gb", "usd_per_gb", "egress_usd_per_gb"), _PRICE),
        **dict.fromkeys(("src", "source"), "write from: DOMAIN"),
        **dict.fromkeys(("dst", "dest", "destination", "target"), "write to: DOMAIN"),
        **dict.fromkeys(("bidirectional", "symmetric", "duplex"), "write both: true"),
    }
)
_DOMAIN_HINTS = MappingProxyType(
    {
        **dict.fromkeys(("gpus", "num_gpus", "count"), "write nodes and gpus_per_node"),
        **dict.fromkeys(("num_nodes", "servers", "hosts"), "write nodes"),
        "gpu": "write gpu at the top of the file: all domains hold one type",
        **dict.fromkeys(
            ("intra_node_gb", "intra_node_gb_per_s", "nvlink_gbps", "nvlink_gb_per_s", "intra_node_bandwidth"),
            "write intra_node_gbps, in Gbit/s of one GPU in one direction (1 GB/s = 8 Gbit/s)",
        ),
        **dict.fromkeys(
            ("inter_node_gb", "inter_node_gb_per_s", "inter_node_bandwidth", "nic_gbps", "network_gbps"),
            "write inter_node_gbps, in Gbit/s of one node in one direction (1 GB/s = 8 Gbit/s)",
        ),
        **dict.fromkeys(
            ("inter_node_latency", "inter_node_latency_ms", "inter_node_latency_s", "latency_us"),
            "write inter_node_latency_us, in microseconds (1 ms = 1000 us)",
        ),
    }
)
_GPU_HINTS = MappingProxyType(
    {
        **dict.fromkeys(
            ("tflops", "bf16_tflops", "peak_flops", "bf16_dense_tflops"),
            "write peak_tflops: {bf16: 312}, dense, in TFLOP/s",
        ),
        **dict.fromkeys(("memory", "mem_gb", "memory_gib", "memory_bytes"), "write memory_gb, in GB (1e9 bytes)"),
        **dict.fromkeys(("hbm_gbps", "hbm_bandwidth", "hbm_tb_per_s"), "write hbm_gb_per_s, in GB/s (bytes)"),
        **dict.fromkeys(
            ("nvlink_gbps", "nvlink", "nvlink_gbps_bidir"), "write nvlink_gb_per_s, in GB/s (bytes) of one direction"
        ),
        **dict.fromkeys(("price", "price_usd_h", "usd_per_hour", "price_usd"), "write price_usd_per_hour, of one GPU"),
    }
)


# -------------------------------------------------------------------------------------------------- document to cluster
def cluster_from_document(document: object, *, source: str, name: str) -> Cluster:
    """The cluster that a document of this form describes; ``name`` is used where it gives none itself.

    Raises
    ------
    InputError
        Unknown or missing keys, wrong units, signs or types, links to unknown domains, doubled names, absurd sizes.
    """
    table = open_table(document, source=source, known=_TOP)
    gpu = _gpu(table)
    domains = _domains(table, gpu)
    return Cluster(
        name=table.text("name", default=name),
        gpu=gpu,
        domains=domains,
        links=_links(table, frozenset(domain.name for domain in domains)),
        dynamics=_dynamics(table),
        source=table.text("source", default=source),
        congestion=table.choice("congestion", tuple(CONGESTIONS), default=""),
    )


def _gpu(table: Table) -> Gpu:
    rows = table.values.get("domains")
    own = isinstance(rows, list) and any(isinstance(row, dict) and "gpu" in row for row in rows)
    if isinstance(table.values.get("gpu"), list) or ("gpu" not in table.values and own):
        table.refuse("gpu", "is not one type", "write one gpu at the top of the file: all domains hold one type")
    if isinstance(table.values.get("gpu"), str):
        return _catalogue_gpu(table, "gpu")
    given = table.table("gpu", known=_GPU, hints=_GPU_HINTS)
    like = _catalogue_gpu(given, "like") if given.has("like") else None
    small = {"above": 0.0, "most": 1e9}

    def figure(key: str, field: str, factor: float, **bounds: float) -> float:
        """The file's figure, else that of the type it is like, else a complaint that it is missing."""
        if like is not None and not given.has(key):
            return float(getattr(like, field))
        return float(given.number(key, **(bounds or small)) * factor)

    node_gbps = given.number("node_gbps", default=None, above=0.0, most=MAX_GBPS)
    usual_node = None if like is None else like.node_bytes_per_s
    return Gpu(
        name=given.text("name", default=like.name) if like else given.text("name"),
        peak_flops=like.peak_flops if like and not given.has("peak_tflops") else _peak_flops(given),
        memory_bytes=figure("memory_gb", "memory_bytes", 1e9),
        hbm_bytes_per_s=figure("hbm_gb_per_s", "hbm_bytes_per_s", 1e9),
        nvlink_bytes_per_s=figure("nvlink_gb_per_s", "nvlink_bytes_per_s", 1e9),
        price_usd_per_hour=figure("price_usd_per_hour", "price_usd_per_hour", 1.0, least=0.0, most=1e6),
        source=given.text("source", default=table.source),
        family=_family(given, default=like.family if like else ""),
        node_bytes_per_s=usual_node if node_gbps is None else bytes_per_s_from_gbps(node_gbps),
        nvlink_domain=given.integer("nvlink_domain", default=like.nvlink_domain if like else 8, most=MAX_GPUS_PER_NODE),
    )


def _family(given: Table, *, default: str) -> str:
    """Any family of GPUs, for there are others than the catalogue's; what all but spells one of those is refused."""
    family = str(given.text("family", default=default))
    if family not in FAMILIES and get_close_matches(family.lower(), FAMILIES, n=1, cutoff=NEAR_FAMILY):
        other = ", or, for a family that nobody measured, a name less like these"
        raise UnknownNameError(
            "GPU family", family[:60], FAMILIES, source=given.source, key=given.key("family"), other=other
        )
    return family


def _catalogue_gpu(table: Table, key: str) -> Gpu:
    return gpu_named(table.text(key), source=table.source, key=table.key(key))


def _peak_flops(given: Table) -> Mapping[str, float]:
    """TFLOP/s per precision; a bare number stands for bf16 and fp16."""
    if not isinstance(given.values.get("peak_tflops"), dict):
        rate = flops_from_tflops(given.number("peak_tflops", above=0.0, most=1e9))
        return MappingProxyType({"bf16": rate, "fp16": rate})
    rates = given.table("peak_tflops", known=PRECISIONS)
    if not rates.values:
        given.refuse("peak_tflops", "names no precision", "write peak_tflops: {bf16: 312}", value="{}")
    return MappingProxyType({key: flops_from_tflops(rates.number(key, above=0.0, most=1e9)) for key in rates.values})


def _domains(table: Table, gpu: Gpu) -> tuple[Domain, ...]:
    rows = table.tables("domains", known=_DOMAIN, hints=_DOMAIN_HINTS, most=MAX_DOMAINS)
    if not rows:
        table.refuse("domains", "is empty", "describe at least one domain")
    domains = tuple(_domain(row, gpu) for row in rows)
    seen: set[str] = set()
    for row, domain in zip(rows, domains, strict=True):
        if domain.name in seen:
            row.refuse("name", "names two domains", "give every domain its own name")
        seen.add(domain.name)
    gpus = sum(domain.gpus for domain in domains)
    if gpus > MAX_GPUS:
        table.refuse("domains", f"hold {gpus} GPUs together", f"describe at most {MAX_GPUS}", value=gpus)
    return domains


def _domain(row: Table, gpu: Gpu) -> Domain:
    name = row.text("name", longest=100)
    if "/" in name or name != name.strip():
        row.refuse("name", "holds '/' or blanks around it", "use a name such as 'east-1' (devices are name/node/gpu)")
    usual = DEFAULT_INTER_NODE_GBPS if gpu.node_bytes_per_s is None else gbps_from_bytes_per_s(gpu.node_bytes_per_s)
    speed = {"above": 0.0, "most": MAX_GBPS}
    inside = row.number("intra_node_gbps", default=None, **speed)
    return Domain(
        name=name,
        nodes=row.integer("nodes", most=MAX_NODES),
        gpus_per_node=row.integer("gpus_per_node", most=MAX_GPUS_PER_NODE),
        intra_node_bytes_per_s=gpu.nvlink_bytes_per_s if inside is None else bytes_per_s_from_gbps(inside),
        inter_node_bytes_per_s=bytes_per_s_from_gbps(row.number("inter_node_gbps", default=usual, **speed)),
        inter_node_latency_s=s_from_us(
            row.number("inter_node_latency_us", default=DEFAULT_INTER_NODE_LATENCY_US, least=0.0, most=1e6)
        ),
    )


def _links(table: Table, domains: frozenset[str]) -> tuple[Link, ...]:
    links: dict[tuple[str, str], Link] = {}
    for row in table.tables("links", known=_LINK, hints=_LINK_HINTS, default=()):
        link = _link(row, domains)
        pairs = [(link.source, link.destination)]
        if row.flag("both", default=False):
            pairs.append((link.destination, link.source))
        for source, destination in pairs:
            if (source, destination) in links:
                raise InputError(
                    f"a second link from '{source}' to '{destination}'",
                    source=table.source,
                    key=row.place,
                    remedy="keep one of them ('both: true' already gives the way back)",
                )
            rest = (link.bandwidth_bytes_per_s, link.latency_s, link.price_usd_per_gb, link.per_node_bytes_per_s)
            links[source, destination] = Link(source, destination, *rest)
    return tuple(links.values())


def _link(row: Table, domains: frozenset[str]) -> Link:
    ends = []
    for key in ("from", "to"):
        end = row.text(key)
        if end not in domains:
            raise UnknownNameError("domain", end[:60], domains, source=row.source, key=row.key(key))
        ends.append(end)
    if ends[0] == ends[1]:
        row.refuse("to", "joins a domain to itself", "name two different domains")
    if not (row.has("bandwidth_gbps") or row.has("per_node_gbps")):
        row.refuse("bandwidth_gbps", "is missing", "write bandwidth_gbps (shared by all flows), per_node_gbps, or both")
    shared, node = (
        row.number(key, default=None, above=0.0, most=MAX_GBPS) for key in ("bandwidth_gbps", "per_node_gbps")
    )
    return Link(
        source=ends[0],
        destination=ends[1],
        bandwidth_bytes_per_s=None if shared is None else bytes_per_s_from_gbps(shared),
        latency_s=s_from_ms(row.number("latency_ms", least=0.0, most=60_000)),
        price_usd_per_gb=row.number("price_usd_per_gb", default=0.0, least=0.0, most=1e6),
        per_node_bytes_per_s=None if node is None else bytes_per_s_from_gbps(node),
    )


# key: (least, most)
_DYNAMICS = {
    "swing": (0.0, 0.99),
    "sigma": (0.0, 10.0),
    "tau_s": (1e-3, 1e9),
    "diurnal_peak_to_trough": (1.0, 1000.0),
    "outages_per_day": (0.0, 86400.0),
    "outage_s": (1e-3, 1e9),
}


def _dynamics(table: Table) -> Dynamics:
    if not table.has("dynamics"):
        return Dynamics()
    row, usual = table.table("dynamics", known=tuple(_DYNAMICS)), Dynamics()
    figures: dict[str, Any] = {
        key: row.number(key, default=getattr(usual, key), least=least, most=most)
        for key, (least, most) in _DYNAMICS.items()
    }
    return Dynamics(**figures)


# -------------------------------------------------------------------------------------------------- cluster to document
def cluster_to_document(cluster: Cluster) -> dict[str, object]:
    """The document of a cluster, every default written out; reading it gives the same cluster again."""
    return {
        "name": cluster.name,
        "source": cluster.source,
        "gpu": _gpu_to_document(cluster.gpu),
        "domains": [_domain_to_document(domain) for domain in cluster.domains],
        "links": [_link_to_document(link) for link in cluster.links],
        "dynamics": {field.name: getattr(cluster.dynamics, field.name) for field in fields(Dynamics)},
    } | ({"congestion": cluster.congestion} if cluster.congestion else {})


def _gpu_to_document(gpu: Gpu) -> object:
    if GPUS.get(gpu.name) == gpu:
        return gpu.name
    document: dict[str, object] = {
        "name": gpu.name,
        "family": gpu.family,
        "source": gpu.source,
        "peak_tflops": {key: written(rate, 1e12) for key, rate in gpu.peak_flops.items()},
        "memory_gb": written(gpu.memory_bytes, 1e9),
        "hbm_gb_per_s": written(gpu.hbm_bytes_per_s, 1e9),
        "nvlink_gb_per_s": written(gpu.nvlink_bytes_per_s, 1e9),
        "price_usd_per_hour": gpu.price_usd_per_hour,
        "nvlink_domain": gpu.nvlink_domain,
    }
    if gpu.node_bytes_per_s is not None:
        document["node_gbps"] = _gbps(gpu.node_bytes_per_s)
    return document


def _domain_to_document(domain: Domain) -> dict[str, object]:
    return {
        "name": domain.name,
        "nodes": domain.nodes,
        "gpus_per_node": domain.gpus_per_node,
        "intra_node_gbps": _gbps(domain.intra_node_bytes_per_s),
        "inter_node_gbps": _gbps(domain.inter_node_bytes_per_s),
        "inter_node_latency_us": _preimage(domain.inter_node_latency_s, domain.inter_node_latency_s * 1e6, s_from_us),
    }


def _link_to_document(link: Link) -> dict[str, object]:
    document: dict[str, object] = {"from": link.source, "to": link.destination}
    if link.bandwidth_bytes_per_s is not None:
        document["bandwidth_gbps"] = _gbps(link.bandwidth_bytes_per_s)
    if link.per_node_bytes_per_s is not None:
        document["per_node_gbps"] = _gbps(link.per_node_bytes_per_s)
    document["latency_ms"] = _preimage(link.latency_s, ms_from_s(link.latency_s), s_from_ms)
    document["price_usd_per_gb"] = link.price_usd_per_gb
    return document


def _gbps(bytes_per_s: float) -> float:
    return _preimage(bytes_per_s, gbps_from_bytes_per_s(bytes_per_s), bytes_per_s_from_gbps)


def written(value: float, factor: float) -> float:
    """The number that gives ``value`` when it is multiplied by ``factor``."""
    return _preimage(value, value / factor, lambda number: number * factor)


def _preimage(value: float, guess: float, convert: Callable[[float], float]) -> float:
    """``guess`` or its neighbour, whichever converts to exactly ``value``: what was read is written back the same."""
    candidates: Sequence[float] = (round(guess, 12), guess, math.nextafter(guess, math.inf), math.nextafter(guess, 0.0))
    found = next((number for number in candidates if convert(number) == value), guess)
    return int(found) if found.is_integer() else found
