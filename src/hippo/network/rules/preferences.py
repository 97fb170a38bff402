"""What a preference over time, utilisation and egress cost asks for: a compromise, and where on the front it lies.

Work alone, (w, 0, 0), is judged by money: tokens less egress at its price. Any other preference is
an augmented Chebyshev scalarisation (Wierzbicki 1980; Steuer and Choo 1983) of three figures of an optimizer step:
seconds, idle share, egress in USD. Each is measured on the network at rest on a scale g from the front's best value, 0,
to its worst, 1: half by where it lies between the two, half by how many of the front's values are better (those of
plans lie in clusters, and by the distance alone most preferences would fall into the gaps). Then

    shortfall = max_i w_i g_i + RHO sum_i w_i g_i        (weights scaled to a sum of 1, none below FLOOR)

is least for the plan that is wanted: the one whose worst regret, weighted, is smallest. The linear reward
R = w1 R_eff + w2 R_util - w3 R_cost, which the agents are trained with, reaches only those plans that lie on the convex
hull of the front; with this one every plan that no other
beats (by more than ``RHO`` allows) is the best of some preference.

Letters: C configurations, H horizons of the forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hippo.decide.pareto import non_dominated, pareto_front
from hippo.network.plans.levers import pull
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.rules.view import View
from hippo.planners.base import Stop
from hippo.planners.exact.front import MARGIN, front_candidates
from hippo.planners.exact.search import Exact
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
Weights = tuple[float, float, float]
FRONT = "front"
"""``origin`` of a configuration that the search for the front proposed."""
SEARCH = Stop(time_limit_s=10.0)  # once per problem; most fronts are closed in 3 s
RHO, FLOOR = 1e-3, 1e-4
COUNTED = 0.5  # of the scale is by count; of 0, 1/4, 1/2, 3/4, 1 the one that covers most on 30 training networks
WORST = 100.0  # shortfall of what trains nothing
LIKED = 4  # plans of the front that join the cache for one preference


@dataclass(frozen=True, eq=False)
class FrontSpan:
    """The scales of seconds, idle share and USD of an optimizer step: of each the values of a front that differ,
    increasing."""

    values: tuple[Floats, Floats, Floats]

    @classmethod
    def of(cls, figures: Floats) -> FrontSpan:
        """That of the rows, (C, 3), that none beats."""
        front = figures[non_dominated(figures)]
        seconds, idle, usd = (_apart(column, each) for column, each in zip(front.T, (None, MARGIN, None), strict=True))
        return cls((seconds, idle, usd))

    def scaled(self, figures: Floats) -> Floats:
        """g of figures (..., 3): 0 at the best, 1 at the worst, below and beyond where a front does not reach."""
        found = [_scaled(values, figures[..., each]) for each, values in enumerate(self.values)]
        return np.stack(found, axis=-1)

    def shortfall(self, figures: Floats, weights: Weights) -> Floats:
        """How far figures (..., 3) stay behind what is wanted: (...), at most ``WORST``."""
        wanted = np.array(weights, dtype=np.float64)
        gaps = np.maximum(wanted / wanted.sum(), FLOOR) * self.scaled(figures)
        found: Floats = np.minimum(WORST, gaps.max(axis=-1) + RHO * gaps.sum(axis=-1))
        return found


def _apart(column: Floats, margin: float | None) -> Floats:
    """The values of a column, increasing, each more than a margin (None: ``MARGIN`` of itself) beyond the one before;
    the last is the largest."""
    ordered = np.sort(column)
    found = [ordered[0]]
    for each in ordered[1:]:
        if each > found[-1] + (MARGIN * abs(found[-1]) if margin is None else margin):
            found.append(each)
    return np.array([*found[:-1], ordered[-1]]) if len(found) > 1 else np.array([ordered[0], ordered[-1]])


def _scaled(values: Floats, column: Floats) -> Floats:
    """One scale, applied; where a front does not differ, by its own size."""
    best, width = values[0], values[-1] - values[0]
    width = width if width > 0.0 else abs(best) or 1.0
    distance = (column - best) / width
    counted = np.interp(column, values, np.linspace(0.0, 1.0, len(values))) if values[-1] > best else distance
    found: Floats = COUNTED * counted + (1.0 - COUNTED) * distance
    return found


_SPANS: WeakKeyDictionary[PlanCache, tuple[int, FrontSpan | None]] = WeakKeyDictionary()


def work_alone(weights: Weights) -> bool:
    """Whether a preference counts nothing but work."""
    return weights[1] == 0.0 and weights[2] == 0.0


@lru_cache(maxsize=8)
def front_of_problem(problem: Problem) -> PlanCache:
    """The plans of the front on the network at rest, no lever pulled; searched for once. Nothing is to be added."""
    cache = PlanCache(problem)
    for plan, _ in pareto_front(problem, (Exact(),), SEARCH, search=front_candidates).points:
        cache.add(plan, origin=FRONT)
    return cache


def span_of(cache: PlanCache) -> FrontSpan | None:
    """How far the front reaches with all that the cache knows, on the network at rest; None: there is no plan."""
    known = _SPANS.get(cache)
    if known is None or known[0] != len(cache):
        rows = [*_at_rest(front_of_problem(cache.problem)), *_at_rest(cache)]
        known = _SPANS[cache] = len(cache), FrontSpan.of(np.array(rows)) if rows else None
    return known[1]


def _at_rest(cache: PlanCache) -> Iterator[tuple[float, float, float]]:
    """Seconds, idle share and USD of a step of each configuration."""
    for index, each in enumerate(cache.configurations):
        score = cache.score(index)
        yield score.step_time_s / each.worth, 1.0 - score.utilization, score.egress_usd_per_step / each.worth


def figures(view: View, cache: PlanCache) -> Floats:
    """Seconds, idle share and USD of a step, (C, 3), in the mean over the rest of the run under the view's forecast;
    inf: it cannot run now. Where activations are compressed a step counts as what it is worth."""
    ahead, forecast = view.forecast.horizons, view.forecast
    epochs = np.arange(max(1, min(view.epochs_left, int(ahead[-1]) + 1)))
    share = np.array([np.interp(epochs, ahead, row).mean() for row in np.eye(len(ahead))])  # (H,)
    found = np.empty((len(cache), 3))
    for index, each in enumerate(cache.configurations):
        times = cache.step_time_s(index, forecast.bandwidth_bytes_per_s, forecast.latency_s, forecast.compute)
        pace = float(share @ (1.0 / times)) if np.isfinite(times[0]) else 0.0
        slower = forecast.compute[:, cache.domains_used(index)].mean(axis=1)
        busy = float(share @ np.where(np.isfinite(times), slower / times, 0.0)) if pace > 0.0 else 0.0
        seconds = 1.0 / (pace * each.worth) if pace > 0.0 else np.inf
        idle = 1.0 - min(1.0, cache.busy_share_s(index) * busy)
        found[index] = seconds, idle, cache.egress_usd_per_step(index) / each.worth
    return found


def shortfalls(view: View) -> Floats:
    """How far each configuration of the view's cache stays behind the preference, (C,); ``WORST``: it cannot run."""
    span = span_of(view.cache)
    assert span is not None, "a cache without a configuration"
    return span.shortfall(figures(view, view.cache), view.weights)


def propose(view: View) -> None:
    """Adds to the cache the plans of the front that come closest to the preference."""
    front, span = front_of_problem(view.cache.problem), span_of(view.cache)
    if span is None:
        return
    behind = span.shortfall(figures(view, front), view.weights)
    for index in np.argsort(behind, kind="stable")[:LIKED]:
        if behind[index] < WORST:
            view.cache.adopt(front, int(index))


def wanted(view: View, *, levers: bool = True) -> tuple[int, Floats]:
    """The configuration that comes closest to the preference (ties: the first), and the shortfalls of all, (C,).

    ``levers``: those of the best plan are pulled and join the cache first (some 100 ms).
    """
    behind = shortfalls(view)
    best, now = int(np.argmin(behind)), view.forecast
    if levers and behind[best] < WORST and np.isfinite(now.compute[0]).all():
        state = now.bandwidth_bytes_per_s[0], now.latency_s[0]
        if pull(view.cache, best, *state, compute=now.compute[0], usd_per_token=view.usd_per_token):
            behind = shortfalls(view)
            best = int(np.argmin(behind))
    return best, behind


def tokens_worth(view: View, tokens: float, busy_s: float, egress_usd: float, seconds: float, usual: float) -> float:
    """What a stretch of a run is worth under the preference, in tokens: ``usual`` ones where nothing falls short,
    none at a shortfall of 1, fewer than none beyond."""
    span = span_of(view.cache)
    assert span is not None, "a cache without a configuration"
    steps = tokens / view.cache.tokens_per_step
    row = (seconds / steps, 1.0 - busy_s / seconds, egress_usd / steps) if steps > 0 else (np.inf, 1.0, np.inf)
    return usual * (1.0 - float(span.shortfall(np.array(row), view.weights)))
