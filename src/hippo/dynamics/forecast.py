"""What a method is told about the network to come: telemetry joined with a forecast of bandwidth, latency and load.

A fresh value of now is taken as measured; a stale or missing one is the forecast itself. A link that is out now stays
out at first: the longer it has been out, the longer it is expected to be (the hazard of a Pareto law), and at a horizon
it counts with the bandwidth it would have times the probability that it is back.

Letters: L or T epochs, H horizons, E links, K domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.errors import UnknownNameError
from hippo.problem.cluster import Cluster
from hippo.problem.links import base_bandwidth, base_latency

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FORECASTS: Mapping[str, str] = MappingProxyType(
    {name: f"hippo.dynamics.{name}" for name in ("persistence", "kalman", "gru")}
)
"""Modules with ``predict`` and ``predict_all``."""
OUT_S = 600.0  # an outage that has just begun is expected to last about so long
LATENCY_MEMORY_S = 3600.0  # what differs from the usual latency fades with it
USUAL_WEIGHT = 8.0  # of the base latency in the usual one, in epochs
LEAST, MOST = 1e-3, 4.0  # of the ratio to the base that is forecast

HORIZONS = (0, 1, 4, 16, 64)
"""Epochs ahead at which the network is forecast: now, the next, and ever coarser."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The network to come, as expected now. ``horizons`` in epochs, increasing; the first is 0 (now)."""

    horizons: NDArray[np.int64]  # (H,)
    bandwidth_bytes_per_s: Floats  # (H, E)
    latency_s: Floats  # (H, E)
    compute: Floats  # (H, K) factor on the length of operations
    sd: Floats  # (H, E) standard deviation of the log bandwidth
    source: str = "persistence"


@dataclass(frozen=True, eq=False)
class Telemetry:
    """What was measured up to now. A value that did not arrive is the last known one, and not ``fresh``."""

    bandwidth_bytes_per_s: Floats  # (L, E)
    latency_s: Floats  # (L, E)
    compute: Floats  # (L, K)
    fresh: NDArray[np.bool_]  # (L, E)


class Forecaster(Protocol):
    """A module that forecasts series of log ratios."""

    def predict_all(self, history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
        """Mean and standard deviation (T, H, E) after every instant of a history (T, E)."""
        ...

    def predict(self, history: Floats, horizons: Ints, epoch_s: float) -> tuple[Floats, Floats]:
        """The last of these, (H, E)."""
        ...


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Forecasts after every epoch of a run."""

    horizons: Ints  # (H,)
    bandwidth_bytes_per_s: Floats  # (T, H, E)
    latency_s: Floats  # (T, H, E)
    compute: Floats  # (T, H, K)
    sd: Floats  # (T, H, E)
    source: str

    def at(self, epoch: int) -> Forecast:
        """What is told in one epoch."""
        return Forecast(
            self.horizons,
            self.bandwidth_bytes_per_s[epoch],
            self.latency_s[epoch],
            self.compute[epoch],
            self.sd[epoch],
            self.source,
        )


def forecast(
    telemetry: Telemetry,
    cluster: Cluster,
    epoch_s: float,
    *,
    method: str = "kalman",
    horizons: Sequence[int] = HORIZONS,
) -> Forecast:
    """The forecast after the last epoch of the telemetry.

    Raises
    ------
    UnknownNameError
        No forecast of that name.
    """
    return _joined(telemetry, cluster, epoch_s, method, np.asarray(horizons, dtype=np.int64), last=True).at(-1)


def forecast_all(
    telemetry: Telemetry,
    cluster: Cluster,
    epoch_s: float,
    *,
    method: str = "kalman",
    horizons: Sequence[int] = HORIZONS,
) -> Forecasts:
    """The forecasts after every epoch, as if nothing later had been measured; each equals that of ``forecast``."""
    return _joined(telemetry, cluster, epoch_s, method, np.asarray(horizons, dtype=np.int64), last=False)


def forecaster(name: str) -> Forecaster:
    """The forecast of that name; ``UnknownNameError`` lists them."""
    if name not in FORECASTS:
        raise UnknownNameError("forecast", name, FORECASTS)
    found: Forecaster = import_module(FORECASTS[name])
    return found


def _joined(
    telemetry: Telemetry, cluster: Cluster, epoch_s: float, method: str, horizons: Ints, *, last: bool
) -> Forecasts:
    kind, base = forecaster(method), base_bandwidth(cluster)
    measured, fresh = telemetry.bandwidth_bytes_per_s, telemetry.fresh
    told = fresh & (measured > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(told, np.log(np.maximum(measured, LEAST * base) / base), np.nan)
    slow = -np.log(np.maximum(telemetry.compute, LEAST))  # a straggler looks like a collapse
    if last:
        mean, sd = (each[None] for each in kind.predict(ratio, horizons, epoch_s))
        load = kind.predict(slow, horizons, epoch_s)[0][None]
    else:
        mean, sd = kind.predict_all(ratio, horizons, epoch_s)
        load = kind.predict_all(slow, horizons, epoch_s)[0]
    bandwidth = base * np.clip(np.exp(mean), LEAST, MOST)
    compute = np.exp(-load)
    rows = slice(-1, None) if last else slice(None)
    bandwidth *= _back(measured, fresh, epoch_s, horizons)[rows]
    now = horizons == 0
    bandwidth[:, now] = np.where((fresh & (measured >= 0))[rows, None], measured[rows, None], bandwidth[:, now])
    compute[:, now] = telemetry.compute[rows, None]
    sd = np.where(fresh[rows, None] & now[None, :, None], 0.0, sd)
    latency = _latency(telemetry, base_latency(cluster), epoch_s, horizons)[rows]
    return Forecasts(horizons, bandwidth, latency, compute, sd, method)


def _back(measured: Floats, fresh: NDArray[np.bool_], epoch_s: float, horizons: Ints) -> Floats:
    """Probability that a link carries anything at a horizon, (L, H, E): 1 for one that is not out."""
    out, since = np.zeros(measured.shape[1], dtype=bool), np.zeros(measured.shape[1])
    found = np.ones((len(measured), len(horizons), measured.shape[1]))
    ahead = np.asarray(horizons, dtype=np.float64)[:, None] * epoch_s
    for epoch, (values, told) in enumerate(zip(measured, fresh, strict=True)):
        out = np.where(told, values <= 0, out)
        since = np.where(out, since + epoch_s, 0.0)
        if out.any():
            found[epoch] = np.where(out, ahead / (OUT_S + since + ahead), 1.0)
    return found


def _latency(telemetry: Telemetry, base_s: Floats, epoch_s: float, horizons: Ints) -> Floats:
    """Latency (L, H, E): that of now fades towards the mean of what was seen."""
    seen = np.where(np.isnan(telemetry.latency_s), base_s, telemetry.latency_s)
    count = np.arange(1, len(seen) + 1)[:, None]
    usual = (np.cumsum(seen, axis=0) + USUAL_WEIGHT * base_s) / (count + USUAL_WEIGHT)
    fade = np.exp(-np.asarray(horizons, dtype=np.float64) * epoch_s / LATENCY_MEMORY_S)[None, :, None]
    found: Floats = usual[:, None] + fade * (seen - usual)[:, None]
    return found
