"""How much of the exact Pareto front one policy reaches by its preferences alone.

A point of the front (``decide.pareto``: step time, utilisation, egress cost) is covered when some preference makes the
method begin, on the network at rest, with a plan that is within ``CLOSE`` of it in each objective. Every preference is
asked of a method of its own that begins with the same cache, so no answer profits from another.

The exact front has plans without levers, so the method is asked without them first (``covered``). Then it is asked with
all levers, and measured against the exact front again (``covered_pulled``) and against the front of everything that was
known in any of these runs (``covered_levers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hippo.decide.pareto import front_of, pareto_front
from hippo.network.evaluate.entrants import Entrant
from hippo.network.hi_ppo.coordinator import HiPpo
from hippo.network.plans.plan_cache import PlanCache
from hippo.network.plans.replan import Replanner
from hippo.network.worlds.asking import Weights
from hippo.network.worlds.judge import Scenario, scenario_of
from hippo.network.worlds.play import steps
from hippo.network.worlds.world import World
from hippo.planners.base import Stop
from hippo.planners.exact.front import front_candidates
from hippo.planners.exact.search import Exact
from hippo.problem.links import base_bandwidth, base_latency
from hippo.score.score import Score

CLOSE = 0.01
PARTS = 10
"""Preferences are the points of the simplex in steps of a tenth: 66 of them."""
SEARCH = Stop(time_limit_s=10.0)
SHORT = 2  # epochs of the world at rest; only its begin is asked for


def preferences(parts: int = PARTS) -> list[Weights]:
    """Weights of time, utilisation and egress cost that add up to 1, evenly spread."""
    whole = [(a, b, parts - a - b) for a in range(parts + 1) for b in range(parts + 1 - a)]
    return [(a / parts, b / parts, c / parts) for a, b, c in whole]


def covered(front: Sequence[Score], reached: Sequence[Score]) -> float:
    """Share of the points of the front that are within ``CLOSE`` of something reached, in each objective."""
    return float(np.mean([any(_close(point, each) for each in reached) for point in front]))


def _close(point: Score, reached: Score) -> bool:
    return (
        reached.step_time_s <= (1 + CLOSE) * point.step_time_s
        and reached.egress_usd_per_step <= (1 + CLOSE) * point.egress_usd_per_step + 1e-12
        and reached.utilization >= (1 - CLOSE) * point.utilization
    )


def front_row(world: World, entrant: Entrant, *, parts: int = PARTS) -> dict[str, Any]:
    """Coverage on the network of a world at rest: of what the method begins with, without levers and with; of what its
    agents proposed, whatever verification made of it (``proposed``; ``held``: share of the preferences for which the
    proposal stood); and of all that it knew of without levers (``known``)."""
    front = pareto_front(world.problem, (Exact(),), SEARCH, search=front_candidates)
    setting, wanted = scenario_of(at_rest(world)), preferences(parts)
    with Replanner.of(world.problem).remembering():  # every method plans for this one state
        plain = reach(replace(setting, cache=without_levers(setting.cache)), entrant, wanted, levers=False)
        pulled = reach(setting, entrant, wanted)
    points, known = [score for _, score in front.points], pulled.scores(range(len(pulled.cache)))
    plans = [each.plan for each in pulled.cache.configurations]
    best = front_of(world.problem, list(zip(plans, known, strict=True)), None)
    return {
        "world": world.name,
        "domains": len(world.problem.cluster.domains),
        "closed": front.closed,
        "points": len(points),
        "reached": len(set(plain.begun)),
        "covered": covered(points, plain.scores(plain.begun)),
        "covered_pulled": covered(points, pulled.scores(pulled.begun)),
        "covered_levers": covered([score for _, score in best.points], pulled.scores(pulled.begun)),
        "points_levers": len(best.points),
        "proposed": covered(points, plain.scores(plain.proposed)),
        "held": float(np.mean([a == b for a, b in zip(plain.begun, plain.proposed, strict=True)])),
        "known": covered(points, plain.scores(range(len(plain.cache)))),
        "front": [_figures(each) for each in points],
        "plans": [_figures(each) for each in plain.scores(sorted(set(plain.begun)))],
    }


def at_rest(world: World) -> World:
    """Two epochs of the network of a world, nothing moving."""
    cluster = world.problem.cluster
    return replace(
        world,
        name=f"{world.name} at rest",
        bandwidth_bytes_per_s=np.tile(base_bandwidth(cluster), (SHORT, 1)),
        latency_s=np.tile(base_latency(cluster), (SHORT, 1)),
        compute=np.ones((SHORT, len(cluster.domains))),
        told=np.ones((SHORT, len(cluster.links)), dtype=bool),
    )


@dataclass(frozen=True, eq=False)
class Reached:
    """Where a method begins under each of some preferences, and what its agents proposed: indices in ``cache``, which
    holds all that it knew of under any of them."""

    cache: PlanCache
    begun: tuple[int, ...]
    proposed: tuple[int, ...]

    def scores(self, indices: Iterable[int]) -> list[Score]:
        """Those of configurations, each once."""
        return [self.cache.score(index) for index in dict.fromkeys(indices)]


def reach(setting: Scenario, entrant: Entrant, wanted: Sequence[Weights], *, levers: bool = True) -> Reached:
    """Asks the method for a start under each preference; without ``levers`` it makes no new ones, where it can be told
    so. A method that does not tell what was proposed proposed what it begins with."""
    union, begun, proposed = setting.cache.copy(share=True), [], []
    for weights in wanted:
        cache, method = setting.cache.copy(share=True), entrant.make()
        if not levers and isinstance(method, HiPpo):
            method.settings = replace(method.settings, fresh=False)
        terms = replace(setting.terms, weights=weights)
        first = next(steps(setting.world, cache, method, terms, forecasts=setting.forecasts))
        places = [union.adopt(cache, index) for index in range(len(cache))]
        account = getattr(method, "account", None)
        begun.append(places[first.running])
        proposed.append(places[first.running if account is None else account.proposal.target])
    return Reached(union, tuple(begun), tuple(proposed))


def without_levers(cache: PlanCache) -> PlanCache:
    """The configurations of a cache without a lever pulled."""
    found = PlanCache(cache.problem)
    for index, each in enumerate(cache.configurations):
        if not each.lever:
            found.adopt(cache, index)
    return found


def _figures(score: Score) -> list[float]:
    return [score.step_time_s, score.egress_usd_per_step, score.utilization]
