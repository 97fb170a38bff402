"""The argument PLAN.json that ``explain`` and ``simulate`` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.output import mention
from hippo.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from hippo.plan.check import Violation
    from hippo.plan.plan import Plan
    from hippo.problem.problem import Problem

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.json", help="Plan file, as 'hippo plan --out DIR' writes it.")]


def read_plan(path: Path) -> tuple[Problem, Plan]:
    """The plan of a file and the problem it answers; ``InputError`` when it is malformed or breaks rules."""
    from hippo.files import read_text
    from hippo.plan.check import check
    from hippo.plan.codec import names_runtime, plan_from_document
    from hippo.problem.document import parse_json

    document = parse_json(read_text(path, what="plan file"), str(path))
    problem, plan = plan_from_document(document, source=str(path))
    refuse(check(problem, plan), source=str(path))
    _refuse_unknown_names(plan, source=str(path))
    if not names_runtime(document):
        mention(f"{path} names no runtime: its times are ideal, {problem.rules.told}")
    return problem, plan


def _refuse_unknown_names(plan: Plan, *, source: str) -> None:
    """Names that only the rooms above ``plan`` know: schedules and kinds of compression."""
    from hippo.plan.plan import WITH_ORDER
    from hippo.schedule.schedule import SCHEDULES
    from hippo.simulate.routes import COMPRESSED_BITS

    known = (*SCHEDULES, WITH_ORDER)
    if plan.schedule.name not in known:
        raise UnknownNameError("schedule", plan.schedule.name[:60], known, source=source, key="schedule.name")
    for index, pair in enumerate(plan.compression):
        if pair.kind not in COMPRESSED_BITS:
            key = f"compression[{index}].kind"
            raise UnknownNameError("compression", pair.kind[:60], COMPRESSED_BITS, source=source, key=key)


def refuse(violations: Sequence[Violation], *, source: str) -> None:
    """Raises ``InputError`` when a plan breaks rules: the first in full, and how many more there are."""
    if violations:
        more = f"; {len(violations) - 1} more like it" if len(violations) > 1 else ""
        raise InputError(f"{violations[0]}{more}", source=source, remedy=violations[0].remedy)
