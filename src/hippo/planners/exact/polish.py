"""The best candidate, made better by small moves: a layer over a border, a wave more or less ahead; each is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hippo.planners.exact.judge import Candidate, Judge
from hippo.planners.placement import PipelineSketch


def polish(judge: Judge, *, most_plays: int, ordered: Callable[[Candidate], Candidate | None]) -> None:
    """Tries all moves again and again until none helps, ``most_plays`` are played or the time is over.

    Where the best candidate has orders made for it, ``ordered`` makes them anew for every move.
    """
    last = judge.plays + most_plays
    best, value = judge.winner, judge.value
    improved = best is not None
    while improved and best is not None:
        improved = False
        for move in moves(best):
            if judge.plays >= last or judge.out_of_time:
                return
            moved = ordered(move) if move.pipelines[0].order else move
            if moved is not None and judge.play(moved) < value:
                best, value, improved = moved, judge.value, True
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
