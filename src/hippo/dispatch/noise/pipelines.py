"""The pipelines of a plan under fluctuation, each played alone by a dispatcher: fixed order, hint, or the policy.

``ordering`` says what a pipeline is as a problem of its own: links granted as a whole, the agreement inside domains
after the last operation, that between domains and the optimizer left out. ``batch.step_times`` plays the whole plan,
in fixed order.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hippo.dispatch.guard import followed
from hippo.dispatch.network import policy_of, read
from hippo.dispatch.noise.fluctuation import Fluctuation, MakespanSpread, spread
from hippo.dispatch.noise.hindsight import floors
from hippo.dispatch.noise.learned_play import spread_learned
from hippo.errors import InputError, UnknownNameError
from hippo.plan.plan import Plan
from hippo.problem.problem import Problem
from hippo.schedule.problem import ScheduleProblem
from hippo.simulate.lower import orders_of
from hippo.simulate.ordering import ordering, ordering_key

DISPATCHERS = ("fixed", "hint", "learned")
"""The plan's order kept to; as a hint (a rank runs what is ready and comes first); the shipped policy. In place of the
last the file of a policy of ``hippo train``, which ends in ``.npz``, may be named."""


@dataclass(frozen=True, eq=False)
class PlayedPipeline:
    """Pipelines that are alike, on the same n plays. Seconds."""

    pipelines: tuple[int, ...]  # their places in the plan
    played: MakespanSpread  # as the dispatcher runs them
    planned: MakespanSpread  # in the plan's order, kept to
    floor_s: float  # mean of what no order could be below, with all draws known
    followed: str | None  # of the dispatcher learned: as ``dispatch.guard.followed``


class Pipelines(NamedTuple):
    """What a policy learns on before a plan runs."""

    problems: tuple[ScheduleProblem, ...]  # each kind of its pipelines
    fluctuation: Fluctuation  # that is told


def check_dispatcher(name: str, *, source: str = "--dispatch") -> bool:
    """Whether a dispatcher is a policy.

    Raises ``UnknownNameError`` for a name that is none, ``InputError`` for a file that is missing or no policy.
    """
    if name.endswith(".npz"):
        read(name)
    elif name not in DISPATCHERS:
        raise UnknownNameError("dispatcher", name[:60], DISPATCHERS, source=source, other=", or a FILE.npz")
    return name not in ("fixed", "hint")


def problems_of(problem: Problem, plan: Plan, *, source: str) -> tuple[ScheduleProblem, ...]:
    """Each kind of pipeline of a plan as a problem of its own, seconds; ``InputError`` where there is nothing to
    decide: all of them of one stage, or several chunks on a stage. ``source``: the plan's file."""
    _refuse_chunks(plan, source=source)
    if all(len(line.stages) == 1 for line in plan.pipelines):
        remedy = "give a plan with two stages or more"
        raise InputError(
            "has nothing to dispatch", source=source, key="pipelines", value="one stage each", remedy=remedy
        )
    every = [ordering(problem, plan, index) for index in range(len(plan.pipelines))]
    return tuple({ordering_key(each): each for each in every}.values())


def _refuse_chunks(plan: Plan, *, source: str | None = None) -> None:
    if plan.interleave > 1:
        remedy = "give a plan with one chunk per stage"
        remedy = f"leave out --dispatch, or {remedy}" if source is None else remedy
        told = "is played in its own order only"
        raise InputError(told, source=source, key="interleave", value=plan.interleave, remedy=remedy)


def dispatched(
    problem: Problem, plan: Plan, dispatcher: str, fluctuation: Fluctuation, *, samples: int, seed: int
) -> tuple[PlayedPipeline, ...]:
    """Every kind of pipeline of a plan, in the order of their first ones.

    Raises
    ------
    UnknownNameError
        No dispatcher has that name.
    InputError
        A file is missing, or no policy; the plan has several chunks on a stage: no dispatcher knows those.
    InfeasibleError
        One micro-batch does not fit into the memory of a stage.
    """
    weights = policy_of(dispatcher) if check_dispatcher(dispatcher) else None
    _refuse_chunks(plan)
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
        elif weights is not None:
            played = spread_learned(asked, fluctuation, weights=weights, samples=samples, seed=seed)
            who = followed(asked, weights, level=fluctuation.deviation)
        floor = floors(asked, fluctuation, samples=samples, rng=np.random.default_rng(seed))
        found.append(PlayedPipeline(tuple(indices), played, planned, float(floor.mean()), who))
    return tuple(found)
