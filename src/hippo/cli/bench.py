"""``hippo bench``: the figures, one table each, by the scripts in ``benchmarks/`` of the source tree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.about import about
from hippo.cli.exit_codes import FAULT
from hippo.cli.options import Json, takes
from hippo.cli.output import print_document, say
from hippo.errors import InputError, UnknownNameError

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


@dataclass(frozen=True)
class Choice:
    """Which table."""

    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One table; all when left out.")] = None
    list: Annotated[bool, typer.Option("--list", help="Say which tables there are.")] = False
    json: Json = False


@takes(Choice)
def bench(choice: Choice) -> None:
    """The figures of docs/figures.md, one table each.

    Needs the source tree, and minutes.
    """
    known = scripts()
    if choice.name is not None and choice.name not in known:
        raise UnknownNameError("table", choice.name, known, source="hippo bench")
    chosen = {name: path for name, path in known.items() if choice.name in (None, name)}
    if choice.list:
        abouts = {name: about(path) for name, path in chosen.items()}
        print_document(abouts) if choice.json else print(
            "\n".join(f"{name:16s} {text}" for name, text in abouts.items())
        )
        return
    if choice.json:
        print_document({name: {"about": about(path), "table": _run(path)} for name, path in chosen.items()})
        return
    for index, (name, path) in enumerate(chosen.items()):
        print(f"{chr(10) if index else ''}== {name}: {about(path)}", flush=True)
        _run(path, capture=False)


def scripts() -> Mapping[str, Path]:
    """Name of a table to its script; ``InputError`` where there is no source tree."""
    if not FOLDER.is_dir():
        raise InputError(
            "the benchmarks are not here: they belong to the source tree, not to the installed package",
            source="hippo bench",
            remedy="run it from a checkout, installed with 'make run' or 'pip install -e .'",
        )
    return {path.stem: path for path in sorted(FOLDER.glob("[!_]*.py"))}


def _run(path: Path, *, capture: bool = True) -> list[str]:
    """Runs a script; its lines when captured, else they go to stdout as they come."""
    output = subprocess.PIPE if capture else None
    done = subprocess.run([sys.executable, str(path)], stdout=output, stdin=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        say(f"the table of {path.name} ended with exit code {done.returncode}; see the message above")
        raise typer.Exit(FAULT)
    return (done.stdout or "").splitlines()
