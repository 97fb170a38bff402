"""Collapses and regimes."""

from __future__ import annotations

import numpy as np

from hippo.dynamics.processes import Collapse, collapsed, regimes

TIME_S = np.arange(10, dtype=np.float64) * 60.0


def test_a_collapse_holds_from_its_start_until_its_end() -> None:
    factor = collapsed(TIME_S, 2, [Collapse(link=1, start_s=120.0, length_s=180.0, share=0.2)])
    assert factor[:, 0].tolist() == [1.0] * 10
    assert factor[:, 1].tolist() == [1.0, 1.0, 0.2, 0.2, 0.2, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_of_two_collapses_at_once_the_worse_holds() -> None:
    factor = collapsed(TIME_S, 1, [Collapse(0, 0.0, np.inf, 0.5), Collapse(0, 300.0, 60.0, 0.0)])
    assert factor[:, 0].tolist() == [0.5] * 5 + [0.0] + [0.5] * 4


def test_regimes_are_levels_and_stays_are_as_long_as_asked() -> None:
    time_s = np.arange(20000, dtype=np.float64) * 60.0
    factor = regimes(time_s, 3, np.random.default_rng(0), stay_s=3600.0, levels=(1.0, 0.5, 0.2))
    assert set(np.unique(factor)) == {1.0, 0.5, 0.2}
    changes = (np.diff(factor, axis=0) != 0).sum()
    assert 0.85 < changes * 3600.0 / (3 * time_s[-1]) < 1.1


def test_a_level_is_never_followed_by_itself() -> None:
    """Two levels must alternate, so that over many stays both hold for half of the time."""
    factor = regimes(
        np.arange(20000, dtype=np.float64) * 60.0, 1, np.random.default_rng(1), stay_s=1800.0, levels=(1.0, 0.3)
    )
    assert 0.45 < (factor == 1.0).mean() < 0.55
