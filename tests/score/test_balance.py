from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.load import load_problem
from hippo.score.balance import imbalance


@pytest.fixture
def problem():
    return load_problem(model="gpt2", cluster="toy", global_batch=8, seq=512)


def plan_of(problem, *layers):
    names = [domain.name for domain in problem.cluster.domains]
    stages = tuple(Stage(name, span, 1, 1, (f"{name}/0/0",)) for name, span in zip(names, layers, strict=False))
    return Plan((Pipeline(stages, 8),), micro_batch=1)


def test_one_domain_is_in_balance(problem):
    assert imbalance(problem, plan_of(problem, (0, problem.model.num_layers))) == 0.0


def test_an_uneven_cut_is_out_of_balance(problem):
    even, uneven = plan_of(problem, (0, 7), (7, 14)), plan_of(problem, (0, 4), (4, 14))
    assert imbalance(problem, uneven) > imbalance(problem, even) >= 0.0


def test_more_waves_do_not_change_the_balance(problem):
    plan = plan_of(problem, (0, 4), (4, 14))
    more = replace(plan, pipelines=tuple(replace(pipeline, num_micro_batches=16) for pipeline in plan.pipelines))
    assert imbalance(problem, more) == pytest.approx(imbalance(problem, plan))
