"""From lanes to pipelines: which domain every data-parallel lane visits at every stage.

Runtimes with one rank order (Megatron-LM, DeepSpeed) and schedulers that deal out single GPUs (DT-FM, Alpa) may put
the lanes of one stage in several domains. Lanes that visit the same domains form one pipeline; all pipelines hold the
same layers and work through the same number of waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from hippo.planners.cuts import Cuts
from hippo.planners.placement import PipelineSketch, StageSketch
from hippo.problem.cluster import Cluster

Lane = tuple[str, ...]
"""Domain of each stage of one data-parallel lane."""


def pipelines_of_lanes(
    lanes: Sequence[Lane], cuts: Cuts, widths: Sequence[int], waves: int, *, alike: bool = False
) -> tuple[PipelineSketch, ...]:
    """One pipeline per distinct lane, in the order they first appear; ``widths`` is the tp of each stage.

    ``alike``: pipelines are split until all have the same data width, as runtimes with one layout for all want it.
    """
    counts: dict[Lane, int] = {}
    for lane in lanes:
        counts[lane] = counts.get(lane, 0) + 1
    share = gcd(*counts.values()) if alike else 0
    parts = [(lane, share or dp) for lane, dp in counts.items() for _ in range(dp // (share or dp))]
    return tuple(
        PipelineSketch(
            tuple(
                StageSketch(domain, (cuts[stage], cuts[stage + 1]), widths[stage], dp)
                for stage, domain in enumerate(lane)
            ),
            waves,
        )
        for lane, dp in parts
    )


def rank_order_lanes(cluster: Cluster, *, tp: int, dp: int, pp: int) -> tuple[Lane, ...]:
    """Lanes of Megatron-LM's default order tp-dp-pp (pp outermost), hosts in the order of the cluster file.

    Stage s holds tensor-parallel groups [s * dp, (s + 1) * dp); groups fill the domains one after the other, and none
    spans nodes. Raises ``ValueError`` when the cluster has fewer than ``dp * pp`` groups.
    """
    groups = [domain.name for domain in cluster.domains for _ in range(domain.nodes * (domain.gpus_per_node // tp))]
    if len(groups) < dp * pp:
        raise ValueError(f"{dp * pp} groups of {tp} GPUs do not fit on {len(groups)}")
    return tuple(tuple(groups[stage * dp + lane] for stage in range(pp)) for lane in range(dp))
