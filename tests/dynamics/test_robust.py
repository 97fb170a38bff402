"""How a plan does when things move."""

from __future__ import annotations

import numpy as np
import pytest

from hippo.dynamics.robust import Spread


def test_percentiles_of_samples() -> None:
    spread = Spread(np.array([4.0, 1.0, 3.0, 2.0]))
    assert (spread.p50_s, spread.percentile(75), spread.p95_s, spread.mean_s) == (2, 3, 4, 2.5)
    assert spread.share.tolist() == [0.25] * 4
    assert spread.stopped_share == 0.0


def test_along_time_the_mean_is_elapsed_time_over_steps() -> None:
    """Half of the time steps of 1 s, half of 3 s: (1/2 / 1 + 1/2 / 3) steps per second, 1.5 s each."""
    spread = Spread(np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    assert spread.mean_s == pytest.approx(1.5)
    assert Spread(np.array([1.0, 3.0]), np.array([0.9, 0.1])).p95_s == 3.0
    assert Spread(np.array([1.0, 3.0]), np.array([0.9, 0.1])).percentile(90) == 1.0


def test_an_outage_makes_no_steps() -> None:
    spread = Spread(np.array([2.0, np.inf]), np.array([0.75, 0.25]))
    assert spread.mean_s == pytest.approx(2.0 / 0.75)
    assert spread.stopped_share == 0.25
    assert Spread(np.array([np.inf]), np.array([1.0])).mean_s == np.inf
