"""``hippo train``: a policy from nothing, or from where an earlier run was cut off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hippo.cli.options import AllowCompression, CompressionWorth, Json, takes
from hippo.cli.output import check_folder, print_document, say
from hippo.cli.progress import Watch
from hippo.errors import InputError, MissingExtraError, UnknownNameError

LONGEST_MINUTES = 100_000.0
USUAL, SITE, DISPATCH = "hi_ppo", "world", "dispatch"
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parents[1] / "configs" / "algo"
"""Configurations with names: inside an installed package, at the top of a checkout."""


@dataclass(frozen=True)
class Choice:
    """How, where to, and for how long."""

    config: Annotated[
        Path | None,
        typer.Option(metavar="NAME|FILE.yaml", help="Learning configuration: hi_ppo, world, dispatch, jobs or a file."),
    ] = None
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print the text of that configuration, every key with a word, and end."),
    ] = False
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where policy, curve, checkpoints and prepared worlds go.")
    ] = Path("out/train")
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out was cut off.")] = False
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Seed of whatever is random.", show_default="the configuration's"),
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", help="Most minutes of learning; 0: no limit.", show_default="the configuration's"),
    ] = None
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PLAN.json", help="Learner dispatch: on the pipelines of this plan, before they run."),
    ] = None
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL|PRESET",
            help="--plan: how its times will move, such as 0.2, restless; all that the learner is told.",
            show_default="0.2",
        ),
    ] = None
    allow_compression: AllowCompression = False
    compression_worth: CompressionWorth = None
    ray: Annotated[
        bool, typer.Option("--ray", help="Learner world: by workers of a Ray cluster, RAY_ADDRESS or one started here.")
    ] = False
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="--ray: how many, a core each.", show_default="run.shares"),
    ] = None
    json: Json = False


@takes(Choice)
def train(choice: Choice) -> None:
    """Train Hi-PPO, or the learner that --config names.

    Hi-PPO prepares a dataset of worlds first (minutes; kept in --out). For several processes: torchrun --standalone
    --nproc-per-node 2 --no-python hippo train ... On a Ray cluster: --ray, where who is slow is cut off.
    --config dispatch --plan PLAN.json: the dispatch policy goes on learning on that plan's pipelines, ten seconds for
    four stages, two minutes at most (--minutes), and is tried.
    """
    if choice.print_config:
        print(_text(choice.config or Path(USUAL)), end="")
        return
    from hippo.first_use import prepare_moving

    learner, settings = _settings(choice)
    more = _crew(choice, learner, settings) | _pipelines(choice, learner)
    check_folder(choice.out)
    learn = _trainer(learner)
    with Watch("training") as watch:
        if learner == USUAL:
            prepare_moving(trains=True, progress=watch)
        try:
            found: dict[str, Any] = learn(
                settings, out=choice.out, resume=choice.resume, progress=watch, say=say, **more
            )
        except InputError as error:  # training knows the settings, not their file
            raise InputError(
                error.problem,
                source=error.source or str(choice.config or "--config"),
                key=error.key,
                value=error.value,
                remedy=error.remedy,
            ) from None
    if not found:  # another process speaks
        return
    if choice.json:
        print_document(found)
    else:
        print(_sentences(found) if learner == USUAL else found["words"])


def _crew(choice: Choice, learner: str, settings: Any) -> dict[str, int]:
    """Workers of a Ray cluster, if they are asked for."""
    if not choice.ray:
        if choice.workers is not None:
            raise InputError("only with --ray", source="--workers", value=choice.workers, remedy="add --ray")
        return {}
    if learner != SITE:
        remedy = f"give --config {SITE}, or leave --ray out"
        raise InputError(f"only of {SITE}", source="--ray", value=learner, remedy=remedy)
    from hippo.machine import imported_ray

    imported_ray()  # before anything is planned
    return {"workers": choice.workers or settings.run.shares}


def _pipelines(choice: Choice, learner: str) -> dict[str, Any]:
    """The pipelines of a plan and the noise that they are learned under, if they are asked for."""
    if choice.plan is None:
        if choice.noise is not None:
            raise InputError("only with --plan", source="--noise", value=choice.noise, remedy="add --plan PLAN.json")
        return {}
    if learner != DISPATCH:
        remedy = f"give --config {DISPATCH}, or leave --plan out"
        raise InputError(f"only of {DISPATCH}", source="--plan", value=learner, remedy=remedy)
    from hippo.cli.plan_file import read_plan
    from hippo.dispatch.base import UNKNOWN
    from hippo.dispatch.noise.pipelines import Pipelines, problems_of
    from hippo.dispatch.noise.presets import fluctuation_of

    fluctuation = fluctuation_of(f"{UNKNOWN}" if choice.noise is None else choice.noise, source="--noise")
    if not (fluctuation.deviation or fluctuation.abnormal_share or fluctuation.stall_share * fluctuation.stall_level):
        told, remedy = (
            "times do not move: there is nothing to learn",
            "give a level above 0, or 'hippo schedule' finds an order",
        )
        raise InputError(told, source="--noise", value=choice.noise, remedy=remedy)
    return {"pipelines": Pipelines(problems_of(*read_plan(choice.plan), source=str(choice.plan)), fluctuation)}


def _settings(choice: Choice) -> tuple[str, Any]:
    """The learner, and its configuration with what the command line overrules."""
    from hippo.front_door.networks import need_worth
    from hippo.problem.problem import check_worth
    from hippo.registry import LEARNING, load

    learner, document = _document(choice.config)
    source = str(choice.config or "--config")
    settings = load(LEARNING, "learner", learner, source=source)(document, source=source)
    if choice.plan is not None and learner == DISPATCH:
        settings = settings.on_plan()
    run = settings.run
    if choice.seed is not None:
        run = replace(run, seed=choice.seed)
    if choice.minutes is not None:
        if not 0 <= choice.minutes <= LONGEST_MINUTES:
            remedy = "give a number of minutes, for instance 40"
            problem = f"must be from 0 to {LONGEST_MINUTES:g}"
            raise InputError(problem, source="--minutes", value=choice.minutes, remedy=remedy)
        run = replace(run, minutes=choice.minutes)
    settings = replace(settings, run=run)
    if choice.allow_compression or choice.compression_worth is not None:
        if learner != USUAL:
            raise InputError(f"only of {USUAL}", source="--allow-compression", value=learner, remedy="leave it out")
        check_worth(choice.allow_compression, choice.compression_worth)
        need_worth(choice.allow_compression, choice.compression_worth)
        worlds = replace(settings.worlds, allow_compression=True, compression_worth=choice.compression_worth)
        settings = replace(settings, worlds=worlds)
    return learner, settings


def _document(config: Path | None) -> tuple[str, Any]:
    """What the file says, and of whom: the key ``learner`` at its top; where it is left out the agents of a site if it
    has the documents' names (``gnn``, or ``lr`` of ``ppo``), else Hi-PPO."""
    from hippo.problem.document import parse_yaml

    if config is None:
        return USUAL, {}
    document = parse_yaml(_text(config), str(config))
    if not isinstance(document, dict):
        return USUAL, {} if document is None else document
    ppo = document.get("ppo")
    theirs = "gnn" in document or (isinstance(ppo, dict) and "lr" in ppo)
    learner = document.pop("learner", SITE if theirs else USUAL)
    return str(learner), document


def _text(config: Path) -> str:
    """A configuration as text: of a file, or of a name that ships."""
    from hippo.files import read_text

    shipped, name = {path.stem: path for path in SHIPPED.glob("*.yaml")}, str(config)
    if not config.exists() and not config.suffix and name not in shipped:
        other = ", or a FILE.yaml"
        raise UnknownNameError("learning configuration", name[:60], shipped, source="--config", other=other)
    return read_text(config if config.exists() else shipped.get(name, config), what="learning configuration")


def _trainer(learner: str) -> Any:
    """What trains; ``InputError`` where torch and its like are not installed."""
    from hippo.registry import TRAINING, load

    try:
        return load(TRAINING, "training", learner)
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "learn", source="hippo train") from None


def _sentences(found: dict[str, Any]) -> str:
    """What came of it, for people."""
    best = ""
    if found["of_hindsight"] is not None:
        best = (
            f"\nbest at update {found['best_update']}: {found['of_hindsight']:.4f} of perfect hindsight on worlds that "
            f"were not learned from (keeping: {found['keeping']:.4f})"
        )
    return (
        f"{found['updates']} updates, {found['epochs']:,} epochs of worlds, {found['seconds'] / 60:.1f} minutes{best}\n"
        f"policy {found['policy']}, curve {found['curve']}"
    )
