"""Every plan of a small problem, one after the other: what the front of all plans is judged by.

Pipelines as ``brute_space`` enumerates them, each with every warm-up; replicas agree every step, nothing is relayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice
from hippo.planners.brute.brute_space import Sketches, Space, commons
from hippo.planners.placement import place
from hippo.problem.problem import Problem
from hippo.score.evaluate import evaluate, fits
from hippo.score.score import Score


def every_plan(problem: Problem) -> Iterator[tuple[Plan, Score]]:
    """Each plan that breaks no rule and fits, with its score; seconds for some thousand plans."""
    for common in commons(problem, Space()):
        for sketches in Sketches(problem, common):
            try:
                pipelines = place(problem.cluster, sketches)
            except InfeasibleError:
                continue
            for warmed in product(*(_warmed(pipeline) for pipeline in pipelines)):
                plan = Plan(
                    warmed,
                    common.micro_batch,
                    precision=problem.workload.precision,
                    recompute=common.recompute,
                    sharding=common.sharding,
                    schedule=ScheduleChoice("cross-domain"),
                )
                if not check(problem, plan) and fits(problem, plan):
                    try:
                        yield plan, evaluate(problem, plan)
                    except InputError:  # domains that nothing joins
                        continue


def _warmed(pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline with every warm-up: no stage runs further ahead than the one before. A stage alone has but one."""
    stages = len(pipeline.stages)
    waves = range(pipeline.num_micro_batches if stages > 1 else 1, 0, -1)
    for warm_up in combinations_with_replacement(waves, stages):
        yield replace(pipeline, warm_up=warm_up)
