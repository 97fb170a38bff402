"""What a planner answers: of mixtures of experts the best over all degrees of expert parallelism.

A degree holds for all stages of a plan, so each is a search of its own: the planner is asked about the problem with
``expert_parallel`` set, and every planner gets the same degrees. Experts are spread over lanes: a degree divides the
data parallelism of every stage, the experts, and the GPUs of some domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from time import process_time

from hippo.errors import InfeasibleError
from hippo.plan.plan import Plan
from hippo.planners.base import Planner, Progress, Proposal, Status, Stop
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge
from hippo.score.score import objective_value

CLOSED = 1e-5
"""A gap below the precision of the bounds."""


def expert_degrees(problem: Problem) -> tuple[int, ...]:
    """Degrees of expert parallelism that plans may have; 1 alone without experts, or where the runtime or a profile has
    no other."""
    feeds = (layer.feed_forward for layer in problem.model.distinct_layers)
    count = gcd(*(feed.experts.count for feed in feeds if feed is not None and feed.experts is not None))
    if count == 0 or problem.profile is not None or not problem.rules.expert_parallel:
        return (problem.expert_parallel,)
    largest = max(domain.gpus for domain in problem.cluster.domains)
    batch = problem.workload.global_batch
    return tuple(ep for ep in range(1, min(count, largest, batch) + 1) if count % ep == 0 and batch % ep == 0)


def at_degree(problem: Problem, plan: Plan) -> Problem:
    """The problem with the plan's degree of expert parallelism, with which it is planned anew."""
    same = problem.expert_parallel == plan.expert_parallel
    return problem if same else replace(problem, expert_parallel=plan.expert_parallel)


def answer_of(
    planner: Planner, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None
) -> Proposal:
    """What the planner proposes; where it finds the problem infeasible by an error, that is its answer."""
    degrees = expert_degrees(problem)
    if degrees == (problem.expert_parallel,):  # this very problem: what its search leaves is asked for by it
        return _answer(planner, problem, stop, seed, progress)
    each = replace(stop, time_limit_s=stop.time_limit_s / len(degrees))
    found = [
        _answer(planner, replace(problem, expert_parallel=degree), each, seed, _told(progress, degree, len(degrees)))
        for degree in degrees
    ]
    return _best(problem, degrees, found)


def _answer(planner: Planner, problem: Problem, stop: Stop, seed: int, progress: Progress | None) -> Proposal:
    began = process_time()
    try:
        return planner.propose(problem, stop, seed=seed, progress=progress)
    except InfeasibleError as error:
        return Proposal(planner.name, Status.INFEASIBLE, planning_s=process_time() - began, notes=error.reasons)


def _told(progress: Progress | None, degree: int, degrees: int) -> Progress | None:
    if progress is None or degrees == 1:
        return progress
    return lambda phase, share: progress(f"{phase}, expert parallel {degree}", share)


def _best(problem: Problem, degrees: Sequence[int], found: Sequence[Proposal]) -> Proposal:
    """The best of them, with the bound that holds for all degrees: the least."""
    judged = {
        degree: (each.best if isinstance(each.best, Judged) else judge(problem, each.best)).under(problem)
        for degree, each in zip(degrees, found, strict=True)
        if each.best is not None
    }
    together = Counter[str]()
    for each in found:
        together.update(each.rejected)
    spent = {
        "planning_s": sum(each.planning_s for each in found),
        "work_s": sum(each.work_s for each in found),
        "rejected": dict(together),
    }
    if not judged:
        return replace(found[0], **spent)  # type: ignore[arg-type]
    # A reward is against a baseline, which nobody has told yet: what is weighed is compared by its time.
    weighed = problem.objective.name == "weighted"
    values = {
        degree: each.score.step_time_s if weighed else objective_value(problem.objective, each.score)
        for degree, each in judged.items()
    }
    degree = min(values, key=lambda each: (values[each], each))
    winner = found[degrees.index(degree)]
    gaps = [each for each in found if each.best is not None or each.status is not Status.INFEASIBLE]
    value, bounded = values[degree], all(each.gap is not None for each in gaps)
    least = [values[d] * (1.0 - (each.gap or 0.0)) for d, each in zip(degrees, found, strict=True) if d in values]
    gap = max(0.0, 1.0 - min(least) / value) if bounded and value > 0 else None
    closed = gap is not None and gap <= CLOSED
    told = winner.notes + ((_why(problem, degree, values),) if 1 in values else ())
    return replace(
        winner,
        best=judged[degree],
        status=Status.OPTIMAL if closed else Status.FEASIBLE,
        gap=0.0 if closed else gap,
        lower_bound_s=None if winner.lower_bound_s is None or gap is None else min(least),
        runners_up=tuple(each.under(problem) for each in winner.runners_up),
        cheaper=None if winner.cheaper is None else winner.cheaper.under(problem),
        notes=told,
        cut_short=next((each.cut_short for each in found if each.cut_short), ""),
        **spent,  # type: ignore[arg-type]
    )


def _why(problem: Problem, degree: int, values: dict[int, float]) -> str:
    unit = "USD" if problem.objective.name == "cost" else "s"
    tried = ", ".join(f"{each}: {values[each]:.4g} {unit}" for each in sorted(values))
    return f"Expert parallelism {degree} is the best of the degrees tried for all stages ({tried})."
