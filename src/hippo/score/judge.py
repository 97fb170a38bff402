"""From a plan to its score: the step is played, then money, utilisation, memory and reward are read off.

``utilization`` is the mean over the domains in use of ``U_k = T_k^compute / T_step``, where ``T_k^compute`` is the mean
busy time (F, B and W, without waiting for parameters or inputs) of the domain's GPUs in use; ``utilization_all`` is the
mean over all domains of the cluster, idle ones counted as 0 (design, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hippo.cost.kernels import peak_flops
from hippo.cost.money import egress_usd, rent_usd_per_s
from hippo.cost.stage import StageMemory
from hippo.plan.plan import Pipeline, Plan
from hippo.problem.problem import Problem
from hippo.schedule.schedule import order_of
from hippo.score.score import Score, reward
from hippo.simulate.layouts import cost_model, costs
from hippo.simulate.lower import lower
from hippo.simulate.timeline import Timeline, busy_s
from hippo.units import gb_from_bytes


def evaluate(problem: Problem, plan: Plan, *, timeline: Timeline | None = None, baseline: Score | None = None) -> Score:
    """The score of a plan; played by ``fast`` in the base state of the links unless a timeline is given.

    With a ``baseline`` the reward and its parts are filled in (``hippo.score.score``); without one ``r_util`` alone,
    which needs none.
    """
    step_time_s, busy_s, link_bytes = _played(problem, plan, timeline)
    per_domain = domain_utilization(problem, plan, busy_s, step_time_s)
    utilization = float(np.mean([per_domain[name] for name in plan.domains]))
    egress = sum(
        egress_usd(sent, link.price_usd_per_gb) for sent, link in zip(link_bytes, problem.cluster.links, strict=True)
    )
    rent = rent_usd_per_s(problem.cluster.gpu, plan.gpus) * step_time_s
    tokens = plan.global_batch * problem.workload.seq
    peak = plan.gpus * peak_flops(problem.cluster.gpu, plan.precision)
    score = Score(
        step_time_s=step_time_s,
        utilization=utilization,
        utilization_all=float(np.mean(list(per_domain.values()))),
        cross_domain_gb_per_step=gb_from_bytes(float(np.sum(link_bytes))),
        egress_usd_per_step=float(egress),
        usd_per_step=float(rent + egress),
        tokens_per_s=tokens / step_time_s,
        mfu=flops_per_step(problem, plan) / (step_time_s * peak),
        peak_memory_gb=gb_from_bytes(max(stage.peak_bytes for stage in memory(problem, plan))),
        reward=0.0,
        r_util=utilization,
    )
    return score if baseline is None else replace(score, **reward(score, baseline, problem.objective))


def memory(problem: Problem, plan: Plan) -> tuple[StageMemory, ...]:
    """Memory of the fullest rank of every stage, pipeline after pipeline, with the micro-batches its schedule keeps."""
    return tuple(
        replace(stage, live_micro_batches=live)
        for pipeline in plan.pipelines
        for stage, live in _live_stages(problem, plan, pipeline)
    )


def fits(problem: Problem, plan: Plan) -> bool:
    """Whether every stage fits the memory a plan may use of one GPU."""
    usable = cost_model(problem).usable_memory_bytes()
    return all(
        stage.peak_bytes + stage.activation_bytes * live <= usable
        for pipeline in plan.pipelines
        for stage, live in _live_stages(problem, plan, pipeline)
    )


def _live_stages(problem: Problem, plan: Plan, pipeline: Pipeline) -> Iterator[tuple[StageMemory, float]]:
    """Memory of each stage of a pipeline without anything in flight, and the micro-batches its schedule keeps."""
    return zip(costs(problem).memories(plan, pipeline), order_of(plan, pipeline).peak_live, strict=True)


def flops_per_step(problem: Problem, plan: Plan) -> float:
    """Model FLOPs of one step over all GPUs, recomputation not counted."""
    total = 0.0
    for pipeline in plan.pipelines:
        for stage, cost in zip(pipeline.stages, costs(problem).stages(plan, pipeline), strict=True):
            total += cost.flops * stage.dp * pipeline.num_micro_batches
    return total


def domain_utilization(
    problem: Problem, plan: Plan, busy_s: NDArray[np.float64], step_time_s: float
) -> dict[str, float]:
    """``U_k`` of every domain of the cluster, 0 for those not in use; ``busy_s`` (G,) in pipeline order."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    seconds = dict.fromkeys(problem.cluster.domain_index, 0.0)
    gpus = dict.fromkeys(problem.cluster.domain_index, 0)
    for stage, busy in zip(stages, busy_s, strict=True):
        seconds[stage.domain] += float(busy) * len(stage.devices)
        gpus[stage.domain] += len(stage.devices)
    return {name: seconds[name] / (gpus[name] * step_time_s) if gpus[name] else 0.0 for name in seconds}


def _played(
    problem: Problem, plan: Plan, timeline: Timeline | None
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Step time, busy seconds per rank and bytes per link."""
    if timeline is not None:
        return timeline.step_time_s, timeline.rank_busy_s, timeline.link_bytes
    from hippo.simulate import fast
    from hippo.simulate.lower import lower
    from hippo.simulate.timeline import busy_s, link_bytes

    program = lower(problem, plan)
    return fast.step_time(program), busy_s(program), link_bytes(program)


def imbalance(problem: Problem, plan: Plan) -> float:
    """``(max T_k - min T_k) / mean T_k`` over the domains in use, T_k the mean seconds their GPUs compute in a step."""
    seconds = domain_utilization(problem, plan, busy_s(lower(problem, plan)), 1.0)
    used = [seconds[name] for name in plan.domains]
    return (max(used) - min(used)) * len(used) / sum(used)
