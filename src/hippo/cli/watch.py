"""``hippo watch``: a network trace replayed, decisions shown as they are taken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import (
    AllowCompression,
    AllowLocalSgd,
    AllReduce,
    CompressionWorth,
    Dispatcher,
    GlobalBatch,
    Json,
    ModelName,
    PlannedRuntime,
    Precision,
    ProfileFile,
    RoutingText,
    Seq,
    takes,
)
from hippo.cli.output import check_folder, finish, print_document, print_view, say, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from hippo.network.rules.view import Method
    from hippo.network.why.story import Story
    from hippo.network.worlds.replay import WatchedEpoch
    from hippo.network.worlds.world import World

SLOWEST_S = 10.0


@dataclass(frozen=True)
class Wanted:
    """What trains where, along which trace, and who decides."""

    model: ModelName
    cluster: Annotated[str, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, or a catalogue name.")]
    trace: Annotated[Path, typer.Option(metavar="NET.csv", help="Network trace to replay.")]
    method: Annotated[str, typer.Option(metavar="NAME", help="Who decides; see docs/networks.md.")] = "hi_ppo"
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Trained policy of hi_ppo.", show_default="the shipped one")
    ] = None
    fallback: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who decides instead when the policy cannot be read.")
    ] = None
    objective: Annotated[
        str, typer.Option(metavar="time|cost|W1,W2,W3", help="Preferences: time, utilisation, egress cost.")
    ] = "time"
    adapt: Annotated[bool, typer.Option("--adapt", help="Let hi_ppo's preferences follow the network's state.")] = False
    epoch: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds between decisions.", show_default="the trace's")
    ] = None
    pace: Annotated[float, typer.Option(metavar="S", help="Seconds that an epoch is shown for.")] = 0.0
    global_batch: GlobalBatch = 1024
    seq: Seq = None
    precision: Precision = None
    routing: RoutingText = "even"
    dispatcher: Dispatcher = "alltoall"
    runtime: PlannedRuntime = "auto"
    all_reduce: AllReduce = "auto"
    allow_local_sgd: AllowLocalSgd = False
    allow_compression: AllowCompression = False
    compression_worth: CompressionWorth = None
    profile: ProfileFile = None
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write watch.html and watch.json there.")] = None
    json: Json = False


@takes(Wanted)
def watch(wanted: Wanted) -> None:
    """A network trace replayed: decisions as they are taken, and why.

    Each with its reasons and what keeping would have cost. At the end the work done is set against the plan of the
    start kept to the end, and against perfect hindsight.
    """
    if not 0.0 <= wanted.pace <= SLOWEST_S:
        problem = f"must be from 0 to {SLOWEST_S:g} seconds"
        raise InputError(problem, source="--pace", value=wanted.pace, remedy="give seconds, for instance 0.1")
    if wanted.out is not None:
        check_folder(wanted.out)
    story = _replayed(wanted, _method(wanted))
    if wanted.json:
        print_document(story.document())
    else:
        from hippo.report.watch_terminal import story_view

        print_view(story_view(story))
    if wanted.out is not None:
        _write(wanted.out, story)
    if story.stranded:
        say("infeasible at the end of the trace: every plan needs a link or a domain that is down")
    finish(feasible=not story.stranded)


def _method(wanted: Wanted) -> Method:
    """Who decides; the fallback only where it was asked for, and never without a word."""
    from hippo.front_door.networks import OURS, method_named

    second = None if wanted.fallback is None else method_named(wanted.fallback, source="--fallback")
    try:
        return method_named(wanted.method, policy=wanted.policy, adapt=wanted.adapt)
    except InputError as error:
        if second is None or wanted.method != OURS:
            raise
        say(f"{error} Going on with {wanted.fallback}, as asked.")
        return second


def _replayed(wanted: Wanted, method: Method) -> Story:
    """The story, shown while it comes to be: decisions, or how far it is where they go into one document."""
    from hippo.front_door.networks import watch as replayed
    from hippo.problem.load import load_problem

    problem = load_problem(
        model=wanted.model,
        cluster=wanted.cluster,
        objective=wanted.objective,
        global_batch=wanted.global_batch,
        seq=wanted.seq,
        precision=wanted.precision,
        routing=wanted.routing,
        dispatcher=wanted.dispatcher,
        runtime=wanted.runtime,
        all_reduce=wanted.all_reduce,
        allow_local_sgd=wanted.allow_local_sgd,
        allow_compression=wanted.allow_compression,
        compression_worth=wanted.compression_worth,
        profile=wanted.profile,
    )
    with ExitStack() as shown:
        planning = shown.enter_context(Watch("planning"))

        def begin(world: World) -> Callable[[WatchedEpoch], None]:
            shown.close()
            if not wanted.json:
                from hippo.cli.watch_screen import Screen

                return shown.enter_context(Screen(world, pace_s=wanted.pace))
            progress = shown.enter_context(Watch("replaying"))
            return lambda moment: progress("epochs", (moment.epoch.view.epoch + 1) / world.epochs)

        return replayed(problem, wanted.trace, method=method, epoch_s=wanted.epoch, progress=planning, watcher=begin)


def _write(folder: Path, story: Story) -> None:
    from hippo.files import json_text
    from hippo.report.watch_html import watch_html

    write_files(folder, {"watch.html": watch_html(story), "watch.json": json_text(story.document())})
