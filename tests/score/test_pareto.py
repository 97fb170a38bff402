"""Fronts small enough to draw, and random ones against a grid count and the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.score.pareto import hypervolume, non_dominated

POINTS = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.lists(st.integers(0, 5), min_size=d, max_size=d), min_size=1, max_size=12)
)


def test_a_front_drawn_by_hand() -> None:
    points = [[1, 5], [2, 3], [4, 1], [3, 3], [2, 3], [5, 5]]
    assert non_dominated(points).tolist() == [True, True, True, False, False, False]
    # strips below y = 6, left of x = 6: 5 x 1 (y 5..6), 4 x 2 (y 3..5), 2 x 2 (y 1..3)
    assert hypervolume(points, [6, 6]) == pytest.approx(5 + 8 + 4)


def test_three_objectives_by_hand() -> None:
    assert hypervolume([[0, 0, 0]], [2, 3, 4]) == pytest.approx(24)
    # two boxes of volume 1 x 2 x 2 that share 1 x 1 x 2
    assert hypervolume([[1, 0, 0], [0, 1, 0]], [2, 2, 2]) == pytest.approx(4 + 4 - 2)
    assert hypervolume([[2, 0, 0]], [2, 2, 2]) == 0.0


@given(POINTS)
def test_kept_points_are_those_that_nothing_dominates(points: list[list[int]]) -> None:
    values = np.array(points)
    kept = non_dominated(points)
    for index, value in enumerate(values):
        beaten = [bool(np.all(other <= value) and np.any(other < value)) for other in values]
        earlier_twin = any(np.array_equal(values[j], value) for j in range(index))
        assert kept[index] == (not any(beaten) and not earlier_twin)


@given(POINTS)
def test_hypervolume_counts_the_dominated_cells_of_a_grid(points: list[list[int]]) -> None:
    values = np.array(points)
    cells = np.indices((6,) * values.shape[1]).reshape(values.shape[1], -1).T
    dominated = np.any(np.all(values[:, None, :] <= cells[None], axis=2), axis=0)
    assert hypervolume(points, [6] * values.shape[1]) == pytest.approx(float(dominated.sum()))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        non_dominated([[1.0, float("nan")]])
    with pytest.raises(ValueError, match="reference"):
        hypervolume([[1.0, 2.0]], [3.0])
