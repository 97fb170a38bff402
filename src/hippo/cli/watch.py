"""``hippo watch``: a network trace replayed, decisions shown as they are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.options import GlobalBatch, Json, ModelName, Precision, ProfileFile, Seq, check_epoch, takes
from hippo.cli.output import check_folder, finish, print_document, print_view, say, write_files
from hippo.cli.progress import Watch
from hippo.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from hippo.network.plans.plan_cache import PlanCache
    from hippo.network.rules.view import Method
    from hippo.network.why.story import Story
    from hippo.network.worlds.replay import WatchedEpoch
    from hippo.network.worlds.world import World
    from hippo.problem.problem import Problem

DEFAULT_METHOD = "hi_ppo"
SLOWEST_S = 10.0


@dataclass(frozen=True)
class Wanted:
    """What trains where, along which trace, and who decides."""

    model: ModelName
    cluster: Annotated[str, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, or a catalogue name.")]
    trace: Annotated[Path, typer.Option(metavar="NET.csv", help="Network trace to replay.")]
    method: Annotated[str, typer.Option(metavar="NAME", help="Who decides; see docs/networks.md.")] = DEFAULT_METHOD
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
    profile: ProfileFile = None
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write watch.html and watch.json there.")] = None
    json: Json = False


@takes(Wanted)
def watch(wanted: Wanted) -> None:
    """A network trace replayed: decisions as they are taken, and why.

    Each with its reasons and what keeping would have cost. At the end the work done is set against the plan of the
    start kept to the end, and against perfect hindsight.
    """
    _check(wanted)
    method = _method(wanted)
    problem = _problem(wanted)
    world, begin_s = _world(wanted, problem)
    with Watch("planning") as progress:
        cache = _cache(problem, method, progress)
    story = _replayed(wanted, world, begin_s, cache, method)
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


# ------------------------------------------------------------------------------------------------------------- input
def _check(wanted: Wanted) -> None:
    """``InputError`` for options that say nothing or contradict each other."""
    from hippo.registry import METHODS, load

    load(METHODS, "method", wanted.method, source="--method")
    if wanted.fallback is not None:
        load(METHODS, "method", wanted.fallback, source="--fallback")
    if wanted.policy is not None and wanted.method != DEFAULT_METHOD:
        remedy = f"leave out --policy, or use --method {DEFAULT_METHOD}"
        raise InputError("only hi_ppo takes a policy", source="--policy", value=str(wanted.policy), remedy=remedy)
    if wanted.adapt and wanted.method != DEFAULT_METHOD:
        raise InputError("only hi_ppo adapts its preferences", source="--adapt", remedy="leave it out")
    check_epoch(wanted.epoch)
    if not 0.0 <= wanted.pace <= SLOWEST_S:
        problem = f"must be from 0 to {SLOWEST_S:g} seconds"
        raise InputError(problem, source="--pace", value=wanted.pace, remedy="give seconds, for instance 0.1")
    if wanted.out is not None:
        check_folder(wanted.out)


def _method(wanted: Wanted) -> Method:
    """Who decides; the fallback only where it was asked for, and never without a word."""
    from hippo.registry import METHODS, load

    try:
        return _named(wanted)
    except InputError as error:
        if wanted.fallback is None or wanted.method != DEFAULT_METHOD:
            raise
        say(f"{error} Going on with {wanted.fallback}, as asked.")
        found: Method = load(METHODS, "method", wanted.fallback, source="--fallback")()
        return found


def _named(wanted: Wanted) -> Method:
    from hippo.registry import METHODS, load

    kind: Any = load(METHODS, "method", wanted.method, source="--method")
    if wanted.method != DEFAULT_METHOD:
        found: Method = kind()
        return found
    from hippo.network.hi_ppo.coordinator import CoordinatorSettings
    from hippo.network.hi_ppo.serving import SHIPPED, Policy

    if wanted.policy is None and not SHIPPED.exists():
        remedy = "train one with 'hippo train' and name it with --policy, or use --method receding_horizon"
        raise InputError("this installation has no trained policy", source=str(SHIPPED), remedy=remedy)
    policy = None if wanted.policy is None else Policy.load(wanted.policy)
    chosen: Method = kind(policy, settings=CoordinatorSettings(adapt=wanted.adapt))
    return chosen


def _problem(wanted: Wanted) -> Problem:
    from hippo.problem.load import load_problem

    return load_problem(
        model=wanted.model,
        cluster=wanted.cluster,
        objective=wanted.objective,
        global_batch=wanted.global_batch,
        seq=wanted.seq,
        precision=wanted.precision,
        profile=wanted.profile,
    )


def _world(wanted: Wanted, problem: Problem) -> tuple[World, float]:
    """The trace cut into epochs, and the time it begins at; every link must have a value there."""
    from hippo.network.worlds.generator import world_from_trace
    from hippo.problem.load import load_trace

    trace = load_trace(wanted.trace, problem.cluster, complete=True)
    world = world_from_trace(problem, trace, epoch_s=wanted.epoch, name=wanted.trace.stem)
    return world, float(trace.time_s[0])


def _cache(problem: Problem, method: Method, progress: Watch) -> PlanCache:
    from hippo.first_use import prepare_moving
    from hippo.network.plans.candidates import fill
    from hippo.network.plans.plan_cache import PlanCache

    prepare_moving(method.name, progress=progress)
    cache = PlanCache(problem)
    fill(cache, watch=progress)
    if not len(cache):
        model, cluster = problem.model.name, problem.cluster.name
        raise InfeasibleError([f"No plan of {model} fits on {cluster}: 'hippo plan' says why."])
    return cache


# --------------------------------------------------------------------------------------------------------- the replay
def _replayed(wanted: Wanted, world: World, begin_s: float, cache: PlanCache, method: Method) -> Story:
    from hippo.network.worlds.play import Terms, usd_per_token
    from hippo.network.worlds.replay import Source, replay

    objective = world.problem.objective
    trace = Source(str(wanted.trace), begin_s)
    terms = Terms(usd_per_token(world, cache), (objective.w_eff, objective.w_util, objective.w_cost))
    if wanted.json:
        with Watch("replaying") as progress:
            return replay(world, cache, method, terms, trace, watcher=_counting(progress, world.epochs))
    from hippo.cli.watch_screen import Screen

    with Screen(world, pace_s=wanted.pace) as screen:
        return replay(world, cache, method, terms, trace, watcher=screen)


def _counting(progress: Watch, epochs: int) -> Callable[[WatchedEpoch], None]:
    return lambda moment: progress("epochs", (moment.epoch.view.epoch + 1) / epochs)


def _write(folder: Path, story: Story) -> None:
    from hippo.files import json_text
    from hippo.report.watch_html import watch_html

    write_files(folder, {"watch.html": watch_html(story), "watch.json": json_text(story.document())})
