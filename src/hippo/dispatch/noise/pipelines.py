"""The pipelines of a plan under fluctuation, each played alone by a dispatcher: fixed order, hint, or the policy.

``ordering`` says what a pipeline is as a problem of its own: links granted as a whole, the agreement inside domains
after the last operation, that between domains and the optimizer left out. ``batch.step_times`` plays the whole plan,
in fixed order.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from hippo.dispatch.guard import followed
from hippo.dispatch.noise.fluctuation import Fluctuation, MakespanSpread, spread
from hippo.dispatch.noise.hindsight import floors
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.errors import InputError, UnknownNameError
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.simulate.lower import orders_of
from hippo.simulate.ordering import ordering, ordering_key

DISPATCHERS = ("fixed", "hint", "learned")
"""The plan's order kept to; as a hint (a rank runs what is ready and comes first); the shipped policy."""


@dataclass(frozen=True, eq=False)
class PlayedPipeline:
    """Pipelines that are alike, on the same n plays. Seconds."""

    pipelines: tuple[int, ...]  # their places in the plan
    played: MakespanSpread  # as the dispatcher runs them
    planned: MakespanSpread  # in the plan's order, kept to
    floor_s: float  # mean of what no order could be below, with all draws known
    followed: str | None  # of the dispatcher learned: as ``dispatch.guard.followed``


def dispatched(
    problem: Problem, plan: Plan, dispatcher: str, fluctuation: Fluctuation, *, samples: int, seed: int
) -> tuple[PlayedPipeline, ...]:
    """Every kind of pipeline of a plan, in the order of their first ones.

    Raises
    ------
    UnknownNameError
        No dispatcher has that name.
    InputError
        The plan has several chunks on a stage: no dispatcher knows those.
    InfeasibleError
        One micro-batch does not fit into the memory of a stage.
    """
    if dispatcher not in DISPATCHERS:
        raise UnknownNameError("dispatcher", dispatcher, DISPATCHERS, source="--dispatch")
    if plan.interleave > 1:
        remedy = "leave out --dispatch, or give a plan with one chunk per stage"
        raise InputError("is played in its own order only", key="interleave", value=plan.interleave, remedy=remedy)
    alike: dict[Hashable, list[int]] = {}
    for index, pipeline in enumerate(plan.pipelines):
        key = ordering_key(ordering(problem, plan, index)), pipeline.order, pipeline.warm_up
        alike.setdefault(key, []).append(index)
    found, orders = [], orders_of(problem, plan)
    for indices in alike.values():
        asked, order = ordering(problem, plan, indices[0]), orders[indices[0]]
        who, planned = None, spread(asked, order, fluctuation, samples=samples, seed=seed)
        played = planned
        if dispatcher == "hint":
            played = spread(asked, order, fluctuation, samples=samples, seed=seed, by_hint=True)
        elif dispatcher == "learned":
            played = spread_learned(asked, fluctuation, samples=samples, seed=seed)
            who = followed(asked, level=fluctuation.deviation)
        floor = floors(asked, fluctuation, samples=samples, rng=np.random.default_rng(seed))
        found.append(PlayedPipeline(tuple(indices), played, planned, float(floor.mean()), who))
    return tuple(found)
