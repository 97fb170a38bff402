"""``hippo prepare``: compiles what commands need, before they need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import print_document
from hippo.cli.progress import Watch
from hippo.errors import UnknownNameError


@dataclass(frozen=True)
class Choice:
    """For which commands."""

    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[plan|schedule|watch|train|jobs|serve|planners]...", help="All of them when left out."),
    ] = None
    json: Json = False


@takes(Choice)
def prepare(choice: Choice) -> None:
    """Compile what commands need, once, before they need it.

    Each command does so itself when it is first used; where it lies is named by HIPPO_CACHE (else the user's cache).
    """
    from hippo.first_use import purposes

    known = purposes()
    for name in choice.what or ():
        if name not in known:
            raise UnknownNameError("purpose", name, known, source="hippo prepare")
    wanted = list(choice.what or known)
    for name in wanted:
        with Watch(f"preparing {name}") as watch:
            known[name](progress=watch)
        if not choice.json:
            print(f"{name}: ready")
    if choice.json:
        print_document({"ready": wanted})
