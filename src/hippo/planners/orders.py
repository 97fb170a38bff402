"""Orders of operations made for the pipelines of a plan: by the generator that knows each link.

Backwards are split: input gradients go on at once, weight gradients fill what would be idle.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from hippo.errors import InfeasibleError
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.problem.problem import Problem
from hippo.schedule.generators.cross_domain import RULES, generate
from hippo.schedule.methods import checked
from hippo.schedule.schedule import letters_of
from hippo.simulate.ordering import ordering, ordering_key

METHOD = "cross-domain"
MOST_OPERATIONS = 100_000  # of one pipeline; beyond, what fills and drains is too little of the step to matter

Letters = tuple[str, ...]
"""One text of F, B, W per stage, as in ``Pipeline.order``."""


def orders(problem: Problem, plan: Plan, *, rules: int | None = None) -> tuple[Letters, ...] | None:
    """An order for each pipeline, replicas alike ordered once; None: one is too long, or has no room.

    ``rules``: how many of the generator's are tried (None: all).
    """
    known: dict[Hashable, Letters] = {}
    found: list[Letters] = []
    for index, pipeline in enumerate(plan.pipelines):
        if 3 * len(pipeline.stages) * pipeline.num_micro_batches > MOST_OPERATIONS:
            return None
        asked = ordering(problem, plan, index)
        key = ordering_key(asked)
        if key not in known:
            try:
                known[key] = letters_of(checked(METHOD, asked, generate(asked, rules=RULES[:rules])))
            except InfeasibleError:
                return None
        found.append(known[key])
    return tuple(found)


def ordered(problem: Problem, plan: Plan) -> Plan | None:
    """The plan with these orders; None: see ``orders``."""
    found = orders(problem, plan)
    if found is None:
        return None
    lines = (replace(line, warm_up=(), order=order) for line, order in zip(plan.pipelines, found, strict=True))
    return replace(plan, pipelines=tuple(lines), schedule=ScheduleChoice("best"))
