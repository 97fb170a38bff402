"""The journal of a run: one JSON object a line, on disk before what it says is done.

A line that was cut off by a crash is the last one; it was acknowledged to nobody, so it goes when the file is opened
again. One run at a time holds a journal; a line that a full disk leaves cut off is taken back.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from threading import Lock
from typing import Any

from hippo.errors import InputError


class Journal:
    """Lines are numbered by ``n`` from 1 on; ``InputError`` where it cannot be written, or another run holds it."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            remedy = "name a file you may write to"
            raise InputError(f"cannot write: {error.strerror}", source=str(path), remedy=remedy) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.lines = read_journal(path)
        except BlockingIOError:
            os.close(self._file)
            remedy = "name another socket, or wait until that run is over"
            raise InputError("another run writes it", source=str(path), remedy=remedy) from None
        except BaseException:
            os.close(self._file)
            raise
        self._whole = sum(len(_words(line)) for line in self.lines)
        os.ftruncate(self._file, self._whole)

    def write(self, **told: Any) -> dict[str, Any]:
        """One more line, which is on disk when this returns; ``InputError`` where it cannot be, and then none is."""
        with self._lock:
            line = {"n": len(self.lines) + 1, **told}
            words = _words(line)
            try:
                if os.pwrite(self._file, words, self._whole) < len(words):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
                os.fsync(self._file)
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._file, self._whole)
                remedy = "make room on that disk"
                raise InputError(f"cannot write: {error.strerror}", source=str(self.path), remedy=remedy) from None
            self._whole += len(words)
            self.lines.append(line)
        return line

    def tell(self, **told: Any) -> None:
        """What has happened already, as ``write``: a disk that is full ends no training."""
        with suppress(InputError):
            self.write(**told)

    def close(self) -> None:
        """No more lines."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


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
