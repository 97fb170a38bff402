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

import numpy as np

from hippo.jobs.placement.models import Training, problem, smaller, training
from hippo.jobs.placement.slowdown import MOST_DOMAINS, Kind, Slowdown
from hippo.planners.base import Planner, Progress, Stop
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster, Domain, Link

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
    first = sorted(cluster.domains, key=lambda domain: _profile(cluster, domain))
    own = tuple(_figures(domain) for domain in first)
    pairs = ((a.name, b.name) for a in first for b in first if a != b)
    return own, tuple(_line(cluster.link(*pair)) for pair in pairs)


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


@dataclass(frozen=True)
class PlacedStep:
    """One optimizer step of a placement; infinite where nothing fits."""

    step_time_s: float
    egress_usd: float = 0.0


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
    score = planner.propose(problem(wanted, cluster), stop).score
    return NEVER if score is None else PlacedStep(score.step_time_s, score.egress_usd_per_step)


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

    def step(self, wanted: Training, cluster: Cluster) -> PlacedStep:
        """The step of this training there; the same object for all that is alike."""
        key = (wanted.model, signature(cluster))
        if key not in self._known:
            self._known[key] = _step(wanted, cluster, self.stop, self.planner)
        return self._known[key]

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
    progress: Progress | None = None,
) -> Slowdown:
    """The table for these kinds of jobs over all sets of domains that can hold an equal part of them each.

    Training that one domain holds spans only where the factor is at most ``most``; larger jobs do wherever they can.

    Jobs that do not train exchange nothing between their devices: 1 over every set. Those that train on other devices
    than the cluster's GPUs do not span: nothing is known of their steps. For the others the factor is step
    time over the set / step time inside one domain, both planned for equal parts of the nearest ``rung``. At most
    ``MOST_SETS`` unlike sets are planned for each kind: few domains before many, quick links before slow ones.
    """
    asking = _AskedOnce(cluster, stop, planner or Exact())
    wanted = tuple(dict.fromkeys(kind for kind in kinds if kind.devices > 1))
    table, largest = Slowdown.none(len(cluster.domains)), max(domain.gpus for domain in cluster.domains)
    factor = np.repeat(table.factor, len(wanted) + 1, axis=0)
    usd_per_s = np.zeros(factor.shape)
    questions = [each for row, kind in enumerate(wanted, 1) for each in _questions(cluster, row, kind)]
    for done, question in enumerate(questions):
        if progress is not None:
            progress("step times over several domains", done / len(questions))
        times, usd = _answer(asking, question)
        if times <= most or question.kind.devices > largest:
            factor[question.row, question.mask], usd_per_s[question.row, question.mask] = times, usd
    return Slowdown(wanted, factor, usd_per_s)


def _answer(asking: _AskedOnce, question: _Question) -> tuple[float, float]:
    """Factor, and USD/s for what crosses the links."""
    if not question.kind.trains:
        return 1.0, 0.0
    trained, inside = asking.inside(question.kind, question.devices * len(question.names))
    if not np.isfinite(inside.step_time_s):
        return np.inf, 0.0
    over = asking.step(trained, parts(asking.cluster, question.names, question.devices))
    if not np.isfinite(over.step_time_s):
        return np.inf, 0.0
    return max(1.0, over.step_time_s / inside.step_time_s), over.egress_usd / over.step_time_s


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
