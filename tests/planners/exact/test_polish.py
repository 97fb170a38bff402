"""Small moves: what they change, and that the best never gets worse."""

from __future__ import annotations

from dataclasses import replace

from tests.planners.tiny import both, domain, model, problem

from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.polish import moves, polish
from hippo.planners.placement import PipelineSketch, StageSketch

ASKED = problem((domain("a"), domain("b")), both("a", "b", 1e10), of=model(4), batch=6)


def two_stages(cut: int, warm_up: tuple[int, ...] = ()) -> Candidate:
    stages = (StageSketch("a", (0, cut), 1, 1), StageSketch("b", (cut, 6), 1, 1))
    return Candidate((PipelineSketch(stages, 6, warm_up),), 1, "none", "none")


def test_a_layer_over_the_border_or_a_wave_more_or_less_ahead() -> None:
    found = list(moves(two_stages(3, (4, 2))))
    assert [each.pipelines[0].stages[1].layers[0] for each in found[:2]] == [2, 4]
    assert [each.pipelines[0].warm_up for each in found[2:]] == [(5, 2), (3, 2), (4, 3), (4, 1)]


def test_no_stage_is_emptied_and_the_warm_up_stays_in_order() -> None:
    found = list(moves(two_stages(1, (2, 2))))
    assert [each.pipelines[0].stages[1].layers[0] for each in found[:1]] == [2]
    assert [each.pipelines[0].warm_up for each in found[1:]] == [(3, 2), (1, 1), (3, 3), (2, 1)]


def test_replicas_that_are_cut_alike_stay_so() -> None:
    one = two_stages(3).pipelines[0]
    swapped = replace(one, stages=tuple(replace(s, domain=d) for s, d in zip(one.stages, "ba", strict=True)))
    for move in moves(Candidate((one, swapped), 1, "none", "none")):
        assert len({tuple(stage.layers for stage in line.stages) for line in move.pipelines}) == 1


def test_the_best_never_gets_worse_and_a_bad_start_gets_better() -> None:
    tried = Tried(ASKED)
    start = tried.play(two_stages(1, (2, 1)))
    polish(tried, most_plays=40)
    assert tried.value < start
    assert tried.plays <= 41
    assert tried.winner is not None
    best = tried.value
    assert all(tried.play(move) >= best for move in moves(tried.winner))


def test_nothing_to_polish() -> None:
    tried = Tried(ASKED)
    polish(tried, most_plays=5)
    assert tried.winner is None
    assert tried.plays == 0
