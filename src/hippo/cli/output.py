"""Where a command's words go: one JSON document or a table on stdout, messages on stderr, files whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hippo.errors import InputError


def print_document(document: Any) -> None:
    """Prints one JSON document on stdout; a number that is not finite is our own mistake (``ValueError``)."""
    print(json.dumps(document, indent=2, allow_nan=False, default=_plain))


def print_text(text: str) -> None:
    """Prints text that people read on stdout."""
    print(text)


def say(message: str) -> None:
    """Prints a message on stderr."""
    print(f"hippo: {message}", file=sys.stderr, flush=True)


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


def write_files(folder: Path, files: Mapping[str, str | bytes], *, option: str = "--out") -> None:
    """Writes each file whole under ``folder``, which is made when missing; ``InputError`` when the disk says no."""
    from hippo.files import write_whole

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}",
            source=option,
            value=str(folder),
            remedy="make room, or name another folder",
        ) from error


def _plain(value: Any) -> Any:
    """Plain JSON values of numpy numbers and arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
