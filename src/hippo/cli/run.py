"""``hippo run``: a plan trained for real, step by step, beside what the simulator says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.ending import ended_cleanly
from hippo.cli.options import Json, Seed, takes
from hippo.cli.output import FAULT, check_folder, mention, print_document, print_view, say, write_files
from hippo.cli.plan_file import PlanFile, read_plan
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.emulate.emulation import Emulation
    from hippo.front_door.running import Checkpoints
    from hippo.run.change import PlanChange
    from hippo.run.job import RunJob

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
            metavar="cubic|bbr",
            help="TCP's congestion control, with --emulate.",
            show_default="the cluster's, else cubic",
        ),
    ] = None
    trace: Annotated[
        Path | None, typer.Option(metavar="NET.csv", help="Network trace that moves the links, with --emulate.")
    ] = None
    steps: Annotated[int, typer.Option(metavar="N", help="Optimizer steps.")] = 10
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Waits in place of layers; messages are real. A process per stage.")
    ] = False
    lanes: Annotated[
        bool, typer.Option("--lanes", help="With --stand-in: a process per data-parallel lane of a stage.")
    ] = False
    order: Annotated[
        str,
        typer.Option(
            metavar="fixed|ready|auto|learned|learned-ready",
            help="The plan's order, or what is ready; auto: by domain; learned: the policy's order in its place.",
        ),
    ] = "fixed"
    dispatch: Annotated[
        str,
        typer.Option(
            metavar="fixed|hint|learned|FILE.npz",
            help="What a free rank runs: the order's next, that as a hint, or what a policy says: ours, a file's.",
        ),
    ] = "fixed"
    patience: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Of an operation's time: how long a hint waits for what is announced."),
    ] = 0.5
    noise: Annotated[
        str,
        typer.Option(
            metavar="LEVEL|PRESET",
            help="Stretches operations and messages, such as 0.2, restless.",
            show_default="none",
        ),
    ] = ""
    play_links: Annotated[
        bool, typer.Option("--play-links", help="Without --emulate: messages take what the plan says of their links.")
    ] = False
    backward: Annotated[
        str, typer.Option(metavar="split|whole", help="A gradient leaves before its wave's weight gradients, or after.")
    ] = "split"
    runtime: Annotated[
        str, typer.Option(metavar="hippo|torch", help="hippo's executor, or torch.distributed.pipelining.")
    ] = "hippo"
    precision: Annotated[str, typer.Option(metavar="fp32|fp64|bf16", help="Of the real layers.")] = "fp32"
    device: Annotated[
        str,
        typer.Option(metavar="cpu|cuda|shared", help="cuda: a GPU per process, NCCL; shared: one GPU for all, gloo."),
    ] = "cpu"
    batch_rule: Annotated[
        str, typer.Option(metavar="keep|follow", help="Where replicas join or leave: the same batch, or theirs.")
    ] = "keep"
    rate_rule: Annotated[
        str, typer.Option(metavar="keep|linear|sqrt", help="How the learning rate follows the batch.")
    ] = "keep"
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
    control: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="Take orders of 'hippo ctl' there; the journal is SOCKET.journal."),
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
    job, checkpoints = _job(choice, quietly=choice.emulate and inside is None)
    from hippo.front_door.running import place_of, trained

    then = None if choice.then is None else _then(choice.then, job)
    place = place_of(job, then, source=str(choice.plan))
    if choice.emulate and inside is None:
        raise typer.Exit(_inside(choice, job))
    from hippo.run.lost import RunError

    try:
        with ended_cleanly(), Watch("training") as watch:
            document = trained(
                job,
                place=place,
                then=then,
                checkpoints=checkpoints,
                reference=choice.reference,
                progress=watch,
                control=choice.control,
            )
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
    if choice.play_links and (choice.emulate or inside is not None):
        remedy = "leave it out: emulated links delay messages themselves"
        raise InputError("does not go with an emulated WAN", source="--play-links", remedy=remedy)
    if choice.resume and choice.checkpoint is None:
        remedy = "name the folder with --checkpoint"
        raise InputError("there is nothing to go on from", source="--resume", remedy=remedy)
    if choice.then is not None and choice.order.startswith("learned"):
        remedy = "leave out one of them, or give plans that 'hippo plan' ordered"
        raise InputError(f"does not go with --order {choice.order}", source="--then", remedy=remedy)


def _job(choice: Choice, *, quietly: bool) -> tuple[RunJob, Checkpoints | None]:
    """The job, checked, and where its checkpoints go; ``quietly``: the command inside the emulation says the rest."""
    from hippo.front_door.running import Checkpoints, job_of
    from hippo.run.job import LIMITS, RunOptions, check_range

    problem, plan = read_plan(choice.plan)
    for name, (low, high) in LIMITS.items():
        name = name.removesuffix("_s")
        check_range(f"--{name.replace('_', '-')}", getattr(choice, name), low, high)
    options = RunOptions(
        steps=choice.steps,
        stand_in=choice.stand_in,
        lanes=choice.lanes,
        precision=choice.precision,
        device=choice.device,
        seed=choice.seed,
        learning_rate=choice.learning_rate,
        timeout_s=choice.timeout,
        order=choice.order,
        dispatch=str(Path(choice.dispatch).resolve()) if choice.dispatch.endswith(".npz") else choice.dispatch,
        patience=choice.patience,
        batch_rule=choice.batch_rule,
        rate_rule=choice.rate_rule,
        noise=choice.noise,
        play_links=choice.play_links,
        backward=choice.backward,
        runtime=choice.runtime,
        outer_late=choice.outer_late,
    )
    checkpoints = None
    if choice.checkpoint is not None:
        check_folder(choice.checkpoint, option="--checkpoint")
        checkpoints = Checkpoints(choice.checkpoint, choice.every, choice.resume)
    tell = None if quietly else mention
    return job_of(problem, plan, options, checkpoints, source=str(choice.plan), tell=tell), checkpoints


def _then(text: str, job: RunJob) -> PlanChange:
    """The plan under which a run goes on, checked against the run and its model."""
    from hippo.front_door.running import checked_then

    name, _, step = text.rpartition("@")
    if not name or not step.isdecimal() or len(step) > 9:
        remedy = "write PLAN.json@STEP, the last step under the first plan, for instance b.json@5"
        raise InputError("names no step", source="--then", value=text, remedy=remedy)
    return checked_then(job, *read_plan(Path(name)), int(step), source=name)


def _inside(choice: Choice, job: RunJob) -> int:
    """The same command inside an emulated WAN; its exit code."""
    from hippo.emulate.emulate import Stopped, emulate, setting_of
    from hippo.problem.load import load_trace
    from hippo.problem.transport import IDEAL

    argv = [sys.executable, "-c", "from hippo.cli.main import main; main()", *_words_inside(sys.argv[1:])]
    cluster = job.problem.cluster.under(IDEAL)
    trace = None if choice.trace is None else load_trace(choice.trace, cluster)
    setting = setting_of(cluster, argv, source=str(choice.plan), trace=trace, congestion=choice.congestion)
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
