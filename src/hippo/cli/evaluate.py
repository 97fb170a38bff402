"""``hippo evaluate``: all methods on one network of yours, the standard suite, or worlds of many jobs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from hippo.cli.options import (
    AllowCompression,
    AllowLocalSgd,
    AllReduce,
    CompressionWorth,
    Dispatcher,
    GlobalBatch,
    Json,
    PlannedRuntime,
    Precision,
    RoutingText,
    Seed,
    Seq,
    takes,
)
from hippo.cli.output import check_folder, mention, print_document, print_uncalibrated, print_view, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError

OF_A_NETWORK = ("objective", "epoch", "global_batch", "seq", "precision", "routing", "dispatcher", "all_reduce")
OF_THE_SUITE = ("seeds", "families", "parts", "write", "ray")
OF_WORLDS = ("models", "loads", "networks", "domains", "stops", "jobs", "like", "bounds")
OF_PLANS = ("allow_local_sgd", "allow_compression", "compression_worth")
NOT_OF_WORLDS = ("model", "trace", "forecast", "runtime", "parts", *OF_A_NETWORK, *OF_PLANS[1:])
"""Options that say nothing in another mode."""


@dataclass(frozen=True)
class Choice:
    """Which network or worlds, who competes, and where the report goes."""

    world: Annotated[bool, typer.Option("--world", help="Worlds of many jobs, played by schedulers.")] = False
    model: Annotated[
        str | None, typer.Option(metavar="CONFIG.json|NAME", help="Hugging Face config.json, or a catalogue name.")
    ] = None
    cluster: Annotated[
        str | None, typer.Option(metavar="CLUSTER.yaml|NAME", help="Cluster file, or a catalogue name.")
    ] = None
    trace: Annotated[Path | None, typer.Option(metavar="NET.csv", help="Network trace to run along.")] = None
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,..",
            help="Who competes: methods (planners in motion among them), or planners whose plan is kept.",
            show_default="all methods",
        ),
    ] = None
    policy: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another policy for hi_ppo; worlds: several, of different seeds."),
    ] = None
    forecast: Annotated[str, typer.Option(metavar="kalman|gru|persistence", help="What all methods are told.")] = (
        "kalman"
    )
    objective: Annotated[
        str, typer.Option(metavar="time|cost|W1,W2,W3", help="Preferences of the reward that methods may follow.")
    ] = "time"
    epoch: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds between decisions.", show_default="the trace's rhythm")
    ] = None
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
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Suite: worlds of each family.")] = 20
    families: Annotated[
        str | None, typer.Option(metavar="A,B,..", help="Suite: families of networks.", show_default="all")
    ] = None
    parts: Annotated[
        str | None,
        typer.Option(metavar="A,B,..", help="Suite: main, held, load, movement, ..; see docs.", show_default="all"),
    ] = None
    loads: Annotated[
        str | None, typer.Option(metavar="A,B,..", help="Worlds: loads of the site.", show_default="0.7,1,1.2")
    ] = None
    networks: Annotated[
        str | None,
        typer.Option(metavar="A,B,..", help="Worlds: still, moving, failing; in turn.", show_default="all"),
    ] = None
    domains: Annotated[
        str | None, typer.Option(metavar="K,K,..", help="Worlds: how many domains.", show_default="4")
    ] = None
    stops: Annotated[
        str | None,
        typer.Option(metavar="yes,no", help="Worlds: may running jobs be stopped.", show_default="both in turn"),
    ] = None
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Worlds: jobs in each.", show_default="15 a domain")] = (
        None
    )
    models: Annotated[
        str | None, typer.Option(metavar="A,B,..", help="Worlds: what elastic jobs train.", show_default="four")
    ] = None
    like: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="Worlds: jobs come, and users ask, as in this trace.")
    ] = None
    bounds: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Worlds: relaxation, search, or none.", show_default="relaxation"),
    ] = None
    processes: Annotated[int, typer.Option(metavar="N", min=1, help="Suite, worlds: processes.")] = 2
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Suite, worlds: by as many workers of a Ray cluster (RAY_ADDRESS, or here)."),
    ] = False
    seed: Seed = 0
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Suite: write evaluation.md, or worlds.md, there.")
    ] = None
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write evaluation.json, its page or its rows there.")
    ] = None
    json: Json = False


@takes(Choice)
def evaluate(choice: Choice) -> None:
    """How near methods come to perfect hindsight on a moving network.

    With --model, --cluster and --trace: all methods on that network. Without: the standard suite. With --world: how
    near schedulers of many jobs come to the best found with hindsight, in drawn worlds.
    """
    for option, folder in (("--out", choice.out), ("--write", choice.write)):
        if folder is not None:
            check_folder(folder, option=option)
    if choice.ray:
        from hippo.machine import imported_ray

        imported_ray()  # before anything is planned
    if choice.world:
        _check_others(choice, NOT_OF_WORLDS, "not of worlds of many jobs")
        _worlds(choice)
        return
    _check_others(choice, OF_WORLDS, "only of worlds of many jobs, which --world asks for")
    if choice.policy is not None and len(choice.policy) > 1:
        raise InputError(
            "only worlds (--world) take several", source="--policy", value=str(choice.policy[1]), remedy="give one"
        )
    own = {"--model": choice.model, "--cluster": choice.cluster, "--trace": choice.trace}
    missing = [option for option, value in own.items() if value is None]
    if not missing:
        _check_others(choice, OF_THE_SUITE, "only of the standard suite")
    if len(missing) == len(own):
        _check_others(choice, OF_A_NETWORK, "only of a network of yours, which --model, --cluster and --trace give")
        _the_suite(choice)
        return
    if missing:
        remedy = f"give {' and '.join(missing)} too, or none of them for the standard suite"
        raise InputError("a network of yours needs a model, a cluster and a trace", source=missing[0], remedy=remedy)
    document = _on_one_network(choice)
    if choice.json:
        print_document(document)
    else:
        from hippo.report.evaluation_terminal import world_view

        print_view(world_view(document))
        print_uncalibrated(document["uncalibrated"])
    if choice.out is not None:
        from hippo.files import json_text
        from hippo.report.evaluation_html import world_page

        write_files(choice.out, {"evaluation.json": json_text(document), "evaluation.html": world_page(document)})


def _check_others(choice: Choice, others: tuple[str, ...], problem: str) -> None:
    """``InputError`` for an option of the other mode: it would say nothing."""
    for each in fields(choice):
        value = getattr(choice, each.name)
        if each.name in others and value != each.default:
            option = f"--{each.name.replace('_', '-')}"
            raise InputError(problem, source=option, value=str(value), remedy="leave it out")


def _on_one_network(choice: Choice) -> dict[str, Any]:
    from hippo.front_door.networks import HINDSIGHT, methods_named
    from hippo.front_door.networks import evaluate as near_hindsight
    from hippo.problem.load import load_problem

    assert choice.model is not None
    assert choice.cluster is not None
    assert choice.trace is not None
    problem = load_problem(
        model=choice.model,
        cluster=choice.cluster,
        objective=choice.objective,
        global_batch=choice.global_batch,
        seq=choice.seq,
        precision=choice.precision,
        routing=choice.routing,
        dispatcher=choice.dispatcher,
        runtime=choice.runtime,
        all_reduce=choice.all_reduce,
        allow_local_sgd=choice.allow_local_sgd,
        allow_compression=choice.allow_compression,
        compression_worth=choice.compression_worth,
    )
    asked = methods_named(None if choice.methods is None else choice.methods.split(","))
    with Watch("evaluating") as watch:
        document = near_hindsight(
            problem,
            choice.trace,
            asked,
            policy=choice.policy[0] if choice.policy else None,
            forecast=choice.forecast,
            epoch_s=choice.epoch,
            seed=choice.seed,
            progress=watch,
        )
    for name in asked:
        if name != HINDSIGHT and name not in document["methods"]:
            mention(f"{name} has no plan for this problem, and is left out")
    return document


def _worlds(choice: Choice) -> None:
    """Draws worlds and plays them, then prints, and writes what was asked for."""
    from hippo.front_door.worlds import WorldsChoice, evaluate_worlds

    usual = WorldsChoice()
    given: dict[str, Any] = {"policies": tuple(choice.policy or ()), "jobs": choice.jobs, "seeds": choice.seeds}
    given["seed"] = usual.seed + choice.seed
    given["cluster"], given["like"] = choice.cluster or usual.cluster, choice.like
    given["allow_local_sgd"] = choice.allow_local_sgd
    for name, kind in (("loads", float), ("domains", int)):
        given[name] = _numbers(getattr(choice, name), kind, f"--{name}") or getattr(usual, name)
    for name in ("methods", "families", "networks", "models", "stops"):
        words = getattr(choice, name)
        given[name] = getattr(usual, name) if words is None else tuple(part.strip() for part in words.split(","))
    if choice.bounds is not None:
        given["bounds"] = () if choice.bounds == "none" else tuple(part.strip() for part in choice.bounds.split(","))
    with Watch("evaluating") as watch:
        found = evaluate_worlds(WorldsChoice(**given), processes=choice.processes, ray=choice.ray, progress=watch)
    if choice.json:
        print_document(found.document)
    else:
        from hippo.report.worlds_terminal import worlds_view

        print_view(worlds_view(found.document))
    if choice.out is not None:
        from hippo.files import json_line, json_text

        told = {"worlds.jsonl": found.rows, "jobs.jsonl": found.jobs}
        files = {name: "".join(map(json_line, rows)) for name, rows in told.items()}
        write_files(choice.out, {"evaluation.json": json_text(found.document), **files})
    if choice.write is not None:
        from hippo.report.worlds_page import page

        write_files(choice.write, {"worlds.md": page(found.document)})


def _numbers(text: str | None, kind: type[int] | type[float], option: str) -> tuple[Any, ...]:
    """Numbers parted by commas."""
    try:
        return () if text is None else tuple(kind(part) for part in text.split(","))
    except ValueError:
        remedy = "write numbers parted by commas, for instance " + ("4,8" if kind is int else "0.7,1")
        raise InputError("are no such numbers", source=option, value=text, remedy=remedy) from None


def _the_suite(choice: Choice) -> None:
    """Plays the suite, then prints, and writes what was asked for."""
    from hippo.front_door.networks import SuiteChoice, drawn_terms, evaluate_suite

    asked = SuiteChoice(
        methods=None if choice.methods is None else tuple(choice.methods.split(",")),
        policy=choice.policy[0] if choice.policy else None,
        families=None if choice.families is None else tuple(part.strip() for part in choice.families.split(",")),
        parts=None if choice.parts is None else tuple(part.strip() for part in choice.parts.split(",")),
        seeds=choice.seeds,
        seed=choice.seed,
        forecast=choice.forecast,
        terms=drawn_terms(
            runtime=choice.runtime,
            allow_local_sgd=choice.allow_local_sgd,
            allow_compression=choice.allow_compression,
            compression_worth=choice.compression_worth,
        ),
    )
    with Watch("evaluating") as watch:
        played = evaluate_suite(asked, processes=choice.processes, ray=choice.ray, progress=watch)
    if choice.json:
        print_document(played.document)
    else:
        from hippo.report.evaluation_terminal import suite_view

        print_view(suite_view(played.document))
    if choice.out is not None:
        _report(choice.out, played.document, played.rows)
    if choice.write is not None:
        _page(choice.write, played.document)


def _report(folder: Path, document: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from hippo.files import json_line, json_text
    from hippo.report.evaluation_html import evaluation_page

    files = {
        "evaluation.json": json_text(document),
        "evaluation.html": evaluation_page(document),
        "worlds.jsonl": "".join(map(json_line, rows)),
    }
    write_files(folder, files)


def _page(folder: Path, document: dict[str, Any]) -> None:
    from hippo.report.evaluation_page import page
    from hippo.report.evaluation_pictures import pictures

    drawn = pictures(document)
    text = page(document, document["figures"], document["suite"], pictures=drawn)
    write_files(folder, {"evaluation.md": text, **{f"img/{name}": picture for name, picture in drawn.items()}})
