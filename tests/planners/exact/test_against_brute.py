"""Two ways to the optimum must agree: the exact search and the enumeration of every plan, on random small problems."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.planners.tiny import random_problem

from hippo.plan.plan import ScheduleChoice
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.brute.brute import Brute
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.registry import PLANNERS, planner
from hippo.score.judge import evaluate

QUICK, ALL = 5, 40  # seeds of `make test`, and of `make test-all`
COUNTS = (QUICK, pytest.param(ALL, marks=pytest.mark.slow))
SAME = 1e-9  # relative: both score with the same simulator
STOP = Stop(600.0)
OTHERS = tuple(name for name in PLANNERS if name not in ("brute", "exact", "diloco"))


def seeds(count: int) -> list[Any]:
    """Those beyond the first few are slow."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= QUICK else []) for seed in range(count)]


@cache
def problem(seed: int) -> Problem:
    return random_problem(seed)


@cache
def optimum(seed: int) -> Proposal:
    found = Brute().propose(problem(seed), STOP)
    assert found.status is not Status.FEASIBLE, "time ran out"
    return found


@pytest.mark.parametrize("seed", seeds(ALL))
def test_exact_finds_the_optimum_or_says_how_far_it_may_be(seed: int):
    best, found = optimum(seed), planner("exact").propose(problem(seed), STOP)
    if best.score is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.score is not None, "a plan fits, and exact says that none does"
    assert found.lower_bound_s is not None
    assert found.gap is not None
    least_s, step_s = best.score.step_time_s, found.score.step_time_s
    assert plain_s(seed, found) >= least_s * (1 - SAME), (
        "better than the best of every plan: brute leaves something out"
    )
    assert found.lower_bound_s <= step_s * (1 + SAME)
    assert found.lower_bound_s <= least_s * (1 + SAME), "the bound is above a plan that exists"
    assert found.gap == pytest.approx((step_s - found.lower_bound_s) / step_s, abs=SAME)
    if found.status is Status.OPTIMAL:
        assert step_s <= least_s * (1 + SAME)


def plain_s(seed: int, found: Proposal) -> float:
    """Step time of the plan without an order of its own, which brute does not know: as GPipe, whatever it keeps."""
    assert found.plan is not None
    assert found.score is not None
    if found.plan.schedule.name != "best":
        return found.score.step_time_s
    lines = tuple(replace(pipeline, order=()) for pipeline in found.plan.pipelines)
    bare = replace(found.plan, pipelines=lines, schedule=ScheduleChoice("gpipe"))
    plain = evaluate(problem(seed), bare).step_time_s
    assert found.score.step_time_s <= plain * (1 + SAME), "an order made for the plan is worse than none"
    return plain


@pytest.mark.parametrize("seed", seeds(24))
def test_other_questions_too(seed: int):
    """Cost, local SGD, compression, uniform cuts, balance: never better than the best of every plan, no bound above
    it."""
    changes = (
        {"objective": Objective("cost", 0.0, 0.0, 1.0)},
        {"allow_local_sgd": True},
        {"allow_compression": True},
        {"uniform_cuts": True},
        {"objective": Objective(balance_delta=0.1)},
    )
    asked = replace(problem(seed), **changes[seed % len(changes)])
    best, found = Brute().propose(asked, STOP), planner("exact").propose(asked, STOP)
    assert (found.score is None) == (best.score is None)
    if found.score is None or best.score is None:
        return
    value = "usd_per_step" if asked.objective.name == "cost" else "step_time_s"
    least = getattr(best.score, value)
    if found.plan is not None and found.plan.schedule.name != "best":
        assert getattr(found.score, value) >= least * (1 - SAME)
    if asked.objective.name == "time" and found.lower_bound_s is not None:
        assert found.lower_bound_s <= least * (1 + SAME)


@pytest.mark.parametrize("count", COUNTS)
def test_exact_settles_many_small_problems(count: int):
    """A bound of nothing would pass the test above. Start-up and latencies fill much of so small a step."""
    gaps = [
        planner("exact").propose(problem(seed), STOP).gap for seed in range(count) if optimum(seed).plan is not None
    ]
    close = [gap for gap in gaps if gap is not None and gap <= 0.01]
    assert len(close) >= 0.3 * len(gaps)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OTHERS)
def test_nobody_beats_the_enumeration(name: str, count: int):
    for seed in range(count):
        best, found = optimum(seed), planner(name).propose(problem(seed), STOP)
        if best.score is None or found.score is None:
            assert found.score is None, f"seed {seed}: a plan where there is none"
        else:
            assert plain_s(seed, found) >= best.score.step_time_s * (1 - SAME), f"seed {seed}: {found.plan}"
