"""``hippo catalogue``: the names that other commands accept, with their figures and sources; schemas of input files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.bench import about
from hippo.cli.options import Json, takes
from hippo.cli.output import print_document, print_view
from hippo.errors import InputError, UnknownNameError

Rows = list[dict[str, object]]

SCHEMA = "schema"
SCHEMAS = ("cluster", "profile")
"""Files that have a JSON schema, ``problem/schemas/NAME.json``."""


@dataclass(frozen=True)
class Choice:
    """Which tables to print."""

    kind: Annotated[
        str | None,
        typer.Argument(metavar="[models|clusters|gpus|planners|schedules|schema]", help="All tables when left out."),
    ] = None
    file: Annotated[
        str | None, typer.Argument(metavar="[cluster|profile]", help="With schema: the JSON schema of that file.")
    ] = None
    json: Json = False


@takes(Choice)
def catalogue(choice: Choice) -> None:
    """Names that other commands take; JSON schemas of input files.

    Models, clusters, GPUs, planners and schedules, with their figures and sources.
    """
    if choice.kind == SCHEMA:
        print(_schema(choice.file), end="")
        return
    if choice.file is not None:
        remedy = f"write `hippo catalogue {SCHEMA} {choice.file}`"
        raise InputError(
            "a second word follows `schema` alone", source="hippo catalogue", value=choice.file[:60], remedy=remedy
        )
    if choice.kind is not None and choice.kind not in TABLES:
        raise UnknownNameError("table", choice.kind, (*TABLES, SCHEMA), source="hippo catalogue")
    kinds = list(TABLES) if choice.kind is None else [choice.kind]
    tables = {kind: TABLES[kind]() for kind in kinds}
    if choice.json:
        print_document(tables)
    else:
        from hippo.report.fitted import names_view

        for index, (kind, rows) in enumerate(tables.items()):
            print_view(replace(names_view(kind, rows), apart=index > 0))


def _schema(file: str | None) -> str:
    from importlib.resources import files

    if file is None:
        remedy = f"name one: {', '.join(SCHEMAS)}"
        raise InputError("of which file is not said", source=f"hippo catalogue {SCHEMA}", remedy=remedy)
    if file not in SCHEMAS:
        raise UnknownNameError("schema", file, SCHEMAS, source=f"hippo catalogue {SCHEMA}")
    return (files("hippo.problem") / "schemas" / f"{file}.json").read_text(encoding="utf-8")


def _models() -> Rows:
    from hippo.problem.catalogue.models import MODELS

    return [
        {
            "name": model.name,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "blocks": model.num_blocks,
            "hidden": model.hidden,
            "max_seq": model.max_seq,
            "source": model.source,
        }
        for model in MODELS.values()
    ]


def _clusters() -> Rows:
    from hippo.problem.catalogue.clusters import CLUSTERS

    return [
        {
            "name": cluster.name,
            "domains": len(cluster.domains),
            "gpus": cluster.gpus,
            "gpu": cluster.gpu.name,
            "links": len(cluster.links),
            "source": cluster.source,
        }
        for cluster in CLUSTERS.values()
    ]


def _gpus() -> Rows:
    from hippo.problem.gpus import GPUS
    from hippo.units import gb_from_bytes

    return [
        {
            "name": gpu.name,
            "bf16_tflops": gpu.peak_flops.get("bf16", gpu.peak_flops.get("fp16", 0.0)) / 1e12,
            "memory_gb": gb_from_bytes(gpu.memory_bytes),
            "usd_per_hour": gpu.price_usd_per_hour,
            "source": gpu.source,
        }
        for gpu in GPUS.values()
    ]


def _planners() -> Rows:
    from hippo.registry import PLANNERS

    return [{"name": name, "about": _about(place)} for name, place in PLANNERS.items()]


def _schedules() -> Rows:
    from hippo.schedule.methods import METHODS, POLICIES

    rows: Rows = [
        {"name": name, "placement": each.placement, "about": _about(each.where)}
        for name, each in {**METHODS, **POLICIES}.items()
    ]
    for name in ("optimal", "best"):
        rows.append({"name": name, "placement": "any", "about": _about(f"hippo.schedule.{name}:{name}")})
    return rows


def _about(place: str) -> str:
    """What the file of a ``module:attribute`` is about."""
    from importlib.util import find_spec

    origin = getattr(find_spec(place.split(":")[0]), "origin", None)
    assert origin is not None, f"no file at {place}"
    return about(Path(origin))


TABLES: Mapping[str, Callable[[], Rows]] = {
    "models": _models,
    "clusters": _clusters,
    "gpus": _gpus,
    "planners": _planners,
    "schedules": _schedules,
}
