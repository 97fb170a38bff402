"""The journal of a run: one JSON object a line, on disk before what it says is done.

A line that was cut off by a crash is the last one; it was acknowledged to nobody, so it goes when the file is opened
again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

from hippo.errors import InputError


class Journal:
    """Lines are numbered by ``n`` from 1 on."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        self.lines = read_journal(path)
        try:
            self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 (for as long as the run)
        except OSError as error:
            remedy = "name a file you may write to"
            raise InputError(f"cannot write: {error.strerror}", source=str(path), remedy=remedy) from None
        whole = sum(len(_words(line)) for line in self.lines)
        self._file.truncate(whole)
        self._file.seek(whole)

    def write(self, **told: Any) -> dict[str, Any]:
        """One more line, which is on disk when this returns."""
        with self._lock:
            line = {"n": len(self.lines) + 1, **told}
            self._file.write(_words(line))
            self._file.flush()
            os.fsync(self._file.fileno())
            self.lines.append(line)
        return line

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal, none where there is no file.

    Raises
    ------
    InputError
        A line that is not the last is broken, or not the next one.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    found: list[dict[str, Any]] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            told = json.loads(line)
            assert isinstance(told, dict)
            assert told["n"] == number
            assert number < len(lines), "no end of line"
        except (ValueError, AssertionError, KeyError):
            if number >= len(lines):
                return found
            remedy = "name another file, or remove this one"
            raise InputError("is no line of a journal", source=f"{path}:{number}", remedy=remedy) from None
        found.append(told)
    return found


def _words(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
