"""Local SGD where it is not allowed: turned from the plans at hand, told with its published penalty."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.decide.decision import Decision
from hippo.decide.local_sgd import if_allowed, in_every_domain
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.planners.base import Proposal, Status
from hippo.problem.outer_step import OuterStep
from hippo.problem.problem import Problem
from hippo.problem.workload import Workload
from hippo.score.judge import evaluate, judge

WAVES = 5


class Silent:
    """A planner that finds nothing, and notes that it was asked."""

    name = "diloco"

    def __init__(self) -> None:
        self.asked = 0

    def propose(self, problem, stop, *, seed=0, progress=None):
        self.asked += 1
        return Proposal(self.name, Status.INFEASIBLE)


@pytest.fixture
def problem(worlds) -> Problem:
    return Problem(worlds.model(), worlds.cluster(latency_s=1e-4), Workload(global_batch=WAVES, seq=1024))


def decided(problem: Problem, plan: Plan, *others: Plan) -> Decision:
    runners_up = tuple(judge(problem, other) for other in others)
    return Decision(problem, Status.FEASIBLE, "x", judge(problem, plan), runners_up=runners_up)


def test_a_plan_of_one_domain_is_set_up_in_all(worlds, problem):
    plan = in_every_domain(problem, worlds.alone_plan(WAVES))
    assert [(p.domains, p.num_micro_batches) for p in plan.pipelines] == [(("a",), 3), (("b",), 2)]
    assert plan.pipelines[1].stages[0].devices == ("b/0/0",)
    assert plan.global_batch == WAVES
    assert check(problem, replace(plan, sync=Sync())) == ()


def test_too_few_waves_or_no_other_domain_leave_the_plan_as_it_is(worlds, problem):
    plan = worlds.alone_plan(1)
    assert in_every_domain(problem, plan) == plan
    smaller = replace(problem.cluster.domains[1], gpus_per_node=2)
    lonely = replace(problem, cluster=replace(problem.cluster, domains=(problem.cluster.domains[0], smaller)))
    assert in_every_domain(lonely, worlds.alone_plan(WAVES)) == worlds.alone_plan(WAVES)


def test_the_answer_is_the_replicated_plan_scored_by_the_judge(worlds, problem):
    nobody = Silent()
    found = if_allowed(decided(problem, worlds.across_plan(WAVES), worlds.alone_plan(WAVES)), nobody, 0)
    assert nobody.asked == 0
    assert found.plan.sync == Sync("local_sgd", OuterStep().every)
    assert found.score == evaluate(replace(problem, allow_local_sgd=True), found.plan)
    # three waves in a, two in b, and next to nothing between them: what a alone takes for three waves
    three = replace(problem, workload=replace(problem.workload, global_batch=3))
    alone = evaluate(three, worlds.alone_plan(3)).step_time_s
    assert found.score.step_time_s == pytest.approx(alone, rel=0.02)
    assert found.score.step_time_s > alone
    assert any("penalty" in note for note in found.notes)


def test_a_data_parallel_runner_up_averages_instead(worlds, problem):
    stages = worlds.alone_plan().pipelines[0].stages
    other = Stage("b", (0, 6), 1, 1, ("b/0/0",))
    parallel = Plan((Pipeline(stages, 3), Pipeline((other,), 2)), micro_batch=1)
    found = if_allowed(decided(problem, worlds.across_plan(WAVES), parallel), Silent(), 0)
    assert found.plan == replace(parallel, sync=Sync("local_sgd", OuterStep().every))


def test_a_planner_is_asked_where_nothing_can_be_turned(worlds, problem):
    nobody = Silent()
    assert if_allowed(decided(problem, worlds.across_plan(WAVES)), nobody, 0) is None
    assert nobody.asked == 1


def test_where_it_is_allowed_it_competes_and_is_not_told(worlds, problem):
    allowed = replace(problem, allow_local_sgd=True)
    assert if_allowed(decided(allowed, worlds.alone_plan(WAVES)), Silent(), 0) is None
    assert if_allowed(decided(problem, worlds.alone_plan(WAVES)), None, 0) is None
