"""Who hands which layers to whom when a run goes on under another plan, and how long that should take. No torch.

Handed over are weights in full precision and both moments of AdamW. A process that goes on keeps the layers that both
plans give it; a layer that stays in its domain never crosses the WAN, as ``plan.diff`` counts it before anything runs.
Of replicas that train alone where all began last and the outer momentum go with them; each goes on from one replica
(``lineage``), of which one that joins is a copy.
Letters: "old" and "new" are the two plans as processes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from hippo.errors import InputError
from hippo.problem.cluster import Cluster
from hippo.problem.transport import HIPPO, Transport, lost_s
from hippo.run.job import replicas_alone
from hippo.run.work import Work, Worker

STATE = 3  # numbers per parameter: master, first and second moment
OUTER = 2  # more of them where replicas train alone: where all began, and the outer momentum
GRADIENT = 1  # number per parameter of each step that a copy is kept in step
NOBODY: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True)
class Hand:
    """One layer for one process of the new plan."""

    layer: int
    team: tuple[int, ...]  # ranks of the old plan that hold it together, by place in their tensor-parallel group
    destination: int  # rank of the new plan
    tied: bool = False  # the matrix alone, that embedding and head share; ``layer`` is the head


def hands(old: Work, new: Work, cluster: Cluster, kept: Mapping[int, int] = NOBODY) -> tuple[Hand, ...]:
    """Everything that is handed over: each layer from the replica that is nearest, equally near ones in turn.

    ``kept``: ranks of the new plan whose processes go on, and the ranks that they had (``Version.kept``).

    Raises
    ------
    InputError
        A layer's new domain cannot be reached from any that holds it.
    """
    found: list[Hand] = []
    last, given, line = old.model.num_layers - 1, defaultdict[int, int](int), lineage(old, new, cluster, kept)
    for worker in new.workers:
        own = [layer for start, stop in new.chunks(worker) for layer in range(start, stop)]
        before, source = None if worker.rank not in kept else old.workers[kept[worker.rank]], line[worker.pipeline]
        if before is not None and source not in (None, before.pipeline):
            before = None  # it holds those of another replica
        for layer in own:
            if before is None or not stays(old, new, before, worker, layer):
                found.append(_nearest(old, (layer,), worker, before, cluster, given, source))
        apart = new.model.tied and last in own and 0 not in own
        if apart and (before is None or not {0, last} & held(old, before)):
            nearest = _nearest(old, (0, last), worker, before, cluster, given, source)
            found.append(Hand(last, nearest.team, worker.rank, tied=True))
    return tuple(found)


def lineage(old: Work, new: Work, cluster: Cluster, kept: Mapping[int, int] = NOBODY) -> tuple[int | None, ...]:
    """For each pipeline of the new plan the one of the old plan whose state it goes on from; None: from any, replicas
    being alike.

    That which most of its processes were of; where none was of any, one that nobody goes on from, so that the replica
    moves; else, where it joins, the nearest.
    """
    lines = range(len(new.plan.pipelines))
    if replicas_alone(old.plan) == 1:
        return (None,) * len(lines)
    were = [Counter[int]() for _ in lines]
    for rank, before in kept.items():
        were[new.workers[rank].pipeline][old.workers[before].pipeline] += 1
    found = [max(sorted(each), key=each.__getitem__) if each else None for each in were]
    left = [one for one in range(len(old.plan.pipelines)) if one not in found]
    for line, source in enumerate(found):
        if source is None:
            far = {one: _apart_s(old, one, new, line, cluster) for one in range(len(old.plan.pipelines))}
            among = [one for one in left if far[one] < inf] or far
            source = found[line] = min(among, key=lambda one: (far[one], one))
            left = [one for one in left if one != source]
    return tuple(found)


def _apart_s(old: Work, one: int, new: Work, other: int, cluster: Cluster) -> float:
    """Seconds per byte from where one pipeline holds each layer to where the other does, summed over layers."""
    homes = [
        [work.plan.pipelines[line].stages[work.owner(line, layer)].domain for layer in range(work.model.num_layers)]
        for work, line in ((old, one), (new, other))
    ]
    return sum(_distance(cluster, *pair) for pair in zip(*homes, strict=True))


def held(work: Work, worker: Worker) -> set[int]:
    """Layers of a worker."""
    return {layer for start, stop in work.chunks(worker) for layer in range(start, stop)}


def stays(old: Work, new: Work, before: Worker, after: Worker, layer: int) -> bool:
    """Whether a process holds a layer already, cut as it has to be."""
    cut = (old.widths(old.stage(before))[0], before.tp_index) == (new.widths(new.stage(after))[0], after.tp_index)
    return cut and old.parts == new.parts and layer in held(old, before)


def _nearest(
    old: Work,
    layers: tuple[int, ...],
    worker: Worker,
    before: Worker | None,
    cluster: Cluster,
    given: dict[int, int],
    source: int | None,
) -> Hand:
    """From the team (of a pipeline, if one is named) that holds one of the layers and is nearest; of equals one's own,
    then who has given least."""
    teams = [
        tuple(old.rank(p, old.owner(p, layer), lane, t) for t in range(tp))
        for p, pipeline in enumerate(old.plan.pipelines)
        if source in (None, p)
        for layer in layers
        for tp, dp in (old.widths(pipeline.stages[old.owner(p, layer)]),)
        for lane in range(dp)
    ]
    far = {team: _distance(cluster, old.workers[team[0]].domain, worker.domain) for team in teams}
    mine = -1 if before is None else before.rank
    team = min(teams, key=lambda each: (far[each], mine not in each, given[each[0]], each))
    if far[team] == inf:
        held = ", ".join(sorted({old.workers[each[0]].domain for each in teams}))
        raise InputError(
            f"layer {layers[-1]} cannot get to '{worker.domain}': no link leads there from {held}",
            source="--then",
            remedy="give a plan whose new domains have a link from those that hold their layers",
        )
    given[team[0]] += 1
    return Hand(layers[0], team, worker.rank)


def _distance(cluster: Cluster, source: str, destination: str) -> float:
    """Seconds per byte between domains: 0 inside one, inf where there is no link."""
    if source == destination:
        return 0.0
    link = cluster.link_index.get((source, destination))
    return inf if link is None else 1.0 / cluster.links[link].rate_bytes_per_s(1)


def state_numbers(old: Work, new: Work) -> int:
    """Numbers per parameter that are handed over."""
    return STATE + (OUTER if min(replicas_alone(old.plan), replicas_alone(new.plan)) > 1 else 0)


def wan_bytes(old: Work, new: Work, given: tuple[Hand, ...], *, number_bytes: int) -> Mapping[tuple[str, str], float]:
    """Bytes over each pair of domains; ``number_bytes`` of one number of the state.

    Of a tensor-parallel group of n each rank gets an n-th of what is split and all of the rest (here: an n-th of all).
    """
    found: dict[tuple[str, str], float] = defaultdict(float)
    for hand in given:
        worker = new.workers[hand.destination]
        pair = old.workers[hand.team[0]].domain, worker.domain
        if pair[0] != pair[1]:
            tp = new.widths(new.stage(worker))[0]
            layer = new.model.layers[hand.layer]
            count = layer.vocab * layer.hidden if hand.tied else layer.parameters / tp
            found[pair] += state_numbers(old, new) * number_bytes * count
    return dict(found)


def predicted_s(cluster: Cluster, moved: Mapping[tuple[str, str], float], transport: Transport = HIPPO) -> float:
    """Seconds of a stop-and-copy: links work side by side, each at its goodput, over streams that are fresh."""
    slowest, congestion, carried = 0.0, transport.congestion, cluster.under(transport)
    for pair, size in moved.items():
        link = carried.links[carried.link_index[pair]]
        rate, rtt_s = link.rate_bytes_per_s(1), 2 * link.latency_s
        lost = lost_s(size, rate, rtt_s, window_bytes=congestion.initial_bytes, paced_rtts=congestion.paced_rtts)
        slowest = max(slowest, link.latency_s + size / rate + lost)
    return slowest
