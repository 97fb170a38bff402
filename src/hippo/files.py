"""Reading and writing whole files: nothing half-read, nothing half-written, no machine path invented."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
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
        The file is missing, a folder, unreadable, larger than ``limit_bytes`` or not UTF-8.
    """
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


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file so that it appears whole or not at all: a temporary file in the same folder, then a rename.

    The folder is made when it is missing. An existing file keeps its content until the new one is complete.

    Raises
    ------
    InputError
        The folder or the file cannot be written; nothing is left behind.
    """
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _usual_mode(target))
        os.replace(temporary, target)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot write: {reason}", source=str(path), remedy="give a writable path") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)  # gone already after a successful rename


def json_text(document: object) -> str:
    """Strict JSON, two spaces of indent, a final newline. ``ValueError`` for NaN and infinities: JSON has neither."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _usual_mode(target: Path) -> int:
    """Mode of the file that is replaced, or what the process's umask leaves of rw-rw-rw-."""
    with suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
