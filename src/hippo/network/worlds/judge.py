"""Runs of several methods on one world, judged by one measure: what perfect hindsight would have made of it.

Hindsight may use the configurations known at the start and plans made, with their levers, for states of the network
that come (``for_hindsight``): what it does depends on the world alone, whoever competes. A run that finds a plan which
hindsight lacks can do more, by ``TOLERANCE`` at most on worlds of the suite, and is then told to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from hippo.dynamics.forecast import Forecasts
from hippo.errors import InfeasibleError
from hippo.network.methods.in_motion import LOADED
from hippo.network.plans.candidates import best_under, fill, net_rates, plan_under, renew, trained_alone, worth_knowing
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Net, reachable
from hippo.network.rules.view import Action, View
from hippo.network.worlds.asking import Terms, Weights
from hippo.network.worlds.hindsight import hindsight
from hippo.network.worlds.play import DEFAULT_FORECAST, MethodRun, foresee, play, usd_per_token
from hippo.network.worlds.world import World, rollout
from hippo.planners.base import Progress
from hippo.problem.problem import Problem

Floats = NDArray[np.float64]
HINDSIGHT = "hindsight"
STATIC = "static"
WORTH_CAPTURING = 0.03
"""Where hindsight gains less than this share over ``static``, there is nothing to capture (facts: the right answer is
to keep, and never to lose)."""
TOLERANCE = 0.005
"""Share of its work by which a run may exceed hindsight: what plans must add to be kept (``candidates.GAIN``) and
states that lie between those that it plans for."""
ROUNDING = 1e-9
MOST_STATES, APART, LOAD_APART = 16, 0.3, 0.1
"""States of the links, and of the domains, that hindsight plans for, and how far apart they lie at least: the root of
the sum of squares of log bandwidths, and of the logs of how much slower domains are. Load that differs by less moves
shares of the batch (three times as far apart, runs do up to 1.9 % more than hindsight)."""
LEAST, GONE = 1e3, 1e3  # bytes/s that stand for a link that is down; times as slow, for a domain that is


@dataclass(frozen=True, eq=False)
class Scenario:
    """A world made ready: the plans worth knowing, what a token is worth, and the forecasts, the same for everybody."""

    world: World
    cache: PlanCache
    terms: Terms
    forecasts: Forecasts


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs on one world, hindsight's among them. ``places``: index in ``cache`` of each configuration of a run's own
    cache that it ran or moved to."""

    world: World
    terms: Terms
    cache: PlanCache
    runs: Mapping[str, MethodRun]
    places: Mapping[str, Mapping[int, int]]

    @property
    def gain(self) -> float | None:
        """What hindsight does more than ``static``, share of the work of ``static`` (inf: it did none); None: nobody
        played static."""
        if STATIC not in self.runs:
            return None
        static, best = self.runs[STATIC].work, self.runs[HINDSIGHT].work
        return best / static - 1.0 if static > 0 else inf if best > static else 0.0

    def of_hindsight(self, method: str) -> float | None:
        """Share of the work of hindsight; None: hindsight could do none."""
        best = self.runs[HINDSIGHT].work
        return self.runs[method].work / best if best > 0 else None

    def captured(self, method: str) -> float | None:
        """Share of what hindsight gains over ``static``; None: there is next to nothing to gain."""
        gain = self.gain
        if gain is None or gain < WORTH_CAPTURING:
            return None
        static = self.runs[STATIC].work
        return (self.runs[method].work - static) / (self.runs[HINDSIGHT].work - static)


def scenario_of(
    world: World,
    *,
    forecast: str = DEFAULT_FORECAST,
    weights: Weights = (1.0, 0.0, 0.0),
    cache: PlanCache | None = None,
    watch: Progress | None = None,
) -> Scenario:
    """A world made ready; ``cache``: one that is filled already.

    Raises
    ------
    InfeasibleError
        No plan of the problem fits.
    """
    if cache is None:
        cache = PlanCache(world.problem)
        fill(cache, watch=watch)
        plan_under(cache, world.bandwidth_bytes_per_s[0], world.latency_s[0])
    if len(cache) == 0:
        raise InfeasibleError(
            [f"no plan of {world.problem.model.name} fits {world.problem.cluster.name}: 'hippo plan' says why."]
        )
    return Scenario(world, cache, Terms(usd_per_token(world, cache), weights), foresee(world, forecast))


def judge(setting: Scenario, runs: Iterable[MethodRun]) -> Comparison:
    """The runs side by side with hindsight."""
    named = {run.method: run for run in runs}
    union = for_hindsight(setting.world, setting.cache)
    best = hindsight(rollout(setting.world, union), setting.terms.usd_per_token)
    script = _Script(best.path)
    known = play(setting.world, union, script, setting.terms, forecasts=setting.forecasts, share=True)
    _agree(known.work, best.work, "hindsight, played, does other work than it says")
    places = {name: _taken_over(union, run) for name, run in named.items()}
    places[HINDSIGHT] = {int(index): int(index) for index in np.unique(known.running)}
    return Comparison(setting.world, setting.terms, union, named | {HINDSIGHT: known}, places)


def for_hindsight(world: World, cache: PlanCache) -> PlanCache:
    """A copy of a cache, with what is worth knowing in states of the links that the world is truly in, what methods
    look for there (``renew``) while what is best to keep runs, and what they look for in those of its domains: states
    that lie furthest apart, found one after the other. Where local SGD is allowed, with plans of it for the sets of
    domains that can be reached, all or those that are not slowed: the ``MOST_STATES`` sets that come most often."""
    known, trials = cache.copy(share=True), cache.copy()
    nets = [Net(*each) for each in zip(world.bandwidth_bytes_per_s, world.latency_s, strict=True)]
    for problem in _in_reach(world):
        trained_alone(trials, problem)
    rates, load = np.log(np.maximum(world.bandwidth_bytes_per_s, LEAST)), np.log(np.minimum(world.compute, GONE))
    wanted = [0, *_furthest(rates, rates[0], APART, MOST_STATES - 1)]
    for index in worth_knowing(trials, [nets[at] for at in wanted]):
        known.adopt(trials, index)
    if not len(known):
        return known
    price = usd_per_token(world, cache if len(cache) else known)
    kept = int(
        np.argmax(net_rates(known, nets, price).sum(axis=0))
    )  # the best to keep: others pull its levers on the way
    for at in wanted[1:]:
        renew(known, nets[at], running=kept, price=price)
    for at in _furthest(load, np.zeros_like(load[0]), LOAD_APART, MOST_STATES):
        running = best_under(known, *nets[at], world.compute[at])
        if running >= 0:
            renew(known, nets[at], running=running, compute=world.compute[at], price=price)
    return known


def _furthest(states: Floats, known: Floats, least: float, most: int) -> Iterator[int]:
    """Rows of ``states`` that lie furthest from the one that is ``known``, and from those before, ``least`` or more."""
    apart = np.linalg.norm(states - known, axis=1)
    while most > 0 and apart.max() > least:
        found = int(np.argmax(apart))
        apart, most = np.minimum(apart, np.linalg.norm(states - states[found], axis=1)), most - 1
        yield found


def _in_reach(world: World) -> Iterator[Problem]:
    """The problem over the sets of domains that some link reaches, with those that are slowed and without them."""
    problem, bandwidth = world.problem, world.bandwidth_bytes_per_s
    if not problem.allow_local_sgd:
        return
    names = [domain.name for domain in problem.cluster.domains]
    touched = [[name in (link.source, link.destination) for name in names] for link in problem.cluster.links]
    reached = ((bandwidth > 0) @ np.array(touched, dtype=bool).reshape(-1, len(names))) & np.isfinite(world.compute)
    rows = np.concatenate([reached, reached & (world.compute <= LOADED)])
    epoch = np.tile(np.arange(world.epochs), 2)
    sets, first, often = np.unique(rows, axis=0, return_index=True, return_counts=True)
    for at in np.argsort(-often, kind="stable")[:MOST_STATES]:
        state = Net(bandwidth[epoch[first[at]]], world.latency_s[epoch[first[at]]])
        if sets[at].sum() > 1:
            yield reachable(problem, state, np.where(sets[at], 1.0, np.inf))


def _taken_over(union: PlanCache, run: MethodRun) -> dict[int, int]:
    """Adds what a run ran or moved to; its index in the cache of all."""
    touched = {int(each) for each in run.running} | {each.target for each in run.actions if each.target >= 0}
    places = {}
    for index in sorted(touched):
        places[index] = union.adopt(run.cache, index)
    return places


def _agree(played: float, said: float, fault: str) -> None:
    assert abs(played - said) <= ROUNDING * max(1.0, abs(said)), f"{fault}: {played} and {said}"


class _Script:
    """Perfect hindsight as a method: it answers what it knows to be best."""

    name = HINDSIGHT

    def __init__(self, path: tuple[Action, ...]) -> None:
        self.path = path

    def begin(self, view: View) -> int:
        """Where the best path begins."""
        return self.path[0].target

    def decide(self, view: View) -> Action:
        """The best path's answer."""
        return self.path[view.epoch]
