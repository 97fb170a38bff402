"""A moment is waited for what comes soon, never for what is late or unknown."""

from __future__ import annotations

import pytest

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.executor.step import Foresight

AWAITED, OTHER = (BACKWARD, 0, 3), (WEIGHT, 0, 1)


def test_the_first_step_knows_nothing():
    assert Foresight().pause_s(AWAITED, OTHER, 0.0) == 0.0


def test_what_comes_before_half_of_the_other_is_done_is_waited_for():
    sight = Foresight()
    sight.learn({AWAITED: 1.0}, [(WEIGHT, 0.1), (WEIGHT, 0.3), (WEIGHT, 0.2), (FORWARD, 9.0)])
    assert sight.pause_s(AWAITED, OTHER, 0.95) == pytest.approx(0.05)
    assert sight.pause_s(AWAITED, OTHER, 0.85) == 0.0  # more than half of .2 s
    assert sight.pause_s(AWAITED, OTHER, 1.01) == 0.0  # late
    assert sight.pause_s((BACKWARD, 0, 4), OTHER, 0.95) == 0.0  # nothing known


def test_a_step_replaces_what_was_known():
    sight = Foresight()
    sight.learn({AWAITED: 1.0}, [(WEIGHT, 0.2)])
    sight.learn({AWAITED: 2.0}, [(WEIGHT, 0.2)])
    assert sight.pause_s(AWAITED, OTHER, 0.95) == 0.0
    assert sight.pause_s(AWAITED, OTHER, 1.95) == pytest.approx(0.05)
