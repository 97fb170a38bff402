"""Things that happen to links now and then: collapses with an end, lasting cuts, drifts between regimes.

Each function gives a factor on the bandwidth, (T, E) or (T, P); factors of several causes multiply. P pairs of domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
REGIMES = (1.0, 0.6, 0.25)
"""Levels of a link that others share: free, busy, crowded. A judgement; such routes are known to be bistable."""


@dataclass(frozen=True)
class Collapse:
    """From ``start_s`` on, for ``length_s`` (inf: to the end), a link carries ``share`` of what it else would."""

    link: int
    start_s: float
    length_s: float
    share: float  # 0: it is out


def collapsed(time_s: Floats, links: int, collapses: Sequence[Collapse]) -> Floats:
    """Factor of these collapses on the links, (T, links); where two overlap the worse holds."""
    factor = np.ones((len(time_s), links))
    for each in collapses:
        during = (time_s >= each.start_s) & (time_s < each.start_s + each.length_s)
        factor[during, each.link] = np.minimum(factor[during, each.link], each.share)
    return factor


def regimes(
    time_s: Floats, links: int, rng: np.random.Generator, *, stay_s: float, levels: Sequence[float] = REGIMES
) -> Floats:
    """Levels between which links jump, (T, links): stays are exponential with mean ``stay_s``, the first level and
    each next one drawn evenly, half of the next being the first level again."""
    shares = np.asarray(levels)
    factor = np.ones((len(time_s), links))
    for link in range(links):
        now = float(time_s[0])
        level = float(rng.choice(shares))
        while now <= time_s[-1]:
            until = now + rng.exponential(stay_s)
            factor[(time_s >= now) & (time_s < until), link] = level
            others = shares[shares != level]
            back = level != shares[0] and rng.random() < 0.5
            level, now = float(shares[0] if back else rng.choice(others)), until
    return factor
