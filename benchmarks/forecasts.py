"""Errors of the forecasts against persistence: Kalman and recurrent, per family and horizon, unseen networks.

Each cell: mean absolute error of the log bandwidth over that of persistence, and in brackets the same of the root mean
square; below 1 is better. Worlds of the test split, links that are up; horizons in epochs (1 to 15 minutes each). The
last lines: how often the truth lies within 1.64 standard deviations (90 % asked), and CPU milliseconds of one
forecast of 30 links after 240 epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.forecast import FORECASTS, HORIZONS, forecaster
from hippo.network.worlds.generator import FAMILIES, make_world
from hippo.network.worlds.world import World
from hippo.problem.links import base_bandwidth

Floats = NDArray[np.float64]
SEEDS = 10
AHEAD = HORIZONS[1:]
LEAST = 1e-3  # of the base bandwidth
WITHIN = 1.64  # standard deviations of a normal distribution hold 90 %


def series(world: World) -> tuple[Floats, Floats]:
    """Log ratios as told (NaN: not told, or out) and as they are, each (T, E)."""
    ratio = world.bandwidth_bytes_per_s / base_bandwidth(world.problem.cluster)
    true = np.where(ratio > 0, np.log(np.maximum(ratio, LEAST)), np.nan)
    return np.where(world.told, true, np.nan), true


def errors(name: str, family: str) -> tuple[Floats, Floats, float]:
    """Mean absolute and root mean square error at each horizon, and the share of the truth within the doubt."""
    absolute, square, inside = np.zeros((SEEDS, len(AHEAD))), np.zeros((SEEDS, len(AHEAD))), []
    for seed in range(SEEDS):
        world = make_world(family, seed, split="test")
        told, true = series(world)
        mean, sd = forecaster(name).predict_all(told, np.array(AHEAD), world.epoch_s)
        for at, ahead in enumerate(AHEAD):
            error = true[ahead:] - mean[:-ahead, at]
            known = ~np.isnan(error)
            absolute[seed, at], square[seed, at] = np.abs(error[known]).mean(), (error[known] ** 2).mean()
            inside.append((np.abs(error) <= WITHIN * sd[:-ahead, at])[known].mean())
    return absolute.mean(axis=0), np.sqrt(square.mean(axis=0)), float(np.mean(inside))


def cpu_ms(name: str) -> float:
    """CPU milliseconds of one forecast."""
    world = next(
        found for seed in range(100) if len((found := make_world("transient", seed)).problem.cluster.links) >= 30
    )
    told, _ = series(world)
    forecaster(name).predict(told, np.array(HORIZONS), world.epoch_s)
    begin = process_time()
    for _ in range(20):
        forecaster(name).predict(told[:, :30], np.array(HORIZONS), world.epoch_s)
    return (process_time() - begin) / 20 * 1e3


def lines() -> Iterator[str]:
    """The table."""
    names = [name for name in FORECASTS if name != "persistence"]
    yield f"{'family':14s} {'forecast':12s}" + "".join(f"{f'{ahead} epochs':>16s}" for ahead in AHEAD)
    inside: dict[str, list[float]] = {name: [] for name in FORECASTS}
    ratios: dict[str, list[Floats]] = {name: [] for name in names}
    for family in FAMILIES:
        absolute, square, within = errors("persistence", family)
        inside["persistence"].append(within)
        yield f"{family:14s} {'persistence':12s}" + "".join(f"{each:16.3f}" for each in absolute)
        for name in names:
            own, own_square, within = errors(name, family)
            inside[name].append(within)
            ratios[name].append(np.stack([own / absolute, own_square / square]))
            yield f"{'':14s} {name:12s}" + _cells(ratios[name][-1])
    for name in names:
        yield f"{'all families':14s} {name:12s}" + _cells(np.mean(ratios[name], axis=0))
    for name in FORECASTS:
        yield f"{name:14s} {100 * np.mean(inside[name]):5.1f} % within the doubt; {cpu_ms(name):6.2f} ms a forecast"


def _cells(ratios: Floats) -> str:
    return "".join(f"{f'{one:.2f} ({other:.2f})':>16s}" for one, other in ratios.T)


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
