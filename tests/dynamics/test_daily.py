from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.processes import DAY_S, daily_factor

NOON = np.array([DAY_S / 2])


def test_worst_at_its_peak_best_half_a_day_later() -> None:
    factor = daily_factor(np.array([DAY_S / 2, 0.0, DAY_S / 4, DAY_S]), 1.5, NOON)[:, 0]
    assert factor == pytest.approx([0.8, 1.2, 1.0, 1.2])
    assert factor[1] / factor[0] == pytest.approx(1.5)


def test_the_mean_of_a_day_is_1() -> None:
    assert daily_factor(np.arange(0.0, DAY_S, 60.0), 3.0, NOON).mean() == pytest.approx(1.0)


def test_no_curve_without_a_peak() -> None:
    assert daily_factor(np.arange(0.0, DAY_S, 3600.0), 1.0, NOON) == pytest.approx(1.0)


def test_each_link_has_its_own_hour() -> None:
    factor = daily_factor(np.array([0.0]), 2.0, np.array([0.0, DAY_S / 2]))
    assert factor[0] == pytest.approx([2 / 3, 4 / 3])
