"""A plan with the order that the dispatch policy makes of each of its pipelines; kept to, or the executor's hint.

The policy is asked here, once, with the seconds that the plan predicts. Where ranks ask it as they go (``dispatching``)
no order is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from hippo.dispatch.dispatch import made_by_policy
from hippo.errors import InputError
from hippo.plan.plan import WITH_ORDER, Plan, ScheduleChoice
from hippo.problem.problem import Problem
from hippo.schedule.schedule import letters_of
from hippo.simulate.ordering import ordering, ordering_key


def with_learned_order(
    problem: Problem, plan: Plan, *, source: str, say: Callable[[str], None] = lambda words: None
) -> Plan:
    """The plan, ordered by the policy that ships; pipelines alike are ordered once.

    ``say`` is told of each kind of pipeline whose order is not the policy's.

    Raises
    ------
    InputError
        The plan has several chunks on a stage.
    InfeasibleError
        One micro-batch does not fit into the memory of a stage.
    """
    if plan.interleave > 1:
        remedy = "run it with --order fixed, or give a plan with one chunk per stage"
        raise InputError("keeps its own order", source=source, key="interleave", value=plan.interleave, remedy=remedy)
    known: dict[Hashable, tuple[str, ...]] = {}
    pipelines = []
    for index, pipeline in enumerate(plan.pipelines):
        asked = ordering(problem, plan, index)
        key = ordering_key(asked)
        if key not in known:
            made = made_by_policy(asked)
            known[key] = letters_of(made.schedule)
            if made.why:
                say(f"pipeline {index + 1}: {made.why}")
        pipelines.append(replace(pipeline, warm_up=(), order=known[key]))
    return replace(plan, pipelines=tuple(pipelines), schedule=ScheduleChoice(WITH_ORDER))
