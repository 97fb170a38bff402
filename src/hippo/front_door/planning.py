"""Plans: a question, a stopping rule and a seed in; an answer that can say ``summary()`` out.

Names of planners and engines are resolved here; everything below takes objects. What is shown in a notebook is put on
here, too, so that no answer knows how it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

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
from hippo.planners.exact.replan import DomainReplanner
from hippo.planners.exact.thrift import cheapest
from hippo.problem.load import load_problem
from hippo.problem.model import Model
from hippo.problem.problem import Problem
from hippo.problem.runtimes import RUNTIMES
from hippo.registry import AUTO, EVERYONE, LOCAL_SGD, USUAL, planners
from hippo.registry import engine as engine_named
from hippo.registry import planner as planner_named
from hippo.score.judge import evaluate, fits, memory
from hippo.score.score import Score
from hippo.simulate.lower import lower
from hippo.simulate.timeline import Timeline

if TYPE_CHECKING:
    from hippo.export.base import Export
    from hippo.schedule.problem import ScheduleProblem
    from hippo.schedule.solve import Answer
    from hippo.score.published import ValidationReport

DEFAULT_STOP = Stop()
EXPLAIN_STOP = Stop(time_limit_s=2.0)


class ShownDecision(Decision):
    """A decision that a notebook shows with tables and charts."""

    def _repr_html_(self) -> str:
        from hippo.report.notebook import decision_html

        return str(decision_html(self))


class LayoutOptions(TypedDict, total=False):
    """What ``estimate`` takes besides model and GPU; what is left out: degrees of 1, no recomputation, no sharding."""

    tp: int
    dp: int
    pp: int
    cp: int
    ep: int
    etp: int | None  # ranks that an expert is cut over; tp where it is left out
    micro_batch: int  # sequences per micro-batch and data-parallel rank
    interleave: int  # model chunks per stage
    schedule: str | None  # gpipe, 1f1b, interleaved
    recompute: str  # none, selective, full, full:N (the first N layers of each chunk), modules joined by +
    sharding: str  # none, optimizer, optimizer-across, gradients, full, hybrid
    overlap_exchange: bool  # of experts, beside another micro-batch
    sequence_parallel: bool
    global_batch: int  # sequences per optimizer step
    seq: int | None  # tokens per sequence
    precision: str | None
    runtime: str  # hippo, megatron, torch, deepspeed; ideal where it is left out
    profile: str | Path | None


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
    why: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """The best plan for a problem, how far from the optimum it can be, and (``why``) why.

    ``planner``: ``auto`` (the exact search first), or names with commas. Once one has proven its plan the others are
    not asked, unless ``everyone`` shall stand beside it (``decision.rows``). The search is bounded by work that is
    counted, so equal problems, limits and seeds get equal plans; of plans within 0.5 % of the quickest it is the
    cheapest. Where the limit cut it short, ``decision.cut_short`` says so. A problem that no plan fits is an answer
    (``decision.status``), with what is missing among ``decision.reasons``. Raises ``InputError`` for a planner that
    does not exist.
    """
    found = choose.decide(
        problem,
        _named(planner, progress),
        stop,
        baseline=planners(USUAL),
        local_sgd=planner_named(LOCAL_SGD),
        replanner=_anew(planner),
        search=front_candidates if planner == "auto" else None,
        thrift=cheapest,
        order=with_best_order,
        everyone=everyone,
        why=why,
        seed=seed,
        progress=progress,
    )
    return _shown(found)


def compare_runtimes(
    problem: Problem,
    stop: Stop = DEFAULT_STOP,
    *,
    planner: str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Decision, ...]:
    """The best plan for every runtime, each chosen under its own rules and times (``decision.problem.runtime``),
    without reasons; the time limit is that of each."""
    asked = [replace(problem, runtime=name) for name in RUNTIMES]
    return tuple(plan(each, stop, planner=planner, why=False, seed=seed, progress=progress) for each in asked)


def compare(
    problem: Problem,
    stop: Stop = DEFAULT_STOP,
    *,
    planner: str = "auto",
    why: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Decision:
    """All planners side by side (``decision.rows``), scored by one judge; each may take the whole limit. ``why``: with
    reasons for the best."""
    found = choose.compare(
        problem,
        _named(planner, progress),
        stop,
        baseline=planners(USUAL),
        local_sgd=planner_named(LOCAL_SGD),
        replanner=_anew(planner),
        thrift=cheapest,
        order=with_best_order,
        why=why,
        seed=seed,
        progress=progress,
    )
    return _shown(found)


def with_reasons(decision: Decision, stop: Stop = DEFAULT_STOP, *, planner: str = "auto", seed: int = 0) -> Decision:
    """A decision of ``plan`` or ``compare`` that was made without reasons (``why=False``), with them."""
    if decision.reasons:
        return decision
    panel = choose.Panel(_named(planner), planners(USUAL), planner_named(LOCAL_SGD), _anew(planner))
    return _shown(choose.with_reasons(decision, panel, stop, seed=seed))


def explain(problem: Problem, plan: Plan, stop: Stop = EXPLAIN_STOP, *, seed: int = 0) -> Decision:
    """Why a plan is as fast as it is, what holds it back, and how it compares with the best found within ``stop``.

    ``plan`` may come from a decision, from ``hippo.load_plan`` or from your own hand.
    """
    found = explain_plan.explain_plan(
        problem,
        plan,
        _named("exact"),
        stop,
        baseline=planners(USUAL),
        replanner=DomainReplanner,
        order=with_best_order,
        seed=seed,
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
        problem,
        _named(planner, progress),
        stop,
        search=search,
        baseline=usual,
        order=with_best_order,
        seed=seed,
        progress=progress,
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
    *,
    model: str | Path | Mapping[str, Any] | Model,
    gpu: str,
    gpus_per_node: int = 8,
    inter_node_gbps: float | None = None,
    **layout: Unpack[LayoutOptions],
) -> Estimate:
    """One layout in one data centre of just enough nodes; ``layout``: the degrees and choices of ``LayoutOptions``.

    ``inter_node_gbps`` is the network of a node in one direction, Gbit/s (None: what is usual for the GPU). Raises
    ``InputError`` for a name or a number that is wrong, and for a layout that cannot be dealt out so.
    """
    options: dict[str, Any] = dict(layout)
    unknown = sorted(set(options) - set(LayoutOptions.__annotations__))
    if unknown:
        remedy = f"use {', '.join(LayoutOptions.__annotations__)}"
        raise InputError("is no argument of estimate", key=unknown[0], remedy=remedy)
    names = {field.name for field in fields(Degrees)}
    degrees = Degrees(**{name: value for name, value in options.items() if name in names})
    cluster = site(gpu, degrees.gpus, gpus_per_node=gpus_per_node, inter_node_gbps=inter_node_gbps)
    rest = {name: value for name, value in options.items() if name not in names}
    problem = load_problem(model=model, cluster=cluster, **{"runtime": "ideal", **rest})
    plan = one_layout(problem, degrees)
    _refuse_broken(problem, plan)
    return Estimate(problem, plan, evaluate(problem, plan), memory(problem, plan), fits(problem, plan))


def schedule(
    problem: str | Path | Mapping[str, Any] | ScheduleProblem,
    method: str = "best",
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    hint: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """The order of micro-batches in one pipeline by a method, and how good it can be (``makespan``, ``lower_bound``).

    ``problem``: a file as ``hippo schedule --problem`` reads it, a mapping of that form, or the value; times have any
    one unit. ``hint``: ranks run what is ready, the order only advises. Raises ``InputError`` for a malformed problem
    or an unknown method, ``InfeasibleError`` where memory or placement allow no schedule.
    """
    from hippo.files import json_text, read_text
    from hippo.schedule.problem import ScheduleProblem
    from hippo.schedule.problem_json import problems_of_text
    from hippo.schedule.solve import solve

    if not isinstance(problem, ScheduleProblem):
        given = isinstance(problem, Mapping)
        text = json_text(dict(problem)) if isinstance(problem, Mapping) else read_text(problem, what="problem file")
        asked = problems_of_text(text, source="problem" if given else str(problem)).problems
        if len(asked) != 1:
            remedy = "give a file of one problem"
            raise InputError(f"must be one problem, the file holds {len(asked)}", key="problem", remedy=remedy)
        problem = asked[0].problem
    first_use.prepare_schedules([problem.placement], varies=hint or method == "learned", progress=progress)
    return solve(problem, method, time_limit_s=time_limit_s, seed=seed, hint=hint, progress=progress)


def export(
    problem: Problem,
    plan: Plan,
    to: str,
    *,
    program: str = "auto",
    places: Mapping[str, str] | None = None,
    nearest: bool = False,
    out: str | Path | None = None,
) -> Export:
    """The files that launch a plan with a target (``megatron``, ``slurm``, ..), the command to type, and what a step
    takes under the runtime that they start (``expected``); with ``out`` they are written into that folder.

    ``program``: what every rank runs where the target is a launcher; ``places``: a domain to what the launcher calls
    it; ``nearest``: where the target cannot run the plan, the nearest that it can. Raises ``InputError`` for an unknown
    target or a file in the way, ``InexpressibleError`` with the nearest plan where the target cannot run this one.
    """
    from hippo.export.base import Wishes
    from hippo.export.folder import write_export
    from hippo.export.program import instead
    from hippo.export.sums import in_ring_order
    from hippo.files import json_text
    from hippo.plan.codec import plan_to_document
    from hippo.registry import exporter

    _refuse_broken(problem, plan)
    target = exporter(to)
    told: tuple[str, ...] = ()
    plan = in_ring_order(problem, plan)
    if nearest:
        plan, told = instead(problem, plan, to, program)
    found = target(problem, plan, Wishes(program, dict(places or {})))
    asked = problem if found.expected is None else found.expected.problem
    files = {**found.files, "plan.json": json_text(plan_to_document(asked, plan))}
    found = replace(found, files=files, notes=(*told, *found.notes))
    if out is not None:
        write_export(Path(out), found.files)
    return found


def validate(*cases: str | Path, data: str | Path | None = None) -> ValidationReport:
    """Published training runs against predictions: error per row, per family and overall, as shares of the published
    step time. ``cases``: files of rows (docs/contracts.md has the forms), as ``data/training_open.json``; ``data``: a
    folder, of which every known file is read. Raises ``InputError`` for a malformed file."""
    from hippo.score import published
    from hippo.score.kernels import kernel_folder

    rows, skipped = published.load_all(data) if data is not None else ((), ())
    rows = (*rows, *(row for path in cases for row in published.load(path)))
    kernels = kernel_folder(data) if data is not None else None
    return published.validate(rows, skipped=skipped, kernels=kernels)


def _named(names: str, progress: Progress | None = None) -> tuple[Planner, ...]:
    """Planners by name (with commas), or all that compete for ``auto``; compiled before any clock begins to run."""
    found = planners(AUTO if names == EVERYONE else [name.strip() for name in names.split(",")])
    first_use.prepare(found, progress=progress)
    return found


def _anew(names: str) -> type[DomainReplanner] | None:
    """Who plans anew for other links: the exact search, where it is asked at all."""
    return DomainReplanner if names == "auto" or "exact" in names.split(",") else None


def _shown(decision: Decision) -> ShownDecision:
    return ShownDecision(**{field.name: getattr(decision, field.name) for field in fields(decision)})


def _refuse_broken(problem: Problem, plan: Plan) -> None:
    violations = check(problem, plan)
    if violations:
        raise InputError(str(violations[0]), key="plan", remedy="mend the plan, or plan anew")
