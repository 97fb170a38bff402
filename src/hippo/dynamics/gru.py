"""A light recurrent forecast: one gated recurrent unit, shared by all series, with weights learned beforehand.

It reads a series (log of the ratio to its base) and its Kalman forecast instant by instant and says, for ``LEARNED``
horizons, how far the series will be from its last known value and how certain that is: what the filter does not know,
such as how long an excursion of this depth and age lasts. Between horizons it interpolates over ``log2(1 + h)``.
Inference is numpy; ``benchmarks/_train_forecaster.py`` learns the weights with torch on worlds of the train split.

Cell: Cho et al. 2014 (arXiv 1406.1078), in PyTorch's form (reset gate on the hidden part of the candidate).
L or T instants, H horizons in epochs, E series, D hidden units; NaN is an instant without a measurement.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics import kalman
from hippo.dynamics.processes import DAY_S
from hippo.learn.weights import Form

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEARNED = (1, 4, 16, 64)
OWN = 8  # features without those of the filter
FEATURES = OWN + len(LEARNED)
WEIGHTS = "gru.npz"
FORM = Form("recurrent forecast", {"horizons": list(LEARNED)}, "make one with benchmarks/_train_forecaster.py")
LOWEST, HIGHEST = -4.0, 1.0  # of the values read
LEAST_SD, LARGEST_SD = 0.005, 1.5
SLOW = 0.03  # share of the news that the slow mean takes up


class Weights(NamedTuple):
    """Of the cell and the read-out; the order of gates is reset, update, candidate."""

    input_weight: Floats  # (3 D, FEATURES)
    input_bias: Floats  # (3 D,)
    hidden_weight: Floats  # (3 D, D)
    hidden_bias: Floats  # (3 D,)
    out_weight: Floats  # (2 LEARNED, D + FEATURES)
    out_bias: Floats  # (2 LEARNED,)


def predict(history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """Mean and standard deviation, each (H, E), after a history (L, E)."""
    mean, sd = predict_all(history, horizons, epoch_s)
    return mean[-1], sd[-1]


def predict_all(history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """The same after every instant of a history (T, E): each (T, H, E)."""
    return run(shipped(), history, horizons, epoch_s)


@lru_cache(maxsize=1)
def shipped() -> Weights:
    """The weights that come with the package."""
    stored, _ = FORM.unpacked((files("hippo.dynamics") / WEIGHTS).read_bytes(), WEIGHTS)
    return Weights(*(np.asarray(stored[name], dtype=np.float64) for name in Weights._fields))


def run(weights: Weights, history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """Forecasts by these weights after every instant, each (T, H, E)."""
    read = features(history, epoch_s)  # (T, E, FEATURES)
    units = weights.hidden_weight.shape[1]
    entered = read @ weights.input_weight.T + weights.input_bias
    hidden, seen = np.zeros((read.shape[1], units)), np.zeros((*read.shape[:2], units))
    for instant in range(len(read)):
        recalled = hidden @ weights.hidden_weight.T + weights.hidden_bias
        gates = _sigmoid(entered[instant, :, : 2 * units] + recalled[:, : 2 * units])
        reset, update = gates[:, :units], gates[:, units:]
        candidate = np.tanh(entered[instant, :, 2 * units :] + reset * recalled[:, 2 * units :])
        hidden = seen[instant] = candidate + update * (hidden - candidate)
    out = np.concatenate([seen, read], axis=2) @ weights.out_weight.T + weights.out_bias  # (T, E, 2 LEARNED)
    out = out.swapaxes(1, 2)
    mean = read[None, :, :, 0].swapaxes(0, 1) + out[:, : len(LEARNED)]
    sd = np.clip(np.exp(out[:, len(LEARNED) :]), LEAST_SD, LARGEST_SD)
    return _between(mean, read[:, :, 0], horizons), _between(sd, np.full(read.shape[:2], LEAST_SD), horizons)


def features(history: Floats, epoch_s: float) -> Floats:
    """What the unit reads at every instant, (T, E, FEATURES): the last known value, its change, whether it is known
    and for how long not, a slow mean, the length of an epoch, the hour of the day since the start; and the change that
    the Kalman filter expects at each learned horizon."""
    instants, series = history.shape
    read = np.zeros((instants, series, FEATURES))
    value, slow, missing = np.zeros(series), np.zeros(series), np.zeros(series)
    for instant, now in enumerate(np.clip(history, LOWEST, HIGHEST)):
        known = ~np.isnan(now)
        news = np.where(known, now - value, 0.0)
        value = np.where(known, now, value)
        slow = slow + SLOW * (value - slow)
        missing = np.where(known, 0.0, missing + 1.0)
        read[instant, :, 0], read[instant, :, 1], read[instant, :, 2] = value, news if instant else 0.0, known
        read[instant, :, 3], read[instant, :, 4] = np.log1p(missing), slow
    angle = 2.0 * np.pi * np.arange(instants) * epoch_s / DAY_S
    read[:, :, 5] = np.log10(epoch_s / 300.0)
    read[:, :, 6], read[:, :, 7] = np.sin(angle)[:, None], np.cos(angle)[:, None]
    filtered, _ = kalman.predict_all(history, np.array(LEARNED), epoch_s)  # (T, LEARNED, E)
    read[:, :, OWN:] = np.clip(filtered, LOWEST, HIGHEST).swapaxes(1, 2) - read[:, :, :1]
    return read


def _between(learned: Floats, now: Floats, horizons: Ints) -> Floats:
    """Values (T, LEARNED, E) and those of now (T, E) at other horizons, (T, H, E)."""
    known = np.log2(1.0 + np.array((0, *LEARNED), dtype=np.float64))
    values = np.concatenate([now[:, None], learned], axis=1)
    at = np.clip(np.log2(1.0 + np.asarray(horizons, dtype=np.float64)), 0.0, known[-1])
    left = np.clip(np.searchsorted(known, at, side="right") - 1, 0, len(known) - 2)
    share = ((at - known[left]) / (known[left + 1] - known[left]))[None, :, None]
    found: Floats = values[:, left] * (1.0 - share) + values[:, left + 1] * share
    return found


def _sigmoid(values: Floats) -> Floats:
    found: Floats = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found
