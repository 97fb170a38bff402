"""The best candidates made better: orders of operations of their own, then small moves; each is played.

The bounds that choose cuts hold for split backwards (``bounds``), so cuts are already chosen for what an order of its
own can reach: weight gradients fill what would be idle. Moves shift a layer over a border, or run a wave further ahead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from math import inf

from hippo.planners.exact.candidates import Candidate, Tried, mode_of
from hippo.planners.exact.space import NOBODY, Field
from hippo.planners.placement import PipelineSketch

OPERATIONS = 30_000  # that get an order at once,
LONG = 12_000  # operations of a pipeline that get an order only where it counts
REACH = 1.06  # of candidates that are worth at most this much more than the best
WORTH = 0.01  # replicas get orders where they gain so much: the bound that holds for them is much looser


def play_ordered(field: Field, *, operations: int = OPERATIONS) -> None:
    """Plays the best candidates with orders of their own; nothing where the runtime has no such.

    Those that are cut and lie alike, over other domains or with other warm-ups, take turns with those that do not: what
    an order gains differs most between them. ``operations``: how many are ordered in all, at least one candidate's.
    """
    tried, done = field.tried, 0
    for candidate in _in_turn(tried):
        if done >= operations or tried.over:
            return
        done += play_with_order(field, candidate)


def play_with_order(field: Field, candidate: Candidate) -> int:
    """Plays a candidate with an order of its own; how many operations were ordered, 0 where the runtime has no such."""
    if not field.tables.split or field.ordered == NOBODY or candidate.chunks > 1:
        return 0
    ordered = field.tried.in_order(candidate)
    if ordered is None:
        return 0
    field.tried.play(ordered, gain=WORTH if len(ordered.pipelines) > 1 else 0.0)
    return ordered.operations


def _in_turn(tried: Tried) -> list[Candidate]:
    """Candidates without an order that are worth at most ``REACH`` times the best: the best of each sort, then the
    second of each, and so on; each cut once."""
    ranked = sorted((value, at, each) for at, (each, value) in enumerate(tried.known.items()) if value < inf)
    seen: set[Candidate] = set()
    sorts: dict[Hashable, int] = {}
    turns: list[tuple[int, float, Candidate]] = []
    for value, _, candidate in ranked:
        bare = candidate.bare
        if value > REACH * tried.value or bare in seen:
            continue
        seen.add(bare)
        if (
            candidate.chunks > 1
            or candidate.pipelines[0].order
            or all(len(line.stages) == 1 for line in bare.pipelines)
        ):
            continue
        sort = _sort(bare)
        sorts[sort] = sorts.get(sort, 0) + 1
        turns.append((sorts[sort], value, candidate))
    return [candidate for _, _, candidate in sorted(turns, key=lambda turn: turn[:2])]


def _sort(candidate: Candidate) -> Hashable:
    """Equal for candidates that are cut and lie alike."""
    lines = tuple(tuple((stage.layers, stage.tp, stage.dp) for stage in line.stages) for line in candidate.pipelines)
    return lines, candidate.micro_batch, candidate.recompute, candidate.sharding


def polish(tried: Tried, *, most_plays: int) -> None:
    """Tries all moves again and again until none helps, ``most_plays`` are played or the effort is spent.

    Where the best candidate has orders made for it, they are made anew for every move.
    """
    last = tried.plays + most_plays
    best, value = tried.winner, tried.value
    improved = best is not None
    while improved and best is not None:
        improved = False
        for move in moves(best):
            if tried.plays >= last or tried.over:
                return
            move = tried.fitted(replace(move, recompute=mode_of(tried.problem, move)))
            moved = tried.in_order(move) if move.pipelines[0].order else move
            if moved is not None and tried.play(moved) < value:
                best, value, improved = moved, tried.value, True
                break


def moves(candidate: Candidate) -> Iterator[Candidate]:
    """Candidates one step away; pipelines that are cut alike stay so."""
    lines = candidate.pipelines
    alike = len({tuple(stage.layers for stage in line.stages) for line in lines}) == 1
    whole = [range(len(lines))] if alike else [range(at, at + 1) for at in range(len(lines))]
    for at in whole:
        length = len(lines[at[0]].stages)
        for border in range(1, length):
            for step in (-1, 1):
                changed = {index: _shifted(lines[index], border, step) for index in at}
                if all(changed.values()):
                    yield _with(candidate, changed)
        for stage in range(length) if lines[at[0]].warm_up else ():
            for step in (1, -1):
                ahead = {index: _ahead(lines[index], stage, step) for index in at}
                if all(ahead.values()):
                    yield _with(candidate, ahead)


def _with(candidate: Candidate, changed: dict[int, PipelineSketch | None]) -> Candidate:
    lines = tuple(changed.get(index) or line for index, line in enumerate(candidate.pipelines))
    return replace(candidate, pipelines=lines)


def _shifted(line: PipelineSketch, border: int, step: int) -> PipelineSketch | None:
    """One layer moved over the border before stage ``border``; None: a stage would be empty."""
    before, after = line.stages[border - 1], line.stages[border]
    cut = after.layers[0] + step
    if not before.layers[0] < cut < after.layers[1]:
        return None
    pair = (replace(before, layers=(before.layers[0], cut)), replace(after, layers=(cut, after.layers[1])))
    return replace(line, stages=line.stages[: border - 1] + pair + line.stages[border + 1 :])


def _ahead(line: PipelineSketch, stage: int, step: int) -> PipelineSketch | None:
    """The stage runs ``step`` waves further ahead, and others as much as the order of the stages then asks for."""
    wanted = line.warm_up[stage] + step
    if not 1 <= wanted <= line.num_micro_batches:
        return None
    earlier = (max(each, wanted) for each in line.warm_up[:stage])
    later = (min(each, wanted) for each in line.warm_up[stage + 1 :])
    return replace(line, warm_up=(*earlier, wanted, *later))
