"""Two independent engines must agree: the clear one (SimPy) and the quick one (numba).

Worlds of bare numbers (``worlds``: shared links, relays, caps, groups, gathers, run-ahead, interleaving) and whole
plans on invented clusters (``tests.strategies``: replicas that contend, relays, uneven cuts, rings, local SGD).
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulate.worlds import random_program
from tests.strategies import planned

from hippo.plan.plan import Plan, ScheduleChoice
from hippo.problem.problem import Problem
from hippo.simulate import fast, reference
from hippo.simulate.lower import lower
from hippo.simulate.program import Program


@given(st.integers(0, 10**6))
def test_agrees_with_fast_on_random_worlds(seed: int) -> None:
    agree(random_program(seed))


@given(planned(), st.sampled_from(["as drawn", "interleaved", "cross-domain", "own warm-up"]), st.integers(1, 24))
def test_agrees_with_fast_on_plans(case: tuple[Problem, Plan], schedule: str, limit: int) -> None:
    problem, plan = case
    agree(lower(problem, with_schedule(plan, schedule, limit)))


def agree(program: Program) -> None:
    """Both engines tell the same story, column by column."""
    clear, quick = reference.play(program), fast.play(program)
    for field in fields(clear):
        one, two = getattr(clear, field.name), getattr(quick, field.name)
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9, err_msg=field.name)
    assert fast.step_time(program) == pytest.approx(clear.step_time_s, rel=1e-12)


def with_schedule(plan: Plan, schedule: str, limit: int) -> Plan:
    """The plan under another schedule; two chunks per stage where every stage has the layers for it."""
    if schedule in ("interleaved", "cross-domain"):  # warm-ups that were drawn go with the schedule that was drawn
        plan = replace(plan, pipelines=tuple(replace(line, warm_up=()) for line in plan.pipelines))
    if schedule == "interleaved":
        deep = all(stage.num_layers >= 2 for line in plan.pipelines for stage in line.stages)
        return replace(plan, schedule=ScheduleChoice("interleaved"), interleave=2 if deep else 1)
    if schedule == "cross-domain":
        return replace(plan, schedule=ScheduleChoice("cross-domain", limit))
    if schedule == "own warm-up":
        lines = tuple(
            replace(
                line,
                warm_up=tuple(
                    min(line.num_micro_batches, len(line.stages) - s + limit % 3) for s in range(len(line.stages))
                ),
            )
            for line in plan.pipelines
        )
        return replace(plan, schedule=ScheduleChoice("cross-domain"), pipelines=lines)
    return plan


@given(st.integers(0, 10**6))
def test_agrees_with_fast_under_another_state_of_the_links(seed: int) -> None:
    program, rng = random_program(seed), np.random.default_rng(seed)
    links = len(program.link_latency_s)
    state = {"bandwidth_bytes_per_s": rng.uniform(0.3, 4, links), "latency_s": rng.uniform(0.01, 1, links)}
    assert fast.step_time(program, **state) == pytest.approx(reference.play(program, **state).step_time_s, rel=1e-9)
