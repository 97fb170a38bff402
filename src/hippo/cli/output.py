"""Where a command's words go: one JSON document or a table on stdout, messages on stderr, files whole or not at all."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hippo.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

# Exit codes.
DONE = 0
FAULT = 1  # of hippo's own
WRONG_INPUT = 2  # the user's: one message with file, key, value, remedy
INFEASIBLE = 3  # an answer, with reasons
INTERRUPTED = 130

PIPED_WIDTH = 120  # columns, where stdout is no terminal


class Loudness(IntEnum):
    """How much is said on stderr beside errors."""

    QUIET = 0  # nothing
    USUAL = 1  # remarks, and progress where it takes long
    VERBOSE = 2  # every phase of it, and what the rooms below log: what is compiled, asked, chosen


_loudness = Loudness.USUAL


def loudness() -> Loudness:
    """Of the command that runs."""
    return _loudness


def set_loudness(wanted: Loudness) -> None:
    """Of the command that begins."""
    global _loudness
    _loudness = wanted
    log = logging.getLogger("hippo")
    log.handlers[:] = [_Spoken()] if wanted is Loudness.VERBOSE else []
    log.setLevel(logging.INFO if wanted is Loudness.VERBOSE else logging.NOTSET)
    log.propagate = wanted is not Loudness.VERBOSE


class _Spoken(logging.Handler):
    """What hippo logs, as a message."""

    def emit(self, record: logging.LogRecord) -> None:
        """Says it."""
        say(record.getMessage())


def print_document(document: object) -> None:
    """Prints one JSON document on stdout; a number that is not finite is our own mistake (``ValueError``)."""
    from hippo.files import json_text

    with _reader_may_leave():
        print(json_text(document), end="", flush=True)


def print_view(view: RenderableType) -> None:
    """Prints a table or text that people read on stdout."""
    from rich.console import Console

    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    with _reader_may_leave():
        Console(width=None if narrow else PIPED_WIDTH).print(view)
        sys.stdout.flush()


def print_uncalibrated(told: str | None) -> None:
    """Says below an answer what it rests on where its GPU was never measured: ``cost.calibration.uncalibrated``."""
    if told is not None:
        from rich.text import Text

        print_view(Text(told, style="dim"))


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """A reader that has gone (``| head``) ends the printing, not the command: its files are still to be written."""
    try:
        yield
    except (BrokenPipeError, SystemExit):  # the second is rich's word for the first
        silence_stdout()


def silence_stdout() -> None:
    """What is still buffered goes nowhere, so that Python's own last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(message: str) -> None:
    """Prints a message on stderr; nobody may be reading there."""
    with suppress(BrokenPipeError):
        print(f"hippo: {message}", file=sys.stderr, flush=True)


def mention(message: str) -> None:
    """Prints a message on stderr that one can do without."""
    if _loudness > Loudness.QUIET:
        say(message)


def check_folder(folder: Path, *, option: str = "--out") -> None:
    """Raises ``InputError`` when ``folder`` cannot take files; makes nothing."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise InputError(f"{place} is a file, not a folder", source=option, value=str(folder), remedy="name a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(
            f"no right to write in {place}", source=option, value=str(folder), remedy="name a folder you may write to"
        )


def check_file(file: Path, *, option: str = "--out") -> None:
    """The same for a single file."""
    if file.is_dir():
        raise InputError("is a folder", source=option, value=str(file), remedy="name a file")
    check_folder(file.absolute().parent, option=option)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes an answer's files together, after the answer has been printed, and says so; none of them where one fails.

    ``InputError`` when the disk says no.
    """
    from hippo.files import write_files as write

    write(folder, files)
    mention(f"wrote {', '.join(str(folder / name) for name in files)}")


def finish(*, feasible: bool) -> None:
    """Ends a command with the exit code of its answer."""
    if not feasible:
        raise typer.Exit(INFEASIBLE)
