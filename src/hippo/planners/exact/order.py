"""The best candidates again, each with an order of operations made for it: weight gradients fill what would be idle.

The bounds that choose cuts hold for split backwards (``bounds``), so cuts are already chosen for what such an order can
reach; here the orders are made, by the generator that knows each link, and played like every other candidate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import inf

from hippo.planners.exact.field import NOBODY, Field
from hippo.planners.exact.judge import Candidate, Judge
from hippo.planners.orders import Letters, orders
from hippo.planners.placement import PipelineSketch
from hippo.problem.problem import Problem

OPERATIONS = 30_000  # that get an order at once,
LONG = 12_000  # operations of a pipeline that get an order only where it counts
REACH = 1.06  # of candidates that are worth at most this much more than the best
WORTH = 0.01  # replicas get orders where they gain so much: the bound that holds for them is much looser


def order(field: Field, *, operations: int = OPERATIONS) -> None:
    """Plays the best candidates with orders of their own; nothing where the runtime has no such.

    Those that are cut and lie alike, over other domains or with other warm-ups, take turns with those that do not: what
    an order gains differs most between them. ``operations``: how many are ordered in all, at least one candidate's.
    """
    judge, done = field.judge, 0
    if not field.tables.split or field.ordered == NOBODY:
        return
    for candidate in _in_turn(judge):
        if done >= operations or judge.out_of_time:
            return
        ordered = ordered_candidate(field.problem, candidate)
        if ordered is not None:
            judge.play(ordered, gain=WORTH if len(ordered.pipelines) > 1 else 0.0)
            done += sum(3 * len(line.stages) * line.num_micro_batches for line in ordered.pipelines)


def _in_turn(judge: Judge) -> list[Candidate]:
    """Candidates without an order that are worth at most ``REACH`` times the best: the best of each sort, then the
    second of each, and so on; each cut once."""
    ranked = sorted((value, at, each) for at, (each, value) in enumerate(judge.known.items()) if value < inf)
    seen: set[Candidate] = set()
    sorts: dict[Hashable, int] = {}
    turns: list[tuple[int, float, Candidate]] = []
    for value, _, candidate in ranked:
        bare = candidate.bare
        if value > REACH * judge.value or bare in seen:
            continue
        seen.add(bare)
        if candidate.pipelines[0].order or all(len(line.stages) == 1 for line in bare.pipelines):
            continue
        sort = _sort(bare)
        sorts[sort] = sorts.get(sort, 0) + 1
        turns.append((sorts[sort], value, candidate))
    return [candidate for _, _, candidate in sorted(turns, key=lambda turn: turn[:2])]


def _sort(candidate: Candidate) -> Hashable:
    """Equal for candidates that are cut and lie alike."""
    lines = tuple(tuple((stage.layers, stage.tp, stage.dp) for stage in line.stages) for line in candidate.pipelines)
    return lines, candidate.micro_batch, candidate.recompute, candidate.sharding


def ordered_candidate(problem: Problem, candidate: Candidate, *, rules: int | None = None) -> Candidate | None:
    """The candidate with an order for each pipeline; None: a pipeline is too long to order, or has no room."""
    found = orders(problem, candidate.plan(problem), rules=rules)
    return None if found is None else with_orders(candidate, found)


def with_orders(candidate: Candidate, found: Sequence[Letters]) -> Candidate:
    """The candidate with these orders in place of warm-ups."""
    lines: tuple[PipelineSketch, ...] = tuple(
        replace(line, warm_up=(), order=order) for line, order in zip(candidate.pipelines, found, strict=True)
    )
    return replace(candidate, pipelines=lines)
