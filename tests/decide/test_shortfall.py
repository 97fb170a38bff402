"""What is missing when nothing fits: found by planning again, told with the figures of the plan that was found."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from hippo.decide.reasons import MissingMemory, NearestChange, NothingFound
from hippo.decide.shortfall import TOLERANCE, least_memory_bytes, shortfall, state_bytes_per_gpu, unusable_profile
from hippo.decide.wording import gb
from hippo.plan.plan import Plan
from hippo.planners.base import Proposal, Status
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.profile import Profile, ProfileRow
from hippo.problem.workload import Workload
from hippo.score.judge import evaluate, fits

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
    assert shortfall(problem_with(worlds, 1e6), planner, limit_s=0.0) == (NothingFound("fitting", ()),)
    assert planner.asked == []


def test_where_nothing_helps_all_that_was_tried_is_told(worlds):
    nobody = Fitting(None)
    (told,) = shortfall(problem_with(worlds, 1e9), nobody, limit_s=inf)
    assert told.sentence() == (
        "fitting finds no plan, and none with up to 64 times the memory, shorter sequences or up to 8 times the nodes."
    )
    assert max(asked.cluster.gpu.memory_bytes for asked, _ in nobody.asked) == pytest.approx(64e9)
    assert {asked.workload.seq for asked, _ in nobody.asked} == {1024, 512, 256, 128, 64}
    assert {asked.cluster.domains[0].nodes for asked, _ in nobody.asked} == {1, 2, 4, 8}


class Wanting(Fitting):
    """Proposes its plan only where ``enough`` says so."""

    def __init__(self, plan, enough) -> None:
        super().__init__(plan)
        self.enough = enough

    def propose(self, problem, stop, *, seed=0, progress=None):
        self.asked.append((problem, stop))
        plan = self.plan if self.enough(problem) else None
        return Proposal(self.name, Status.FEASIBLE if plan else Status.INFEASIBLE, plan)


def nodes(*counts: int):
    """Whether the domains have at least so many nodes."""
    return lambda problem: all(d.nodes >= n for d, n in zip(problem.cluster.domains, counts, strict=True))


@pytest.mark.parametrize(
    ("today", "enough", "words"),
    [
        ((1, 1), (6, 6), "with 6 nodes in every domain instead of 1 (12 GPUs)"),
        ((5, 5), (6, 6), "with 6 nodes in every domain instead of 5 (12 GPUs)"),
        ((4, 4), (32, 32), "with 32 nodes in every domain instead of 4 (64 GPUs)"),
        ((4, 2), (6, 3), "with 1.5 times the nodes in every domain, rounded up (9 GPUs)"),
        ((4, 2), (5, 3), "with 1.25 times the nodes in every domain, rounded up (8 GPUs)"),
    ],
)
def test_the_fewest_nodes_are_told(worlds, today, enough, words):
    problem = problem_with(worlds, 80e9)
    domains = tuple(replace(d, nodes=n) for d, n in zip(problem.cluster.domains, today, strict=True))
    problem = replace(problem, cluster=replace(problem.cluster, domains=domains))
    planner = Wanting(worlds.across_plan(WAVES), nodes(*enough))
    (change,) = shortfall(problem, planner, limit_s=inf)
    assert change.subject == words
    assert change.step_time_s == pytest.approx(evaluate(problem, planner.plan).step_time_s)


def test_few_plans_are_asked_for_between_two_doublings(worlds):
    problem = problem_with(worlds, 80e9)
    domains = tuple(replace(domain, nodes=1000) for domain in problem.cluster.domains)
    problem = replace(problem, cluster=replace(problem.cluster, domains=domains))
    planner = Wanting(worlds.across_plan(WAVES), nodes(1401, 1401))
    (change,) = shortfall(problem, planner, limit_s=inf)
    found = int(change.subject.split()[1].replace(",", ""))
    assert 1401 <= found <= 1401 + 1000 / 2**6
    assert sum(asked.cluster.domains[0].nodes > 1000 for asked, _ in planner.asked) == 1 + 6


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("balance_delta", "with compute times further apart than the 1e-09 allowed"),
        ("bandwidth_floor_bytes_per_s", "with cuts on links of any bandwidth"),
    ],
)
def test_a_limit_that_bars_every_plan_is_given_up(worlds, limit, words):
    """The plan is proposed whatever the limit; only one that keeps it counts."""
    objective = Objective(**{limit: 1e-9 if limit == "balance_delta" else 1e15})
    problem = problem_with(worlds, 80e9, objective=objective)
    pipeline = worlds.across_plan(WAVES).pipelines[0]
    first, second = pipeline.stages
    uneven = replace(pipeline, stages=(replace(first, layers=(0, 2)), replace(second, layers=(2, 6))))
    (change,) = shortfall(problem, Fitting(Plan((uneven,), micro_batch=1)), limit_s=inf)
    assert change.subject == words


@pytest.mark.parametrize(("asked", "other"), [("hippo", "megatron"), ("hippo:live", "megatron"), ("torch", "hippo")])
def test_a_runtime_that_can_is_named(worlds, asked, other):
    """Whose plans fit and hippo's do not, for Megatron-LM shards state; the other way round for unlike stages."""
    plan = worlds.across_plan(WAVES)
    planner = Wanting(plan, lambda changed: changed.runtime == other)
    problem = problem_with(worlds, 80e9, runtime=asked)
    (change,) = shortfall(problem, planner, limit_s=inf)
    assert change.subject == f"with --runtime {other} instead of {asked}"
    assert change.step_time_s == pytest.approx(evaluate(replace(problem, runtime=other), plan).step_time_s)


def test_a_plan_that_needs_no_more_memory_was_missed_for_time(worlds):
    """What is found with more memory fits without it: then it is not memory that is missing."""
    plan = worlds.across_plan(WAVES)
    problem = problem_with(worlds, 80e9)
    late = Wanting(plan, lambda asked: asked.cluster.gpu.memory_bytes > 80e9)
    (change,) = shortfall(problem, late, limit_s=inf)
    assert change.subject == "as it is, with more time to plan"
    assert change.step_time_s == pytest.approx(evaluate(problem, plan).step_time_s)


def measured(*layouts: tuple[int, int]) -> Profile:
    rows = [
        ProfileRow(kind, None, "A100-SXM-80GB", tp, size, 0.01, 0.02, None, 1e6, 1e6, 1e6)
        for tp, size in layouts
        for kind in ("embedding", "block", "head")
    ]
    return Profile("bf16", 16.0, tuple(rows), "measured.json")


def test_a_profile_that_no_plan_can_use_is_what_is_missing(worlds):
    """Batch 4: no micro-batch of 3 divides it; 3 is the nearest batch that one does, and formulas know all of them."""
    problem = problem_with(worlds, 80e9, profile=measured((1, 3)))
    dividing = Wanting(worlds.across_plan(WAVES), lambda asked: asked.profile is None)
    missing, change = shortfall(problem, dividing, limit_s=inf)
    assert missing.sentence() == (
        "No plan can use the profile (measured.json): it measures only micro-batch 3, which does not divide the global "
        "batch of 4 sequences."
    )
    assert change.subject == "without the profile, by formulas"
    batches = [asked.workload.global_batch for asked, _ in dividing.asked if asked.profile is not None]
    assert batches == [3, 6]
    batch_of_3 = replace(worlds.across_plan(1), micro_batch=3)
    _, change = shortfall(problem, Wanting(batch_of_3, lambda asked: asked.workload.global_batch == 3), limit_s=inf)
    assert change.subject == "with a global batch of 3 sequences instead of 4"


def test_a_profile_of_tensor_parallel_degrees_that_no_domain_has(worlds):
    problem = problem_with(worlds, 80e9, profile=measured((2, 1), (1, 3), (1, 8)))
    (missing,) = unusable_profile(problem)
    assert missing.micro_batches == (3, 8)
    assert missing.causes == (
        "no domain has the 2 GPUs of tp 2",
        "it measures only micro-batches 3 and 8, which do not divide the global batch of 4 sequences",
    )
    assert unusable_profile(problem_with(worlds, 80e9, profile=measured((2, 1), (1, 2)))) == ()
    assert unusable_profile(problem_with(worlds, 80e9)) == ()


def test_nobody_is_asked_where_the_model_alone_is_too_large(worlds):
    problem = problem_with(worlds, 1e6)
    nobody, state = Fitting(None), state_bytes_per_gpu(problem)
    shortfall(problem, nobody, limit_s=inf)
    sizes = [asked.cluster.gpu.memory_bytes for asked, _ in nobody.asked]
    assert state == pytest.approx(problem.model.parameters * 16 / 2)  # two GPUs
    assert min(sizes) == pytest.approx(1.15 * state)
    assert all(asked.workload == problem.workload for asked, _ in nobody.asked)  # shorter sequences cannot help
