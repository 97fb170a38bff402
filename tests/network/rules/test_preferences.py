"""Preferences as compromises: every point of a front is reached, those that no weighted sum reaches among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.decide.pareto import non_dominated
from hippo.network.rules.preferences import WORST, FrontSpan, Weights, work_alone

FRONT = np.array([[1.0, 0.8, 4.0], [1.6, 0.6, 4.0], [2.0, 0.1, 4.0], [3.0, 0.05, 0.0]])
"""Seconds, idle share, USD. The second lies behind the line from the first to the third: it is not on the hull."""
NOT_ON_THE_HULL = 1
GRID = [(a / 10, b / 10, (10 - a - b) / 10) for a in range(11) for b in range(11 - a)]


def best(figures: np.ndarray, weights: Weights) -> int:
    return int(np.argmin(FrontSpan.of(figures).shortfall(figures, weights)))


def test_every_point_is_reached_by_some_preference() -> None:
    assert {best(FRONT, weights) for weights in GRID} == set(range(len(FRONT)))


def test_no_weighted_sum_reaches_the_point_behind_the_hull() -> None:
    gaps = (FRONT - FRONT.min(axis=0)) / np.ptp(FRONT, axis=0)
    assert NOT_ON_THE_HULL not in {int(np.argmin(gaps @ np.array(weights))) for weights in GRID}


def test_the_shortfall_by_hand() -> None:
    """Half by distance, half by count: the second is second of four in time and third of four in idle share."""
    found = FrontSpan.of(FRONT).shortfall(FRONT[1], (1.0, 1.0, 0.0))
    gaps = 0.5 * (0.3 + 1 / 3) / 2, 0.5 * (0.55 / 0.75 + 2 / 3) / 2, 1e-4 * 1.0  # a weight of 0 still breaks ties
    assert found == pytest.approx(max(gaps) + 1e-3 * sum(gaps))


def test_values_that_hardly_differ_are_counted_once() -> None:
    near = np.vstack([FRONT, [1.601, 0.599, 4.0]])
    assert [len(values) for values in FrontSpan.of(near).values] == [4, 4, 2]


def test_what_cannot_run_falls_short_most() -> None:
    figures = np.array([[np.inf, 1.0, np.inf], [2.0, 0.1, 4.0]])
    found = FrontSpan.of(FRONT).shortfall(figures, (0.0, 1.0, 0.0))
    assert found[0] == WORST > found[1]


def test_a_figure_in_which_nothing_differs_does_not_decide() -> None:
    figures = np.array([[1.0, 0.5, 0.0], [2.0, 0.1, 0.0]])
    assert [best(figures, weights) for weights in ((0.9, 0.1, 0.0), (0.1, 0.9, 0.0))] == [0, 1]
    assert np.isfinite(FrontSpan.of(figures).shortfall(figures, (0.0, 0.0, 1.0))).all()


def test_work_alone_counts_nothing_else() -> None:
    assert work_alone((1.0, 0.0, 0.0))
    assert not work_alone((0.9, 0.1, 0.0))
    assert not work_alone((0.9, 0.0, 0.1))


@given(st.lists(st.tuples(*[st.integers(0, 20)] * 3), min_size=1, max_size=12, unique=True))
def test_its_own_direction_reaches_each_point_of_any_front(rows: list[tuple[int, int, int]]) -> None:
    """Weights that fall with the distance from the best make a point the best of all (``RHO`` is small)."""
    figures = np.array(rows, dtype=np.float64)
    figures = figures[non_dominated(figures)]
    for index, row in enumerate(FrontSpan.of(figures).scaled(figures)):
        inverse = 1.0 / np.maximum(row, 1e-3)
        assert best(figures, tuple(inverse / inverse.sum())) == index


def test_weights_count_by_their_ratios() -> None:
    span = FrontSpan.of(FRONT)
    assert span.shortfall(FRONT, (1.0, 2.0, 1.0)) == pytest.approx(span.shortfall(FRONT, (0.25, 0.5, 0.25)))
