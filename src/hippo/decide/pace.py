"""What sets the pace of a plan: shares of the step, the bottleneck, thresholds and capacity of the links.

Every figure is measured by playing the plan's own program under changed links or ranks (decide/what_if.py), so it holds
for any schedule and any way to join domains. Letters: G ranks, E links.
"""

from __future__ import annotations

import numpy as np

from hippo.decide.reasons import Binding, Bottleneck, Capacity, LinkThreshold, Sensitivity
from hippo.decide.what_if import (
    AT_ITS_BEST,
    Links,
    crossing,
    time_with,
    time_with_links,
    time_with_rank,
)
from hippo.problem.cluster import Cluster
from hippo.score.judge import Judged

SWING = 0.3  # bandwidth moves by +-30 %
ALLOWED = 0.05  # a link matters where the step is more than 5 % longer than with the link at its best
NEAR_BEST = 1 + ALLOWED
STEP = 0.1  # a bottleneck is what lengthens the step most when it takes 10 % longer
WIDEST = 1e3  # thresholds are searched within this factor


def link_name(cluster: Cluster, links: Links) -> str:
    """``the link a -> b``, or ``the link a <-> b`` for both ways together."""
    edge = cluster.links[links[0]]
    return f"the link {edge.source} {'->' if len(links) == 1 else '<->'} {edge.destination}"


def rank_name(game: Judged, rank: int) -> str:
    """``stage 2 (layers 20-40 in a)``, with its pipeline where there are several."""
    pipeline, position = int(game.program.rank_pipeline[rank]), int(game.program.rank_stage[rank])
    stage = game.plan.pipelines[pipeline].stages[position]
    of = f" of pipeline {pipeline + 1}" if len(game.plan.pipelines) > 1 else ""
    return f"stage {position + 1}{of} (layers {stage.layers[0]}-{stage.layers[1] - 1} in {stage.domain})"


def unhindered_s(game: Judged) -> float:
    """Step time when links cost nothing: what the plan's GPUs alone need."""
    size = len(game.program.link_latency_s)
    return time_with_links(game, bandwidth=np.full(size, AT_ITS_BEST), latency=np.zeros(size))


def binding(game: Judged, free_memory_share: float) -> Binding:
    """Waterfall of the step, and the constraint that binds: what, 10 % better, shortens the step most.

    Compute binds as ``bubble`` where ranks wait longer for each other than the busiest computes, and as
    ``synchronisation`` where closing the step takes longer than its work.
    """
    program, total = game.program, game.step_time_s
    size = len(program.link_latency_s)
    without = {
        "bandwidth": time_with_links(game, bandwidth=np.full(size, AT_ITS_BEST)),
        "latency": time_with_links(game, latency=np.zeros(size)),
    }
    alone = unhindered_s(game)
    busiest = int(np.argmax(game.timeline.rank_busy_s))
    busy = float(game.timeline.rank_busy_s[busiest])
    first = min(without, key=lambda name: without[name])  # what costs more goes first, as where a link is told alone
    waits = {"bandwidth": without[first] - alone, "latency": without[first] - alone, first: total - without[first]}
    agreeing = float(program.sync_s[busiest] + program.finish_s[busiest])
    inside = {"compute": busy / total, "bubble": (alone - busy - agreeing) / total, "synchronisation": agreeing / total}
    better = {
        "compute": time_with_rank(game, None, 1 - STEP),
        "bandwidth": time_with_links(game, bandwidth=np.full(size, 1 / (1 - STEP))),
        "latency": time_with_links(game, latency=np.full(size, 1 - STEP)),
    }
    subject = min(better, key=lambda name: round(better[name], 9))
    return Binding(
        subject=max(inside, key=lambda name: inside[name]) if subject == "compute" else subject,
        compute_share=inside["compute"],
        bubble_share=inside["bubble"],
        bandwidth_share=waits["bandwidth"] / total,
        latency_share=waits["latency"] / total,
        synchronisation_share=inside["synchronisation"],
        free_memory_share=free_memory_share,
        compute_gain_share=1 - better["compute"] / total,
        bandwidth_gain_share=1 - better["bandwidth"] / total,
        latency_gain_share=1 - better["latency"] / total,
    )


def bottleneck(game: Judged, binds: Binding, candidates: int = 4) -> Bottleneck:
    """The stage or link whose slowing by 10 % lengthens the step most, among the busiest of each; ties: the busier.

    Where links alone bind it is one of them, and where they do not, a stage.
    """
    total, alone, found = game.step_time_s, not binds.matched, []
    busiest = np.argsort(-game.timeline.rank_busy_s, kind="stable")[: 0 if alone and binds.of_links else candidates]
    for rank in busiest:
        slower, faster = (time_with_rank(game, int(rank), factor) for factor in (1 + STEP, 1 - STEP))
        busy = float(game.timeline.rank_busy_s[rank]) / total
        found.append(Bottleneck(rank_name(game, int(rank)), slower / total - 1, 1 - faster / total, busy, alone))
    for links in game.pairs_used[: 0 if alone and not binds.of_links else candidates]:
        slower, faster = (time_with(game, links, bandwidth=1 / factor) for factor in (1 + STEP, 1 - STEP))
        name, busy = link_name(game.problem.cluster, links), max(link_busy_share(game, link) for link in links)
        found.append(Bottleneck(name, slower / total - 1, 1 - faster / total, busy, alone))
    return max(found, key=lambda item: (round(item.slower_share, 6), item.busy_share))


def link_busy_share(game: Judged, link: int) -> float:
    """Share of the step during which the link sends."""
    timeline = game.timeline
    mine = timeline.message_link == link
    latency = game.program.link_latency_s[link]
    sending = np.maximum(timeline.message_end_s[mine] - timeline.message_start_s[mine] - latency, 0.0)
    return float(min(sending.sum() / game.step_time_s, 1.0))


def link_rate_bytes_per_s(game: Judged, link: int) -> float:
    """Bytes/s the link gives this plan: its bandwidth, or what its sending nodes reach together."""
    timeline, program = game.timeline, game.program
    mine = timeline.message_link == link
    sending = timeline.message_end_s[mine] - timeline.message_start_s[mine] - program.link_latency_s[link]
    real = sending > 0
    if not real.any():
        return float(program.link_bandwidth_bytes_per_s[link])
    return float(np.median(timeline.message_bytes[mine][real] / sending[real]))


def pair_rate_bytes_per_s(game: Judged, links: Links) -> float:
    """Bytes/s of the slower of these links, as this plan sees it."""
    return min(link_rate_bytes_per_s(game, link) for link in links)


def link_thresholds(game: Judged, most: int = 2) -> tuple[LinkThreshold, ...]:
    """Bandwidth and latency of the links used against the values this plan needs; those that cost most come first."""
    found = [_bandwidth_threshold(game, links) for links in _costliest(game, "bandwidth")[:most]]
    found += [_latency_threshold(game, links) for links in _costliest(game, "latency")[:most]]
    costly = [item for item in found if item.crossed]
    return tuple(sorted(costly or found[:1], key=lambda item: -item.lost_share))


def _costliest(game: Judged, quantity: str) -> list[Links]:
    """Links used, both ways together, those whose bandwidth (or latency) costs most of the step first."""
    best = {"bandwidth": AT_ITS_BEST, "latency": 0.0}[quantity]
    return sorted(game.pairs_used[:6], key=lambda links: time_with(game, links, **{quantity: best}))


def _bandwidth_threshold(game: Judged, links: Links) -> LinkThreshold:
    best = time_with(game, links, bandwidth=AT_ITS_BEST)

    def enough(factor: float) -> bool:
        return time_with(game, links, bandwidth=factor) <= best * NEAR_BEST

    if game.step_time_s <= best * NEAR_BEST:  # how far could it fall?
        factor = crossing(lambda shrink: not enough(shrink), start=1.0, end=1 / WIDEST) or 1 / WIDEST
    else:
        factor = crossing(enough, start=1.0, end=WIDEST) or WIDEST
    actual = pair_rate_bytes_per_s(game, links) / game.problem.cluster.links[links[0]].goodput
    name = link_name(game.problem.cluster, links)
    lost = max(1 - best / game.step_time_s, 0.0)
    return LinkThreshold(name, "bandwidth", actual, actual * factor, ALLOWED, lost, factor > 1)


def _latency_threshold(game: Judged, links: Links) -> LinkThreshold:
    best = time_with(game, links, latency=0.0)

    def costs(factor: float) -> bool:
        return time_with(game, links, latency=factor) > best * NEAR_BEST

    if costs(1.0):  # what would it have to fall to?
        factor = crossing(lambda shrink: not costs(shrink), start=1.0, end=1 / WIDEST) or 0.0
    else:
        factor = crossing(costs, start=1.0, end=WIDEST) or WIDEST
    actual = max(game.problem.cluster.links[link].latency_s for link in links)
    name = link_name(game.problem.cluster, links)
    lost = max(1 - best / game.step_time_s, 0.0)
    return LinkThreshold(name, "latency", actual, actual * factor, ALLOWED, lost, factor < 1)


def capacities(game: Judged, most: int = 3) -> tuple[Capacity, ...]:
    """Tokens/s of the links used, one way of every pair, the tightest first; none used: of the widest way out."""
    ways = [[_used_capacity(game, link) for link in links] for links in game.pairs_used[:most]]
    tighter = [min(pair, key=lambda way: way.link_tokens_per_s) for pair in ways]
    return tuple(sorted(tighter, key=lambda way: way.link_tokens_per_s)) or _widest_exit(game)


def gpu_tokens_per_s(game: Judged) -> tuple[float, float]:
    """Tokens/s of the plan's GPUs when nothing waits for links, and of all GPUs at the same efficiency."""
    used = game.problem.workload.tokens_per_step / unhindered_s(game)
    return used, used * game.problem.cluster.gpus / game.plan.gpus


def _used_capacity(game: Judged, link: int) -> Capacity:
    """With the bytes a token of this plan really costs on the link."""
    rate = link_rate_bytes_per_s(game, link)
    per_token = float(game.timeline.link_bytes[link]) / game.problem.workload.tokens_per_step
    used, everything = gpu_tokens_per_s(game)
    wire = rate / game.problem.cluster.links[link].goodput
    both = next(links for links in game.pairs_used if link in links)
    lost = max(1 - time_with(game, both, bandwidth=AT_ITS_BEST) / game.step_time_s, 0.0)
    return Capacity(link_name(game.problem.cluster, (link,)), wire, rate / per_token, used, everything, True, lost)


def activation_tokens_per_s(hidden: int, bandwidth_bytes_per_s: float) -> float:
    """Tokens/s of a pipeline that a link carries: B / (2 h), two bytes for each of a token's h activations."""
    return bandwidth_bytes_per_s / (2 * hidden)


def _widest_exit(game: Judged) -> tuple[Capacity, ...]:
    cluster, inside = game.problem.cluster, set(game.plan.domains)
    exits = [
        (edge.rate_bytes_per_s(cluster.domain(edge.source).nodes), index)
        for index, edge in enumerate(cluster.links)
        if edge.source in inside and edge.destination not in inside
    ]
    if not exits:
        return ()
    rate, link = max(exits, key=lambda item: (item[0], -item[1]))
    used, everything = gpu_tokens_per_s(game)
    carried = activation_tokens_per_s(game.problem.model.hidden, rate)
    wire = rate / cluster.links[link].goodput
    return (Capacity(link_name(cluster, (link,)), wire, carried, used, everything, False),)


def sensitivity(game: Judged, most: int = 6) -> tuple[Sensitivity, ...]:
    """Change of the step time when one of the heaviest links has 30 % less or more bandwidth, both ways."""
    total, found = game.step_time_s, []
    for links in game.pairs_used[:most]:
        slower, faster = (time_with(game, links, bandwidth=1 + swing) / total for swing in (-SWING, SWING))
        found.append((slower - 1, 1 - faster, link_name(game.problem.cluster, links)))
    found.sort(key=lambda item: -item[0])
    if not found:
        return ()
    slower_share, faster_share, names = zip(*found, strict=True)
    return (Sensitivity("links", SWING, names, slower_share, faster_share),)
