"""How replicas agree: the layers they share, rings across domains, tied embeddings, parameters sharded over the WAN.

Pipelines may cut the model differently. Layers held by the same ranks form one group; groups on the same links
queue, so their times add up. A sum goes the way that the plan says (``Sync.all_reduce``): on two levels, inside each
domain first, then over a ring of the K domains on which every domain sends ``2 (K - 1) / K`` of the bytes; or over one
flat ring of all n data-parallel ranks, domain after domain, whose hops between domains carry ``2 (n - 1) / n`` of them.
A reduce-scatter and an all-gather (sharded optimizer, sharded gradients) send as much. Local SGD agrees every H steps:
bytes and latencies are divided by H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.plan.plan import Plan, Stage
from hippo.problem.links import base_bandwidth, base_latency
from hippo.simulate.costs import chunk_layers, nodes
from hippo.simulate.program import Gather, SyncGroup
from hippo.simulate.ring import ring
from hippo.simulate.routes import Routes

_PASSES_WITH_GATHER = 2  # weights are gathered for the forward and again for the backward pass


@dataclass(frozen=True)
class Replicas:
    """Who holds which layer. R pipelines, N layers, G ranks numbered through all pipelines."""

    plan: Plan
    cost: CostModel
    routes: Routes
    stages: tuple[Stage, ...]  # (G,)
    owner: NDArray[np.int64]  # (R, N) rank that holds the layer

    @classmethod
    def of(cls, plan: Plan, cost: CostModel, routes: Routes) -> Replicas:
        """The replicas of a plan."""
        owner = np.zeros((len(plan.pipelines), cost.problem.model.num_layers), dtype=np.int64)
        stages: list[Stage] = []
        for row, pipeline in enumerate(plan.pipelines):
            for stage, ranges in enumerate(chunk_layers(pipeline, plan.interleave)):
                for start, stop in ranges:
                    owner[row, start:stop] = len(stages) + stage
            stages.extend(pipeline.stages)
        return cls(plan, cost, routes, tuple(stages), owner)

    def domains(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """Domains of the ranks, each once."""
        return tuple(dict.fromkeys(self.stages[rank].domain for rank in ranks))


def sync_groups(replicas: Replicas) -> tuple[SyncGroup, ...]:
    """The groups of one step: tied embeddings of each pipeline, then the layers that replicas share."""
    plan = replicas.plan
    tied = _tied_groups(replicas)
    if len(plan.pipelines) == 1:
        return tied
    if gathers_over_wan(replicas):
        return tied + _inside_domains(replicas)
    every = plan.sync.every if plan.sync.method == "local_sgd" else 1
    shared = _shared_layers(replicas)
    by_domains: dict[tuple[str, ...], float] = {}
    for ranks, num_bytes in shared.items():
        key = tuple(sorted(replicas.domains(ranks)))
        by_domains[key] = by_domains.get(key, 0.0) + num_bytes
    rings = {key: ring(replicas.routes, key, total) for key, total in by_domains.items()}
    return tied + tuple(
        group(replicas, ranks, num_bytes / every, rings[tuple(sorted(replicas.domains(ranks)))], every)
        for ranks, num_bytes in shared.items()
    )


def _inside_domains(replicas: Replicas) -> tuple[SyncGroup, ...]:
    """Replicas of one domain agree among themselves, where only what crosses domains is gathered with every pass."""
    stages, found = replicas.stages, []
    for ranks, num_bytes in _shared_layers(replicas).items():
        for domain in replicas.domains(ranks):
            members = tuple(rank for rank in ranks if stages[rank].domain == domain)
            if len(members) > 1:
                found.append(group(replicas, members, num_bytes, ()))
    return tuple(found)


def group(
    replicas: Replicas, ranks: tuple[int, ...], num_bytes: float, pairs: tuple[tuple[int, ...], ...], every: int = 1
) -> SyncGroup:
    """Ranks that agree on ``num_bytes`` over the pairs of domains of a ring, every ``every`` steps."""
    flat = bool(pairs) and replicas.plan.sync.all_reduce == "ring"
    members = sum(replicas.stages[rank].dp for rank in ranks) if flat else len(pairs)
    share = 2 * (members - 1) / members * num_bytes if pairs else 0.0
    turns = _turns(replicas, ranks, members, num_bytes, flat=flat) if pairs else 1
    hops = turns * rounds(replicas.routes, pairs, members, num_bytes / turns) if pairs else 0.0
    load: dict[int, float] = {}
    for pair in pairs:
        for link in pair:
            load[link] = load.get(link, 0.0) + share
    domains = replicas.domains(ranks)
    local_s = 0.0
    if len(domains) < len(ranks) and not flat:  # a flat ring's hops inside a domain run beside those between domains
        local_s = max(_local_seconds(replicas, ranks, domain, num_bytes) for domain in domains)
    caps = tuple(_cap(replicas, ranks, link) for link in load)
    lanes = (
        sum(replicas.stages[rank].dp for rank in ranks if replicas.stages[rank].domain == each) for each in domains
    )
    flows = 1 if flat or not pairs else max(lanes)
    return SyncGroup(ranks, tuple(load), tuple(load.values()), hops / every, local_s, pairs, caps, flows)


def _turns(replicas: Replicas, ranks: tuple[int, ...], members: int, num_bytes: float, *, flat: bool) -> int:
    """In how many turns the runtime sends a ring's bytes: every tensor-parallel rank has a ring of its own, on two
    levels every lane of a domain, too."""
    most = replicas.cost.problem.rules.sum_turn_bytes
    stages = [replicas.stages[rank] for rank in ranks]
    rings = min(len(stage.devices) // (stage.dp if flat else 1) for stage in stages)
    return max(1, ceil(num_bytes / rings / (members * most)))


def rounds(routes: Routes, pairs: tuple[tuple[int, ...], ...], members: int, num_bytes: float) -> float:
    """Latencies of the farthest pair that a ring of n members over K pairs waits for, beyond what its links carry.

    A piece (1 / n of the bytes) makes 2 (n - 1) hops, of which x = ceil(2 (n - 1) K / n) lie between domains. Pieces
    follow one another, so the ring ends when the slowest link has carried all of its 2 (n - 1) and the last has
    arrived, or when one piece has made its x hops of a latency and a transfer each, whichever is later. With a member
    in each domain (n = K) that is 2 (K - 1) hops (Patarasuk and Yuan 2009, section 3).
    """
    hops, between = 2 * (members - 1), -(-2 * (members - 1) * len(pairs) // members)
    if between == hops:
        return float(hops)
    bandwidth, delay = base_bandwidth(routes.cluster), base_latency(routes.cluster)
    late = max(float(sum(delay[link] for link in pair)) for pair in pairs)
    piece = max(num_bytes / members / min(bandwidth[link] for link in pair) for pair in pairs)
    if late <= 0.0:
        return 0.0
    return float(max(1.0, between - (hops - between) * piece / late))


def _shared_layers(replicas: Replicas) -> dict[tuple[int, ...], float]:
    """Gradient bytes of the layers that each set of ranks shares, in layer order."""
    bytes_per_parameter = replicas.cost.problem.workload.gradient_bytes_per_parameter
    shared: dict[tuple[int, ...], float] = {}
    for layer, ranks in zip(replicas.cost.problem.model.layers, map(tuple, replicas.owner.T.tolist()), strict=True):
        shared[ranks] = shared.get(ranks, 0.0) + layer.parameters * bytes_per_parameter
    return shared


def _tied_groups(replicas: Replicas) -> tuple[SyncGroup, ...]:
    """First and last stage of each pipeline sum the gradient of the matrix they share."""
    model, workload = replicas.cost.problem.model, replicas.cost.problem.workload
    ends = [(int(row[0]), int(row[-1])) for row in replicas.owner]
    if not model.tied:
        return ()
    num_bytes = float(model.vocab * model.hidden) * workload.gradient_bytes_per_parameter
    return tuple(
        group(replicas, pair, num_bytes, ring(replicas.routes, replicas.domains(pair), num_bytes))
        for pair in ends
        if pair[0] != pair[1]
    )


def _local_seconds(replicas: Replicas, ranks: Sequence[int], domain: str, num_bytes: float) -> float:
    """Seconds in which several members in one domain agree among themselves, over the fabric of their nodes."""
    members = [replicas.stages[rank] for rank in ranks if replicas.stages[rank].domain == domain]
    if len(members) < 2:
        return 0.0
    fewest = min(len(nodes(stage.devices)) for stage in members)
    one_node = len(frozenset().union(*(nodes(stage.devices) for stage in members))) == 1
    moved = 2.0 * (len(members) - 1) / len(members) * num_bytes
    share = moved / (min(len(stage.devices) for stage in members) if one_node else fewest)
    return replicas.cost.p2p_seconds(domain, share, same_node=one_node)


def _cap(replicas: Replicas, ranks: Sequence[int], link: int) -> float:
    """Bytes/s that the members may send into the link (inf: no cap): their nodes, or all of a domain that relays."""
    if replicas.routes.cluster.links[link].per_node_bytes_per_s is None:
        return np.inf
    source = replicas.routes.cluster.links[link].source
    members = [nodes(replicas.stages[rank].devices) for rank in ranks if replicas.stages[rank].domain == source]
    senders = len(frozenset().union(*members)) if members else replicas.routes.cluster.domain(source).nodes
    return replicas.routes.nic_bytes_per_s(link, senders)


def gathers_over_wan(replicas: Replicas) -> bool:
    """Whether parameters are sharded over several domains (ZeRO-3): then every pass crosses the WAN."""
    plan = replicas.plan
    several = len(plan.pipelines) > 1 and len(plan.domains) > 1
    return plan.sharding == "full" and several and plan.sync.method == "allreduce"


def wan_gather(replicas: Replicas) -> tuple[Gather | None, NDArray[np.float64]]:
    """What every pass of a plan sharded over domains gathers, and the bytes per step on every link, (E,).

    One ring over the domains in use; replicas work in lockstep, so one collective serves them all. Gradients are
    scattered with every backward pass, as ZeRO-3 does when gradients are accumulated.
    """
    total = np.zeros(len(replicas.routes.cluster.links))
    if not gathers_over_wan(replicas):
        return None, total
    parameters = _chunk_parameters(replicas)
    weight = parameters * replicas.cost.problem.workload.gradient_bytes_per_parameter
    pairs = ring(replicas.routes, replicas.plan.domains, float(weight.sum()) / len(replicas.plan.pipelines))
    if not pairs:
        return None, total
    holders = [replicas.owner[:, (replicas.owner == rank).any(axis=0)] for rank in range(len(replicas.stages))]
    spread = np.array([len(replicas.domains(np.unique(ranks).tolist())) for ranks in holders])[:, None]
    gathered = weight * (spread - 1) / spread
    links = tuple(link for pair in pairs for link in pair)
    gather = Gather(links, gathered, _PASSES_WITH_GATHER * gathered, float(len(pairs) - 1))
    np.add.at(total, list(links), _bytes_per_step(replicas, gather))
    return gather, total


def _bytes_per_step(replicas: Replicas, gather: Gather) -> float:
    """Bytes on each link of the ring per step: those of the pipeline with the most waves."""
    per_wave = (gather.forward_bytes + gather.backward_bytes).sum(axis=1)
    totals, start = [], 0
    for pipeline in replicas.plan.pipelines:
        stop = start + len(pipeline.stages)
        totals.append(float(per_wave[start:stop].sum()) * pipeline.num_micro_batches)
        start = stop
    return max(totals)


def _chunk_parameters(replicas: Replicas) -> NDArray[np.float64]:
    """Parameters of each chunk, (G, C)."""
    running = np.concatenate([[0], np.cumsum([layer.parameters for layer in replicas.cost.problem.model.layers])])
    ranges = [row for pipeline in replicas.plan.pipelines for row in chunk_layers(pipeline, replicas.plan.interleave)]
    return np.array([[running[stop] - running[start] for start, stop in row] for row in ranges], dtype=np.float64)
