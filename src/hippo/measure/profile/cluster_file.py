"""A cluster file that holds the profiled device, so that a profile of it can be planned with."""

from __future__ import annotations

from dataclasses import replace

from hippo.measure.probe.cluster_text import MeasuredCluster, cluster_text
from hippo.problem.cluster import Cluster, Domain, Gpu

_ALONE = "one device, one domain: write the nodes, domains and links that there are"


def cluster_with(gpu: Gpu, cluster: Cluster | None) -> str:
    """The YAML of ``cluster`` with this device as its GPU; without a cluster, of one domain that holds one."""
    if cluster is None:
        here = Domain("here", 1, 1, gpu.nvlink_bytes_per_s, gpu.nvlink_bytes_per_s, 0.0)
        return cluster_text(MeasuredCluster(Cluster("here", gpu, (here,), (), source=gpu.source), {}), how=(_ALONE,))
    remarks = {(link.source, link.destination): "as in the cluster file given" for link in cluster.links}
    domains = tuple(_joined(domain, gpu, cluster.gpu) for domain in cluster.domains)
    how = (f"{cluster.name}, with {gpu.name} as its GPU",)
    return cluster_text(MeasuredCluster(replace(cluster, gpu=gpu, domains=domains), remarks), how=how)


def _joined(domain: Domain, gpu: Gpu, before: Gpu) -> Domain:
    """Inside a node the new device's own speed, where the file had left it to the old one's."""
    if domain.intra_node_bytes_per_s != before.nvlink_bytes_per_s:
        return domain
    return replace(domain, intra_node_bytes_per_s=gpu.nvlink_bytes_per_s)
