"""What links are expected to carry: the forecast of ``dynamics`` of the minutes that were measured, and its doubt.

Letters: L minutes, E links in the order of the cluster file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.forecast import Telemetry, forecast
from hippo.problem.cluster import Cluster
from hippo.serve.records import LinkPoint

Pair = tuple[str, str]
MINUTES, MOST = 360, 200_000
"""Of measurements that a forecast is made of; fewer where there are more links than so many minutes can be held of."""
AHEAD = 15
"""Minutes for which it is told."""
NINE_OF_TEN = 1.645
"""Standard deviations of the logarithm on either side between which nine of ten lie."""


@dataclass(frozen=True)
class LinkForecast:
    """Of a link in a quarter of an hour, bytes/s: what to expect, and between what nine of ten lie."""

    expected: float
    least: float
    most: float


@dataclass(eq=False)
class LinkMinutes:
    """Minutes of the links of a cluster, and when each was last measured."""

    cluster: Cluster
    last_s: dict[Pair, float] = field(default_factory=dict)
    _sums: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # of a minute: (2, E) bytes/s, summed; how many
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._at = {(each.source, each.destination): at for at, each in enumerate(self.cluster.links)}
        self.minutes = min(MINUTES, max(AHEAD, MOST // max(1, len(self._at))))
        self._found: tuple[int, Mapping[Pair, LinkForecast]] = (-1, {})  # of a minute

    def add(self, points: Iterable[LinkPoint]) -> None:
        """Measurements that have come; already checked."""
        with self._lock:
            for each in points:
                pair = each.source, each.destination
                self.last_s[pair] = max(each.time_s, self.last_s.get(pair, -np.inf))
                if (at := self._at.get(pair)) is not None:
                    row = self._sums.setdefault(int(each.time_s // 60.0), np.zeros((2, len(self._at))))
                    row[:, at] += each.bytes_per_s, 1.0
            for old in [each for each in self._sums if each <= max(self._sums) - self.minutes]:
                del self._sums[old]

    def expected(self, now_s: float) -> Mapping[Pair, LinkForecast]:
        """Of every link that was measured; made once a minute (the first in a process may take seconds)."""
        minute = int(now_s // 60.0)
        with self._lock:
            if self._found[0] != minute:
                self._found = minute, self._made(minute)
            return self._found[1]

    def _made(self, minute: int) -> Mapping[Pair, LinkForecast]:
        if not self._sums:
            return {}
        first = max(min(self._sums), minute - self.minutes + 1)
        links, domains = len(self._at), len(self.cluster.domains)
        carried = np.full((max(1, minute - first + 1), links), np.nan)
        for each, (total, count) in self._sums.items():
            if first <= each <= minute:
                with np.errstate(invalid="ignore", divide="ignore"):
                    carried[each - first] = np.where(count > 0.0, total / count, np.nan)
        fresh = np.isfinite(carried)
        seen = np.maximum.accumulate(np.where(fresh, np.arange(len(carried))[:, None], 0), axis=0)
        last = np.nan_to_num(np.take_along_axis(carried, seen, axis=0))  # what did not arrive is the last known one
        nothing = np.full_like(carried, np.nan), np.ones((len(carried), domains))
        told = forecast(Telemetry(last, *nothing, fresh), self.cluster, 60.0, horizons=(0, AHEAD))
        mean, spread = told.bandwidth_bytes_per_s[-1], np.exp(NINE_OF_TEN * told.sd[-1])
        found = {}
        for pair, at in self._at.items():
            if pair in self.last_s:
                found[pair] = LinkForecast(float(mean[at]), float(mean[at] / spread[at]), float(mean[at] * spread[at]))
        return found
