"""``hippo decisions``: what a service decided, why, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hippo.cli.options import Json, ServiceUrl, takes
from hippo.cli.output import print_document, print_view, say
from hippo.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Choice:
    """Which, and what is answered to them."""

    since: Annotated[str | None, typer.Option(metavar="ID", help="Those after this one, in order.")] = None
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="So many, at most 500.", show_default="50; with --since all")
    ] = None
    approve: Annotated[str | None, typer.Option(metavar="ID", help="Say yes to a proposal.")] = None
    deny: Annotated[str | None, typer.Option(metavar="ID", help="Say no to it.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the answer to a proposal.")] = False
    url: ServiceUrl = None
    json: Json = False


@takes(Choice)
def decisions(choice: Choice) -> None:
    """What a service decided, why, and what came of it.

    The newest first. In mode advise, decisions are proposals that wait: --approve d12, or --deny d12.
    """
    from hippo.front_door.service import PAGE, Client

    if choice.approve is not None and choice.deny is not None:
        raise InputError("does not go with --deny", source="--approve", remedy="answer one after another")
    if choice.dry_run and choice.approve is None and choice.deny is None:
        raise InputError("is of an answer", source="--dry-run", remedy="give one: --approve ID, or --deny ID")
    more = ""
    with Client(choice.url) as service:
        if choice.approve is not None or choice.deny is not None:
            yes = choice.approve is not None
            name, answer = (choice.approve, service.approve) if yes else (choice.deny, service.deny)
            assert name is not None
            rows = [answer(name, dry_run=choice.dry_run)]
        else:
            rows = service.decisions(since=choice.since, limit=choice.limit)
            if rows and len(rows) == (choice.limit or (PAGE if choice.since is None else 0)):
                beyond = service.decisions(since="d0" if choice.since is None else rows[-1]["id"], limit=1)
                if any(each["id"] != rows[-1]["id"] for each in beyond):
                    more = "there are older ones: --limit N; all: --since d0"
                    more = more if choice.since is None else f"there are later ones: --since {rows[-1]['id']}"
    if choice.json:
        print_document({"decisions": rows})
    elif choice.dry_run:
        say(f"only tried: {name} would be {'approved' if yes else 'denied'}")
    else:
        print_view(decisions_table(rows, more))


def decisions_table(rows: list[dict[str, Any]], more: str = "") -> Table:
    """For people; ``more``: what the table leaves out."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in ("id", "when", "job", "what", "to", "step s", "state", "why"):
        table.add_column(name, justify="right" if name == "step s" else "left")
    for row in rows:
        when = datetime.fromtimestamp(row["ordered_s"] or row["time_s"]).strftime("%m-%d %H:%M:%S")
        before, predicted, after, least = (
            "-" if row[key] is None else f"{row[key]:.3g}"
            for key in ("measured_before_s", "predicted_step_s", "measured_after_s", "bound_step_s")
        )
        steps = f"{before} > {predicted} ({least}) > {after}"
        to = row["after"]["domains"] if row["after"] else []
        gpus = row["after"]["gpus"] if row["after"] else []
        where = ", ".join(f"{domain} {count}" for domain, count in zip(to, gpus, strict=False))
        cause = str(row["why"].get("cause", ""))
        moves = row["act"] == "resize" and sum(gpus) == sum((row["before"] or {}).get("gpus", ()))
        table.add_row(row["id"], when, row["job"], "move" if moves else row["act"], where, steps, row["state"], cause)
    table.caption = "step s: measured before > predicted (no plan there takes less than) > measured after"
    table.caption += f"\n{more}" if more else ""
    return table
