"""Why any plan is as it is: one that was chosen and written to a file, or one that somebody wrote by hand."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.decide.choose import Order, Panel, choose
from hippo.decide.decision import GIVEN, Decision
from hippo.decide.explain import Context, explain, memory_headroom
from hippo.decide.reasons import Better, Reason, Violated
from hippo.decide.rivals import Alternatives, effort_of
from hippo.decide.wording import described, gb
from hippo.plan.check import Violation, check
from hippo.plan.plan import Plan
from hippo.planners.base import Planner, Progress, Status, Stop
from hippo.planners.exact.replan import DomainReplanner
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge
from hippo.score.score import worse_by


def explain_plan(
    problem: Problem,
    plan: Plan,
    planners: Sequence[Planner],
    stop: Stop,
    *,
    baseline: Sequence[Planner] = (),
    replanner: type[DomainReplanner] | None = None,
    order: Order | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """Reasons for ``plan``, and how it compares with the best that the planners find within ``stop``.

    A plan that breaks a rule is not played: its violations are the reasons, and ``status`` is infeasible. A plan that
    only needs too much memory is played all the same, as if it fitted, and says how much is missing.
    """
    broken = check(problem, plan)
    if broken:
        return Decision(problem, Status.INFEASIBLE, GIVEN, plan, reasons=_violations(broken))
    panel = Panel(tuple(planners), tuple(baseline), replanner=replanner, order=order)
    best = choose(problem, panel, stop, seed=seed, progress=progress)
    against = None if best.baseline is None else best.baseline.score
    given = judge(problem, plan).under(problem, baseline=against)
    gap = _gap(given, best)
    bound = best.lower_bound_s if gap is not None else None
    name, rejected = (best.planner, best.rejected) if best.plan == plan else (GIVEN, {})
    answer = given
    if best.judged is not None and worse_by(problem.objective, given.score, best.judged.score) >= 0:
        answer = best.judged
    if best.others is not None:
        others = best.others if answer is best.others.answer else best.others.beside(answer)
    else:
        anew = None if replanner is None or best.judged is None else replanner.of(problem, best.judged.plan)
        against_plan = None if best.baseline is None else best.baseline.best
        others = Alternatives(answer, best.runners_up, anew, against_plan, effort_of(stop))
    rivals = tuple(each for each in (answer, *others.search()) if each.plan != plan)
    context = Context(name, gap, bound, best.prover, (), rejected, others, best.baseline)
    too_much = _memory(given)
    reasons = (*too_much, *explain(given, context), *_better(best, given))
    return Decision(
        problem=problem,
        status=Status.INFEASIBLE if too_much else Status.FEASIBLE,
        planner=GIVEN,
        best=given,
        gap=gap,
        lower_bound_s=bound,
        prover=best.prover,
        planning_s=best.planning_s,
        reasons=reasons,
        rows=best.rows,
        baseline=best.baseline,
        runners_up=rivals,
        searched=frozenset(others.searched),
        unasked=best.unasked,
    )


def _violations(broken: Sequence[Violation]) -> tuple[Reason, ...]:
    return tuple(Violated(violation.where, violation.message) for violation in broken)


def _gap(given: Judged, best: Decision) -> float | None:
    """How far the plan can be from the optimum, by the bound that the search proved; None where it proved none."""
    bound = best.lower_bound_s
    if bound is None or given.problem.objective.name != "time" or given.step_time_s < bound:
        return None
    return 1 - bound / given.step_time_s


def _memory(given: Judged) -> tuple[Reason, ...]:
    headroom = memory_headroom(given)
    missing = max(headroom.peak_bytes) - headroom.usable_bytes
    if missing <= 0:
        return ()
    return (
        Violated(
            headroom.subject, f"needs {gb(missing)} more memory on a GPU than the {gb(headroom.usable_bytes)} usable"
        ),
    )


def _better(best: Decision, given: Judged) -> tuple[Reason, ...]:
    if best.plan is None or best.score is None:
        return ()
    worse = worse_by(given.problem.objective, given.score, best.score)
    return (Better(best.planner, described(best.plan), best.score.step_time_s, given.step_time_s, worse),)
