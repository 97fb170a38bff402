"""What crosses between domains in one step: a matrix, and shares of what the links could carry in that time."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.problem.cluster import Link
from hippo.report.story import Story
from hippo.units import gbps_from_bytes_per_s, ms_from_s


@dataclass(frozen=True)
class Flow:
    """One directed link in one step."""

    source: str
    destination: str
    gb: float
    share: float  # of what the link carries in a step time
    gbps: float  # what the link carries, nodes of the source sending together
    latency_ms: float
    usd: float  # egress of this step


@dataclass(frozen=True)
class Traffic:
    """All links, and the same as a square: ``rows[i][j]`` is the flow from domain i to j, None without a link."""

    domains: tuple[str, ...]
    rows: tuple[tuple[Flow | None, ...], ...]
    flows: tuple[Flow, ...]  # in the order of the cluster's links

    @property
    def total_gb(self) -> float:
        """Everything sent between domains in a step."""
        return sum(flow.gb for flow in self.flows)

    @property
    def busiest(self) -> Flow | None:
        """The link nearest to its capacity; None when nothing crosses."""
        used = [flow for flow in self.flows if flow.gb > 0]
        return max(used, key=lambda flow: flow.share, default=None)


def traffic(story: Story) -> Traffic:
    """Bytes of the played step per directed link."""
    cluster = story.problem.cluster
    flows = tuple(_flow(story, link, float(story.timeline.link_bytes[e])) for e, link in enumerate(cluster.links))
    by_pair = {(flow.source, flow.destination): flow for flow in flows}
    names = tuple(domain.name for domain in cluster.domains)
    rows = tuple(tuple(by_pair.get((source, destination)) for destination in names) for source in names)
    return Traffic(names, rows, flows)


def _flow(story: Story, link: Link, num_bytes: float) -> Flow:
    rate = link.rate_bytes_per_s(story.problem.cluster.domain(link.source).nodes)
    capacity = rate * story.timeline.step_time_s
    return Flow(
        link.source,
        link.destination,
        num_bytes / 1e9,
        num_bytes / capacity if capacity > 0 else 0.0,
        gbps_from_bytes_per_s(rate),
        ms_from_s(link.latency_s),
        num_bytes / 1e9 * link.price_usd_per_gb,
    )
