"""Intervals: against the table of Student's t, and against chance."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.intervals import interval, paired, quantile


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (19, 2.093), (30, 2.042), (1000, 1.962)]
)
def test_the_table_of_students_t(freedom: int, value: float) -> None:
    assert quantile(freedom) == pytest.approx(value, abs=6e-4)


def test_an_interval_by_hand() -> None:
    found = interval([1.0, 2.0, 3.0])  # mean 2, standard deviation 1, t of 2 degrees 4.303
    assert found is not None
    assert (found.mean, found.count) == (2.0, 3)
    assert found.high - found.mean == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_nothing_and_one() -> None:
    assert interval([]) is None
    one = interval([0.5])
    assert one is not None
    assert (one.low, one.mean, one.high) == (0.5, 0.5, 0.5)


def test_it_holds_the_truth_19_times_in_20() -> None:
    rng = np.random.default_rng(0)
    found = [interval(rng.normal(3.0, 2.0, 8).tolist()) for _ in range(500)]
    held = np.mean([each is not None and each.low <= 3.0 <= each.high for each in found])
    assert held == pytest.approx(0.95, abs=0.02)


def test_pairs_share_their_luck() -> None:
    rng = np.random.default_rng(1)
    luck = rng.normal(0.0, 5.0, 20)
    ours, theirs = luck + 0.1 + rng.normal(0.0, 0.05, 20), luck + rng.normal(0.0, 0.05, 20)
    found = paired(ours.tolist(), theirs.tolist())
    assert found is not None
    assert 0.0 < found.low < 0.1 < found.high < 0.2
