"""Which rank sits where: ranks to devices, devices to hosts, hosts in the order of their ranks.

Runtimes number ranks by a fixed order of their degrees, launchers number them host by host. A plan is placed by giving
hosts their turn, so that the rank a host receives is the rank whose stage the plan puts there.

Letters: P pipelines, p stages, l lanes (dp of a pipeline), c context-parallel, t tensor-parallel ranks. Orders, fastest
degree last:

* ``stages``: stage, pipeline, lane, context, tensor. The default of Megatron-LM, DeepSpeed and torchtitan.
* ``lanes``: pipeline, lane, stage, context, tensor. Megatron-LM with ``--use-tp-pp-dp-mapping``.
* ``plan``: pipeline, stage, lane, context, tensor, then moved together by host: for programs that read the map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hippo.plan.plan import Plan

STAGES, LANES, PLAN = "stages", "lanes", "plan"


@dataclass(frozen=True)
class Rank:
    """One rank: its part of the plan and the GPU it runs on."""

    rank: int
    pipeline: int
    stage: int
    lane: int  # within the pipeline
    context: int
    tensor: int
    device: str  # domain/node/gpu

    @property
    def node(self) -> str:
        """``domain/node``."""
        return self.device.rsplit("/", 1)[0]


@dataclass(frozen=True)
class Agent:
    """Consecutive ranks on one host: what one torchrun starts."""

    index: int  # its turn among all agents: the node rank
    ranks: tuple[Rank, ...]
    gpus: tuple[int, ...]  # of each rank, counted among those that the plan uses on the host


@dataclass(frozen=True)
class Host:
    """One node in use; hosts stand in the order of their first rank."""

    index: int
    domain: str
    position: int  # among the nodes in use of its domain, in the order of hosts
    node: int  # its number in the domain
    agents: tuple[Agent, ...]  # one, unless other hosts' ranks lie between its own

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """All its ranks in order."""
        return tuple(each for agent in self.agents for each in agent.ranks)


@dataclass(frozen=True)
class RankOrder:
    """All ranks and hosts of a plan under one rank order."""

    order: str
    ranks: tuple[Rank, ...]  # by rank
    hosts: tuple[Host, ...]

    @property
    def num_agents(self) -> int:
        """Agents of all hosts: the number of nodes that torchrun is told."""
        return sum(len(host.agents) for host in self.hosts)

    @property
    def whole(self) -> bool:
        """Whether every host has its ranks in a row."""
        return self.num_agents == len(self.hosts)

    @property
    def domains(self) -> tuple[str, ...]:
        """Domains in the order of their first rank."""
        return tuple(dict.fromkeys(host.domain for host in self.hosts))

    def hosts_of(self, domain: str) -> tuple[Host, ...]:
        """Hosts of a domain, by position."""
        return tuple(host for host in self.hosts if host.domain == domain)


def rank_order(plan: Plan, orders: Sequence[str] = (STAGES, LANES)) -> RankOrder:
    """The order with the fewest agents among the orders given; the first of equals."""
    return min((_placed(plan, order) for order in orders), key=lambda each: each.num_agents)


def _placed(plan: Plan, order: str) -> RankOrder:
    places = sorted(_places(plan), key=_KEYS[order])
    if order == PLAN:
        turn = {node: at for at, node in enumerate(dict.fromkeys(_node(place) for place in places))}
        places.sort(key=lambda place: turn[_node(place)])
    ranks = tuple(Rank(rank, *place) for rank, place in enumerate(places))
    return RankOrder(order, ranks, _hosts(ranks))


_Place = tuple[int, int, int, int, int, str]  # pipeline, stage, lane, context, tensor, device

_KEYS = {
    STAGES: lambda place: (place[1], place[0], *place[2:5]),
    LANES: lambda place: (place[0], place[2], place[1], *place[3:5]),
    PLAN: lambda place: place[:5],
}


def _places(plan: Plan) -> Iterator[_Place]:
    """Every device with its part; tensor fastest, then context, then lane (``plan.plan``)."""
    cp = plan.context_parallel
    for p, pipeline in enumerate(plan.pipelines):
        for s, stage in enumerate(pipeline.stages):
            for at, device in enumerate(stage.devices):
                lane, rest = divmod(at, cp * stage.tp)
                yield (p, s, lane, *divmod(rest, stage.tp), device)


def _node(place: _Place) -> str:
    return place[5].rsplit("/", 1)[0]


def _hosts(ranks: Sequence[Rank]) -> tuple[Host, ...]:
    runs = [tuple(run) for _, run in groupby(ranks, key=lambda each: each.node)]
    used: dict[str, list[int]] = {}  # node -> its GPUs in use
    for each in ranks:
        used.setdefault(each.node, []).append(_gpu(each))
    agents: dict[str, list[Agent]] = {}
    for index, run in enumerate(runs):
        ranked = sorted(used[run[0].node])
        gpus = tuple(ranked.index(_gpu(each)) for each in run)
        agents.setdefault(run[0].node, []).append(Agent(index, run, gpus))
    hosts: list[Host] = []
    for index, (name, own) in enumerate(agents.items()):
        domain, _, node = name.rpartition("/")
        position = sum(host.domain == domain for host in hosts)
        hosts.append(Host(index, domain, position, int(node), tuple(own)))
    return tuple(hosts)


def _gpu(each: Rank) -> int:
    return int(each.device.rsplit("/", 1)[1])
