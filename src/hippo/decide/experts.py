"""Why experts stay inside a domain: what exchanging tokens over the links would take, against the plan's step.

Experts are taken as spread evenly over D domains and routing as even. A token takes k distinct experts of E, so it
reaches another domain with probability ``1 - C(E - E/D, k) / C(E, k)``. Kind to the links: it crosses once for all its
experts there, in 16 bits, beside what the plan sends anyway, and only bandwidth counts. Forward a token goes out and
its result comes back; backward their gradients go the other ways: in a layer each direction carries it twice.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb

from hippo.decide.pace import link_name
from hippo.decide.reasons import ExpertsInside
from hippo.problem.cluster import Cluster
from hippo.problem.model import Experts, Layer
from hippo.problem.problem import Problem
from hippo.score.judge import Judged
from hippo.simulate.costs import cost_model, layout

CROSSINGS = 2  # of a token over each direction of the links to a domain, a layer: forward one way, backward the other
ACTIVATION_BYTES = 2.0


def reached(experts: Experts, domains: int) -> float:
    """Probability that a token needs an expert in one given domain of so many, among which experts are dealt evenly."""
    elsewhere = experts.count - experts.count // domains
    return 1.0 - comb(elsewhere, experts.per_token) / comb(experts.count, experts.per_token)


def experts_inside(game: Judged) -> tuple[ExpertsInside, ...]:
    """The reason, where a mixture has domains to spread its experts over; empty: it is none, or no link joins them."""
    names = _spread(game)
    if len(names) < 2 or not any(_experts(layer) for layer in game.problem.model.layers):
        return ()
    sent = crossing_bytes(game, names)
    cluster, carried = game.problem.cluster, game.timeline.link_bytes
    nodes = {domain.name: domain.nodes for domain in cluster.domains}
    seconds = {
        at: (sent[at] + float(carried[at])) / cluster.links[at].rate_bytes_per_s(nodes[cluster.links[at].source])
        for at in sent
    }
    busiest = max(seconds, key=lambda at: (seconds[at], -at))
    return (
        ExpertsInside(
            link_name(cluster, (busiest,)),
            tuple(names),
            game.plan.expert_parallel,
            sum(sent.values()),
            sent[busiest],
            seconds[busiest],
            _inside_s(game),
            game.step_time_s,
        ),
    )


def crossing_bytes(game: Judged, names: tuple[str, ...]) -> dict[int, float]:
    """Bytes of tokens and results on each link, by its index, in a step with experts spread over these domains."""
    problem, index = game.problem, game.problem.cluster.link_index
    sent = dict.fromkeys((index[a, b] for a in names for b in names if a != b), 0.0)
    for pipeline in game.plan.pipelines:
        sequences = pipeline.num_micro_batches * game.plan.micro_batch * pipeline.stages[0].dp
        for stage in pipeline.stages:
            found = [_experts(layer) for layer in problem.model.layers[slice(*stage.layers)]]
            once = sum(reached(each, len(names)) for each in found if each is not None)
            tokens = sequences * problem.workload.seq * once
            for other in names:
                if other != stage.domain:
                    for pair in ((stage.domain, other), (other, stage.domain)):
                        sent[index[pair]] += CROSSINGS * tokens * problem.model.hidden * ACTIVATION_BYTES
    return sent


def _experts(layer: Layer) -> Experts | None:
    return None if layer.feed_forward is None else layer.feed_forward.experts


def _spread(game: Judged) -> tuple[str, ...]:
    """The plan's domains, where links join each to all others; of one alone, it and the one with the best link."""
    cluster, used = game.problem.cluster, game.plan.domains
    if len(used) > 1:
        return used if all(_both(cluster, a, b) for a in used for b in used if a != b) else ()
    beside = [each.name for each in cluster.domains if each.name != used[0] and _both(cluster, used[0], each.name)]
    best = max(beside, key=lambda name: _rate(game.problem, used[0], name), default=None)
    return used if best is None else (*used, best)


def _both(cluster: Cluster, one: str, other: str) -> bool:
    return cluster.link(one, other) is not None and cluster.link(other, one) is not None


def _rate(problem: Problem, one: str, other: str) -> float:
    """Bytes/s of the slower way between two domains."""
    cluster, nodes = problem.cluster, {domain.name: domain.nodes for domain in problem.cluster.domains}
    links = [cluster.link(*pair) for pair in ((one, other), (other, one))]
    return min(0.0 if link is None else link.rate_bytes_per_s(nodes[link.source]) for link in links)


def _inside_s(game: Judged) -> float:
    """Exposed seconds of the exchange in a step of the plan, on the stage that spends most; weights that are gathered
    on the way do not count, of which lanes with fewer experts have less."""
    model, plan = cost_model(game.problem), game.plan
    found = [0.0]
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            laid = replace(layout(plan, pipeline, stage), sharding="none")
            apart, together = (
                model.stage(stage.domain, *stage.layers, each).tp_s for each in (laid, replace(laid, ep=1))
            )
            found.append(pipeline.num_micro_batches * (apart - together))
    return max(found)
