"""``hippo export``: files that launch a plan with the tools people already have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import check_folder, mention, print_document
from hippo.cli.plan_file import PlanFile, read_plan
from hippo.cli.progress import Watch
from hippo.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hippo.plan.plan import Plan

MOST_NAMES = 20  # files named on the screen; a trace per rank can be hundreds


_WORD = re.compile(r"[\w./:@*-]+")  # what partitions, regions, contexts and infra are made of


@dataclass(frozen=True)
class Choice:
    """Which plan, for whom, and where to."""

    plan: PlanFile
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="megatron, deepspeed, torchtitan, torchrun, slurm, skypilot, ray, jobset; of local SGD torchft, "
            "maxtext; chakra (for ASTRA-sim).",
        ),
    ]
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files; made when it is missing.")]
    program: Annotated[
        str,
        typer.Option(
            metavar="auto|megatron|torchtitan|deepspeed|own",
            help="What every rank runs, where the target is a launcher; auto: the plan's runtime, or one that can.",
        ),
    ] = "auto"
    place: Annotated[
        list[str] | None,
        typer.Option(metavar="DOMAIN=WHERE", help="What the launcher calls a domain: partition, region, infra."),
    ] = None
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Where the target cannot run the plan, export the nearest that it can.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that no export wrote.")] = False
    json: Json = False


@takes(Choice)
def export(choice: Choice) -> None:
    """Files that launch a plan with the tools people already have.

    The time told is that under the runtime that the files start, beside that for which the plan was made. A plan that
    the target cannot run is refused, with the nearest one that it can.
    """
    from hippo.cost.calibration import uncalibrated
    from hippo.export.folder import listing, write_export
    from hippo.front_door.planning import export as files_of
    from hippo.registry import exporter

    exporter(choice.to)
    check_folder(choice.out)
    problem, plan = read_plan(choice.plan)
    places = _places(choice.place or [], plan)
    with Watch(f"exporting to {choice.to}"):
        found = files_of(problem, plan, choice.to, program=choice.program, places=places, nearest=choice.nearest)
    write_export(choice.out, found.files, force=choice.force)
    names, doubt = list(listing(found.files)), uncalibrated(problem)
    if choice.json:
        files = [str(choice.out / name) for name in names]
        told = {"to": choice.to, "files": files, "command": found.command, "notes": list(found.notes)}
        expected = {"expected": None, "one_domain": None} if found.expected is None else found.expected.document()
        print_document({**told, **expected, "uncalibrated": doubt})
        return
    for sentence in () if found.expected is None else found.expected.sentences():
        mention(sentence)
    print(found.command)
    if doubt is not None:
        mention(doubt)
    for note in found.notes:
        mention(note)
    first = [str(choice.out / name) for name in names[:MOST_NAMES]]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    mention(f"wrote {', '.join(first)}{more}")


def _places(given: list[str], plan: Plan) -> Mapping[str, str]:
    """``--place`` as a table; ``InputError`` for a domain that the plan does not use."""
    found: dict[str, str] = {}
    for text in given:
        domain, sign, where = text.partition("=")
        if not sign or not where.strip() or domain not in plan.domains:
            remedy = f"write DOMAIN=WHERE with a domain of the plan: {', '.join(plan.domains)}"
            raise InputError("names no domain of the plan and its place", source="--place", value=text, remedy=remedy)
        if not _WORD.fullmatch(where.strip()):
            remedy = "write one word of letters, digits and . _ / : @ * -"
            raise InputError("is no place's name", source="--place", value=text, remedy=remedy)
        found[domain] = where.strip()
    return MappingProxyType(found)
