"""``hippo bench``: the figures, one table each, by the scripts in ``benchmarks/`` of the source tree."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hippo.cli.options import Json, takes
from hippo.cli.output import FAULT, print_document, say
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
    """The figures of results/figures.md, one table each.

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
    tables = _tables(chosen, capture=choice.json)
    if None in tables.values():
        raise typer.Exit(FAULT)
    if choice.json:
        print_document({name: {"about": about(chosen[name]), "table": lines} for name, lines in tables.items()})


def _tables(chosen: Mapping[str, Path], *, capture: bool) -> dict[str, list[str] | None]:
    """Runs the scripts one after the other; one that fails (None) does not keep the others from being printed."""
    tables: dict[str, list[str] | None] = {}
    for name, path in chosen.items():
        if not capture:
            print(f"{chr(10) if tables else ''}== {name}: {about(path)}", flush=True)
        tables[name] = _run(path, capture=capture)
    return tables


def scripts() -> Mapping[str, Path]:
    """Name of a table to its script; ``InputError`` where there is no source tree."""
    if not FOLDER.is_dir():
        raise InputError(
            "the benchmarks are not here: they belong to the source tree, not to the installed package",
            source="hippo bench",
            remedy="run it from a checkout, installed with 'make run' or 'pip install -e .'",
        )
    return {path.stem: path for path in sorted(FOLDER.glob("[!_]*.py"))}


def _run(path: Path, *, capture: bool) -> list[str] | None:
    """Runs a script; its lines when captured, else they go to stdout as they come. None: it failed."""
    output = subprocess.PIPE if capture else None
    found = os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])])  # they share parts
    done = subprocess.run(
        [sys.executable, str(path)],
        stdout=output,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": found},
    )
    if done.returncode:
        say(f"the table of {path.name} ended with exit code {done.returncode}; see the message above")
        return None
    return (done.stdout or "").splitlines()


def about(path: Path) -> str:
    """First paragraph of the docstring of a Python file, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())
