"""Mixtures of experts in motion: a cache, planners and agents plan with experts apart where that is quicker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.network.online_world import base
from tests.planners.worlds import cluster, domain, problem

from hippo.network.hi_ppo.constructor import ClosedForm, construct
from hippo.network.methods.in_motion import PLANNING
from hippo.network.plans.candidates import fill
from hippo.network.plans.plan_cache import PlanCache, located
from hippo.plan.check import check
from hippo.planners.answers import answer_of
from hippo.planners.baselines.sailor import Sailor
from hippo.planners.exact.search import Exact
from hippo.problem.model import Experts, gpt_model
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate

SITES = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=50.0, latency_s=1e-3)


def mixture() -> Problem:
    """Four blocks of experts that are large for the tokens they get."""
    sizes = Experts(8, 1, 4096)
    small = gpt_model("moe", layers=4, hidden=1024, heads=8, vocab=2048, seq=512, gated=True, ffn=4096, experts=sizes)
    return problem(SITES, small, batch=16, runtime="megatron")


@pytest.fixture(scope="module")
def known() -> PlanCache:
    cache = PlanCache(mixture())
    fill(cache)
    return cache


def test_a_cache_plans_with_the_degree_that_is_best_at_rest(known: PlanCache) -> None:
    best = answer_of(Exact(), mixture(), PLANNING)
    assert best.plan is not None
    assert best.score is not None
    assert known.problem.expert_parallel == best.plan.expert_parallel > 1
    assert {each.plan.expert_parallel for each in known.configurations} == {known.problem.expert_parallel}
    least = min(evaluate(known.problem, each.plan).step_time_s for each in known.configurations)
    assert least <= best.score.step_time_s * (1 + 1e-9)
    together = Exact().propose(mixture(), PLANNING)
    assert together.score is not None
    assert least < 0.95 * together.score.step_time_s


def test_agents_construct_with_that_degree(known: PlanCache) -> None:
    found = construct(ClosedForm(), known.problem, *base(known), tries=6)
    assert found
    assert {plan.expert_parallel for plan in found} == {known.problem.expert_parallel}
    assert not any(check(mixture(), plan) for plan in found)


def test_planners_in_motion_are_asked_for_every_degree(known: PlanCache) -> None:
    plan = answer_of(Sailor(), known.problem, PLANNING).plan
    assert plan is not None
    assert plan.expert_parallel > 1


def test_experts_that_lie_otherwise_are_another_location(known: PlanCache) -> None:
    plan = known.configurations[0].plan
    assert located(plan) != located(replace(plan, expert_parallel=1))
