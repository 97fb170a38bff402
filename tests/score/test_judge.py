"""The figures of a plan, each by hand from the step, the cost model and the price list."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.load import load_problem
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.score.judge import domain_utilization, evaluate, fits, flops_per_step, imbalance, memory
from hippo.simulate import fast, reference
from hippo.simulate.costs import cost_model, layout
from hippo.simulate.lower import lower

WAVE_BYTES = 2 * 2 * 128 * 512 * 2  # lanes x sequences x tokens x hidden x bf16: what crosses per wave each way


def test_the_step_is_the_played_one(small: Problem, across: Plan) -> None:
    step = fast.step_time(lower(small, across))
    assert evaluate(small, across).step_time_s == step
    # Four waves one way keep the link busy: 4 x 0.52 MB / 125 MB/s, and one way back.
    assert step > 4 * WAVE_BYTES / 1.25e8 + 2 * 0.02


def test_traffic_and_money(small: Problem, across: Plan) -> None:
    score = evaluate(small, across)
    assert score.cross_domain_gb_per_step == pytest.approx(2 * 4 * WAVE_BYTES / 1e9)
    egress = 4 * WAVE_BYTES / 1e9 * (0.05 + 0.09)
    assert score.egress_usd_per_step == pytest.approx(egress)
    assert score.usd_per_step == pytest.approx(egress + 4 * 1.80 / 3600 * score.step_time_s)


def test_tokens_and_model_flops(small: Problem, across: Plan) -> None:
    score = evaluate(small, across)
    assert score.tokens_per_s == pytest.approx(16 * 128 / score.step_time_s)
    assert score.mfu == pytest.approx(flops_per_step(small, across) / (score.step_time_s * 4 * 312e12))
    # 6 FLOP per parameter of the matrices and token, and the attention square on top.
    matrices = sum(layer.parameters for layer in small.model.layers[1:])
    assert 6 * matrices * 16 * 128 < flops_per_step(small, across) < 1.2 * 6 * matrices * 16 * 128


def test_utilization_is_the_mean_share_of_time_the_gpus_compute(small: Problem, across: Plan) -> None:
    score, line = evaluate(small, across), across.pipelines[0]
    shares = []
    for stage in line.stages:
        cost = cost_model(small).stage(stage.domain, *stage.layers, layout(across, line, stage))
        shares.append(4 * (cost.forward_s + cost.backward_s + cost.weight_gradient_s) / score.step_time_s)
    assert score.utilization == pytest.approx(sum(shares) / 2)
    assert score.utilization_all == pytest.approx(sum(shares) / 3)  # c is idle
    assert 0 < score.utilization_all < score.utilization < 1


def test_a_domain_counts_its_gpus_by_what_they_do(small: Problem) -> None:
    """Two stages in a: two GPUs busy 3 s, one busy 6 s, of a step of 10 s: (2 x 3 + 6) / (3 x 10)."""
    stages = (Stage("a", (0, 4), 1, 2, ("a/0/0", "a/0/1")), Stage("a", (4, 8), 1, 1, ("a/0/2",)))
    plan = Plan((Pipeline(stages, 4),), micro_batch=2)
    assert domain_utilization(small, plan, np.array([3.0, 6.0]), 10.0) == {"a": pytest.approx(0.4), "b": 0.0, "c": 0.0}


def test_memory_counts_the_waves_in_flight(small: Problem, across: Plan) -> None:
    first, last = memory(small, across)
    assert (first.live_micro_batches, last.live_micro_batches) == (2, 1)
    gpipe = replace(across, schedule=replace(across.schedule, name="gpipe"))
    held, _ = memory(small, gpipe)
    assert held.live_micro_batches == 4
    assert held.peak_bytes - first.peak_bytes == pytest.approx(2 * first.activation_bytes)
    assert evaluate(small, across).peak_memory_gb == pytest.approx(max(first.peak_bytes, last.peak_bytes) / 1e9)


def test_fits_is_a_matter_of_the_fullest_stage(small: Problem, across: Plan) -> None:
    """What is reserved grows with the card, so the smallest card that fits is ``need / (1 - share)``."""
    one, two = with_memory(small, 1e9), with_memory(small, 2e9)
    share = (peak(two, across) - peak(one, across)) / 1e9
    least = (peak(one, across) - share * 1e9) / (1 - share)
    assert not fits(with_memory(small, 0.999 * least), across)
    assert fits(with_memory(small, 1.001 * least), across)


def with_memory(problem: Problem, num_bytes: float) -> Problem:
    card = replace(problem.cluster.gpu, memory_bytes=num_bytes)
    return replace(problem, cluster=replace(problem.cluster, gpu=card))


def peak(problem: Problem, plan: Plan) -> float:
    return max(stage.peak_bytes for stage in memory(problem, plan))


def test_a_timeline_of_another_engine_is_taken_as_it_is(small: Problem, across: Plan) -> None:
    program = lower(small, across)
    slower = {"bandwidth_bytes_per_s": program.link_bandwidth_bytes_per_s / 2}
    score = evaluate(small, across, timeline=reference.play(program, **slower))
    assert score.step_time_s == pytest.approx(fast.step_time(program, **slower))
    assert score.step_time_s > evaluate(small, across).step_time_s
    assert evaluate(small, across, timeline=fast.play(program)) == evaluate(small, across)


def test_replicas_pay_for_agreement(small: Problem) -> None:
    """Data parallel across a and b: the gradient once each way, 2 (n - 1) / n = 1."""
    lines = tuple(Pipeline((Stage(name, (0, 8), 1, 1, (f"{name}/0/0",)),), 4) for name in "ab")
    score = evaluate(small, Plan(lines, micro_batch=2))
    gradient = 2.0 * small.model.parameters
    assert score.cross_domain_gb_per_step == pytest.approx(2 * gradient / 1e9)
    assert score.egress_usd_per_step == pytest.approx(gradient / 1e9 * 0.14)
    assert score.step_time_s > gradient / 1.25e8


def test_a_baseline_brings_the_reward(small: Problem, across: Plan) -> None:
    base = evaluate(small, across)
    assert (base.reward, base.r_eff, base.r_cost) == (0, 0, 0)
    assert base.r_util == base.utilization > 0  # needs no baseline
    weighted = replace(small, objective=Objective("weighted", 0.5, 0.3, 0.2))
    same = evaluate(weighted, across, baseline=base)
    assert (same.r_eff, same.r_cost) == (0, 1)
    assert same.reward == pytest.approx(0.3 * base.utilization - 0.2)


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
