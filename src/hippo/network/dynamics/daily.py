"""The daily curve: traffic of others peaks once a day, and leaves less of the link to us."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DAY_S = 86400.0
Floats = NDArray[np.float64]


def daily_factor(time_s: Floats, peak_to_trough: float, peak_s: Floats) -> Floats:
    """Factor on the bandwidth at the instants, (T, links), mean 1 over a day.

    The best hour has ``peak_to_trough`` times the bandwidth of the worst, at second ``peak_s`` (links,) of the day.
    """
    amplitude = (peak_to_trough - 1.0) / (peak_to_trough + 1.0)
    phase = 2.0 * np.pi * (time_s[:, None] - peak_s[None, :]) / DAY_S
    factor: Floats = 1.0 - amplitude * np.cos(phase)
    return factor
