"""``hippo validate``: published training runs against predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import check_file, print_document, print_view, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError


@dataclass(frozen=True)
class Choice:
    """Which rows."""

    cases: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[CASES.json|CASES.csv]...", help="Published rows; forms: docs/contracts.md."),
    ] = None
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read every known file of published rows that is there.")
    ] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the accuracy page there.")] = None
    json: Json = False


@takes(Choice)
def validate(choice: Choice) -> None:
    """Published training runs against predictions.

    Error per row, per family, and overall. A checkout holds an example: hippo validate data/training_open.json
    """
    from hippo.front_door.planning import validate as validated

    if not choice.cases and choice.data is None:
        raise InputError("which rows?", source="CASES", remedy="name a file, or a folder with --data DIR")
    if choice.html is not None:
        check_file(choice.html, option="--html")
    with Watch("predicting"):
        document = validated(*(choice.cases or ()), data=choice.data).document()
    if choice.json:
        print_document(document)
    else:
        from hippo.report.terminal import validation_view

        print_view(validation_view(document))
    if choice.html is not None:
        from hippo.report.validation_html import validation_html

        write_files(choice.html.parent, {choice.html.name: validation_html(document)})
