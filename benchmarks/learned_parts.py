"""What each learned part of the queue's index adds: mean completion with it over mean completion without it.

Windows of the last 30 % of philly_open.csv at their own load and at 1, 0.85 and 0.7, with the trace before them as
past, and traces that nothing was learned from, without a past. Parts: the network of the estimate, and all of it
(against one known distribution of durations).
Intervals: 95 %; of a window by bootstrap over days of arrival, below by Student's t over windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from _data import data  # type: ignore[import-not-found]
from hippo.intervals import interval
from hippo.jobs.engine.play import play
from hippo.jobs.learned.state import LearnedSetup
from hippo.jobs.learned.weights import KeyWeights, shipped
from hippo.jobs.policies.learned import LEARNED
from hippo.jobs.settings import ReplayRules
from hippo.jobs.traces.load import load_trace
from hippo.jobs.workload import JobWorkload
from jobs import LOADS, SITE, _others, completion_s, one_distribution, ratio  # type: ignore[import-not-found]

PARTS = ((0.7, 0.8), (0.8, 0.9), (0.9, 1.0))


@dataclass(frozen=True, eq=False)
class Case:
    """What is replayed."""

    name: str
    workload: JobWorkload
    past: JobWorkload | None
    rules: ReplayRules


def cases() -> Iterator[Case]:
    """Windows of the trace, then others."""
    trace = load_trace(data("traces/philly_open.csv.gz")).workload
    for first, last in PARTS:
        window, past = trace.part(first, last), trace.part(0.0, first)
        for load in LOADS:
            chosen = window if load is None else window.stretched(window.load(SITE) / load)
            told = "as it is" if load is None else f"load {load:g}"
            yield Case(f"Philly {first:.0%} to {last:.0%}, {told}", chosen, past, ReplayRules())
    for name, workload, rules in _others(trace):
        yield Case(name, workload, None, rules)


def without_network() -> KeyWeights:
    """The past of like jobs is counted and chained."""
    own = shipped()
    silent = {name: np.zeros_like(getattr(own, name)) for name in ("hazard_last", "hazard_last_bias")}
    return own._replace(**silent)


LESS: dict[str, Callable[[], KeyWeights]] = {
    "the network": without_network,
    "all that is learned": one_distribution,
}


def main() -> None:
    """Prints a row for each case, and the mean over cases."""
    print("mean completion of what ships over that without a part; below 1: the part helps")
    print(f"  {'case':36s}" + "".join(f"{name:>36s}" for name in LESS))
    logs: dict[str, list[float]] = {name: [] for name in LESS}
    for case in cases():
        whole = _took(case, shipped())
        told = f"  {case.name:36s}"
        for name, made in LESS.items():
            found, low, high = ratio(whole, _took(case, made()), case.workload, np.random.default_rng(0))
            logs[name].append(float(np.log(found)))
            told += f"{f'{found:.3f} ({low:.3f} .. {high:.3f})':>36s}"
        print(told, flush=True)
    for name, each in logs.items():
        over = interval(each)
        assert over is not None
        told = ", ".join(f"{np.exp(value):.4f}" for value in (over.mean, over.low, over.high))
        print(f"{name}: over {len(each)} cases, geometric mean and 95 %: {told}")


def _took(case: Case, weights: KeyWeights) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    ledger = play(case.workload, SITE, LEARNED, case.rules, learner=LearnedSetup(weights, case.past))
    took: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = completion_s(ledger, case.workload)
    return took


if __name__ == "__main__":
    main()
