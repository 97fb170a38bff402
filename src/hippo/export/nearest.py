"""The nearest plan that a runtime can run: the plan with what cannot be said left out, or planned anew.

First each thing that the rules forbid is replaced by what the runtime does instead. That may be no plan (unlike tp per
stage cannot be made alike without moving layers), not fit, or be slow: the exact search plans for the runtime, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hippo.errors import HippoError
from hippo.export.limits import cannot_express
from hippo.plan.check import check
from hippo.plan.plan import Pipeline, Plan, ScheduleChoice, Sync
from hippo.plan.runtimes import RuntimeRules, runtime_rules
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate, fits

STOP = Stop(time_limit_s=5.0)

Unsaid = Callable[[Problem, Plan], list[str]]
"""Sentences on what a target cannot express beyond the rules of its runtime."""


@dataclass(frozen=True)
class Nearest:
    """A plan that the runtime can run, and what it costs."""

    plan: Plan
    step_time_s: float
    anew: bool  # planned anew; False: the same plan with something left out


def left_out(problem: Problem, plan: Plan, runtime: str, unsaid: Unsaid) -> Nearest | None:
    """The plan without what the runtime cannot express; None: that is no plan, or does not fit.

    ``unsaid``: sentences on what the target cannot express beyond the rules of its runtime.
    """
    asked = replace(problem, runtime=runtime, allow_local_sgd=False)
    return _sound(asked, plain(plan, runtime_rules(runtime)), unsaid, anew=False)


def planned_anew(problem: Problem, runtime: str, unsaid: Unsaid) -> Nearest | None:
    """The best plan for the runtime that a short search finds; None: none."""
    asked = replace(problem, runtime=runtime, allow_local_sgd=False)
    try:
        proposal = Exact().propose(asked, STOP)
    except HippoError:
        return None
    if proposal.plan is None:
        return None
    return _sound(asked, plain(proposal.plan, runtime_rules(runtime)), unsaid, anew=True)


def _sound(problem: Problem, plan: Plan, unsaid: Unsaid, *, anew: bool) -> Nearest | None:
    """The plan with its step time, if it is one, fits, and the runtime can express it."""
    if check(problem, plan) or cannot_express(problem, plan, problem.runtime) or unsaid(problem, plan):
        return None
    return Nearest(plan, evaluate(problem, plan).step_time_s, anew) if fits(problem, plan) else None


def plain(plan: Plan, rules: RuntimeRules) -> Plan:
    """The plan with everything left out that the rules forbid and that leaving out mends."""
    free = rules.schedules is None
    name = plan.schedule.name if free or plan.schedule.name in (rules.schedules or ()) else "1f1b"
    limit = plan.schedule.live_limit if rules.live_limit else None
    deep = any(len(pipeline.stages) > 1 for pipeline in plan.pipelines)
    shardings = rules.shardings_with_pipeline if deep else rules.shardings
    return replace(
        plan,
        pipelines=tuple(_plain_pipeline(each, plan, rules, name) for each in plan.pipelines),
        schedule=ScheduleChoice(name, limit),
        interleave=plan.interleave if name == "interleaved" and rules.interleave else 1,
        sharding=plan.sharding if plan.sharding in shardings else _sharding(plan.sharding, shardings),
        recompute=plan.recompute if plan.recompute in rules.recompute else "full",
        relays=(),
        compression=(),
        sync=Sync(),
    )


def _plain_pipeline(pipeline: Pipeline, plan: Plan, rules: RuntimeRules, schedule: str) -> Pipeline:
    """Its own order and warm-up where the schedule keeps them; the first pipeline's cuts and a fair share."""
    kept = schedule == plan.schedule.name
    first, stages, waves = plan.pipelines[0], pipeline.stages, pipeline.num_micro_batches
    if rules.uniform_cuts_across_replicas and len(stages) == len(first.stages):
        stages = tuple(replace(one, layers=two.layers) for one, two in zip(stages, first.stages, strict=True))
    total = sum(each.num_micro_batches for each in plan.pipelines)
    if rules.equal_shares and total % len(plan.pipelines) == 0:
        waves = total // len(plan.pipelines)
    same = waves == pipeline.num_micro_batches
    warm_up = pipeline.warm_up if kept and same and rules.live_limit else ()
    return Pipeline(stages, waves, warm_up, pipeline.order if kept else ())


def _sharding(wanted: str, possible: tuple[str, ...]) -> str:
    """The first that saves as much memory as the one wanted, or more; else the one that saves most."""
    saves = ("none", "optimizer", "gradients", "hybrid", "full")
    enough = [each for each in saves[saves.index(wanted) :] if each in possible]
    return enough[0] if enough else [each for each in saves if each in possible][-1]
