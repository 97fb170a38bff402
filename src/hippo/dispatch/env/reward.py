"""What a play was worth: how much shorter it was than a reference on the same draws, in percent of the reference.

A play pays at its end. What was lost before a choice is no merit of the choice: ``lags`` says how far F and B lag
behind the reference by then (mean over the ranks, and the most), from which learning guesses what is lost. Measured on
plays of p 8, m 32 with 30 % fluctuation, that explains two thirds of the variance of the end in the last tenth of the
operations, a third in the tenth and a half before, and nothing in the first half: a pipeline forgives early lags.

Letters: p ranks, m micro-batches.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hippo.compiling import kernel

Makespan = TypeVar("Makespan", float, NDArray[np.float64])

LAGS = 5
_MOST = 5.0  # percent


def reward(makespan: Makespan, reference: Makespan) -> Makespan:
    """Of a whole play or of many, in percent of the reference; above 0 where it is shorter."""
    return 100.0 * (reference - makespan) / reference


@kernel(lean=True)
def lags(state, reference, reference_makespan, now, found):  # type: ignore[no-untyped-def]
    """Writes mean and most of F, of B, and the share of operations left (LAGS,); ``reference`` (3, p, m): starts of the
    other play."""
    start, p, m = state.written.starts, len(state.pipe.length), state.pipe.waves
    scale = 100.0 / reference_makespan
    for kind in range(2):
        mean, most = 0.0, -np.inf
        for rank in range(p):
            lag, done = 0.0, state.board.begun[rank, kind]
            if done > 0:
                lag = start[kind, rank, done - 1] - reference[kind, rank, done - 1]
            if done < m:
                lag = max(lag, now - reference[kind, rank, done])
            mean, most = mean + lag / p, max(most, lag)
        found[2 * kind] = min(max(mean * scale, -_MOST), _MOST)
        found[2 * kind + 1] = min(max(most * scale, -_MOST), _MOST)
    found[4] = state.left[0] / (3 * p * m)
