"""How a plan does when things move: its step time over noise and states of the links, or along a network trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.network import states_of, stationary_states
from hippo.plan.plan import Plan
from hippo.problem.links import Trace
from hippo.problem.problem import Problem
from hippo.simulate.batch import step_times
from hippo.simulate.lower import lower

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


def under_noise(problem: Problem, plan: Plan, *, noise: float, samples: int, seed: int) -> Spread:
    """Step times over ``samples`` draws: normal noise on every operation and transfer, links in a random state.

    The links move as ``cluster.dynamics`` says (Ornstein-Uhlenbeck, clipped); ``noise`` 0 leaves only their movement.
    """
    rng = np.random.default_rng(seed)
    states = stationary_states(problem.cluster, samples, rng)
    times = step_times(
        lower(problem, plan),
        bandwidth_bytes_per_s=states.bandwidth_bytes_per_s,
        latency_s=states.latency_s,
        noise=noise,
        samples=samples,
        rng=rng,
    )
    return Spread(times)


def along(problem: Problem, plan: Plan, trace: Trace) -> Spread:
    """Step times along a network trace: one per instant, weighted by how long its state holds."""
    states, share = states_of(trace)
    times = step_times(
        lower(problem, plan), bandwidth_bytes_per_s=states.bandwidth_bytes_per_s, latency_s=states.latency_s
    )
    return Spread(times, share)
