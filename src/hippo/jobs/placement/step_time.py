"""What the planner says of a placement: the step time on these devices, in one domain or over several.

The question is that of ``hippo plan``: the quickest step of the job's model (``models``) on a cluster of just the
job's devices (``part``). The exact search answers it. It may leave a domain idle where the links are so slow that the
others are quicker alone, so a job over n domains takes at most about n times as long as inside one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.placement.models import Training, problem, smaller, training
from hippo.jobs.placement.offer_plans import BANDWIDTH_GBPS, LATENCY_MS, on_grid
from hippo.jobs.placement.offers import MOST_PARTS, Floats, OfferTable
from hippo.jobs.placement.slowdown import MOST_DOMAINS, Exchange, Kind, Slowdown
from hippo.planners.answers import answer_of
from hippo.planners.base import Planner, Progress, Stop
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster, Domain, Link
from hippo.score.judge import Judged
from hippo.simulate.timeline import link_bytes
from hippo.units import bytes_per_s_from_gbps

Signature = tuple[tuple[object, ...], ...]


def part(domain: Domain, devices: int) -> Domain:
    """``devices`` of this kind of domain, on the fewest equal nodes; more than the domain has is allowed.

    Up to a node's worth: one node. Above: the least number of nodes that shares them evenly, whole nodes where they
    divide.
    """
    least = -(-devices // domain.gpus_per_node)
    nodes = next(nodes for nodes in range(least, devices + 1) if devices % nodes == 0)
    return replace(domain, nodes=nodes, gpus_per_node=devices // nodes)


def rung(devices: int) -> int:
    """The nearest of 1, 2, 3, 4, 6, 8, 12, 16, 24, .. by ratio (ties: the smaller); parts are planned at these only."""
    ladder = sorted(base << power for base in (1, 3) for power in range(devices.bit_length() + 1))
    return min(ladder, key=lambda size: (round(abs(log(size / devices)), 9), size))


def parts(cluster: Cluster, names: Sequence[str], devices: int) -> Cluster:
    """The cluster of ``devices`` devices in each of the named domains, and the links between these."""
    chosen = frozenset(names)
    domains = tuple(part(domain, devices) for domain in cluster.domains if domain.name in chosen)
    links = tuple(link for link in cluster.links if {link.source, link.destination} <= chosen)
    return replace(cluster, domains=domains, links=links)


def joined(cluster: Cluster) -> bool:
    """Whether every domain reaches every other over the links there are."""
    return all(len(_reached(cluster, domain.name)) == len(cluster.domains) for domain in cluster.domains)


def signature(cluster: Cluster) -> Signature:
    """Equal for clusters that differ in names and order only; equal answers may be shared.

    Domains are put into an order of their own figures. Where figures tie, alike clusters may get two signatures (and
    are planned twice), never unlike ones the same.
    """
    first = _in_order(cluster)
    own = tuple(_figures(domain) for domain in first)
    pairs = ((a.name, b.name) for a in first for b in first if a != b)
    return own, tuple(_line(cluster.link(*pair)) for pair in pairs)


def _in_order(cluster: Cluster) -> list[Domain]:
    """Domains by their own figures."""
    return sorted(cluster.domains, key=lambda domain: _profile(cluster, domain))


def _reached(cluster: Cluster, start: str) -> set[str]:
    """Names of the domains that ``start`` can send to, itself included."""
    reached, edge = {start}, [start]
    while edge:
        here = edge.pop()
        new = {link.destination for link in cluster.links if link.source == here} - reached
        reached |= new
        edge.extend(new)
    return reached


def _profile(cluster: Cluster, domain: Domain) -> tuple[object, ...]:
    out = sorted(_line(link) for link in cluster.links if link.source == domain.name)
    back = sorted(_line(link) for link in cluster.links if link.destination == domain.name)
    return (_figures(domain), out, back)


def _figures(domain: Domain) -> tuple[float, ...]:
    network = (domain.intra_node_bytes_per_s, domain.inter_node_bytes_per_s, domain.inter_node_latency_s)
    return (domain.nodes, domain.gpus_per_node, *network)


def _line(link: Link | None) -> tuple[float, ...]:
    """What a link can do; nothing where there is none, -1 for a rate that does not bind."""
    if link is None:
        return ()
    rates = (link.bandwidth_bytes_per_s, link.per_node_bytes_per_s)
    return (*(-1.0 if rate is None else rate for rate in rates), link.latency_s, link.price_usd_per_gb)


STOP = Stop(time_limit_s=10.0, gap=0.02)  # a third of a second is used
MOST_FACTOR = 1.1  # for jobs that a domain holds: devices of a slower run would do more for others (docs/jobs.md)
MOST_SETS = 11  # unlike sets of domains that are planned for each kind of job: all there are of four domains


@dataclass(frozen=True, eq=False)
class PlacedExchange:
    """What a step sends between domains, each sending as much to its neighbours, and how long it takes on other links.

    Letters: L latencies, G bandwidths of the grid of offers.
    """

    order: tuple[int, ...]  # domains by their place in ``signature``, neighbours beside each other
    ring: bool  # the last is a neighbour of the first, too
    one_way: bool  # each sends to the next only: replicas
    hop_bytes: float  # on the wire, in each direction that is used
    seconds: Floats  # (L, G)


@dataclass(frozen=True)
class PlacedStep:
    """One optimizer step of a placement; infinite where nothing fits."""

    step_time_s: float
    egress_usd: float = 0.0
    judged: Judged | None = None  # what the planner found


NEVER = PlacedStep(np.inf)


def step_time(cluster: Cluster, devices_by_domain: Mapping[str, int]) -> float:
    """Seconds of one step on so many devices of each of these domains (inf: the model does not fit, or no link), of the
    model that suits their number.

    One question without a table: the tests hold those of ``slowdown`` against it. ``KeyError`` for a domain that does
    not exist.
    """
    counts = {name: count for name, count in devices_by_domain.items() if count > 0}
    chosen = tuple(part(cluster.domain(name), count) for name, count in counts.items())
    links = tuple(link for link in cluster.links if {link.source, link.destination} <= set(counts))
    there = replace(cluster, domains=chosen, links=links)
    return _step(training(sum(counts.values())), there, STOP, Exact()).step_time_s


def _step(wanted: Training, cluster: Cluster, stop: Stop, planner: Planner) -> PlacedStep:
    if not joined(cluster):
        return NEVER
    found = answer_of(planner, problem(wanted, cluster), stop)
    if found.score is None:
        return NEVER
    judged = found.best if isinstance(found.best, Judged) else None
    return PlacedStep(found.score.step_time_s, found.score.egress_usd_per_step, judged)


def placed_exchange(judged: Judged) -> PlacedExchange | None:
    """What a plan sends between the domains; None: nothing, or neither along a chain nor around a ring."""
    cluster = judged.problem.cluster
    place = {domain.name: at for at, domain in enumerate(_in_order(cluster))}
    sent, onward = link_bytes(judged.program), {at: set[int]() for at in place.values()}
    for link, size in zip(cluster.links, sent, strict=True):
        if size > 0:
            onward[place[link.source]].add(place[link.destination])
    beside = {at: tos | {other for other in onward if at in onward[other]} for at, tos in onward.items()}
    used = [at for at in beside if beside[at]]
    ends = [at for at in used if len(beside[at]) == 1]
    one_way = not ends and all(len(onward[at]) == 1 for at in used)
    order, reach = list[int](), onward if one_way else beside
    while beyond := (set(reach[order[-1]]) - set(order)) if order else set((ends or used)[:1]):
        order.append(min(beyond))
    if len(order) < max(2, len(used)) or any(len(beside[at]) > 2 for at in used):
        return None
    if not one_way and any(cluster.link(link.destination, link.source) is None for link in cluster.links):
        return None
    wire = float(max(size / link.goodput for link, size in zip(cluster.links, sent, strict=True)))
    return PlacedExchange(tuple(order), not ends, one_way, wire, on_grid(judged)[0])


# ------------------------------------------------------------------------------------------------------------ the table
@dataclass(frozen=True)
class _Question:
    """One entry of the table: a kind of job over a set of domains."""

    row: int
    mask: int
    kind: Kind
    names: tuple[str, ...]
    devices: int  # in each domain, as planned


@dataclass(frozen=True, eq=False)
class _AskedOnce:
    """Asks the planner once for everything that is alike."""

    cluster: Cluster
    stop: Stop
    planner: Planner
    _known: dict[tuple[str, Signature], PlacedStep] = field(default_factory=dict)
    _sent: dict[int, PlacedExchange | None] = field(default_factory=dict)  # by the plan's identity

    def step(self, wanted: Training, cluster: Cluster) -> PlacedStep:
        """The step of this training there; the same object for all that is alike."""
        key = (wanted.model, signature(cluster))
        if key not in self._known:
            self._known[key] = _step(wanted, cluster, self.stop, self.planner)
        return self._known[key]

    def sent(self, step: PlacedStep) -> PlacedExchange | None:
        """What a step sends between domains."""
        if step.judged is None:
            return None
        if id(step.judged) not in self._sent:
            self._sent[id(step.judged)] = placed_exchange(step.judged)
        return self._sent[id(step.judged)]

    def inside(self, kind: Kind, devices: int) -> tuple[Training, PlacedStep]:
        """What such a job trains, and its step on ``devices`` devices of the best single domain.

        Domains that have so many count; where none has, each is taken to be larger than it is.
        """
        holders = [domain for domain in self.cluster.domains if domain.gpus >= devices] or self.cluster.domains
        wanted: Training | None = training(kind.devices, kind.model)
        while wanted is not None:
            best = min((self.step(wanted, self._alone(each, devices)) for each in holders), key=_seconds)
            if np.isfinite(best.step_time_s):
                return wanted, best
            wanted = None if kind.model else smaller(wanted)
        return training(kind.devices, kind.model), NEVER

    def _alone(self, domain: Domain, devices: int) -> Cluster:
        return replace(self.cluster, domains=(part(domain, devices),), links=())


def slowdown(
    cluster: Cluster,
    kinds: Iterable[Kind],
    *,
    most: float = MOST_FACTOR,
    stop: Stop = STOP,
    planner: Planner | None = None,
    exchanges: bool = False,
    progress: Progress | None = None,
) -> Slowdown:
    """The table for these kinds of jobs over all sets of domains that can hold an equal part of them each.

    Training that one domain holds spans only where the factor is at most ``most``; larger jobs do wherever they can.

    Jobs that do not train exchange nothing between their devices: 1 over every set. Those that train on other devices
    than the cluster's GPUs do not span: nothing is known of their steps. For the others the factor is step
    time over the set / step time inside one domain, both planned for equal parts of the nearest ``rung``. At most
    ``MOST_SETS`` unlike sets are planned for each kind: few domains before many, quick links before slow ones.

    ``exchanges``: also what the plans send, and what they would take on other links, where domains exchange in a chain
    or a ring; other plans hold their factor.
    """
    asking = _AskedOnce(cluster, stop, planner or Exact())
    wanted = tuple(dict.fromkeys(kind for kind in kinds if kind.devices > 1))
    table, largest = Slowdown.none(len(cluster.domains)), max(domain.gpus for domain in cluster.domains)
    factor = np.repeat(table.factor, len(wanted) + 1, axis=0)
    usd_per_s = np.zeros(factor.shape)
    questions = [each for row, kind in enumerate(wanted, 1) for each in _questions(cluster, row, kind)]
    sending: list[_Sending] = []
    for done, question in enumerate(questions):
        if progress is not None:
            progress("step times over several domains", done / len(questions))
        times, over = _answer(asking, question)
        if times <= most or question.kind.devices > largest:
            factor[question.row, question.mask] = times
            usd_per_s[question.row, question.mask] = over.egress_usd / over.step_time_s
            if exchanges and np.isfinite(times) and (sent := asking.sent(over)) is not None:
                sending.append(_Sending(question, sent, over.step_time_s, times))
    return Slowdown(wanted, factor, usd_per_s, _exchange(cluster, sending, factor.shape) if exchanges else None)


def _answer(asking: _AskedOnce, question: _Question) -> tuple[float, PlacedStep]:
    """Factor, and the step over the set."""
    if not question.kind.trains:
        return 1.0, PlacedStep(1.0)
    trained, inside = asking.inside(question.kind, question.devices * len(question.names))
    if not np.isfinite(inside.step_time_s):
        return np.inf, NEVER
    over = asking.step(trained, parts(asking.cluster, question.names, question.devices))
    if not np.isfinite(over.step_time_s):
        return np.inf, NEVER
    return max(1.0, over.step_time_s / inside.step_time_s), over


@dataclass(frozen=True, eq=False)
class _Sending:
    """What one entry of the table sends."""

    question: _Question
    sent: PlacedExchange
    step_time_s: float
    factor: float


def _exchange(cluster: Cluster, sending: Sequence[_Sending], shape: tuple[int, ...]) -> Exchange:
    """An offer for each entry that sends something, in terms of the work of a gang: the site's links as they are bought
    give it 1 / factor, and what was played says how much more or less others do."""
    row, most = np.full(shape, -1, np.int64), max((len(each.sent.order) for each in sending), default=2)
    route = np.full((len(sending), most), -1, np.int64)
    bandwidth, latency = np.full(len(sending), np.inf), np.zeros(len(sending))
    for at, each in enumerate(sending):
        first = _in_order(parts(cluster, each.question.names, each.question.devices))
        names = [first[place].name for place in each.sent.order]
        row[each.question.row, each.question.mask] = at
        route[at, : len(names)] = [cluster.domain_index[name] for name in names]
        hops = [*zip(names, names[1:], strict=False), *([(names[-1], names[0])] if each.sent.ring else [])]
        for here, there in (*hops, *(() if each.sent.one_way else [(there, here) for here, there in hops])):
            link = cluster.link(here, there)
            assert link is not None, "a neighbour that no link leads to"
            bandwidth[at] = min(bandwidth[at], link.rate_bytes_per_s(cluster.domain(here).nodes))
            latency[at] = max(latency[at], link.latency_s)
    there, ones = route >= 0, np.ones(len(sending))
    one_way = np.array([each.sent.one_way for each in sending], np.bool_)
    held = np.array([each.question.kind.devices // len(each.question.names) for each in sending], np.int64)
    factor, step_s = (np.array([getattr(each, name) for each in sending]) for name in ("factor", "step_time_s"))
    size = len(LATENCY_MS), len(BANDWIDTH_GBPS)
    offers = replace(
        OfferTable.none(),
        kind=np.full(len(sending), -1, np.int64),
        parts=there.sum(axis=1),
        gpus=_first_parts(there * held[:, None]),
        block=ones.astype(np.int64),
        ring=np.array([each.sent.ring for each in sending], np.bool_),
        layout=np.ones((len(sending), 3), np.int64),
        rate=1.0 / np.array([each.sent.seconds for each in sending]).reshape(-1, *size),
        hop_bytes=np.array([each.sent.hop_bytes for each in sending]) * factor / step_s,
        memory_left=0.0 * ones,
        inside_comm=0.0 * ones,
        bandwidth_bytes_per_s=np.array([bytes_per_s_from_gbps(each) for each in BANDWIDTH_GBPS]),
        latency_s=np.array(LATENCY_MS) / 1e3,
        state_share=_first_parts(np.where(there, np.where(one_way, 1.0, 1.0 / there.sum(axis=1))[:, None], 0.0)),
    )
    bought = offers.rate_at(np.arange(len(sending)), bandwidth, latency)
    return Exchange(row, route, replace(offers, rate=offers.rate / (bought * factor)[:, None, None]))


def _first_parts(column: NDArray[Any]) -> NDArray[Any]:
    """(O, MOST_PARTS) of (O, M): offers have no more."""
    return np.pad(column, ((0, 0), (0, MOST_PARTS)))[:, :MOST_PARTS]


def _questions(cluster: Cluster, row: int, kind: Kind) -> list[_Question]:
    """Sets of domains that divide a kind's devices and have room for its parts: the first ``MOST_SETS`` unlike ones."""
    kept: list[_Question] = []
    unlike: set[Signature] = set()
    if kind.trains and kind.runs_on and cluster.gpu.name not in kind.runs_on:
        return kept
    for n in range(2, min(len(cluster.domains), MOST_DOMAINS) + 1):
        found = () if kind.devices % n else _sets(cluster, row, kind, n)
        for each in sorted(found, key=lambda each: (_slowest(cluster, each), each.mask)):
            figures = signature(parts(cluster, each.names, each.devices))
            if figures in unlike or len(unlike) < MOST_SETS:
                unlike.add(figures)
                kept.append(each)
        if len(unlike) == MOST_SETS:
            break
    return kept


def _sets(cluster: Cluster, row: int, kind: Kind, n: int) -> Iterator[_Question]:
    """All sets of ``n`` domains with room for an n-th of the devices in each."""
    each = kind.devices // n
    domains = enumerate(cluster.domains[:MOST_DOMAINS])
    roomy = [index for index, domain in domains if domain.gpus >= each or not kind.trains]
    for chosen in combinations(roomy, n):
        names = tuple(cluster.domains[index].name for index in chosen)
        yield _Question(row, sum(1 << index for index in chosen), kind, names, rung(each))


def _slowest(cluster: Cluster, question: _Question) -> float:
    """Seconds per byte of the slowest link between the set's domains."""
    there = parts(cluster, question.names, question.devices)
    nodes = {domain.name: domain.nodes for domain in there.domains}
    return max((1.0 / max(link.rate_bytes_per_s(nodes[link.source]), 1e-9) for link in there.links), default=np.inf)


def _seconds(step: PlacedStep) -> float:
    return step.step_time_s
