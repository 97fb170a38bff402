"""Ornstein-Uhlenbeck movement: mean, deviation and correlation are those that were asked for."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.processes import swing_path
from hippo.problem.cluster import Dynamics

WIDE = Dynamics(swing=10.0, sigma=0.2, tau_s=100.0)  # never clipped


@pytest.mark.parametrize("step_s", [10.0, 100.0])
def test_a_path_keeps_its_deviation_and_correlation_whatever_the_step(step_s: float) -> None:
    eps = swing_path(WIDE, np.arange(0, 4000 * step_s, step_s), 8, np.random.default_rng(1))
    assert eps.mean() == pytest.approx(0.0, abs=0.02)
    assert eps.std() == pytest.approx(0.2, rel=0.06)
    correlation = np.mean([np.corrcoef(one[:-1], one[1:])[0, 1] for one in eps.T])
    assert correlation == pytest.approx(np.exp(-step_s / 100.0), abs=0.03)


def test_uneven_instants_are_allowed() -> None:
    """A long gap forgets; an instant repeated at once does not move."""
    rng = np.random.default_rng(2)
    eps = swing_path(WIDE, np.tile([0.0, 1e-9, 1e9], (1,)), 5000, rng)
    assert eps[0] == pytest.approx(eps[1], abs=1e-4)
    assert abs(np.corrcoef(eps[1], eps[2])[0, 1]) < 0.05


def test_the_swing_clips() -> None:
    narrow = Dynamics(swing=0.3, sigma=0.5)
    eps = swing_path(narrow, np.arange(1000.0) * 3600, 2, np.random.default_rng(3))
    assert (eps.min(), eps.max()) == (-0.3, 0.3)


def test_the_seed_decides() -> None:
    one, two = (swing_path(WIDE, np.arange(9.0), 2, np.random.default_rng(4)) for _ in range(2))
    assert np.array_equal(one, two)
