"""The best candidates again, each with an order of operations made for it: weight gradients fill what would be idle.

The bounds that choose cuts hold for split backwards (``bounds``), so cuts are already chosen for what such an order can
reach; here the orders are made, by the generator that knows each link, and played like every other candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hippo.planners.exact_field import NOBODY, Field
from hippo.planners.exact_judge import Candidate
from hippo.planners.orders import Letters, orders
from hippo.planners.placement import PipelineSketch
from hippo.problem.problem import Problem

MOST = 2  # candidates that get an order,
LONG = 12_000  # operations of a pipeline that get an order only where it counts
REACH = 1.06  # of those that are worth at most this much more than the best
WORTH = 0.01  # replicas get orders where they gain so much: the bound that holds for them is much looser


def order(field: Field, *, most: int = MOST) -> None:
    """Plays the best candidates, each cut once, with orders of their own; nothing where the runtime has no such."""
    judge, played = field.judge, 0
    if not field.tables.split or field.ordered == NOBODY:
        return
    ranked = sorted((value, at, each) for at, (each, value) in enumerate(judge.known.items()) if value < float("inf"))
    seen: set[Candidate] = set()
    for value, _, candidate in ranked:
        if played >= most or value > REACH * judge.value or judge.out_of_time:
            return
        bare = with_orders(candidate, [()] * len(candidate.pipelines))
        known = bare in seen or candidate.pipelines[0].order or all(len(line.stages) == 1 for line in bare.pipelines)
        seen.add(bare)
        ordered = None if known else ordered_candidate(field.problem, candidate)
        if ordered is not None:
            judge.play(ordered, gain=WORTH if len(ordered.pipelines) > 1 else 0.0)
            played += 1


def ordered_candidate(problem: Problem, candidate: Candidate) -> Candidate | None:
    """The candidate with an order for each pipeline; None: a pipeline is too long to order, or has no room."""
    found = orders(problem, candidate.plan(problem))
    return None if found is None else with_orders(candidate, found)


def with_orders(candidate: Candidate, found: Sequence[Letters]) -> Candidate:
    """The candidate with these orders in place of warm-ups."""
    lines: tuple[PipelineSketch, ...] = tuple(
        replace(line, warm_up=(), order=order) for line, order in zip(candidate.pipelines, found, strict=True)
    )
    return replace(candidate, pipelines=lines)
