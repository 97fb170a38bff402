"""What has to move between domains to go from one plan to another: layers, bytes, and the links they cross.

A move carries weights and optimizer state, ``state_bytes_per_parameter`` of the problem's workload (16: bf16 weights,
fp32 master, two moments). A domain that needs a layer receives it once, however many replicas it holds, and deals it
out inside; a layer that a domain already holds costs nothing here, even where its devices change. A tied head brings
the embedding's matrix along where the domain does not hold the embedding itself. Which process hands what to which,
when it is done for real, is ``run.handover``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hippo.errors import InputError
from hippo.plan.plan import Plan
from hippo.problem.cluster import Cluster
from hippo.problem.problem import Problem

Pair = tuple[str, str]


@dataclass(frozen=True)
class Move:
    """Consecutive layers that one domain sends to another, and the links they cross (two where they are relayed)."""

    layers: tuple[int, int]  # [start, stop)
    source: str
    destination: str
    links: tuple[Pair, ...]
    num_bytes: float


@dataclass(frozen=True)
class PlanDiff:
    """Moves in the order of their layers, and the bytes that each link carries for all of them."""

    moves: tuple[Move, ...]
    link_bytes: Mapping[Pair, float]
    rearranged: tuple[str, ...]  # domains whose stages change although they receive nothing

    @property
    def num_bytes(self) -> float:
        """Bytes that leave a domain and arrive in another; a relayed byte counts once."""
        return sum(move.num_bytes for move in self.moves)

    def seconds(self, cluster: Cluster) -> float:
        """Least time of all moves at the cluster's base bandwidths: the busiest link, alone on it, plus its latency."""
        times = [0.0]
        for (source, destination), num_bytes in self.link_bytes.items():
            link = cluster.link(source, destination)
            assert link is not None
            times.append(num_bytes / link.rate_bytes_per_s(cluster.domain(source).nodes) + link.delay_s)
        return max(times)


def diff(problem: Problem, before: Plan, after: Plan) -> PlanDiff:
    """The moves from ``before`` to ``after``.

    Each layer comes from the holder with the fastest way (its slowest link decides; direct, else through one domain);
    ties: the domain that comes first in the cluster.

    Raises
    ------
    InputError
        A domain needs layers from one that it has no way to, or a plan interleaves over several domains.
    """
    held, needed = _holders(problem, before), _holders(problem, after)
    routes: dict[Pair, tuple[float, tuple[Pair, ...]]] = {}
    legs: dict[Pair, list[int]] = {}  # (source, destination) -> layers, ascending
    for layer, (old, new) in enumerate(zip(held, needed, strict=True)):
        for destination in new:
            if destination not in old:
                source = _nearest(problem.cluster, old, destination, routes)
                legs.setdefault((source, destination), []).append(layer)
    moves = sorted(
        (move for pair, layers in legs.items() for move in _moves(problem, pair, layers, routes[pair][1], needed[0])),
        key=lambda move: (move.layers, problem.cluster.domain_index[move.destination]),
    )
    link_bytes: dict[Pair, float] = {}
    for move in moves:
        for link in move.links:
            link_bytes[link] = link_bytes.get(link, 0.0) + move.num_bytes
    return PlanDiff(tuple(moves), link_bytes, _rearranged(before, after, moves))


def _holders(problem: Problem, plan: Plan) -> list[tuple[str, ...]]:
    """Domains that hold each layer, (N,), in the cluster's order."""
    order = problem.cluster.domain_index
    holders: list[set[str]] = [set() for _ in problem.model.layers]
    for pipeline in plan.pipelines:
        if plan.interleave > 1 and len(set(pipeline.domains)) > 1:
            remedy = "compare plans that interleave inside one domain, or not at all"
            raise InputError(
                "a plan that interleaves over domains has no moves of ranges", key="interleave", remedy=remedy
            )
        for stage in pipeline.stages:
            for layer in range(*stage.layers):
                holders[layer].add(stage.domain)
    return [tuple(sorted(domains, key=order.__getitem__)) for domains in holders]


def _nearest(
    cluster: Cluster, holders: Sequence[str], destination: str, routes: dict[Pair, tuple[float, tuple[Pair, ...]]]
) -> str:
    """The holder with the fastest way to ``destination``; ways that were found are kept in ``routes``."""
    for source in holders:
        if (source, destination) not in routes:
            routes[source, destination] = _way(cluster, source, destination)
    best = max(holders, key=lambda source: routes[source, destination][0], default=None)
    if best is None or routes[best, destination][0] == 0.0:
        where = ", ".join(holders) or "nowhere"
        raise InputError(
            f"'{destination}' needs layers that are only in {where}, and no links lead there",
            source=cluster.source or None,
            key="links",
            remedy="add a link, or choose a plan over joined domains",
        )
    return best


def _way(cluster: Cluster, source: str, destination: str) -> tuple[float, tuple[Pair, ...]]:
    """Bytes/s and links of the fastest way: the direct link where there is one, else through one domain; 0: no way."""
    direct = _rate(cluster, (source, destination))
    if direct > 0.0:
        return direct, ((source, destination),)
    ways = [
        (min(_rate(cluster, first), _rate(cluster, second)), (first, second))
        for via in cluster.domain_index
        for first, second in [((source, via), (via, destination))]
    ]
    return max(ways, key=lambda way: way[0], default=(0.0, ()))


def _rate(cluster: Cluster, pair: Pair) -> float:
    link = cluster.link(*pair)
    return 0.0 if link is None else link.rate_bytes_per_s(cluster.domain(pair[0]).nodes)


def _moves(
    problem: Problem, pair: Pair, layers: Sequence[int], links: tuple[Pair, ...], embedded: Sequence[str]
) -> list[Move]:
    """Runs of consecutive layers of one pair as moves; ``embedded`` are the domains that will hold the embedding."""
    model, state = problem.model, problem.workload.state_bytes_per_parameter
    moves = []
    for _, run in groupby(enumerate(layers), key=lambda item: item[1] - item[0]):
        indices = [layer for _, layer in run]
        parameters = sum(model.layers[layer].parameters for layer in indices)
        if indices[-1] == model.num_layers - 1 and model.tied and pair[1] not in embedded:
            parameters += model.vocab * model.hidden
        moves.append(Move((indices[0], indices[-1] + 1), *pair, links, parameters * state))
    return moves


def _rearranged(before: Plan, after: Plan, moves: Sequence[Move]) -> tuple[str, ...]:
    """Domains in both plans whose stages differ although nothing arrives there."""
    receiving = {move.destination for move in moves}

    def stages(plan: Plan, domain: str) -> list[object]:
        return [stage for pipeline in plan.pipelines for stage in pipeline.stages if stage.domain == domain]

    kept = [domain for domain in after.domains if domain in before.domains and domain not in receiving]
    return tuple(domain for domain in kept if stages(before, domain) != stages(after, domain))
