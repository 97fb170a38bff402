"""``hippo store``: the store of a service: backup and restore."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import mention, print_document
from hippo.errors import MissingExtraError

store = typer.Typer(
    name="store",
    help="The store of a service: backup and restore.",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@store.callback()
def _top(context: typer.Context) -> None:
    """The store of a service: backup and restore."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@dataclass(frozen=True)
class Wanted:
    """From where, to where."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup: JSON lines, packed.")]
    store: Annotated[str, typer.Option(metavar="URL", help="sqlite:///FILE, or postgresql://USER@HOST/DATABASE.")] = (
        "sqlite:///hippo.db"
    )
    json: Json = False


@store.command("backup")
@takes(Wanted)
def backup(choice: Wanted) -> None:
    """Write all of a store into a file; it may be served meanwhile."""
    _told(choice, "backup", "written")


@store.command("restore")
@takes(Wanted)
def restore(choice: Wanted) -> None:
    """Fill an empty store from a backup, of SQLite or PostgreSQL, whichever it came from."""
    _told(choice, "restore", "restored")


def _told(choice: Wanted, what: str, word: str) -> None:
    try:
        from hippo.serve import backups
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "serve", source="hippo store") from None
    rows = getattr(backups, what)(choice.store, choice.file)
    if choice.json:
        print_document({"file": str(choice.file), "rows": rows})
    else:
        mention(f"{sum(rows.values())} rows {word}: {', '.join(f'{count} {name}' for name, count in rows.items())}")
