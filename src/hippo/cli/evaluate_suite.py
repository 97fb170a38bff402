"""The standard suite of ``hippo evaluate``: who plays it, and where its page, pictures and figures go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippo.cli.evaluate import HINDSIGHT, OURS, STATIC, check_forecast, check_policy, entrants_of, names, weights
from hippo.cli.output import print_document, print_view, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from hippo.cli.evaluate import Choice
    from hippo.network.evaluate.entrants import Entrant
    from hippo.network.evaluate.suite import Suite

PREFERENCE = "time"
"""At which the policy is compared with kept plans."""


def evaluate_suite(choice: Choice) -> None:
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
    from hippo.network.env.generator import FAMILIES
    from hippo.network.evaluate.entrants import Entrant, StaticLevers
    from hippo.network.evaluate.suite import MAIN, Suite
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
