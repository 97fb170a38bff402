"""How the step times of a plan spread over noise, or along a network trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spread:
    """Step times of one plan over S states.

    A state in which the plan cannot run (a link it needs is out) has an infinite step time. Shares of time say how long
    each state holds; where there are none, each sample is one step.
    """

    step_time_s: Floats  # (S,)
    time_share: Floats | None = None  # (S,), sums to 1

    @property
    def share(self) -> Floats:
        """Weight of each sample, (S,)."""
        count = len(self.step_time_s)
        return np.full(count, 1.0 / count) if self.time_share is None else self.time_share

    @property
    def mean_s(self) -> float:
        """Mean seconds per step; along time, elapsed time over steps made (an outage makes none)."""
        if self.time_share is None:
            return float(np.mean(self.step_time_s))
        steps_per_s = float(np.sum(self.time_share / self.step_time_s))
        return 1.0 / steps_per_s if steps_per_s > 0 else float("inf")

    @property
    def p50_s(self) -> float:
        """Median."""
        return self.percentile(50.0)

    @property
    def p95_s(self) -> float:
        """95th percentile."""
        return self.percentile(95.0)

    @property
    def stopped_share(self) -> float:
        """Share of the time in which the plan cannot run."""
        return float(self.share[np.isinf(self.step_time_s)].sum())

    def percentile(self, percent: float) -> float:
        """The smallest step time that at least ``percent`` of the time is not exceeded."""
        rank = np.argsort(self.step_time_s, kind="stable")
        reached = np.cumsum(self.share[rank])
        index = min(int(np.searchsorted(reached, percent / 100.0 - 1e-12)), len(rank) - 1)
        return float(self.step_time_s[rank][index])
