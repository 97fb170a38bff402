"""Running: a plan trained for real, step by step, beside what the simulator says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from hippo.arguments import check_fields
from hippo.emulate.emulation import emulation
from hippo.errors import InputError
from hippo.plan.check import check
from hippo.plan.plan import Plan
from hippo.planners.base import Progress
from hippo.problem.problem import Problem
from hippo.problem.runtimes import runtime_of
from hippo.run.change import PlanChange, Planned, check_change
from hippo.run.checkpoint import RunCheckpoint, held, last, refuse_older
from hippo.run.control import Desk, journal_of, listening
from hippo.run.fits import check_job, check_machine, is_small, needed_bytes
from hippo.run.job import FOLLOW, MOST_STEPS, RunJob, RunOptions, check_range, check_saving, replicas_alone
from hippo.run.journal import Journal
from hippo.run.learned_order import with_learned_order
from hippo.run.lost import LostError, RunError
from hippo.run.network import RunNetwork
from hippo.run.predict import dispatched_each, predicted_along, predicted_each, predicted_s
from hippo.run.reference import reference_losses
from hippo.run.run import Emulated, Here, RunStep, RunStretch, WorkerPlace
from hippo.run.run import run as launch
from hippo.run.saving import Saving
from hippo.score.interval import interval_document, run_interval

LEARNED = {"learned": "fixed", "learned-ready": "ready"}
"""Orders that the dispatch policy makes, and how they are run: kept to, or as a hint."""


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints go, how often, and whether the run goes on from the newest of them."""

    folder: Path
    every: int = 10  # steps; the last step is saved too
    resume: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


def run(
    problem: Problem,
    plan: Plan,
    options: RunOptions | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    reference: bool | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """A plan trained for real, a process per device, real messages: the document of ``hippo run --json``.

    ``options``: steps, order, runtime and others (``RunOptions``); ``reference``: train in one process too, None: where
    the model is small. Inside ``hippo emulate`` the processes run in its domains. Raises ``InputError`` for a plan or
    options that cannot be run here, ``run.RunError`` where a process fails.
    """
    job = job_of(problem, plan, options or RunOptions(), checkpoints)
    return trained(job, place=place_of(job), checkpoints=checkpoints, reference=reference, progress=progress)


def job_of(
    problem: Problem,
    plan: Plan,
    options: RunOptions,
    checkpoints: Checkpoints | None = None,
    *,
    source: str = "plan",
    tell: Callable[[str], None] | None = None,
) -> RunJob:
    """The job, checked: every mistake that can be seen is said before a process starts.

    ``source``: the plan's file; ``tell`` hears of pipelines whose order is not the policy's that was asked for.
    """
    violations = check(problem, plan)
    if violations:
        raise InputError(str(violations[0]), source=source, remedy=violations[0].remedy)
    told: list[str] = []  # when all is checked
    if options.order in LEARNED:
        if options.runtime != "hippo":
            remedy = "leave out one of them, or give plans that 'hippo plan' ordered"
            raise InputError(f"does not go with --order {options.order}", source="--runtime", remedy=remedy)
        plan = with_learned_order(problem, plan, source=source, say=told.append)
        options = replace(options, order=LEARNED[options.order])
    job = RunJob(problem, plan, options)
    check_job(job, source=source)
    check_machine(job)
    if checkpoints is not None:
        job = _resumed(job, checkpoints, source=source)
    if tell is not None:
        for words in told:
            tell(words)
    return job


def _resumed(job: RunJob, checkpoints: Checkpoints, *, source: str) -> RunJob:
    """The job, going on from the newest checkpoint where that was asked for."""
    options = job.options
    if options.stand_in:
        remedy = "leave out one of them"
        raise InputError("stand-ins have no layers to save", source="--checkpoint", value="--stand-in", remedy=remedy)
    check_range("--every", checkpoints.every, 1, MOST_STEPS)
    check_saving(job, source=source)
    if not checkpoints.resume:
        refuse_older(checkpoints.folder)
        return job
    found = last(checkpoints.folder, job.problem.model, seed=options.seed)
    resumed = replace(options, first_step=found.step + 1, resume_from=str(found.folder.resolve()))
    return replace(job, options=resumed)


def place_of(job: RunJob, then: PlanChange | None = None, *, source: str = "plan") -> WorkerPlace:
    """Where processes run: here, or in the domains of the emulation around; ``InputError`` for a plan that has others,
    or for one that the run goes on under and this machine cannot hold."""
    if then is not None:
        check_machine(replace(job, plan=then.plan))
    inside = emulation()
    if inside is None:
        return Here()
    place = Emulated(inside)
    place.check(job.plan, source=source)
    if then is not None:
        place.check(then.plan, source="--then")
    return place


def checked_then(job: RunJob, problem: Problem, plan: Plan, step: int, *, source: str) -> PlanChange:
    """A plan (of the file ``source``) under which the job goes on after a step, checked against it.

    Raises
    ------
    InputError
        Another model, other links, or a move that cannot be made.
    """
    if problem.model != job.problem.model or problem.workload != job.problem.workload:
        remedy = "make both plans from the same model and workload"
        raise InputError("is for another model or workload", source=source, value=problem.model.name, remedy=remedy)
    if problem.cluster.links != job.problem.cluster.links:
        remedy = "make both plans for the same cluster"
        raise InputError("is for other links", source=source, value=problem.cluster.name, remedy=remedy)
    if plan == job.plan:
        remedy = "leave it out, or give another plan"
        raise InputError("is the plan that runs before it", source=source, value="--then", remedy=remedy)
    check_job(replace(job, plan=plan), source=source)
    then = PlanChange(plan, step)
    check_change(job, then, source="--then", before=needed_bytes(job))
    return then


def trained(
    job: RunJob,
    *,
    place: WorkerPlace,
    then: PlanChange | None = None,
    checkpoints: Checkpoints | None = None,
    reference: bool | None = None,
    progress: Progress | None = None,
    control: Path | None = None,
) -> dict[str, Any]:
    """Runs the job and, where asked, its reference; everything that is told of it. ``control``: a socket that takes
    orders meanwhile."""
    begun, emulated = job.options.first_step - 1, isinstance(place, Emulated)

    planned = () if then is None else (then,)
    follows = job.options.batch_rule == FOLLOW
    apart = replicas_alone(job.plan) > 1  # whose loss is not that of one process
    if reference and (follows or apart):
        source, value, why = "--batch-rule", FOLLOW, "one process keeps its batch"
        if apart:
            source, value, why = "--reference", "local_sgd", "one process has no replicas that train alone"
        raise InputError(why, source=source, value=value, remedy="leave out one of them")
    before, found = tuple[float, ...](), None
    if checkpoints is not None and checkpoints.resume:
        found = last(checkpoints.folder, job.problem.model)
        before = found.losses
        if control is None:
            _check_replicas(job, found)
    unsaved: list[dict[str, Any]] = []
    not_made: list[str] = []

    def opened(asked: RunJob, socket: Path) -> Desk:
        return Desk(asked, Journal(journal_of(socket)), *planned)

    alone = nullcontext() if checkpoints is None else held(checkpoints.folder)
    with alone, nullcontext() if control is None else listening(control, partial(opened, job, control)) as desk:
        job = job if desk is None else desk.job
        if desk is not None and found is not None:
            try:
                check_job(job, source="--resume")  # with the orders that hold
                _check_replicas(job, found)
            except InputError as error:
                desk.not_begun(str(error))
                raise

        def told(step: RunStep) -> None:
            if desk is not None:
                desk.made(step)
            if progress is not None:
                progress(f"step {step.number}: {step.seconds:.3f} s", (step.number - begun) / job.options.steps)

        def missed(step: int, why: str) -> None:
            unsaved.append({"step": step, "why": why})
            if desk is not None:
                desk.missed(step, why)

        saving = None if checkpoints is None else Saving(checkpoints.folder, checkpoints.every, before, missed)
        try:
            changes = desk or Planned(*planned, tell=not_made.append)
            result = launch(job, place=place, watch=told, saving=saving, changes=changes)
        except LostError as error:
            raise RunError(f"{error}. To fix: {_way_on(job, checkpoints)}") from None
    again = not job.options.stand_in and (
        is_small(job) and not follows and not apart if reference is None else reference
    )
    measured = [step.seconds for step in result.steps]
    expected = [_each(run, emulated=emulated) for run in result.stretches]
    return {
        "measured_step_s": measured,
        "median_step_s": median(measured[1:] or measured),
        "predicted_each_s": [seconds for each in expected for seconds in each],
        **_predicted(next(each for each in result.stretches if each.steps), emulated=emulated),
        "loss": None if job.options.stand_in else [step.loss for step in result.steps],
        "reference_loss": reference_losses(job, progress or (lambda phase, share: None)) if again else None,
        "packed": any(each.job.plan.compression for each in result.stretches),
        "first_step": job.options.first_step,
        "model": job.problem.model.name,
        "cluster": job.problem.cluster.name,
        "runtime": job.options.runtime,
        "runtime_is": runtime_of(job.options.runtime).told,
        "processes": len(result.workers),
        "began_with": len(result.stretches[0].workers),
        "emulated": emulated,
        "stand_in": job.options.stand_in,
        "unsaved": unsaved,
        "not_made": not_made,
        "dispatch": job.options.dispatch,
        "noise": job.options.noise,
        "decision_us": _decision_us(result.steps),
        "timeline": [
            {"rank": each.rank, "domain": each.domain, "stage": each.stage, "operations": [list(row) for row in rows]}
            for each, rows in zip(result.workers, result.steps[-1].operations, strict=True)
        ],
        "changes": [_moved(each, emulated=emulated) for each in result.stretches[1:]],
        "links_moved": _links_moved(result.steps) if emulated else [],
        "move": None if len(result.stretches) == 1 else _moved(result.stretches[-1], emulated=emulated),
    }


def _check_replicas(job: RunJob, found: RunCheckpoint) -> None:
    """``InputError`` for fewer replicas than a checkpoint is of, whose work would be lost; more begin as copies."""
    alone = replicas_alone(job.plan)
    if found.replicas > alone:
        told = f"is of {found.replicas} replicas that train alone"
        value = f"{alone} that train alone" if alone > 1 else "one set of weights"
        remedy = "give a plan of as many, or of more; with --control orders of the run before hold, where it had them"
        raise InputError(told, source=str(found.folder), key="replicas", value=value, remedy=remedy)


def _way_on(job: RunJob, checkpoints: Checkpoints | None) -> str:
    """What to do where a run ended that no replica could go on with."""
    if checkpoints is None:
        return "run it again; with --checkpoint FOLDER it could go on"
    try:
        step = last(checkpoints.folder, job.problem.model).step
    except InputError as error:
        return f"run it again, from the start: {str(error).partition('. To fix:')[0]}"
    return f"run it again with --resume, which goes on after step {step}"


def _decision_us(steps: Sequence[RunStep]) -> float | None:
    """CPU time of a decision, median over processes and steps; None: no rank was asked."""
    found = [1e6 * seconds / count for step in steps for count, seconds in step.asked if count]
    return median(found) if found else None


def _predicted(run: RunStretch, *, emulated: bool) -> dict[str, Any]:
    """What the simulator says of a step, over links that move the mean and the range of steps begun along the trace;
    and where nine of ten measured steps are expected around it, as runs over emulated links were."""
    usual = _usual(run)
    return {**usual, **interval_document(run_interval(usual["predicted_step_s"]) if emulated else None)}


def _each(run: RunStretch, *, emulated: bool) -> list[float]:
    """What each step of a stretch should have taken, over the links as they were when it began."""
    if not run.steps:
        return []
    if run.job.asks:
        return list(dispatched_each(run.job, [step.number for step in run.steps], result=run))
    network = RunNetwork.around(run.job.problem.cluster) if emulated else RunNetwork(emulated=False)
    return list(predicted_each(run.job, network, [step.began_s for step in run.steps], result=run))


def _links_moved(steps: Sequence[RunStep]) -> list[dict[str, Any]]:
    """Links that were moved by hand while the run lasted, and the last step that had begun before."""
    inside = emulation()
    assert inside is not None, "the run was emulated"
    return [
        {
            "after_step": max(
                (step.number for step in steps if step.began_s <= each.at_s), default=steps[0].number - 1
            ),
            "from": each.source,
            "to": each.destination,
            "bandwidth_gbps": each.gbps,
            "latency_ms": each.latency_ms,
        }
        for each in inside.changes()
    ]


def _usual(run: RunStretch) -> dict[str, float]:
    job, network = run.job, RunNetwork.around(run.job.problem.cluster)
    if job.asks:
        return {"predicted_step_s": float(dispatched_each(job, [step.number for step in run.steps], result=run).mean())}
    if network.trace is None:
        first = predicted_s(job, network, result=run, cold=True)
        if network.met is None:
            return {"predicted_step_s": predicted_s(job, network, result=run), "predicted_first_step_s": first}
        each = predicted_each(job, network, [step.began_s for step in run.steps], result=run)
        return {"predicted_step_s": float(median(each)), "predicted_first_step_s": first}
    seconds = predicted_along(job, network, result=run)
    low, high = sorted(seconds)[len(seconds) // 20], sorted(seconds)[-1 - len(seconds) // 20]
    return {"predicted_step_s": float(seconds.mean()), "predicted_p5_s": float(low), "predicted_p95_s": float(high)}


def _moved(run: RunStretch, *, emulated: bool) -> dict[str, Any]:
    """The change that led to a stretch of a run and the steps after it, as data."""
    seconds, move = [step.seconds for step in run.steps], run.change
    assert move is not None, "the first stretch has no change before it"
    return {
        "order": move.order,
        "after_step": move.after_step,
        "wan_bytes": {f"{one}->{two}": size for (one, two), size in sorted(move.wan_bytes.items())},
        "sent_bytes": move.sent_bytes,
        "warmed_bytes": move.warmed_bytes,
        "measured_s": move.measured_s,
        "predicted_s": move.predicted_s if emulated else None,
        "stopped_s": move.stopped_s,
        "predicted_stopped_s": move.predicted_stopped_s if emulated else None,
        "background": move.background,
        "asked": move.asked,
        "lost": move.lost,
        "processes": len(run.workers),
        "median_step_s": median(seconds[1:] or seconds) if seconds else None,
        "predicted_step_s": _usual(run)["predicted_step_s"] if seconds else None,
    }
