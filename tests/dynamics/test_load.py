"""Load of others and stragglers."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.processes import SLOWEST, fluctuating, straggling

TIME_S = np.arange(5000, dtype=np.float64) * 60.0


def test_load_stays_within_its_swing_about_one() -> None:
    load = fluctuating(TIME_S, 3, np.random.default_rng(0), swing=0.2)
    assert load.shape == (5000, 3)
    assert load.min() == pytest.approx(0.8)
    assert load.max() == pytest.approx(1.2)
    assert load.mean() == pytest.approx(1.0, abs=0.02)


def test_no_swing_is_no_load() -> None:
    assert (fluctuating(TIME_S, 2, np.random.default_rng(0), swing=0.0) == 1.0).all()


def test_stragglers_only_slow_down_and_come_as_often_as_asked() -> None:
    factor = straggling(TIME_S, 40, np.random.default_rng(1), per_day=4.0, length_s=3600.0)
    assert factor.min() == 1.0
    assert factor.max() <= SLOWEST
    days, share = TIME_S[-1] / 86400.0, (factor > 1.0).mean()
    assert share == pytest.approx(1.0 / (1.0 + 6.0), rel=0.2)  # an hour of straggling after six of none
    assert (np.diff(factor, axis=0) > 0).sum() / (40 * days) == pytest.approx(24.0 / 7.0, rel=0.2)


def test_none_a_day_is_none() -> None:
    assert (straggling(TIME_S, 2, np.random.default_rng(0), per_day=0.0, length_s=60.0) == 1.0).all()
