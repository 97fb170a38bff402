"""Gradients that are reduced after a rank's last operation, while other ranks compute: by hand, on two ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedule.drawn import schedule_problems

from hippo.engine.events import board
from hippo.errors import InputError
from hippo.schedule.best import best
from hippo.schedule.by_hint import dispatch
from hippo.schedule.methods import METHODS, checked, generate
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import makespan, replay
from hippo.schedule.search.policy import first_policy, pipe, play_policy, rows_of
from hippo.schedule.text import parse_schedule

TWO = ScheduleProblem.uniform(2, 2)
"""Two ranks, two micro-batches, F = B = W = 1, no delay."""

WEIGHTS_LAST = parse_schedule("last stages=2 micro_batches=2\nF0 F1 B0 B1 W0 W1\nF0 B0 F1 B1 W0 W1\n", source="last")
WEIGHTS_FIRST = parse_schedule("first stages=2 micro_batches=2\nF0 F1 B0 W0 B1 W1\nF0 B0 W0 F1 B1 W1\n", source="first")


@pytest.mark.parametrize(
    ("reduction", "last", "first"),
    [
        ((), 8, 8),
        # Weights last: rank 0 runs F F . B . B W W until 8, rank 1 . F B F B W W until 7.
        # Weights first: rank 0 runs F F . B W . B W until 8, rank 1 . F B W F B W until 7.
        ((0.0, 0.5), 8, 8),  # done at 7, agreed at 7.5
        ((0.0, 3.0), 10, 10),
        ((2.0, 3.0), 10, 10),
        ((2.5, 0.0), 10.5, 10.5),
    ],
)
def test_replay_by_hand(reduction: tuple[float, ...], last: float, first: float) -> None:
    problem = replace(TWO, reduction=reduction)
    for schedule, expected in ((WEIGHTS_LAST, last), (WEIGHTS_FIRST, first)):
        assert replay(TWO, schedule).end.max() == 8  # when ranks compute does not change
        assert makespan(problem, schedule) == expected
        assert replay(problem, schedule).makespan == expected
        assert replay(problem, schedule).longest_stage == 8  # operations only
    assert replay(problem, WEIGHTS_LAST).bubble_full == pytest.approx(1 - 6 / last)


def test_the_rank_that_agrees_longest_is_served_first() -> None:
    """p 2, m 2, W = 3: rank 0 agrees in 4. Its B1 needs F1 and B1 of rank 1: W0 of rank 1 can wait."""
    problem = replace(ScheduleProblem.uniform(2, 2, (1.0, 1.0, 3.0)), reduction=(4.0, 0.0))
    busy = parse_schedule("w stages=2 micro_batches=2\nF0 F1 B0 W0 B1 W1\nF0 B0 W0 F1 B1 W1\n", source="busy")
    assert makespan(problem, busy) == 1 + 1 + 1 + 3 + 1 + 1 + 1 + 3 + 4  # through W0 of rank 1
    found = best(problem, time_limit_s=0.2)
    assert found.makespan == found.lower_bound == 11 + 4  # rank 0: F F . B W B W, no pause after the first gradient


def test_equal_work_in_another_order() -> None:
    """Who reduces for long decides the order: the best for the last rank is not the best for the first."""
    base = ScheduleProblem.uniform(3, 4, (1.0, 1.0, 1.0), comm=1.0, live_limit=3)
    front, back = (replace(base, reduction=each) for each in ((6.0, 0.0, 0.0), (0.0, 0.0, 6.0)))
    for_front, for_back = (best(each, time_limit_s=0.3) for each in (front, back))
    assert for_back.makespan < makespan(back, for_front.schedule)
    assert for_front.makespan <= makespan(front, for_back.schedule)


@given(schedule_problems(most_ranks=5, most_micro_batches=6), st.booleans(), st.integers(0, 3))
def test_a_play_in_either_direction_is_the_replay(problem: ScheduleProblem, mirrored: bool, which: int) -> None:
    """Forwards in time exactly; backwards the replay starts everything as early, so it may only be shorter."""
    made = pipe(problem, mirrored=mirrored)
    kinds = np.zeros((problem.ranks, 3 * problem.micro_batches), np.int8)
    span = play_policy(made, board(made), first_policy(made, which), kinds, 1e300)
    found = makespan(problem, checked("policy", problem, rows_of(made, kinds)))
    assert found <= span * (1 + 1e-9)
    if not mirrored:
        assert found == pytest.approx(span)


@given(schedule_problems(most_ranks=4, most_micro_batches=6), st.floats(0.0, 50.0))
def test_as_much_on_every_rank_moves_the_end_alone(problem: ScheduleProblem, more: float) -> None:
    """The same schedules are legal, each that much longer, and so is the bound."""
    none = replace(problem, reduction=())
    all_of_them = replace(problem, reduction=(more,) * problem.ranks)
    for schedule in (generate("cross-domain", none), generate("zb-auto", none)):
        assert makespan(all_of_them, schedule) == pytest.approx(makespan(none, schedule) + more)
    hint = generate("cross-domain", none)
    assert dispatch(all_of_them, hint).order.tolist() == dispatch(none, hint).order.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_counted(method: str) -> None:
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=0.1).placed(METHODS[method].placement)
    schedule = generate(method, replace(problem, reduction=(0.0, 0.0, 50.0, 0.0)))
    played = replay(problem, schedule)
    assert makespan(replace(problem, reduction=(0.0, 0.0, 50.0, 0.0)), schedule) == pytest.approx(
        played.end[schedule.order_start[3] - 1] + 50
    )


@pytest.mark.parametrize(("given", "value"), [((1.0,), 1), ((1.0, -0.5), -0.5), ((1.0, float("inf")), float("inf"))])
def test_what_is_no_reduction(given: tuple[float, ...], value: float) -> None:
    with pytest.raises(InputError) as error:
        replace(TWO, reduction=given)
    assert (error.value.key, error.value.value) == ("reduction", value)
