"""Why any plan is as it is: one that was chosen and written to a file, or one that somebody wrote by hand."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.decide.choose import Panel, choose
from hippo.decide.decision import Decision
from hippo.decide.explain import Context, explain, memory_headroom
from hippo.decide.measure import worse_by
from hippo.decide.reasons import Better, Reason, Violated
from hippo.decide.rivals import improved
from hippo.decide.wording import described, gb
from hippo.plan.check import Violation, check
from hippo.plan.plan import Plan
from hippo.planners.base import Planner, Progress, Status, Stop
from hippo.planners.exact.replan import Replanner
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate
from hippo.score.score import Score

NAME = "the plan given"


def explain_plan(
    problem: Problem,
    plan: Plan,
    planners: Sequence[Planner],
    stop: Stop,
    *,
    baseline: Sequence[Planner] = (),
    replanner: type[Replanner] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """Reasons for ``plan``, and how it compares with the best that the planners find within ``stop``.

    A plan that breaks a rule is not played: its violations are the reasons, and ``status`` is infeasible. A plan that
    only needs too much memory is played all the same, as if it fitted, and says how much is missing.
    """
    broken = check(problem, plan)
    if broken:
        return Decision(problem, Status.INFEASIBLE, NAME, plan, reasons=_violations(broken))
    panel = Panel(tuple(planners), tuple(baseline))
    best = choose(problem, panel, stop, seed=seed, progress=progress)
    against = None if best.baseline is None else best.baseline.score
    score = evaluate(problem, plan, baseline=against)
    rivals = () if best.plan is None or best.score is None else ((best.plan, best.score), *best.runners_up)
    rivals = tuple(rival for rival in rivals if rival[0] != plan)
    gap = _gap(problem, score, best)
    bound = best.lower_bound_s if gap is not None else None
    name, rejected = (best.planner, best.rejected) if best.plan == plan else (NAME, {})
    anew = None if replanner is None or not rivals else replanner.of(problem, plan)
    rivals = improved(problem, plan, rivals, anew, baseline=against)
    context = Context(name, gap, bound, best.prover, (), rejected, rivals, best.baseline, anew)
    too_much = _memory(problem, plan)
    reasons = (*too_much, *explain(problem, plan, score, context), *_better(problem, best, plan_score=score))
    return Decision(
        problem=problem,
        status=Status.INFEASIBLE if too_much else Status.FEASIBLE,
        planner=NAME,
        plan=plan,
        score=score,
        gap=gap,
        lower_bound_s=bound,
        prover=best.prover,
        planning_s=best.planning_s,
        reasons=reasons,
        rows=best.rows,
        baseline=best.baseline,
        runners_up=rivals,
    )


def _violations(broken: Sequence[Violation]) -> tuple[Reason, ...]:
    return tuple(Violated(violation.where, violation.message) for violation in broken)


def _gap(problem: Problem, score: Score, best: Decision) -> float | None:
    """How far the plan can be from the optimum, by the bound that the search proved; None where it proved none."""
    if best.lower_bound_s is None or problem.objective.name != "time" or score.step_time_s < best.lower_bound_s:
        return None
    return 1 - best.lower_bound_s / score.step_time_s


def _memory(problem: Problem, plan: Plan) -> tuple[Reason, ...]:
    headroom = memory_headroom(problem, plan)
    missing = max(headroom.peak_bytes) - headroom.usable_bytes
    if missing <= 0:
        return ()
    return (
        Violated(
            headroom.subject, f"needs {gb(missing)} more memory on a GPU than the {gb(headroom.usable_bytes)} usable"
        ),
    )


def _better(problem: Problem, best: Decision, plan_score: Score) -> tuple[Reason, ...]:
    if best.plan is None or best.score is None:
        return ()
    worse = worse_by(problem.objective, plan_score, best.score)
    return (Better(best.planner, described(best.plan), best.score.step_time_s, plan_score.step_time_s, worse),)
