"""The forecast everyone has to beat: what was last measured stays.

Histories are logarithms of the ratio to the base value; NaN is an instant without a measurement. L or T instants,
H horizons in epochs, E series.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
USUAL_KICK = 0.03  # standard deviation of the change from one epoch to the next before any was seen,
USUAL_WEIGHT = 8.0  # counted as so many of them
LARGEST_SD = 0.6


def predict(history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """Mean and standard deviation, each (H, E), after a history (L, E)."""
    mean, sd = predict_all(history, horizons, epoch_s)
    return mean[-1], sd[-1]


def predict_all(history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
    """The same after every instant of a history (T, E): each (T, H, E)."""
    last, kick = _last_and_kick(np.ascontiguousarray(history, dtype=np.float64))
    mean = np.repeat(last[:, None, :], len(horizons), axis=1)
    steps = np.maximum(np.asarray(horizons, dtype=np.float64), 0.25)[None, :, None]
    return mean, np.minimum(kick[:, None, :] * np.sqrt(steps), LARGEST_SD)


@kernel
def _last_and_kick(history):  # type: ignore[no-untyped-def]
    """Last known value (0 before the first) and root mean square of its changes up to then, each (T, E)."""
    instants, series = history.shape
    last, kick = np.zeros((instants, series)), np.zeros((instants, series))
    for each in range(series):
        value, squares, count, known = 0.0, USUAL_WEIGHT * USUAL_KICK**2, USUAL_WEIGHT, False
        for instant in range(instants):
            now = history[instant, each]
            if not np.isnan(now):
                if known:
                    squares += (now - value) ** 2
                    count += 1.0
                value, known = now, True
            last[instant, each], kick[instant, each] = value, np.sqrt(squares / count)
    return last, kick
