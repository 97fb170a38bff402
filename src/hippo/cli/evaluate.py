"""``hippo evaluate``: all methods on one network of yours, or the standard suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.options import GlobalBatch, Json, Precision, Seed, Seq, check_epoch, takes
from hippo.cli.output import check_folder, mention, print_document, print_view, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from hippo.network.evaluate.entrants import Entrant
    from hippo.network.evaluate.suite import Suite
    from hippo.network.worlds.world import World
    from hippo.problem.problem import Problem

HINDSIGHT = "hindsight"
STATIC = "static"
PLANNING_S = 5.0  # that a planner may take whose plan is held fixed
OURS = "hi_ppo"
OF_A_NETWORK = ("objective", "epoch", "global_batch", "seq", "precision")
OF_THE_SUITE = ("seeds", "families", "write")
"""Options that say nothing in the other mode."""
PREFERENCE = "time"
"""At which the policy is compared with kept plans."""


@dataclass(frozen=True)
class Choice:
    """Which network, who competes, and where the report goes."""

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
            metavar="A,B,..", help="Who competes: methods, or planners whose plan is kept.", show_default="all methods"
        ),
    ] = None
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Another policy for hi_ppo.")] = None
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
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Suite: worlds of each family.")] = 20
    families: Annotated[
        str | None, typer.Option(metavar="A,B,..", help="Suite: families of networks.", show_default="all")
    ] = None
    processes: Annotated[int, typer.Option(metavar="N", min=1, help="Suite: processes.")] = 2
    seed: Seed = 0
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Suite: write evaluation.md and its pictures there.")
    ] = None
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write evaluation.json and evaluation.html there.")
    ] = None
    json: Json = False


@takes(Choice)
def evaluate(choice: Choice) -> None:
    """How near methods come to perfect hindsight on a moving network.

    With --model, --cluster and --trace: all methods on that network. Without: the standard suite.
    """
    for option, folder in (("--out", choice.out), ("--write", choice.write)):
        if folder is not None:
            check_folder(folder, option=option)
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
    document = _on_one_world(choice)
    if choice.json:
        print_document(document)
    else:
        from hippo.report.evaluation_terminal import world_view

        print_view(world_view(document))
    if choice.out is not None:
        _write(choice.out, document)


def _check_others(choice: Choice, others: tuple[str, ...], problem: str) -> None:
    """``InputError`` for an option of the other mode: it would say nothing."""
    for each in fields(choice):
        value = getattr(choice, each.name)
        if each.name in others and value != each.default:
            option = f"--{each.name.replace('_', '-')}"
            raise InputError(problem, source=option, value=str(value), remedy="leave it out")


def _on_one_world(choice: Choice) -> dict[str, Any]:
    from hippo.first_use import prepare_moving
    from hippo.network.evaluate.entrants import compete
    from hippo.network.evaluate.figures import world_document
    from hippo.network.worlds.judge import scenario_of

    check_forecast(choice.forecast)
    asked = names(choice.methods)
    check_policy(choice, asked)
    problem, world, begin_s = _world(choice)
    with Watch("evaluating") as watch:
        prepare_moving(progress=watch)
        base, held = _baseline(problem, choice.seed)
        entrants = entrants_of(dict.fromkeys((*asked, STATIC)), problem, choice)
        extra = [] if base in {each.name for each in entrants} else held
        setting = scenario_of(world, forecast=choice.forecast, weights=weights(choice.objective), watch=watch)
        judged = compete(setting, [*entrants, *extra], watch=watch)
    played = [name for name in asked if name in judged.runs]
    for name in asked:
        if name not in played:
            mention(f"{name} has no plan for this problem, and is left out")
    return world_document(judged, played, baseline=base, begin_s=begin_s)


def names(methods: str | None) -> list[str]:
    """The methods (and planners) asked for, in order; all methods, hindsight last, where none is named. ``InputError``
    before any work for a name that nobody has."""
    from hippo.registry import METHODS, PLANNERS

    if methods is None:
        return [*METHODS, HINDSIGHT]
    found = [name.strip() for name in methods.split(",") if name.strip()]
    if not found:
        raise InputError("names no method", source="--methods", value=methods, remedy=f"write {','.join(METHODS)}")
    for name in found:
        if name not in (*METHODS, *PLANNERS, HINDSIGHT):
            raise UnknownNameError("method", name[:60], (*METHODS, HINDSIGHT), source="--methods")
    return list(dict.fromkeys(found))


def check_forecast(name: str) -> None:
    """``InputError`` for a forecast that nobody makes."""
    from hippo.network.dynamics.forecast import FORECASTS

    if name not in FORECASTS:
        raise UnknownNameError("forecast", name[:60], FORECASTS, source="--forecast")


def check_policy(choice: Choice, asked: Sequence[str]) -> None:
    """``InputError`` before any work for a policy that cannot be read, or that nobody would follow."""
    if OURS in asked:
        _hi_ppo(choice.policy)
    elif choice.policy is not None:
        remedy = f"leave out --policy, or name {OURS} among --methods"
        raise InputError(f"only {OURS} takes a policy", source="--policy", value=str(choice.policy), remedy=remedy)


def weights(objective: str) -> tuple[float, float, float]:
    """Preferences over time, utilisation and egress cost."""
    from hippo.problem.objective import objective_from_text

    wanted = objective_from_text(objective)
    return wanted.w_eff, wanted.w_util, wanted.w_cost


def entrants_of(wanted: Any, problem: Problem | None, choice: Choice) -> list[Entrant]:
    """Methods by name, and planners whose plan is held fixed (only where there is a problem); no hindsight."""
    from hippo.network.evaluate.entrants import Entrant, held
    from hippo.registry import METHODS, PLANNERS, load, planner

    found = []
    for name in wanted:
        if name == OURS:
            found.append(Entrant(name, _hi_ppo(choice.policy)))
        elif name in METHODS:
            found.append(Entrant(name, load(METHODS, "method", name)))
        elif name in PLANNERS and problem is not None:
            found += held(problem, [planner(name)], _stop(), seed=choice.seed)
    return found


def _hi_ppo(policy: Path | None) -> Any:
    """What makes the coordinator; a policy that is corrupt or foreign is refused here, before anything is played."""
    from functools import partial

    from hippo.network.evaluate.entrants import hi_ppo

    file = None if policy is None else str(policy)
    hi_ppo(file)
    return partial(hi_ppo, file)


def _baseline(problem: Problem, seed: int) -> tuple[str, list[Entrant]]:
    """Whose kept plan rewards are measured against: the first of the usual that finds one, else ``static``."""
    from hippo.network.evaluate.entrants import held
    from hippo.registry import USUAL, planner

    for name in USUAL:
        found = held(problem, [planner(name)], _stop(), seed=seed)
        if found:
            return name, found
    return STATIC, []


def _stop() -> Any:
    from hippo.planners.base import Stop

    return Stop(time_limit_s=PLANNING_S)


def _world(choice: Choice) -> tuple[Problem, World, float]:
    """The problem, the world of the trace and its first time; ``InputError`` names the option or line that is wrong."""
    from hippo.network.worlds.generator import world_from_trace
    from hippo.problem.load import load_problem, load_trace

    assert choice.model is not None
    assert choice.cluster is not None
    assert choice.trace is not None
    check_epoch(choice.epoch)
    given = load_problem(
        model=choice.model,
        cluster=choice.cluster,
        objective=choice.objective,
        global_batch=choice.global_batch,
        seq=choice.seq,
        precision=choice.precision,
    )
    trace = load_trace(choice.trace, given.cluster, complete=True)
    world = world_from_trace(given, trace, epoch_s=choice.epoch, name=choice.trace.stem)
    return given, world, float(trace.time_s[0])


def _write(folder: Path, document: dict[str, Any]) -> None:
    from hippo.cli.output import write_files
    from hippo.files import json_text
    from hippo.report.evaluation_html import world_page

    write_files(folder, {"evaluation.json": json_text(document), "evaluation.html": world_page(document)})


# -------------------------------------------------------------------------------------------------- the standard suite
def _the_suite(choice: Choice) -> None:
    """Plays the suite, then prints, and writes what was asked for."""
    from hippo.first_use import prepare_moving
    from hippo.network.evaluate.evidence import evidence, figures_asked
    from hippo.network.evaluate.suite import play_suite, tasks

    suite, began = suite_of(choice), _clocks()
    with Watch("evaluating") as watch:
        prepare_moving(progress=watch)
        rows = play_suite(suite, processes=choice.processes, watch=watch)
    found = evidence(rows, ours=suite.ours, ablations=[each.name for each in suite.ablations])
    asked = figures_asked(found, ours=suite.ours)
    cpu_s, wall_s = (now - before for now, before in zip(_clocks(), began, strict=True))
    about = _about(suite) | {
        "processes": choice.processes,
        "tasks": len(tasks(suite)),
        "cpu_s": cpu_s,
        "wall_s": wall_s,
    }
    document = {"suite": about, "figures": asked, **found}
    if choice.json:
        print_document(document)
    else:
        from hippo.report.evaluation_terminal import suite_view

        print_view(suite_view(document))
    if choice.out is not None:
        _report(choice.out, document, rows)
    if choice.write is not None:
        _page(choice.write, document)


def _clocks() -> tuple[float, float]:
    """CPU seconds of this process and of those that it has started and seen end, and seconds by the clock."""
    from os import times
    from time import perf_counter

    return sum(times()[:4]), perf_counter()


def suite_of(choice: Choice) -> Suite:
    """The suite that the command line asks for; ``InputError`` for a family or a method that does not exist."""
    from hippo.network.evaluate.entrants import Entrant, StaticLevers
    from hippo.network.evaluate.suite import MAIN, Suite
    from hippo.network.worlds.generator import FAMILIES
    from hippo.registry import PLANNERS, planners

    check_forecast(choice.forecast)
    families = MAIN if choice.families is None else tuple(part.strip() for part in choice.families.split(","))
    for family in families:
        if family not in FAMILIES:
            raise UnknownNameError("family of networks", family[:60], FAMILIES, source="--families")
    asked = [name for name in dict.fromkeys((*names(choice.methods), STATIC)) if name != HINDSIGHT]
    if any(name in PLANNERS for name in asked):
        remedy = "leave them out: the suite holds the plans of all planners fixed"
        raise InputError("plans of planners are no methods of the suite", source="--methods", remedy=remedy)
    check_policy(choice, asked)
    entrants = (*entrants_of(asked, None, choice), Entrant(StaticLevers.name, StaticLevers))
    kept = planners(name for name in PLANNERS if name not in ("exact", "brute"))
    suite = Suite(
        entrants,
        ablations=ablations(choice) if OURS in asked else (),
        planners=kept,
        families=families,
        seeds=choice.seeds,
        first_seed=choice.seed,
        forecast=choice.forecast,
        preference=weights(PREFERENCE),
        ours=OURS if OURS in asked else asked[0],
    )
    if choice.families is not None:  # these are not about families
        return replace(suite, large=0, movement=0, load=0, fronts=0)
    few = ("held", "ablated", "timed", "large", "movement", "swings", "load", "fronts")
    fewer = {name: min(getattr(suite, name), suite.seeds) for name in few}
    return replace(suite, **fewer)


def ablations(choice: Choice) -> tuple[Entrant, ...]:
    """Variants of Hi-PPO without one of its parts: settings of the coordinator, and policies that were trained without
    it (``network/hi_ppo/policies/no_*.policy``), as far as they are shipped."""
    from functools import partial
    from importlib.resources import files

    from hippo.network.evaluate.entrants import Entrant, named

    usual = None if choice.policy is None else str(choice.policy)
    off: dict[str, dict[str, Any]] = {
        "no_verification": {"verify": False},
        "no_fresh_plans": {"fresh": False},
        "no_free_levers": {"levers": False},
        "flat": {"construct": 0},
    }
    found = [Entrant(name, partial(named, name, usual, **settings)) for name, settings in off.items()]
    policies = Path(str(files("hippo.network.hi_ppo"))) / "policies"
    trained = {file.stem: str(file) for file in sorted(policies.glob("no_*.policy"))}
    blind = trained.pop("no_forecast", usual)
    found.append(Entrant("no_forecast", partial(named, "no_forecast", blind), forecast="persistence"))
    return (*found, *(Entrant(name, partial(named, name, file)) for name, file in trained.items()))


def _about(suite: Suite) -> dict[str, Any]:
    return {
        "seeds": suite.seeds,
        "first_seed": suite.first_seed,
        "families": list(suite.families),
        "methods": [each.name for each in suite.entrants],
        "forecast": suite.forecast,
        "preference": list(suite.preference),
        "ours": suite.ours,
        "held": suite.held,
        "ablated": suite.ablated,
        "timed": suite.timed,
        "large": suite.large,
        "movement": suite.movement,
        "swings": suite.swings,
        "load": suite.load,
        "fronts": suite.fronts,
    }


def _report(folder: Path, document: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from hippo.files import json_text
    from hippo.report.evaluation_html import evaluation_page

    files = {
        "evaluation.json": json_text(document),
        "evaluation.html": evaluation_page(document),
        "worlds.jsonl": "".join(_line(row) for row in rows),
    }
    write_files(folder, files)


def _line(row: dict[str, Any]) -> str:
    import json

    return json.dumps(row, allow_nan=False) + "\n"


def _page(folder: Path, document: dict[str, Any]) -> None:
    from hippo.report.evaluation_page import page
    from hippo.report.evaluation_pictures import pictures

    drawn = pictures(document)
    text = page(document, document["figures"], document["suite"], pictures=drawn)
    write_files(folder, {"evaluation.md": text, **{f"img/{name}": picture for name, picture in drawn.items()}})
