"""The best candidates again, each with an order of operations made for it: weight gradients fill what would be idle.

The bounds that choose cuts hold for split backwards (``bounds``), so cuts are already chosen for what such an order can
reach; here the orders are made, by the generator that knows each link, and played like every other candidate.
"""

from __future__ import annotations

from dataclasses import replace

from hippo.errors import InfeasibleError
from hippo.pipeline.methods import generate
from hippo.pipeline.schedule import letters_of
from hippo.planners.exact_field import Field
from hippo.planners.exact_judge import Candidate
from hippo.planners.placement import PipelineSketch
from hippo.problem.problem import Problem
from hippo.simulate.ordering import ordering, ordering_key

METHOD = "cross-domain"
MOST = 2  # candidates that get an order,
REACH = 1.06  # of those that are worth at most this much more than the best
WORTH = 0.01  # replicas get orders where they gain so much: the bound that holds for them is much looser
MOST_OPERATIONS = 100_000  # of one pipeline; beyond, what fills and drains is too little of the step to matter


def order(field: Field, *, most: int = MOST) -> None:
    """Plays the best candidates, each cut once, with orders of their own; nothing where the runtime has no such."""
    judge, played = field.judge, 0
    if not field.tables.split:
        return
    ranked = sorted((value, at, each) for at, (each, value) in enumerate(judge.known.items()) if value < float("inf"))
    seen: set[Candidate] = set()
    for value, _, candidate in ranked:
        if played >= most or value > REACH * judge.value or judge.out_of_time:
            return
        bare = with_orders(candidate, [()] * len(candidate.pipelines))
        if bare not in seen and max(len(line.stages) for line in candidate.pipelines) > 1:
            seen.add(bare)
            ordered = ordered_candidate(field.problem, candidate)
            if ordered is not None:
                judge.play(ordered, gain=WORTH if len(ordered.pipelines) > 1 else 0.0)
                played += 1


def ordered_candidate(problem: Problem, candidate: Candidate) -> Candidate | None:
    """The candidate with an order for each pipeline; None: a pipeline is too long to order, or has no room."""
    plan, known = candidate.plan(problem), {}
    orders: list[tuple[str, ...]] = []
    for index, pipeline in enumerate(plan.pipelines):
        if 3 * len(pipeline.stages) * pipeline.num_micro_batches > MOST_OPERATIONS:
            return None
        asked = ordering(problem, plan, index)
        key = ordering_key(asked)
        if key not in known:
            try:
                known[key] = letters_of(generate(METHOD, asked))
            except InfeasibleError:
                return None
        orders.append(known[key])
    return with_orders(candidate, orders)


def with_orders(candidate: Candidate, orders: list[tuple[str, ...]]) -> Candidate:
    """The candidate with these orders in place of warm-ups."""
    lines: tuple[PipelineSketch, ...] = tuple(
        replace(line, warm_up=(), order=order) for line, order in zip(candidate.pipelines, orders, strict=True)
    )
    return replace(candidate, pipelines=lines)
