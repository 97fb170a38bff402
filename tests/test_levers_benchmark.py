"""What a lever costs, from steps as they were."""

from __future__ import annotations

import pytest
from benchmarks.levers import LeverFound


def found(before: tuple[float, ...], ready: float, after: tuple[float, ...], every: tuple[int, int]) -> LeverFound:
    return LeverFound("job", "order", 0, 8, 9, 0.0, 0.0, before, ready, after, 1.0, every)


def test_a_first_step_is_held_against_the_later_ones() -> None:
    one = found((1.0, 1.0, 1.0), 1.1, (2.5, 2.0, 2.0, 2.0), (1, 1))
    assert one.first_lost == pytest.approx(0.25)
    assert one.ready_lost == pytest.approx(0.1)


def test_a_first_round_of_local_sgd_is_held_against_later_rounds_wherever_its_sum_lies() -> None:
    for lost, after in ((0.0, (3.0, 1.0) * 3), (0.0, (1.0, 3.0) * 3), (0.5, (4.0, 1.0, 3.0, 1.0, 3.0, 1.0))):
        assert found((1.0,), 1.0, after, (1, 2)).first_lost == pytest.approx(lost)
    short = found((1.0,), 1.0, (1.0, 3.0, 1.0, 3.0, 9.0), (1, 2))  # a round that was not ended says nothing
    assert short.first_lost == 0.0


def test_a_step_beside_which_processes_made_ready_is_held_against_those_that_sum_as_it_does() -> None:
    for ready, before in ((3.0, (1.0, 3.0, 1.0)), (1.0, (3.0, 1.0, 3.0)), (1.0, (1.0, 3.0, 1.0, 3.0))):
        assert found(before, ready, (1.0, 1.0), (2, 1)).ready_lost == 0.0
    assert found((1.0, 3.0), 1.2, (1.0, 1.0), (2, 1)).ready_lost == pytest.approx(0.1)
