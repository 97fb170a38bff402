"""How much of the exact Pareto front one policy reaches by its preferences alone.

A point of the front (``decide.front``: step time, utilisation, egress cost) is covered when some preference makes the
method begin, on the network at rest, with a plan that is within ``CLOSE`` of it in each objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hippo.agents.entrants import Entrant
from hippo.decide.front import pareto_front
from hippo.decide.online.configuration import Book
from hippo.dynamics.links import base_bandwidth, base_latency
from hippo.envs.cross_domain.judge import Setting, prepare
from hippo.envs.cross_domain.play import Weights, steps
from hippo.envs.cross_domain.world import World
from hippo.planners.base import Stop
from hippo.planners.exact import Exact
from hippo.planners.front import front_candidates
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
    """Coverage on the network of a world at rest: of the plans begun with, and of all that the method knew of."""
    front = pareto_front(world.problem, (Exact(),), SEARCH, search=front_candidates)
    setting = prepare(at_rest(world))
    reached, known = reach(setting, entrant, preferences(parts))
    points = [score for _, score in front.points]
    return {
        "world": world.name,
        "domains": len(world.problem.cluster.domains),
        "closed": front.closed,
        "points": len(points),
        "reached": len(set(reached)),
        "covered": covered(points, [known.score(index) for index in set(reached)]),
        "known": covered(points, [known.score(index) for index in range(len(known))]),
        "front": [_figures(each) for each in points],
        "plans": [_figures(known.score(index)) for index in sorted(set(reached))],
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


def reach(setting: Setting, entrant: Entrant, wanted: Sequence[Weights]) -> tuple[list[int], Book]:
    """Where the method begins under each preference, and the book that holds it."""
    book, method, found = setting.book.copy(), entrant.make(), []
    for weights in wanted:
        terms = replace(setting.terms, weights=weights)
        first = next(steps(setting.world, book, method, terms, forecasts=setting.forecasts))
        found.append(first.running)
    return found, book


def _figures(score: Score) -> list[float]:
    return [score.step_time_s, score.egress_usd_per_step, score.utilization]
