"""How replicas agree: the layers they share, rings across domains, tied embeddings, parameters sharded over the WAN.

Pipelines may cut the model differently. Layers held by the same ranks form one group; groups on the same links
queue, so their times add up. A sum goes the way that the plan says (``Sync.all_reduce``): on two levels, inside each
domain first, then over a ring of the K domains on which every domain sends ``2 (K - 1) / K`` of the bytes; or over one
flat ring of all n data-parallel ranks, domain after domain, whose hops between domains carry ``2 (n - 1) / n`` of them.
A reduce-scatter and an all-gather (sharded optimizer, sharded gradients) send as much; where the optimizer is sharded
over all replicas (``optimizer-across``), what is gathered are weights, in their own precision. Local SGD agrees every H
steps: bytes and latencies are divided by H.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hippo.cost.cost_model import CostModel
from hippo.cost.memory import weight_bytes
from hippo.plan.plan import Plan, Stage
from hippo.problem.links import base_bandwidth, base_latency
from hippo.problem.problem import Problem
from hippo.problem.runtimes import ACROSS
from hippo.simulate.costs import chunk_layers, lane_nodes, nodes
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
    """The groups of one step: tied embeddings, then the layers that replicas share."""
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
    agreements = [
        Agreement(replicas, ranks, num_bytes, rings[tuple(sorted(replicas.domains(ranks)))], every)
        for ranks, num_bytes in shared.items()
    ]
    users = Counter(place for each in agreements for place in each.ways_out())
    return tied + tuple(each.group(users) for each in agreements)


def _inside_domains(replicas: Replicas) -> tuple[SyncGroup, ...]:
    """Replicas of one domain agree among themselves, where only what crosses domains is gathered with every pass."""
    stages, found = replicas.stages, []
    for ranks, num_bytes in _shared_layers(replicas).items():
        for domain in replicas.domains(ranks):
            members = tuple(rank for rank in ranks if stages[rank].domain == domain)
            if len(members) > 1:
                found.append(Agreement(replicas, members, num_bytes, ()).group())
    return tuple(found)


@dataclass(frozen=True)
class Agreement:
    """Ranks that sum ``num_bytes`` over the pairs of domains of a ring, every ``every`` steps."""

    replicas: Replicas
    ranks: tuple[int, ...]
    num_bytes: float
    pairs: tuple[tuple[int, ...], ...]
    every: int = 1

    @cached_property
    def flat(self) -> bool:
        """Whether every lane is a member of one ring; else every domain is, and its lanes send shares of it."""
        return bool(self.pairs) and self.replicas.plan.sync.all_reduce == "ring"

    def group(self, users: Mapping[tuple[str, int], int] = MappingProxyType({})) -> SyncGroup:
        """What engines play; ``users``: agreements that share a node's way into a link."""
        replicas, domains = self.replicas, self.replicas.domains(self.ranks)
        num_bytes = self.num_bytes / self.every
        if not self.pairs:
            local_s = max(_local_seconds(replicas, self.ranks, domain, num_bytes) for domain in domains)
            return SyncGroup(self.ranks, (), (), 0.0, local_s)
        cp = replicas.plan.context_parallel
        members = cp * sum(replicas.stages[rank].dp for rank in self.ranks) if self.flat else len(self.pairs)
        load: dict[int, float] = {}
        for link in (each for pair in self.pairs for each in pair):
            load[link] = load.get(link, 0.0) + 2 * (members - 1) / members * num_bytes
        caps = {link: self._cap(link, users) for link in load}
        local_s = 0.0
        if len(domains) < len(self.ranks) and not self.flat:  # the hops of a flat ring inside a domain are its own
            local_s = max(_local_seconds(replicas, self.ranks, domain, num_bytes) for domain in domains)
        hops = self._hops(members, caps) / self.every
        lanes = (cp * sum(stage.dp for stage in own) for own in self._stages.values())
        loads, ways_out = tuple(load.values()), tuple(caps.values())
        flows = 1 if self.flat else max(lanes)
        return SyncGroup(self.ranks, tuple(load), loads, hops, local_s, self.pairs, ways_out, flows)

    @cached_property
    def _stages(self) -> dict[str, list[Stage]]:
        """Of every domain those that sum."""
        found: dict[str, list[Stage]] = {}
        for stage in map(self.replicas.stages.__getitem__, self.ranks):
            found.setdefault(stage.domain, []).append(stage)
        return found

    def ways_out(self) -> list[tuple[str, int]]:
        """Nodes that send, each with the link that it sends into."""
        return [(node, link) for pair in self.pairs for link in pair[:1] for node in self._senders(link)]

    def _senders(self, link: int) -> frozenset[str]:
        """Nodes that send into a link: those of all members of its domain; on a flat ring, of the last of its lanes."""
        members = self._stages.get(self.replicas.routes.cluster.links[link].source, [])
        if self.flat and members:
            return nodes(members[-1].devices[-members[-1].tp :])
        return frozenset().union(*(nodes(stage.devices) for stage in members))

    @cached_property
    def _rings(self) -> int:
        """Rings side by side: one for each tensor-parallel rank, on two levels of every lane."""
        stages = [stage for own in self._stages.values() for stage in own]
        return min(stage.tp if self.flat else len(stage.devices) for stage in stages)

    def _cap(self, link: int, users: Mapping[tuple[str, int], int]) -> float:
        """Bytes/s that the senders may send into the link (inf: no cap), their share of the ways that others use at the
        same time, or as many as the runtime keeps in flight. A domain that relays sends from all its nodes."""
        routes, flight = self.replicas.routes, self.replicas.cost.problem.rules.sum_flight_bytes
        edge = routes.cluster.links[link]
        in_flight = self._rings * flight / (2 * edge.delay_s) if edge.delay_s > 0 else np.inf
        if edge.per_node_bytes_per_s is None:
            return in_flight
        senders = self._senders(link)
        sending = sum(1 / users.get((node, link), 1) for node in senders)
        sending = sending if senders else float(routes.cluster.domain(edge.source).nodes)
        return min(edge.per_node_bytes_per_s * edge.goodput * sending, in_flight)

    def _hops(self, members: int, caps: Mapping[int, float]) -> float:
        """Latencies of the farthest pair that the ring waits for, beyond what its slowest link carries.

        A turn is what the runtime sends before it goes on; its pieces (1 / n of it) make 2 (n - 1) hops.
        """
        routes, most = self.replicas.routes, self.replicas.cost.problem.rules.sum_turn_bytes
        turns = max(1, ceil(self.num_bytes / self._rings / (members * most)))
        piece, sends = self.num_bytes / turns / members, turns * 2 * (members - 1)
        bandwidth, delay = base_bandwidth(routes.cluster), base_latency(routes.cluster)
        carried = [max(piece / min(bandwidth[link], caps[link]) for link in pair) for pair in self.pairs]
        delayed = [float(sum(delay[link] for link in pair)) for pair in self.pairs]
        late, slowest = max(delayed), max(carried)
        if late <= 0.0:
            return 0.0
        if self.flat:
            carried, delayed = self._through_lanes(carried, delayed, piece)
        return float((ring_s(np.array(carried), np.array(delayed), sends) - sends * slowest) / late)

    def _through_lanes(
        self, carried: Sequence[float], delayed: Sequence[float], piece: float
    ) -> tuple[list[float], list[float]]:
        """The same of every hop of a flat ring, those between lanes of one domain, too."""
        replicas, found = self.replicas, list[tuple[float, float]]()
        cost, rings = replicas.cost, self._rings
        for pair, away in zip(self.pairs, zip(carried, delayed, strict=True), strict=True):
            domain = replicas.routes.cluster.links[pair[0]].source
            lanes = [
                lane
                for stage in self._stages[domain]
                for lane in lane_nodes(stage.devices, len(stage.devices) // stage.tp)
            ]
            near, far = (
                (cost.p2p_seconds(domain, size, same_node=same) - cost.p2p_seconds(domain, 0.0, same_node=same), same)
                for size, same in ((piece / rings, True), (piece / len(lanes[0]), False))
            )
            start = {same: cost.p2p_seconds(domain, 0.0, same_node=same) for same in (True, False)}
            for one, two in zip(lanes, lanes[1:], strict=False):
                seconds, same = near if one == two else far
                found.append((seconds, start[same]))
            found.append(away)
        return [each for each, _ in found], [each for _, each in found]


def ring_s(carried: NDArray[np.float64], delayed: NDArray[np.float64], sends: int) -> float:
    """Seconds of a ring of n hops, on each of which ``sends`` pieces follow one another: a piece goes when the one
    before has come in and the last one has left. ``carried`` (n,) seconds that it takes, ``delayed`` (n,) then its way.

    The longest chain of waits: pieces that go round and round, or one hop that sends without a pause, reached over the
    hops before it and left over those behind. With equal hops that is 2 (n - 1) of them (Patarasuk and Yuan 2009).
    """
    whole, n, slowest = carried + delayed, len(carried), float(carried.max())
    rounds, rest = divmod(sends, n)
    twice = np.concatenate([[0.0], np.cumsum(np.concatenate([whole, whole]))])
    longest = rounds * float(twice[n]) + float((twice[rest : rest + n] - twice[:n]).max())
    for hop in np.flatnonzero(carried >= slowest * (1 - 1e-9)).tolist():
        more = np.roll(whole - slowest, -hop)
        behind, before = float(np.cumsum(more[:-1]).max()), float(np.cumsum(more[:0:-1]).max(initial=0.0))
        longest = max(longest, sends * slowest + before + behind)
    return longest


def summed_share(problem: Problem, sharding: str) -> float:
    """What a sum over replicas sends, over what an all-reduce of the gradients sends: a shard's owner scatters
    gradients and gathers weights."""
    each = problem.workload.gradient_bytes_per_parameter
    return (each + weight_bytes(problem.workload.precision)) / (2 * each) if sharding == ACROSS else 1.0


def _shared_layers(replicas: Replicas) -> dict[tuple[int, ...], float]:
    """Bytes that each set of ranks sums, in layer order: gradients of the layers they share."""
    bytes_per_parameter = replicas.cost.problem.workload.gradient_bytes_per_parameter
    if replicas.plan.sync.bits:
        bytes_per_parameter = replicas.plan.sync.bits / 8
    shared: dict[tuple[int, ...], float] = {}
    for layer, ranks in zip(replicas.cost.problem.model.layers, map(tuple, replicas.owner.T.tolist()), strict=True):
        shared[ranks] = shared.get(ranks, 0.0) + layer.parameters * bytes_per_parameter
    first, last = (tuple(replicas.owner[:, end].tolist()) for end in (0, -1))
    if replicas.cost.problem.model.tied and first != last and replicas.plan.sync.method == "allreduce":
        if replicas.cost.problem.rules.copies_tied:
            shared[last] += _tied_bytes(replicas)
        else:
            shared[first] -= _tied_bytes(replicas)
    every_step = replicas.plan.sync.method == "allreduce"
    share = summed_share(replicas.cost.problem, replicas.plan.sharding) if every_step else 1.0
    return {ranks: share * num_bytes for ranks, num_bytes in shared.items() if num_bytes > 0}


def _tied_bytes(replicas: Replicas) -> float:
    """Gradient bytes of the matrix that embedding and head share."""
    problem = replicas.cost.problem
    return float(problem.model.vocab * problem.model.hidden) * problem.workload.gradient_bytes_per_parameter


def _tied_groups(replicas: Replicas) -> tuple[SyncGroup, ...]:
    """All first and last stages sum the gradient of the matrix they share, once. Where the runtime holds a copy on
    both, which replicas sum like any layer, the two of each pipeline sum theirs beside that; so they do between the
    steps at which local SGD agrees."""
    ends = [(int(row[0]), int(row[-1])) for row in replicas.owner]
    if not replicas.cost.problem.model.tied or all(first == last for first, last in ends):
        return ()
    num_bytes = _tied_bytes(replicas)
    if replicas.cost.problem.rules.copies_tied or replicas.plan.sync.method == "local_sgd":
        summed: list[tuple[int, ...]] = [pair for pair in ends if pair[0] != pair[1]]
    else:
        summed = [tuple(sorted({rank for pair in ends for rank in pair}))]
    return tuple(
        Agreement(replicas, ranks, num_bytes, ring(replicas.routes, replicas.domains(ranks), num_bytes)).group()
        for ranks in summed
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
