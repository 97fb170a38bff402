"""Published step times against played ones: the noise of operations under which a pipeline swings as real runs did.

Of each run of data/mlperf_step_fluctuation.csv (or of what its columns say in the middle) the settings of
``Fluctuation`` are fitted: what each operation has for itself, what its rank shares, how long that lasts, how rare and
how long stalls are. Then the pipeline is played under other draws than those of the fit, and its coefficient of
variation, 99th percentile over the median, lag-1 autocorrelation and quartiles stand beside the run's. 8 ranks and at
most 32 micro-batches, 1F1B in fixed order, F B W = 1 1.05 0.75, no links to speak of. `--rows N` fits N runs only.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from _data import data  # type: ignore[import-not-found]
from hippo.dispatch.noise.fluctuation import Fluctuation, makespans
from hippo.dispatch.noise.fluctuation_grid import TIMES
from hippo.dispatch.noise.presets import MEASURED, RESTLESS
from hippo.schedule.methods import generate
from hippo.schedule.problem import ScheduleProblem

Floats = NDArray[np.float64]

RANKS, MOST_MICRO_BATCHES = 8, 32
FITTED, JUDGED = 8000, 16000  # steps that the fit plays, and that are reported
FIT_SEED, JUDGE_SEED = 1, 2
HALF = 0.5  # share of the variance of an ordinary step that operations have each for themselves
QUARTILES = 1.349  # of a normal number, in standard deviations
MOST_TRIES = 60


@dataclass(frozen=True)
class Swing:
    """How step times swing."""

    variation: float  # standard deviation over mean
    p99: float  # over the median
    autocorrelation: float  # of a step and the next
    quartiles: float  # their distance over the median

    @staticmethod
    def of(steps: Floats) -> Swing:
        """Of step times (n,) one after the other."""
        low, middle, high, last = np.percentile(steps, (25, 50, 75, 99))
        lag = float(np.corrcoef(steps[:-1], steps[1:])[0, 1])
        return Swing(float(steps.std() / steps.mean()), float(last / middle), lag, float((high - low) / middle))

    def far(self, other: Swing) -> float:
        """Distance of the other from this one: logarithms of the swings, and autocorrelations in tenths."""
        own, its = (np.array([each.variation, each.p99 - 1, each.quartiles]) for each in (self, other))
        apart = np.log(np.maximum(its, 1e-6) / np.maximum(own, 1e-6)) * (1.0, 1.0, 0.3)  # quartiles are set apart
        return float(np.hypot(np.linalg.norm(apart), (other.autocorrelation - self.autocorrelation) / 0.2))


@dataclass(frozen=True)
class Run:
    """A published run."""

    name: str
    micro_batches: int  # of a pipeline in a step, one sequence each
    swing: Swing


def runs() -> Iterator[Run]:
    """All of them."""
    with data("mlperf_step_fluctuation.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            pipelines = int(row["gpus"]) / (int(row["tp"]) * int(row["pp"]) * int(row["cp"] or 1))
            swing = Swing(
                float(row["cv"]), float(row["p99"]), float(row["lag1_autocorr"]), float(row["p75"]) - float(row["p25"])
            )
            yield Run(f"{row['round']} {row['system']} {row['run']}", round(int(row["gbs"]) / pipelines), swing)


def usual(found: Sequence[Run]) -> Run:
    """A run that has the median of all runs in each figure."""
    columns = np.array([list(vars(each.swing).values()) for each in found])
    return Run("median of each figure", MOST_MICRO_BATCHES, Swing(*map(float, np.median(columns, axis=0))))


def restless(found: Sequence[Run]) -> Run:
    """The run whose variation is at the 90th percentile."""
    by_variation = sorted(found, key=lambda each: each.swing.variation)
    return replace(by_variation[round(0.9 * (len(found) - 1))], micro_batches=MOST_MICRO_BATCHES)


class Pipeline:
    """What is played: as many ranks as the runs have, in 1F1B."""

    def __init__(self, micro_batches: int) -> None:
        self.problem = ScheduleProblem.uniform(RANKS, min(micro_batches, MOST_MICRO_BATCHES), TIMES)
        self.schedule = generate("1f1b", self.problem)

    def steps(self, noise: Fluctuation, *, samples: int = JUDGED, seed: int = JUDGE_SEED) -> Floats:
        """Times (n,) of steps one after the other."""
        return makespans(self.problem, self.schedule, noise, samples=samples, rng=np.random.default_rng(seed))


def fitted(run: Run, own: float = HALF) -> Fluctuation:
    """The settings under which the pipeline swings as a run does; ``own``: see ``HALF``.

    The quartiles say how much an ordinary step swings; stalls make up the rest of the variation and the tail; memory
    makes the autocorrelation, of ordinary steps and of stalls alike.
    """
    pipeline = Pipeline(run.micro_batches)
    asked = run.swing

    def ordinary(noise: Fluctuation) -> float:
        return Swing.of(pipeline.steps(noise, samples=FITTED, seed=FIT_SEED)).quartiles

    # What each part alone makes of a step is proportional to it, as long as it is small; both together need a scale.
    wanted = min(asked.quartiles, QUARTILES * asked.variation)
    alone = ordinary(Fluctuation(0.01)) / 0.01, ordinary(Fluctuation(0.0, rank_level=0.01)) / 0.01
    level, rank_level = wanted * own**0.5 / alone[0], wanted * (1 - own) ** 0.5 / alone[1]
    scale = wanted / ordinary(Fluctuation(level, rank_level=rank_level))
    level, rank_level = level * scale, rank_level * scale

    def noise(given: Floats) -> Fluctuation:
        memory, share, stall = np.tanh(given[0]), np.exp(given[1]), np.exp(given[2])
        return Fluctuation(
            level,
            rank_level=rank_level,
            rank_memory=float(np.clip(memory, -0.99, 0.99)),
            stall_share=float(np.clip(share, 1e-6, 0.2)),
            stall_level=float(np.clip(stall, 0.0, 20.0)),
        )

    def far(given: Floats) -> float:
        return asked.far(Swing.of(pipeline.steps(noise(given), samples=FITTED, seed=FIT_SEED)))

    rest = max(asked.variation**2 - (wanted / QUARTILES) ** 2, 1e-10)
    memories = [float(np.arctanh(np.clip(each * asked.autocorrelation, -0.9, 0.95))) for each in (1.3, 4.0)]
    starts = [
        np.array([memory, np.log(share / RANKS), np.log((rest / (2 * share)) ** 0.5 * 1.3)])
        for share in (0.003, 0.008, 0.015, 0.03)  # of steps that stall: the tail lies behind the 99th percentile or not
        for memory in memories
    ]
    start = min(starts, key=far)
    tries: dict[str, Any] = {"maxfev": MOST_TRIES, "xatol": 0.01, "fatol": 0.005}
    tries["initial_simplex"] = start + np.vstack([np.zeros(3), 0.25 * np.eye(3)])
    return noise(minimize(far, start, method="Nelder-Mead", options=tries).x)


@dataclass(frozen=True)
class Fit:
    """A run, the settings, and how the pipeline swings under them."""

    run: Run
    noise: Fluctuation
    played: Swing


def fit(run: Run, own: float = HALF) -> Fit:
    """The fit, played under other draws than those that it was made on."""
    noise = fitted(run, own)
    return Fit(run, noise, Swing.of(Pipeline(run.micro_batches).steps(noise)))


def line(name: str, swing: Swing, noise: Fluctuation | None = None) -> str:
    """A row of a table."""
    told = f"  {name:34s} {100 * swing.variation:7.2f} {swing.p99:7.3f} {swing.autocorrelation:6.2f}"
    told += f" {100 * swing.quartiles:7.2f}"
    if noise is None:
        return told
    return (
        f"{told}   {100 * noise.level:6.2f} {100 * noise.rank_level:6.2f} {noise.rank_memory:6.2f}"
        f" {100 * noise.stall_share:6.2f} {100 * noise.stall_level:7.1f}"
    )


HEAD = (
    f"  {'':34s} {'cv %':>7s} {'p99':>7s} {'lag 1':>6s} {'q3-q1 %':>7s}"
    f"   {'own %':>6s} {'rank %':>6s} {'memory':>6s} {'stalls':>6s} {'long %':>7s}"
)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=None, help="fit so many runs only, evenly chosen")
    given = parser.parse_args()
    found = list(runs())
    print(f"{len(found)} runs. own: of each operation; rank: shared by its rank in a step; stalls: % of a rank's steps")
    print("presets (what ships), against the runs that they stand for\n" + HEAD)
    for run, preset in ((usual(found), MEASURED), (restless(found), RESTLESS)):
        print(line(run.name[-34:], run.swing))
        print(line("  as the preset plays", Swing.of(Pipeline(MOST_MICRO_BATCHES).steps(preset)), preset))
        for own in (0.0, 0.5, 1.0):
            each = fit(run, own)
            print(line(f"  fitted, {own:.0%} of operations' own", each.played, each.noise), flush=True)
    chosen = found if given.rows is None else found[:: max(1, len(found) // given.rows)]
    print("\nsingle runs\n" + HEAD)
    fits = []
    for run in chosen:
        fits.append(fit(run))
        print(line(run.name[-34:], run.swing))
        print(line("  played", fits[-1].played, fits[-1].noise), flush=True)
    print("\n".join(errors(fits)))


def errors(fits: Sequence[Fit]) -> Iterator[str]:
    """How far the played steps lie from the runs."""
    for name, errors_ in (
        ("coefficient of variation", [each.played.variation / each.run.swing.variation - 1 for each in fits]),
        ("99th percentile over the median", [each.played.p99 / each.run.swing.p99 - 1 for each in fits]),
    ):
        sizes = [100 * abs(each) for each in errors_]
        within = sum(each <= 10.0 for each in sizes)
        yield (
            f"{name}: off by {statistics.median(sizes):.2f} % in the median, {max(sizes):.1f} % at most; within 10 % "
            f"in {within} of {len(sizes)}"
        )
    lags = [abs(each.played.autocorrelation - each.run.swing.autocorrelation) for each in fits]
    yield (
        f"autocorrelation: off by {statistics.median(lags):.3f} in the median, {max(lags):.2f} at most; within 0.05 in "
        f"{sum(each <= 0.05 for each in lags)} of {len(lags)}"
    )


if __name__ == "__main__":
    main()
