"""The argument PLAN.json that ``explain`` and ``simulate`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hippo.plan.plan import Plan
    from hippo.problem.problem import Problem

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.json", help="Plan file, as 'hippo plan --out DIR' writes it.")]


def read_plan(path: Path) -> tuple[Problem, Plan]:
    """The plan of a file and the problem it answers; ``InputError`` when it is malformed or breaks its own problem's rules."""
