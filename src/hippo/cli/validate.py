"""``hippo validate``: published training runs against predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import print_document, print_view
from hippo.cli.progress import Watch


@dataclass(frozen=True)
class Choice:
    """Which rows."""

    cases: Annotated[Path, typer.Argument(metavar="CASES.json", help="Published rows; form: docs/contracts.md.")]
    json: Json = False


@takes(Choice)
def validate(choice: Choice) -> None:
    """Published training runs against predictions.

    Error per row, per family, and overall. A checkout holds an example: hippo validate data/training_open.json
    """
    from hippo.score import published
    from hippo.score.cases import load_cases

    cases = load_cases(choice.cases)
    with Watch("predicting"):
        document = published.validate(cases).document()
    if choice.json:
        print_document(document)
    else:
        from hippo.report.terminal import validation_view

        print_view(validation_view(document))
