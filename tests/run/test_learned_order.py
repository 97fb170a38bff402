"""The order of the policy in a plan: the policy's own, sound, the rest of the plan as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.dispatch.dispatch import made_by_policy
from hippo.errors import InputError
from hippo.plan.check import order_flaws
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.run.learned_order import with_learned_order
from hippo.schedule.schedule import letters_of, order_of
from hippo.simulate.ordering import ordering

from .worlds import PLANS, problem

SPREAD = {"latency_s": 0.02}


@pytest.mark.parametrize("name", [name for name, (_, plan) in PLANS.items() if plan.interleave == 1])
def test_each_pipeline_gets_the_order_that_the_policy_makes_of_it(name: str) -> None:
    model, plan = PLANS[name]
    asked = problem(model, **SPREAD)
    plan = replace(plan, interleave=1, schedule=ScheduleChoice("1f1b"))
    own = with_learned_order(asked, plan, source="plan.json")
    for index, (before, after) in enumerate(zip(plan.pipelines, own.pipelines, strict=True)):
        assert not list(order_flaws(own, after))
        assert after.order == letters_of(made_by_policy(ordering(asked, plan, index)).schedule)
        assert replace(after, order=(), warm_up=()) == replace(before, order=(), warm_up=())
        assert not order_of(own, after).fused


def test_several_chunks_keep_their_order() -> None:
    model, plan = PLANS["stages"]
    several: Plan = replace(plan, interleave=2, schedule=ScheduleChoice("interleaved"))
    with pytest.raises(InputError, match="interleave.*--order fixed"):
        with_learned_order(problem(model), several, source="plan.json")
