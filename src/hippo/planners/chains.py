"""Regions in a chain: which region holds which stages of one pipeline, each region visited once.

The estimate is Sailor's (SOSP'25, section 4.2.2) without synchronisation: ``max t_i * m + sum t_i`` where ``t_i`` is a
stage's compute plus its transfer to the next stage and back, each lane alone on the link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hippo.problem.cluster import Cluster

MOST_VISITS = 4_000  # partial chains looked at per question; beyond that the best so far is taken


@dataclass(frozen=True)
class Chain:
    """p stages in order, to be dealt to regions."""

    cluster: Cluster
    gpus: tuple[int, ...]  # (p,) that each stage needs
    compute_s: tuple[float, ...]  # (p,) per micro-batch
    waves: int
    lane_bytes: float  # that one lane sends to the next stage per micro-batch

    def filled(self, region: int, start: int) -> int:
        """First stage that no longer fits when the region takes stages from ``start`` on."""
        free, stage = self.cluster.domains[region].gpus, start
        while stage < len(self.gpus) and self.gpus[stage] <= free:
            free -= self.gpus[stage]
            stage += 1
        return stage

    def transfer_s(self, a: str, b: str) -> float:
        """Activations there and gradients back; infinite without links."""
        there, back = self.cluster.link(a, b), self.cluster.link(b, a)
        if there is None or back is None:
            return float("inf")
        return sum(link.latency_s + self.lane_bytes / max(link.rate_bytes_per_s(1), 1e-9) for link in (there, back))

    def seconds(self, regions: tuple[str, ...]) -> float:
        """The estimate for stages in these regions."""
        crossing = [self.transfer_s(a, b) if a != b else 0.0 for a, b in zip(regions, regions[1:], strict=False)]
        times = [compute + sent for compute, sent in zip(self.compute_s, (*crossing, 0.0), strict=True)]
        return max(times) * self.waves + sum(times)


def best_chain(chain: Chain, *, limit: float, late: Callable[[], bool]) -> tuple[str, ...] | None:
    """Regions of the stages with the least estimate below ``limit``; None: there is none.

    Depth first, nearest region next, as many stages as it holds first. A partial chain is dropped when it reaches the
    best even if all borders that are still to come are the quickest ones.
    """
    names = [domain.name for domain in chain.cluster.domains]
    pair_s = {(a, b): chain.transfer_s(a, b) for a in names for b in names if a != b}
    total, slowest, least_s = sum(chain.compute_s), max(chain.compute_s), min(pair_s.values(), default=float("inf"))
    quickest, largest = min(chain.compute_s) + least_s, max(domain.gpus for domain in chain.cluster.domains)
    behind = [sum(chain.gpus[stage:]) for stage in range(len(chain.gpus) + 1)]
    best: tuple[float, tuple[str, ...] | None] = (limit, None)
    visits = 0

    def visit(stages: tuple[str, ...], sent_s: float, worst_s: float) -> None:
        nonlocal best, visits
        visits += 1
        start = len(stages)
        borders = max(-(-behind[start] // largest) - (start == 0), 0)
        least = max(worst_s, slowest, quickest if borders else 0.0) * chain.waves + total + sent_s
        if least + (borders * least_s if borders else 0.0) >= best[0] or visits > MOST_VISITS or late():
            return
        if start == len(chain.gpus):
            best = (least, stages)
            return
        free = [index for index, name in enumerate(names) if name not in stages]
        for index in sorted(free, key=lambda index: (pair_s[stages[-1], names[index]] if stages else 0.0, index)):
            step_s = pair_s[stages[-1], names[index]] if stages else 0.0
            if step_s < float("inf"):
                border_s = chain.compute_s[start - 1] + step_s if stages else 0.0
                for stop in range(chain.filled(index, start), start, -1):
                    visit(stages + (names[index],) * (stop - start), sent_s + step_s, max(worst_s, border_s))

    visit((), 0.0, 0.0)
    return best[1]
