"""What is missing when nothing fits: found by planning again, told with the figures of the plan that was found."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from hippo.decide.alternatives import MissingMemory, NearestChange
from hippo.decide.shortfall import TOLERANCE, least_memory_bytes, shortfall, state_bytes_per_gpu
from hippo.decide.wording import gb
from hippo.planners.base import Proposal, Status
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.evaluate import evaluate, fits

WAVES = 4


class Fitting:
    """Proposes its plan wherever it fits ``needed`` (seen as the memory of the GPU), else nothing."""

    name = "fitting"

    def __init__(self, plan, needed: float = 0.0) -> None:
        self.plan, self.needed, self.asked = plan, needed, []

    def propose(self, problem, stop, *, seed=0, progress=None):
        self.asked.append((problem, stop))
        plan = self.plan if problem.cluster.gpu.memory_bytes >= self.needed else None
        return Proposal(self.name, Status.FEASIBLE if plan else Status.INFEASIBLE, plan)


def problem_with(worlds, memory_bytes: float, **more) -> Problem:
    cluster = replace(worlds.cluster(latency_s=1e-4), gpu=worlds.gpu(memory_bytes))
    return Problem(worlds.model(), cluster, Workload(global_batch=WAVES, seq=1024), **more)


def needed_bytes(worlds, plan) -> float:
    return least_memory_bytes(problem_with(worlds, 80e9), plan)


def test_the_least_memory_is_where_a_plan_starts_to_fit(worlds):
    plan = worlds.across_plan(WAVES)
    least = needed_bytes(worlds, plan)
    assert fits(problem_with(worlds, least * 1.001), plan)
    assert not fits(problem_with(worlds, least * 0.999), plan)


def test_the_missing_memory_is_what_the_plan_needs(worlds):
    plan = worlds.across_plan(WAVES)
    needed = needed_bytes(worlds, plan)
    problem = problem_with(worlds, needed / 1.5)
    missing = next(r for r in shortfall(problem, Fitting(plan), limit_s=inf) if isinstance(r, MissingMemory))
    assert missing.usable_bytes == pytest.approx(needed / 1.5)
    assert missing.needed_bytes == pytest.approx(needed)
    assert needed / (1 + TOLERANCE) <= missing.too_little_bytes < needed


def test_a_planner_that_finds_nothing_smaller_is_bisected(worlds):
    """The planner finds its plan only with 2.7 times the memory, although the plan itself needs 1.2 times."""
    plan = worlds.across_plan(WAVES)
    usable = needed_bytes(worlds, plan) / 1.2
    planner = Fitting(plan, needed=2.7 * usable)
    missing = next(
        r for r in shortfall(problem_with(worlds, usable), planner, limit_s=inf) if isinstance(r, MissingMemory)
    )
    assert missing.needed_bytes == pytest.approx(1.2 * usable)  # the plan found says what it needs
    assert missing.too_little_bytes == pytest.approx(2.0 * usable)  # the greatest step at which none was found


def test_every_kind_of_change_is_planned_again(worlds):
    plan = worlds.across_plan(WAVES)
    needed = needed_bytes(worlds, plan)
    problem = problem_with(worlds, needed * 0.999, uniform_cuts=True, runtime="megatron")
    changes = [r for r in shortfall(problem, Fitting(plan), limit_s=inf) if isinstance(r, NearestChange)]
    assert [change.subject for change in changes] == [
        f"with {gb(needed)} of memory per GPU instead of {gb(needed * 0.999)}",
        "with sequences of 512 tokens instead of 1,024",  # the same plan, smaller activations
    ]
    halved = replace(problem, workload=Workload(global_batch=WAVES, seq=512))
    assert changes[1].step_time_s == pytest.approx(evaluate(halved, plan).step_time_s)


def test_nothing_is_tried_without_time(worlds):
    planner = Fitting(worlds.across_plan(WAVES))
    assert shortfall(problem_with(worlds, 1e6), planner, limit_s=0.0) == ()
    assert planner.asked == []


def test_where_memory_is_not_what_is_missing_none_is_told(worlds):
    nobody = Fitting(None)
    assert shortfall(problem_with(worlds, 1e9), nobody, limit_s=inf) == ()
    assert len(nobody.asked) > 3


def test_nobody_is_asked_where_the_model_alone_is_too_large(worlds):
    problem = problem_with(worlds, 1e6)
    nobody, state = Fitting(None), state_bytes_per_gpu(problem)
    shortfall(problem, nobody, limit_s=inf)
    sizes = [asked.cluster.gpu.memory_bytes for asked, _ in nobody.asked]
    assert state == pytest.approx(problem.model.parameters * 16 / 2)  # two GPUs
    assert min(sizes) == pytest.approx(1.15 * state)
    assert all(asked.workload == problem.workload for asked, _ in nobody.asked)  # shorter sequences cannot help
