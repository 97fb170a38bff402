"""Every forecast: alone and over a whole trace alike, deaf to the future, at peace with gaps; and each its own case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hippo.dynamics import kalman, persistence
from hippo.dynamics.forecast import FORECASTS, HORIZONS, forecaster

AHEAD = np.array(HORIZONS)
Floats = NDArray[np.float64]


def histories(seed: int, instants: int = 60) -> Floats:
    """Swings, a collapse, an outage and gaps."""
    rng = np.random.default_rng(seed)
    found = np.cumsum(rng.normal(0.0, 0.03, (instants, 3)), axis=0)
    found[20:30, 0] -= 1.5
    found[40:50, 1] = np.nan
    found[rng.random(found.shape) < 0.1] = np.nan
    return found


@pytest.mark.parametrize("name", FORECASTS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), end=st.integers(1, 60))
def test_the_forecast_of_an_instant_is_that_of_the_whole_trace(name: str, seed: int, end: int) -> None:
    history = histories(seed)
    mean, sd = forecaster(name).predict(history[:end], AHEAD, 60.0)
    all_means, all_sds = forecaster(name).predict_all(history, AHEAD, 60.0)
    assert mean.shape == sd.shape == (len(AHEAD), 3)
    assert mean == pytest.approx(all_means[end - 1], abs=1e-9)
    assert sd == pytest.approx(all_sds[end - 1], abs=1e-9)


@pytest.mark.parametrize("name", FORECASTS)
def test_nothing_measured_yet_is_answered_all_the_same(name: str) -> None:
    mean, sd = forecaster(name).predict(np.full((3, 2), np.nan), AHEAD, 600.0)
    assert np.isfinite(mean).all()
    assert (np.abs(mean) < 1.0).all()
    assert np.isfinite(sd).all()
    assert (sd > 0).all()


@pytest.mark.parametrize("name", FORECASTS)
def test_doubt_does_not_shrink_with_the_horizon(name: str) -> None:
    quiet = np.random.default_rng(5).normal(0.0, 0.05, (200, 4))
    _, sd = forecaster(name).predict(quiet, np.array((1, 64)), 300.0)
    assert (sd[1] >= 0.8 * sd[0]).all()


def test_persistence_repeats_the_last_value() -> None:
    history = np.array([[0.1], [np.nan], [-0.3], [np.nan]])
    mean, sd = persistence.predict(history, AHEAD, 60.0)
    assert (mean == -0.3).all()
    kick = np.sqrt((8.0 * persistence.USUAL_KICK**2 + 0.4**2) / 9.0)
    assert sd[:, 0] == pytest.approx(np.minimum(kick * np.sqrt(np.maximum(AHEAD, 0.25)), persistence.LARGEST_SD))


def test_kalman_expects_a_swing_to_fade() -> None:
    """A process with a memory of 20 minutes, seen at +.2 after hours about 0."""
    rng, keep, value, seen = np.random.default_rng(2), np.exp(-60.0 / 1200.0), 0.0, []
    for _ in range(600):
        value = keep * value + 0.1 * np.sqrt(1.0 - keep**2) * rng.standard_normal()
        seen.append(value)
    history = np.array([*seen, 0.2])[:, None]
    mean, _ = kalman.predict(history, np.array((1, 64)), 60.0)
    assert mean[0, 0] > 0.12
    assert abs(mean[1, 0]) < 0.1


def test_kalman_learns_the_day() -> None:
    time_s = np.arange(432) * 600.0  # three days
    wave = 0.25 * np.sin(2.0 * np.pi * time_s / 86400.0)[:, None]
    mean, _ = kalman.predict_all(wave, np.array((64,)), 600.0)
    error = np.abs(wave[64:, 0] - mean[:-64, 0, 0])[200:]
    persistent = np.abs(wave[64:, 0] - wave[:-64, 0])[200:]
    assert error.mean() < 0.2 * persistent.mean()


def test_kalman_takes_a_collapse_for_one_that_ends_the_later_the_longer_it_lasts() -> None:
    history = np.zeros((200, 1))
    history[50:] = -1.6
    mean, _ = kalman.predict_all(history, np.array((0, 16)), 600.0)
    assert mean[49, 1, 0] == pytest.approx(0.0, abs=0.02)
    assert mean[60, 0, 0] < -1.5  # now
    assert -1.6 < mean[60, 1, 0] < -0.3  # some of it is back
    assert mean[190, 1, 0] < mean[60, 1, 0]  # what has lasted goes on


def test_kalman_sees_the_end_of_a_collapse() -> None:
    history = np.zeros((100, 1))
    history[50:60] = -1.6
    mean, _ = kalman.predict_all(history, np.array((0, 16)), 60.0)
    assert mean[61, :, 0] == pytest.approx([0.0, 0.0], abs=0.05)
