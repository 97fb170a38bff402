"""What is asked of ``hippo profile`` and what it answers, as data; no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from hippo.measure.probe.findings import MeasuredCluster, cluster_text
from hippo.problem.cluster import Cluster, Domain, Gpu
from hippo.problem.model import Model
from hippo.problem.profile import Profile, ProfileRow

PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class ProfileRequest:
    """What is to be profiled."""

    model: Model
    widths: tuple[int, ...]  # tensor-parallel
    micro_batches: tuple[int, ...]
    seq: int
    budget_s: float  # per layer and shape
    precision: str | None = None  # None: bf16 on a GPU, fp32 on a CPU
    gpu: str | None = None  # name that the rows carry; None: the device's own
    threads: int = 1  # of a CPU


@dataclass(frozen=True)
class TimedShape:
    """What is timed, besides the layer."""

    tp: int
    micro_batch: int
    seq: int


@dataclass(frozen=True)
class PassTimes:
    """Seconds of one pass of one micro-batch over the repeats."""

    median_s: float
    least_s: float
    most_s: float

    @classmethod
    def of(cls, seconds: list[float]) -> PassTimes:
        """Median and range."""
        return cls(median(seconds), min(seconds), max(seconds))


@dataclass(frozen=True)
class LayerTimes:
    """What one layer takes at one shape; bytes of one device, of one micro-batch where they depend on it."""

    forward: PassTimes
    backward: PassTimes  # input gradient
    weight: PassTimes  # weight gradient, added to the sum
    repeats: int
    parameter_bytes: float
    activation_bytes: float  # kept from the forward to the backward pass, the layer's input included
    output_bytes: float
    peak_bytes: float  # weights, gradient sums and one micro-batch at its worst


@dataclass(frozen=True)
class ProfiledRow:
    """One row of the profile with its spread."""

    row: ProfileRow
    times: LayerTimes


@dataclass(frozen=True)
class ProfiledDevice:
    """A profiled device."""

    profile: Profile
    gpu: Gpu
    rows: tuple[ProfiledRow, ...]


# -------------------------------------------------------------------------------------------------------- cluster file
# A cluster file that holds the profiled device, so that a profile of it can be planned with.

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
