"""Sites from files: a cluster file (one pool of GPUs per domain), or a file of agents of any kind.

    name: mixed
    agents:                                                     # a line per pool of equal devices
      - {domain: east, kind: A100-SXM-80GB, nodes: 10, per_node: 8}
      - {domain: east, kind: cpu, nodes: 4, per_node: 64, speed: 0.02, memory_gb: 8}
      - {domain: west, kind: npu, nodes: 2, per_node: 8, speed: 0.5, memory_gb: 32}
    links:                                                      # as in a cluster file
      - {from: east, to: west, bandwidth_gbps: 5, latency_ms: 20, price_usd_per_gb: 0.02, both: true}

``speed`` is relative to the devices on which the trace's durations hold (default 1), ``memory_gb`` is of one device
(default: the catalogue's for a GPU that it knows, else no limit).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hippo.errors import InputError
from hippo.files import read_text
from hippo.jobs.site import DevicePool, JobSite
from hippo.problem.cluster import Cluster
from hippo.problem.cluster_yaml import MAX_GPUS_PER_NODE, MAX_NODES, cluster_from_document
from hippo.problem.document import parse_json, parse_yaml
from hippo.problem.gpus import ALIASES, GPUS
from hippo.problem.load import load_cluster, load_trace
from hippo.problem.table import Table, open_table

_TOP = ("name", "source", "agents", "links")
_AGENT = ("domain", "kind", "nodes", "per_node", "speed", "memory_gb")
_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("gpus_per_node", "devices", "count"), "write nodes and per_node"),
    **dict.fromkeys(("type", "gpu", "device"), "write kind"),
    **dict.fromkeys(("memory", "mem_gb", "memory_bytes"), "write memory_gb, of one device, in GB (1e9 bytes)"),
    **dict.fromkeys(("tflops", "flops"), "write speed, relative to the devices of the trace"),
}
_SUFFIXES = (".yaml", ".yml", ".json")


def load_site(name_or_path: str | Path, network: str | Path | None = None) -> tuple[JobSite, Cluster]:
    """The site of a cluster by name or of a file, and the cluster (for names, links and prices).

    ``network``: a network trace (CSV, as ``hippo watch --trace`` reads it) with a row for every link at its first time.

    Raises
    ------
    InputError
        Whatever is wrong with the file: see ``cluster_yaml``, and for agents unknown keys, numbers out of range, two
        pools of one kind in one domain.
    """
    path = Path(name_or_path)
    if path.suffix.lower() in _SUFFIXES and path.is_file():
        text = read_text(path, what="cluster file")
        document = parse_json(text, str(path)) if path.suffix.lower() == ".json" else parse_yaml(text, str(path))
        if isinstance(document, dict) and "agents" in document:
            there, cluster = site_from_document(document, source=str(path), name=path.stem)
            return replace(there, history=_joined(cluster, network).history), cluster
    cluster = load_cluster(name_or_path)
    return _joined(cluster, network), cluster


def _joined(cluster: Cluster, network: str | Path | None) -> JobSite:
    return JobSite.of(cluster, None if network is None else load_trace(network, cluster, complete=True))


def site_from_document(document: object, *, source: str, name: str) -> tuple[JobSite, Cluster]:
    """The site of a document of agents, and the cluster of its domains and links.

    The cluster's GPU is the first kind of the site that the catalogue knows; ``is_planned`` says whether it stands for
    all devices, so that the planners may be asked about it.
    """
    table = open_table(document, source=source, known=_TOP)
    rows = table.tables("agents", known=_AGENT, hints=_HINTS)
    if not rows:
        table.refuse("agents", "is empty", "write one pool or more: {domain, kind, nodes, per_node}", value="[]")
    pools = tuple(_pool(row) for row in rows)
    seen: set[tuple[str, str]] = set()
    for row, pool in zip(rows, pools, strict=True):
        if (pool.domain, pool.kind) in seen:
            row.refuse("kind", f"domain '{pool.domain}' has this kind already", "give one line with more nodes")
        seen.add((pool.domain, pool.kind))
    cluster = _cluster(table, pools, name)
    return replace(JobSite.of(cluster), pools=pools), cluster


def is_planned(site: JobSite, cluster: Cluster) -> bool:
    """Whether all devices of a site are the cluster's GPUs, at the speed that the trace's durations are for."""
    return all(pool.kind == cluster.gpu.name and pool.speed == 1.0 for pool in site.pools)


def _pool(row: Table) -> DevicePool:
    kind = row.text("kind")
    known = GPUS.get(ALIASES.get(kind, kind))
    memory_gb = math.inf if known is None else known.memory_bytes / 1e9
    return DevicePool(
        domain=row.text("domain"),
        kind=kind if known is None else known.name,
        nodes=row.integer("nodes", most=MAX_NODES),
        per_node=row.integer("per_node", most=MAX_GPUS_PER_NODE),
        speed=row.number("speed", default=1.0, above=0.0, most=1e6),
        memory_gb=row.number("memory_gb", default=memory_gb, above=0.0, most=1e9),
    )


def _cluster(table: Table, pools: tuple[DevicePool, ...], name: str) -> Cluster:
    """Domains and links, checked as those of a cluster file."""
    largest = {pool.domain: pool for pool in reversed(pools)}
    known = [pool.kind for pool in pools if pool.kind in GPUS]
    document: dict[str, Any] = {
        "name": table.text("name", default=name),
        "gpu": known[0] if known else next(iter(GPUS)),
        "domains": [
            {"name": each.domain, "nodes": each.nodes, "gpus_per_node": each.per_node}
            for each in (largest[domain] for domain in dict.fromkeys(pool.domain for pool in pools))
        ],
        "links": table.items("links", default=[]),
    }
    try:
        return cluster_from_document(document, source=table.source, name=name)
    except InputError as error:
        if error.key is not None and error.key.startswith("domains"):  # the keys of another form
            raise InputError(error.problem, source=table.source, key="agents", remedy=error.remedy) from None
        raise
