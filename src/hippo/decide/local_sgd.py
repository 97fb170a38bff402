"""What local SGD would give where it is not allowed: told beside the plan, never chosen unasked.

It is searched with the effort of the answer where the exact search is at hand. The plans already found may say more:
replicas of a data-parallel runner-up average every H steps instead of agreeing every step; the best plan of one domain
is set up in every domain that can hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hippo.decide.decision import Decision
from hippo.plan.plan import Pipeline, Plan, Stage, Sync
from hippo.planners.answers import answer_of
from hippo.planners.base import Planner, Proposal, Status, Stop
from hippo.planners.baselines.diloco import NOTES
from hippo.planners.effort import Effort
from hippo.planners.exact.replan import DomainReplanner
from hippo.problem.problem import Problem
from hippo.score.judge import flaw, judge

LIMIT_S = 0.5  # the most seconds for a planner of local SGD


def if_allowed(
    decision: Decision,
    planner: Planner | None,
    seed: int,
    *,
    replanner: DomainReplanner | None = None,
    effort: Effort | None = None,
) -> Proposal | None:
    """The quickest local-SGD plan, scored by the judge; None: no planner named, local SGD allowed anyway, or none fits.

    ``replanner`` searches with the ``effort`` of the answer (None: to the end), and ``planner`` is asked, too; where
    there is none, only if no plan of the decision can be turned into a local-SGD plan.
    """
    if planner is None or decision.problem.allow_local_sgd:
        return None
    allowed = replace(decision.problem, allow_local_sgd=True)
    searched = () if replanner is None else replanner.plans(allowed, effort or Effort(), local_sgd=True)
    found = dict.fromkeys((*_turned(decision), *(plan for _, plan in searched)))
    sound = [plan for plan in found if flaw(allowed, plan) is None]
    if replanner is not None or not sound:
        plan = answer_of(planner, allowed, Stop(LIMIT_S), seed=seed).plan
        sound += [plan] if plan is not None and flaw(allowed, plan) is None else []
    if not sound:
        return None
    best = min((judge(allowed, plan) for plan in sound), key=lambda found: found.step_time_s)
    return Proposal(planner.name, Status.FEASIBLE, best, notes=NOTES)


def _turned(decision: Decision) -> Iterator[Plan]:
    """The decision's plans with local SGD."""
    found = [] if decision.plan is None else [decision.plan]
    for plan in found + [other.plan for other in decision.runners_up]:
        if len(plan.domains) == 1:
            plan = in_every_domain(decision.problem, plan)
        if len({pipeline.domains for pipeline in plan.pipelines}) > 1:
            yield replace(plan, sync=Sync.outer(decision.problem.outer_step))


def in_every_domain(problem: Problem, plan: Plan) -> Plan:
    """The plan of one domain set up in all domains that hold it, each with its share of the waves.

    The plan itself where no other domain holds it, or where there are fewer waves than domains.
    """
    (home,) = (problem.cluster.domain(name) for name in plan.domains)
    used = 1 + max(int(device.split("/")[1]) for device in _devices(plan))
    like = [
        domain.name
        for domain in problem.cluster.domains
        if domain.gpus_per_node == home.gpus_per_node and domain.nodes >= used
    ]
    pipelines: list[Pipeline] = []
    for pipeline in plan.pipelines:
        each, more = divmod(pipeline.num_micro_batches, len(like))
        if not each:
            return plan
        for index, name in enumerate(like):
            stages = tuple(_moved(stage, name) for stage in pipeline.stages)
            pipelines.append(replace(pipeline, stages=stages, num_micro_batches=each + (index < more)))
    return replace(plan, pipelines=tuple(pipelines))


def _moved(stage: Stage, domain: str) -> Stage:
    devices = tuple("/".join((domain, *device.split("/")[1:])) for device in stage.devices)
    return replace(stage, domain=domain, devices=devices)


def _devices(plan: Plan) -> Iterator[str]:
    return (device for pipeline in plan.pipelines for stage in pipeline.stages for device in stage.devices)
