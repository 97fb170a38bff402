"""Every plan of a small problem, one after the other: what the front of all plans is judged by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.brute_space import Sketches, Space, commons, relays, schedules, syncs
from hippo.planners.placement import place
from hippo.problem.problem import Problem
from hippo.score.evaluate import evaluate, fits
from hippo.score.score import Score


def every_plan(problem: Problem, space: Space) -> Iterator[tuple[Plan, Score]]:
    """Each plan that breaks no rule and fits, with its score; seconds for some thousand plans."""
    for common in commons(problem, space):
        for sketches in Sketches(problem, common):
            try:
                pipelines = place(problem.cluster, sketches)
            except InfeasibleError:
                continue
            choices = (
                schedules(problem, space, sketches),
                syncs(problem, space, sketches),
                relays(problem, space, sketches),
            )
            for (schedule, warm_ups), sync, relayed in product(*choices):
                plan = Plan(
                    tuple(replace(each, warm_up=warm) for each, warm in zip(pipelines, warm_ups, strict=True)),
                    common.micro_batch,
                    precision=problem.workload.precision,
                    recompute=common.recompute,
                    sharding=common.sharding,
                    schedule=schedule,
                    relays=relayed,
                    sync=sync,
                )
                if not check(problem, plan) and fits(problem, plan):
                    try:
                        yield plan, evaluate(problem, plan)
                    except InputError:  # domains that nothing joins
                        continue
