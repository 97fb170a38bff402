"""``hippo run``: a plan trained for real, step by step, beside what the simulator says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.ending import ended_cleanly
from hippo.cli.exit_codes import FAULT
from hippo.cli.options import Json, Seed, takes
from hippo.cli.output import check_folder, mention, print_document, print_view, say, write_files
from hippo.cli.plan_file import PlanFile, read_plan
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.emulate.emulation import Emulation
    from hippo.plan.plan import Plan
    from hippo.problem.problem import Problem
    from hippo.run.job import RunJob
    from hippo.run.run import Result, RunStep, Saving, WorkerPlace

MOST_STEPS = 1_000_000
DEFAULT_CONGESTION = "cubic"
LEARNED = {"learned": "fixed", "learned-ready": "ready"}
"""Orders that the dispatch policy makes, and how they are run: kept to, or as a hint."""
OUTSIDE = ("--trace", "--congestion")
"""Options with a value that are for the emulation around a run."""


@dataclass(frozen=True)
class Choice:
    """Which plan, how long, and on what."""

    plan: PlanFile
    emulate: Annotated[bool, typer.Option("--emulate", help="Inside an emulated WAN with the plan's links.")] = False
    congestion: Annotated[
        str | None,
        typer.Option(
            metavar="cubic|bbr", help="TCP's congestion control, with --emulate.", show_default=DEFAULT_CONGESTION
        ),
    ] = None
    trace: Annotated[
        Path | None, typer.Option(metavar="NET.csv", help="Network trace that moves the links, with --emulate.")
    ] = None
    steps: Annotated[int, typer.Option(metavar="N", help="Optimizer steps.")] = 10
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Waits in place of layers; messages are real. A process per stage.")
    ] = False
    order: Annotated[
        str,
        typer.Option(
            metavar="auto|fixed|ready|learned|learned-ready",
            help="The schedule's order, or what is ready; auto: by domain; learned: the policy's order in its place.",
        ),
    ] = "auto"
    backward: Annotated[
        str, typer.Option(metavar="split|whole", help="A gradient leaves before its wave's weight gradients, or after.")
    ] = "split"
    runtime: Annotated[
        str, typer.Option(metavar="hippo|torch", help="hippo's executor, or torch.distributed.pipelining.")
    ] = "hippo"
    precision: Annotated[str, typer.Option(metavar="fp32|fp64|bf16", help="Of the real layers.")] = "fp32"
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="cuda: a GPU per process, messages by NCCL.")] = "cpu"
    learning_rate: Annotated[float, typer.Option(metavar="RATE", help="Of AdamW.")] = 1e-3
    reference: Annotated[
        bool | None,
        typer.Option("--reference/--no-reference", help="Train in one process too.", show_default="small models"),
    ] = None
    checkpoint: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder that takes checkpoints.")] = None
    every: Annotated[int, typer.Option(metavar="N", help="Steps between checkpoints; the last step is saved too.")] = 10
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in DIR.")] = False
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder that takes run.html and run.json.")] = None
    then: Annotated[
        str | None,
        typer.Option(metavar="PLAN.json@STEP", help="Goes on under another plan after that step: layers move."),
    ] = None
    outer_late: Annotated[
        int, typer.Option(metavar="N", help="Local SGD: steps trained on while the replicas' sum goes round.")
    ] = 0
    timeout: Annotated[float, typer.Option(metavar="S", help="Ends the run when nothing moves for so long.")] = 60.0
    seed: Seed = 0
    json: Json = False


@takes(Choice)
def run(choice: Choice) -> None:
    """A plan trained for real, beside what was predicted.

    A process per device, real messages. With --emulate each domain is a network namespace. With --stand-in stages wait
    as long as the plan says they take.
    """
    from hippo.emulate.emulation import emulation

    if choice.out is not None:
        check_folder(choice.out)
    inside = emulation()
    _check_words(choice, inside)
    job = _job(choice)
    place = _place(choice, job, inside)
    if choice.emulate and inside is None:
        raise typer.Exit(_inside(choice, job))
    from hippo.run.run import RunError

    try:
        with ended_cleanly():
            document = _trained(choice, job, place, emulated=inside is not None)
    except RunError as error:
        say(str(error))
        raise typer.Exit(FAULT) from None
    if choice.json:
        print_document(document)
    else:
        from hippo.report.run_terminal import run_view

        print_view(run_view(document))
    if choice.out is not None:
        from hippo.files import json_text
        from hippo.report.run_html import run_html

        write_files(choice.out, {"run.html": run_html(document), "run.json": json_text(document)})


def _check_words(choice: Choice, inside: Emulation | None) -> None:
    """``InputError`` for options that would be without effect."""
    for name in ("trace", "congestion"):
        value = getattr(choice, name)
        if value is not None and (inside is not None or not choice.emulate):
            remedy = f"give --{name} to the hippo emulate around" if inside is not None else "add --emulate"
            told = "moves no link of this run" if name == "trace" else "changes no link of this run"
            raise InputError(told, source=f"--{name}", value=str(value), remedy=remedy)
    if choice.checkpoint is not None and choice.stand_in:
        remedy = "leave out one of them"
        raise InputError("stand-ins have no layers to save", source="--checkpoint", value="--stand-in", remedy=remedy)


def _job(choice: Choice) -> RunJob:
    """The job, checked."""
    from hippo.run.fits import check_job, check_machine
    from hippo.run.job import RunJob, RunOptions

    for name, low, high in (
        ("steps", 1, MOST_STEPS),
        ("every", 1, MOST_STEPS),
        ("outer_late", 0, MOST_STEPS),
        ("timeout", 1.0, 86_400.0),
        ("learning_rate", 0.0, 1e3),
    ):
        value = getattr(choice, name)
        if not low <= value <= high:
            option = "--" + name.replace("_", "-")
            raise InputError(
                f"must be from {low:g} to {high:g}", source=option, value=value, remedy="give such a number"
            )
    problem, plan = read_plan(choice.plan)
    told: list[str] = []  # said when all is checked
    if choice.order in LEARNED:
        plan = _learned(choice, problem, plan, told.append)
    options = RunOptions(
        steps=choice.steps,
        stand_in=choice.stand_in,
        precision=choice.precision,
        device=choice.device,
        seed=choice.seed,
        learning_rate=choice.learning_rate,
        timeout_s=choice.timeout,
        order=LEARNED.get(choice.order, choice.order),
        backward=choice.backward,
        runtime=choice.runtime,
        outer_late=choice.outer_late,
    )
    job = RunJob(problem, plan, options)
    check_job(job, source=str(choice.plan))
    check_machine(job)
    if choice.checkpoint is not None:
        from hippo.run.job import check_saving

        check_saving(job, source=str(choice.plan))
    job = _resumed(choice, job)
    for words in told:
        mention(words)
    return job


def _learned(choice: Choice, problem: Problem, plan: Plan, tell: Callable[[str], None]) -> Plan:
    """The plan in the order of the policy; a plan to go on under, or another runtime, would not have it."""
    from hippo.emulate.emulation import emulation
    from hippo.run.learned_order import with_learned_order

    for option, given in (("--then", choice.then is not None), ("--runtime", choice.runtime != "hippo")):
        if given:
            remedy = "leave out one of them, or give plans that 'hippo plan' ordered"
            raise InputError(f"does not go with --order {choice.order}", source=option, remedy=remedy)
    if choice.emulate and emulation() is None:  # the same command inside says it
        return with_learned_order(problem, plan, source=str(choice.plan))
    return with_learned_order(problem, plan, source=str(choice.plan), say=tell)


def _resumed(choice: Choice, job: RunJob) -> RunJob:
    """The job, going on from the newest checkpoint where that was asked for."""
    from hippo.run.checkpoint import last, refuse_older

    if choice.checkpoint is None:
        if choice.resume:
            remedy = "name the folder with --checkpoint"
            raise InputError("there is nothing to go on from", source="--resume", remedy=remedy)
        return job
    check_folder(choice.checkpoint, option="--checkpoint")
    if not choice.resume:
        refuse_older(choice.checkpoint)
        return job
    found = last(choice.checkpoint, job.problem.model, seed=choice.seed)
    return replace(
        job, options=replace(job.options, first_step=found.step + 1, resume_from=str(found.folder.resolve()))
    )


def _saving(choice: Choice, job: RunJob) -> Saving | None:
    """Where checkpoints go; None: nowhere."""
    if choice.checkpoint is None:
        return None
    from hippo.run.checkpoint import last
    from hippo.run.run import Saving

    before = last(choice.checkpoint, job.problem.model).losses if choice.resume else ()
    return Saving(choice.checkpoint, choice.every, before)


def _inside(choice: Choice, job: RunJob) -> int:
    """The same command inside an emulated WAN; its exit code."""
    from hippo.emulate.emulate import Stopped, emulate, setting_of
    from hippo.problem.load import load_trace

    argv = [sys.executable, "-c", "from hippo.cli.main import main; main()", *_words_inside(sys.argv[1:])]
    cluster = job.problem.cluster
    trace = None if choice.trace is None else load_trace(choice.trace, cluster)
    congestion = choice.congestion or DEFAULT_CONGESTION
    setting = setting_of(cluster, argv, source=str(choice.plan), trace=trace, congestion=congestion)
    try:
        return emulate(setting).exit_code
    except Stopped as stopped:
        say(f"ended before the run began: {stopped}")
        return 128 + stopped.number


def _words_inside(words: Sequence[str]) -> list[str]:
    """The command line without what the emulation around has taken care of."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in OUTSIDE:
            next(rest, None)
        elif word != "--emulate" and word.partition("=")[0] not in OUTSIDE:
            kept.append(word)
    return kept


def _place(choice: Choice, job: RunJob, inside: Emulation | None) -> WorkerPlace:
    """Where processes run; what is wrong with the plans there is said before anything starts."""
    from hippo.cli.then import read_then
    from hippo.run.fits import check_machine
    from hippo.run.run import Emulated, Here

    then = None if choice.then is None else read_then(choice.then, job)
    if then is not None:
        check_machine(replace(job, plan=then.plan))
    if inside is None:
        return Here()
    place = Emulated(inside)
    place.check(job.plan, source=str(choice.plan))
    if then is not None:
        place.check(then.plan, source="--then")
    return place


def _trained(choice: Choice, job: RunJob, place: WorkerPlace, *, emulated: bool) -> dict[str, Any]:
    """Runs the job and, where asked, its reference; everything that is told of it."""
    from hippo.cli.then import read_then, told_of
    from hippo.run.move import PlanMoved, run_then
    from hippo.run.run import run as launch

    then = None if choice.then is None else read_then(choice.then, job)
    moved: PlanMoved | None = None
    with Watch("training") as watch:
        begun = job.options.first_step - 1

        def told(step: RunStep) -> None:
            watch(_told(step), (step.number - begun) / job.options.steps)

        saving = _saving(choice, job)
        if then is None:
            result = launch(job, place=place, watch=told, saving=saving)
        else:
            moved = run_then(job, then, place=place, watch=told, saving=saving)
            result = moved.whole
    reference = _reference(choice, job)
    measured = [step.seconds for step in result.steps]
    return {
        "measured_step_s": measured,
        "median_step_s": median(measured[1:] or measured),
        **_predicted(job, result if moved is None else moved.before),
        "loss": None if job.options.stand_in else [step.loss for step in result.steps],
        "reference_loss": reference,
        "first_step": job.options.first_step,
        "model": job.problem.model.name,
        "cluster": job.problem.cluster.name,
        "processes": len(result.workers),
        "emulated": emulated,
        "stand_in": job.options.stand_in,
        "timeline": _timeline(result),
        "move": None if moved is None or then is None else told_of(moved, job, then, emulated=emulated),
    }


def _predicted(job: RunJob, result: Result) -> dict[str, Any]:
    """What the simulator says of a step; over links that move the mean and the range of steps begun along the trace."""
    from hippo.run.predict import RunNetwork, predicted_along, predicted_s

    network = RunNetwork.around(job.problem.cluster)
    if network.trace is None:
        first = predicted_s(job, network, result=result, cold=True)
        usual = predicted_s(job, network, result=result)
        return {"predicted_step_s": usual, "predicted_first_step_s": first}
    seconds = predicted_along(job, network, result=result)
    low, high = sorted(seconds)[len(seconds) // 20], sorted(seconds)[-1 - len(seconds) // 20]
    return {"predicted_step_s": float(seconds.mean()), "predicted_p5_s": float(low), "predicted_p95_s": float(high)}


def _told(step: RunStep) -> str:
    return f"step {step.number}: {step.seconds:.3f} s"


def _reference(choice: Choice, job: RunJob) -> list[float] | None:
    """Loss of the same training in one process; None: not asked for."""
    from hippo.run.fits import is_small

    if job.options.stand_in or not (is_small(job) if choice.reference is None else choice.reference):
        return None
    from hippo.run.reference import reference_losses

    with Watch("the same in one process") as watch:
        return reference_losses(job, watch)


def _timeline(result: Result) -> list[dict[str, Any]]:
    """Operations of the last step, process by process."""
    last = result.steps[-1]
    return [
        {"rank": worker.rank, "domain": worker.domain, "stage": worker.stage, "operations": [list(row) for row in rows]}
        for worker, rows in zip(result.workers, last.operations, strict=True)
    ]
