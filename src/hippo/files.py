"""Reading and writing whole files: nothing half-read, nothing half-written, no machine path invented."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hippo.errors import InputError

MAX_DOCUMENT_BYTES = 32_000_000
"""Largest model, cluster, profile or plan file that is read; real ones have a few kilobytes to a few megabytes."""

MAX_TABLE_BYTES = 512_000_000
"""Largest trace that is read: about ten million rows."""


def read_text(path: str | Path, *, what: str, limit_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """The UTF-8 text of a file (a leading byte-order mark is dropped).

    Reads at most ``limit_bytes + 1`` bytes, so that a device or a huge file costs neither time nor memory.
    ``what`` names the kind of document in messages, for instance ``cluster file``.

    Raises
    ------
    InputError
        The file is missing, a folder, unreadable, larger than ``limit_bytes`` or not UTF-8; or no path is given: a
        number would be taken for an open file, which is then closed.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError("must be a path", source=what, value=path, remedy="give the path of an existing file")
    source = str(path) or what
    try:
        with open(path, "rb") as stream:
            content = stream.read(limit_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{what} does not exist", source=source, remedy="give the path of an existing file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read the {what}: {reason}", source=source, remedy="give a readable file") from None
    if len(content) > limit_bytes:
        limit = f"{limit_bytes / 1e6:g} MB"
        raise InputError(f"{what} is larger than {limit}", source=source, remedy=f"give a {what} of at most {limit}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is not UTF-8"
        raise InputError(f"{what} is not text: {where}", source=source, remedy="save the file as UTF-8") from None


YOUNG_S = 60.0
"""A folder that is younger may not be held yet."""


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A folder for what is of no use later. Where a process was killed before it could remove its own, the next one
    that asks for such a folder does: whoever lives holds a lock on his."""
    for each in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else's, held, or gone by now
            if each.stat().st_mtime < time.time() - YOUNG_S:
                with _held(each):
                    shutil.rmtree(each)
    with tempfile.TemporaryDirectory(prefix=prefix) as name, _held(Path(name)):
        yield Path(name)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """``OSError``: somebody else holds it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file so that it appears whole or not at all: a temporary file in the same folder, then a rename.

    The folder is made when it is missing. An existing file keeps its content until the new one is complete.

    Raises
    ------
    InputError
        The folder or the file cannot be written; nothing is left behind.
    """
    target = Path(path)
    try:
        write_together(target.parent, {target.name: content})
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error) from None


def write_files(folder: str | Path, files: Mapping[str, str | bytes]) -> None:
    """Writes all files under ``folder`` as ``write_together`` does.

    Raises
    ------
    InputError
        One cannot be written; then none has been, and older ones stand as they were.
    """
    try:
        write_together(Path(folder), files)
    except (OSError, ValueError) as error:
        raise _cannot_write(folder, error) from None


def write_together(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write all files under ``folder`` (made when missing), each whole, or none: what belongs together stays so.

    All are on the disk in a hidden folder beside their places before the first is renamed; what stood there comes back
    should a rename fail. ``OSError`` or ``ValueError`` (a name with a null byte) when one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=".hippo-", suffix=".part", dir=folder))
    try:
        for name, content in files.items():
            place = staged / "new" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as stream:
                stream.write(content.encode("utf-8") if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            place.chmod(_usual_mode(folder / name))
        _swap(folder, staged, files)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _swap(folder: Path, staged: Path, names: Mapping[str, object]) -> None:
    """Renames each staged file into its place, or none of them."""
    before, moved = staged / ".before", list[str]()
    try:
        for name in names:
            target, kept = folder / name, before / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir() and not target.is_symlink():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            if len(names) > 1 and os.path.lexists(target):
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(target, kept, follow_symlinks=False)  # not moved: a file is never gone, not for an instant
            moved.append(name)
            os.replace(staged / "new" / name, target)
    except OSError:
        for name in moved:
            with suppress(OSError):
                (folder / name).unlink()
            with suppress(OSError):
                os.replace(before / name, folder / name)
        raise


def _cannot_write(path: str | Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    source = error.filename if isinstance(error, IsADirectoryError) else str(path)  # which of them is in the way
    return InputError(f"cannot write: {reason}", source=source, remedy="give a writable path")


def json_text(document: object) -> str:
    """Strict JSON, two spaces of indent, a final newline. ``ValueError`` for NaN and infinities: JSON has neither."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def json_line(row: object) -> str:
    """A row of a file of rows (JSON Lines). ``ValueError`` as ``json_text``."""
    return json.dumps(row, allow_nan=False) + "\n"


def _usual_mode(target: Path) -> int:
    """Mode of the file that is replaced, or what the process's umask leaves of rw-rw-rw-."""
    with suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
