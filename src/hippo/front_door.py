"""What ``import hippo`` offers: a question, a stopping rule and a seed in; an answer that can say ``summary()`` out.

Names of planners and engines are resolved here; everything below takes objects. What is shown in a notebook is put on
here, too, so that no answer knows how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from hippo import first_use
from hippo.cost.stage import StageMemory
from hippo.decide import choose, explain_plan
from hippo.decide.best_order import with_best_order
from hippo.decide.decision import Decision
from hippo.decide.pareto import Front, pareto_front
from hippo.errors import InputError
from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.base import Planner, Progress, Stop
from hippo.planners.by_hand import Degrees, one_layout, site
from hippo.planners.exact.front import front_candidates
from hippo.planners.exact.replan import Replanner
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.registry import AUTO, EVERYONE, LOCAL_SGD, USUAL, planners
from hippo.registry import engine as engine_named
from hippo.registry import planner as planner_named
from hippo.score.judge import evaluate, fits, memory
from hippo.score.score import Score
from hippo.simulate.lower import lower
from hippo.simulate.timeline import Timeline

DEFAULT_STOP = Stop()
EXPLAIN_STOP = Stop(time_limit_s=2.0)


class ShownDecision(Decision):
    """A decision that a notebook shows with tables and charts."""

    def _repr_html_(self) -> str:
        from hippo.report.notebook import decision_html

        return str(decision_html(self))


@dataclass(frozen=True)
class Estimate:
    """One layout in one data centre: the plan, its score, the memory of each stage, and whether it fits."""

    problem: Problem
    plan: Plan
    score: Score
    memory: tuple[StageMemory, ...]  # per stage
    fits: bool


def plan(
    problem: Problem,
    stop: Stop = DEFAULT_STOP,
    *,
    planner: str = "auto",
    everyone: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """The best plan for a problem, how far from the optimum it can be, and why.

    ``planner``: ``auto`` (the exact search first), or names with commas. Once one has proven its plan the others are
    not asked, unless ``everyone`` shall stand beside it (``decision.rows``). Equal problems and seeds get equal plans
    where the time limit does not bind. A problem that no plan fits is an answer (``decision.status``), with what is
    missing among ``decision.reasons``. Raises ``InputError`` for a planner that does not exist.
    """
    found = choose.decide(
        problem,
        _named(planner, progress),
        stop,
        baseline=planners(USUAL),
        local_sgd=planner_named(LOCAL_SGD),
        replanner=_anew(planner),
        order=with_best_order,
        search=front_candidates if planner == "auto" else None,
        everyone=everyone,
        seed=seed,
        progress=progress,
    )
    return _shown(found)


def compare(
    problem: Problem,
    stop: Stop = DEFAULT_STOP,
    *,
    planner: str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """All planners side by side (``decision.rows``), scored by one judge; each may take the whole time limit."""
    found = choose.compare(
        problem,
        _named(planner, progress),
        stop,
        baseline=planners(USUAL),
        local_sgd=planner_named(LOCAL_SGD),
        replanner=_anew(planner),
        order=with_best_order,
        seed=seed,
        progress=progress,
    )
    return _shown(found)


def explain(problem: Problem, plan: Plan, stop: Stop = EXPLAIN_STOP, *, seed: int = 0) -> Decision:
    """Why a plan is as fast as it is, what holds it back, and how it compares with the best found within ``stop``.

    ``plan`` may come from a decision, from ``hippo.load_plan`` or from your own hand.
    """
    found = explain_plan.explain_plan(
        problem, plan, _named("exact"), stop, baseline=planners(USUAL), replanner=Replanner, seed=seed
    )
    return _shown(found)


def pareto(
    problem: Problem,
    stop: Stop = DEFAULT_STOP,
    *,
    planner: str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> Front:
    """The plans that none beats in step time, utilisation and egress cost together (``points``, quickest first).

    ``auto``: over all plans that the exact search knows; names with commas: over the plans of those planners.
    """
    search = front_candidates if planner == "auto" else None
    usual = planners(USUAL)
    return pareto_front(
        problem, _named(planner, progress), stop, search=search, baseline=usual, seed=seed, progress=progress
    )


def simulate(problem: Problem, plan: Plan, *, engine: str = "fast") -> Timeline:
    """One step of a plan as it is played, every operation and message with its times, by ``fast`` or ``reference``."""
    if engine == "analytic":
        remedy = "use fast or reference, or hippo.simulate.analytic for the step time alone"
        raise InputError("has no timeline, only a step time", key="engine", value=engine, remedy=remedy)
    _refuse_broken(problem, plan)
    timeline: Timeline = engine_named(engine)(lower(problem, plan))
    return timeline


def estimate(
    *, model: str, gpu: str, gpus_per_node: int = 8, inter_node_gbps: float | None = None, **options: Any
) -> Estimate:
    """One layout in one data centre of just enough nodes.

    ``options``: ``tp dp pp cp ep micro_batch interleave schedule recompute sharding sequence_parallel`` (where left
    out: 1, no recomputation, no sharding), and ``global_batch seq precision profile`` as ``hippo.problem`` takes them.
    """
    names = {field.name for field in fields(Degrees)}
    degrees = Degrees(**{name: value for name, value in options.items() if name in names})
    cluster = site(gpu, degrees.gpus, gpus_per_node=gpus_per_node, inter_node_gbps=inter_node_gbps)
    rest = {name: value for name, value in options.items() if name not in names}
    problem = load_problem(model=model, cluster=cluster, **rest)
    plan = one_layout(problem, degrees)
    _refuse_broken(problem, plan)
    return Estimate(problem, plan, evaluate(problem, plan), memory(problem, plan), fits(problem, plan))


def _named(names: str, progress: Progress | None = None) -> tuple[Planner, ...]:
    """Planners by name (with commas), or all that compete for ``auto``; compiled before any clock begins to run."""
    found = planners(AUTO if names == EVERYONE else [name.strip() for name in names.split(",")])
    first_use.prepare(found, progress=progress)
    return found


def _anew(names: str) -> type[Replanner] | None:
    """Who plans anew for other links: the exact search, where it is asked at all."""
    return Replanner if names == "auto" or "exact" in names.split(",") else None


def _shown(decision: Decision) -> ShownDecision:
    return ShownDecision(**{field.name: getattr(decision, field.name) for field in fields(decision)})


def _refuse_broken(problem: Problem, plan: Plan) -> None:
    violations = check(problem, plan)
    if violations:
        raise InputError(str(violations[0]), key="plan", remedy="mend the plan, or plan anew")
