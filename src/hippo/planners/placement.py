"""From a sketch of a plan to stages on named devices, and from data-parallel lanes to sketches.

A *sketch* says where the layers go and how wide each stage is; it names no device. Planners search over sketches and
place only what they keep. Rules, in this order, deterministic:

1. A tensor-parallel group lies inside one node whenever ``tp <= gpus_per_node``; wider ones take whole nodes in a row.
2. Wide groups are placed before narrow ones (then nothing is wasted when the widths divide each other), equal ones in
   the order pipeline, stage, lane.
3. Each group takes the first node with room, so that stages fill the domain node by node and share no device.

Runtimes with one rank order (Megatron-LM, DeepSpeed) and schedulers that deal out single GPUs (DT-FM, Alpa) may put
the lanes of one stage in several domains. Lanes that visit the same domains form one pipeline; all pipelines hold the
same layers and work through the same number of waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from hippo.errors import InfeasibleError
from hippo.plan.plan import Pipeline, Stage
from hippo.planners.cuts import Cuts
from hippo.problem.cluster import Cluster, Domain


@dataclass(frozen=True)
class StageSketch:
    """Consecutive layers on ``dp`` lanes of one domain, each of tensor-parallel groups of ``tp`` GPUs: as many as the
    context parallelism of its plan. Devices are not yet chosen."""

    domain: str
    layers: tuple[int, int]  # [start, stop)
    tp: int
    dp: int


@dataclass(frozen=True)
class PipelineSketch:
    """Stages that hold the model once per lane, and the waves they work through per step."""

    stages: tuple[StageSketch, ...]
    num_micro_batches: int
    warm_up: tuple[int, ...] = ()
    order: tuple[str, ...] = ()


def place(cluster: Cluster, sketches: Sequence[PipelineSketch], *, cp: int = 1) -> tuple[Pipeline, ...]:
    """Pipelines with device names, ``cp`` tensor-parallel groups a lane.

    Raises ``InfeasibleError`` when a domain has too few GPUs for its groups.
    """
    groups: dict[str, list[tuple[int, int]]] = {}
    for sketch in sketches:
        for stage in sketch.stages:
            groups.setdefault(stage.domain, []).append((stage.tp, stage.dp * cp))
    devices = {name: iter(_fill_domain(cluster.domain(name), tuple(own))) for name, own in groups.items()}
    return tuple(
        Pipeline(
            tuple(Stage(own.domain, own.layers, own.tp, own.dp, next(devices[own.domain])) for own in sketch.stages),
            sketch.num_micro_batches,
            sketch.warm_up,
            sketch.order,
        )
        for sketch in sketches
    )


@lru_cache(maxsize=256)
def _fill_domain(domain: Domain, stages: tuple[tuple[int, int], ...]) -> tuple[tuple[str, ...], ...]:
    """Devices of each stage of one domain, given as the width and the number of its groups; the widest choose first."""
    used = [0] * domain.nodes
    first_free: dict[int, int] = {}  # tp -> first node that may still have room for such a group
    placed: list[tuple[str, ...]] = [()] * len(stages)
    for at, (tp, count) in sorted(enumerate(stages), key=lambda item: -item[1][0]):
        names: list[str] = []
        for _ in range(count):
            first_free[tp] = _first_node(domain, used, tp, first_free.get(tp, 0))
            names += _take(domain, used, first_free[tp], tp)
        placed[at] = tuple(names)
    return tuple(placed)


def _first_node(domain: Domain, used: list[int], tp: int, start: int) -> int:
    """First node from ``start`` with room for a group (for a wide group: the first of enough empty nodes in a row)."""
    span = -(-tp // domain.gpus_per_node)
    share = min(tp, domain.gpus_per_node)
    for node in range(start, domain.nodes - span + 1):
        if all(used[other] + share <= domain.gpus_per_node for other in range(node, node + span)):
            return node
    raise InfeasibleError([f"Domain {domain.name} has no room left for a tensor-parallel group of {tp} GPUs."])


def _take(domain: Domain, used: list[int], node: int, tp: int) -> list[str]:
    """Marks the devices of one group as used and names them."""
    names: list[str] = []
    while len(names) < tp:
        count = min(tp - len(names), domain.gpus_per_node)
        names += [f"{domain.name}/{node}/{used[node] + gpu}" for gpu in range(count)]
        used[node] += count
        node += 1
    return names


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


def room_for_lanes(domain: Domain, tp: int, cp: int, *, wide: bool = False) -> int:
    """Lanes of ``cp`` tensor-parallel groups of that width that a domain has room for.

    ``wide``: a group may also take several whole nodes.
    """
    groups = domain.nodes * (domain.gpus_per_node // tp)
    if wide and tp > domain.gpus_per_node:
        groups = domain.nodes // (tp // domain.gpus_per_node)
    return groups // cp


def rank_order_lanes(cluster: Cluster, *, tp: int, dp: int, pp: int, cp: int = 1) -> tuple[Lane, ...]:
    """Lanes of Megatron-LM's default order tp-dp-pp (pp outermost), hosts in the order of the cluster file.

    Stage s holds lanes [s * dp, (s + 1) * dp), each of ``cp`` tensor-parallel groups; they fill the domains one after
    the other, and no group spans nodes. Raises ``ValueError`` when the cluster has room for fewer than ``dp * pp``.
    """
    groups = [domain.name for domain in cluster.domains for _ in range(room_for_lanes(domain, tp, cp))]
    if len(groups) < dp * pp:
        raise ValueError(f"{dp * pp} lanes of {tp * cp} GPUs do not fit on {len(groups)}")
    return tuple(tuple(groups[stage * dp + lane] for stage in range(pp)) for lane in range(dp))
