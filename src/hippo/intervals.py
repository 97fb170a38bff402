"""Means with their 95 % intervals: Student's t over independent worlds; two methods on the same worlds are paired.

The worlds are the sample: epochs of one world hang together, and methods on one world share its luck, so differences
are taken world by world before anything is averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gamma, pi, sqrt

import numpy as np

SURE = 0.975
"""Two-sided 95 %."""


@dataclass(frozen=True)
class Interval:
    """Mean of ``count`` values and the ends of its 95 % interval; with fewer than two values the ends are the mean."""

    mean: float
    low: float
    high: float
    count: int


def interval(values: Sequence[float]) -> Interval | None:
    """Mean and 95 % interval of independent values (Student 1908); None without any."""
    if len(values) == 0:
        return None
    sample = np.asarray(values, dtype=float)
    mean, count = float(sample.mean()), len(sample)
    half = 0.0 if count < 2 else quantile(count - 1) * float(sample.std(ddof=1)) / sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """The same of the differences, world by world."""
    assert len(ours) == len(theirs)
    return interval([one - other for one, other in zip(ours, theirs, strict=True)])


def quantile(freedom: int, share: float = SURE) -> float:
    """Student's t below which ``share`` (above a half) of the distribution lies, by bisection on Simpson's rule."""
    low, high = 0.0, 1000.0
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _below(most: float, freedom: int) -> float:
    """Share of the distribution below ``most``, by the angle whose tangent is t / sqrt(freedom)."""
    angles = np.linspace(0.0, np.arctan(most / sqrt(freedom)), 2001)
    heights = np.cos(angles) ** (freedom - 1)
    area = (angles[1] / 3) * (heights[0] + heights[-1] + 4 * heights[1:-1:2].sum() + 2 * heights[2:-1:2].sum())
    return 0.5 + float(area) * _height(freedom)


def _height(freedom: int) -> float:
    """Density at an angle of 0; the gamma functions are taken as a product, so that no freedom is too large."""
    ratio, rest = 1.0, freedom
    while rest > 2:
        ratio *= (rest - 1) / (rest - 2)
        rest -= 2
    return ratio * gamma((rest + 1) / 2) / (gamma(rest / 2) * sqrt(pi))
