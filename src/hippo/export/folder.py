"""The folder of an export: written whole or not at all, and only over files that are our own.

``.hippo-export.json`` names what an export wrote, with a digest of each: a file that has been changed since, or that
was there before, is not ours to overwrite. Files of an earlier export that this one does not write are taken away, if
they are still as they were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from hippo.errors import InputError
from hippo.files import json_text, write_together

MANIFEST = ".hippo-export.json"

Files = Mapping[str, str | bytes]


def write_export(folder: Path, files: Files, *, force: bool = False) -> None:
    """Writes all files under ``folder``, which is made when missing, or none of them.

    Raises ``InputError`` when one would overwrite a file that is not ours (unless ``force``), or cannot be written.
    """
    contents = {name: _bytes(content) for name, content in files.items()}
    ours = _manifest(folder)
    if not force:
        _refuse_strangers(folder, contents, ours)
    contents[MANIFEST] = _bytes(json_text({name: _digest(content) for name, content in contents.items()}))
    try:
        write_together(folder, contents)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    for name, digest in ours.items():
        if name not in contents and _found_digest(folder / name) == digest:
            with suppress(OSError):
                (folder / name).unlink()


def _refuse_strangers(folder: Path, contents: Mapping[str, bytes], ours: Mapping[str, str]) -> None:
    for name, content in contents.items():
        path = folder / name
        if not os.path.lexists(path):
            continue
        found = _found_digest(path)
        if found is None or found not in (ours.get(name), _digest(content)):
            raise InputError(
                "is there already, and not as an export left it",
                source=str(path),
                remedy="name another folder with --out, or overwrite it with --force",
            )


def _manifest(folder: Path) -> Mapping[str, str]:
    """Names and digests of what the last export wrote there; empty: none did, or its list is unreadable."""
    with suppress(OSError, ValueError):
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if isinstance(document, dict):
            own = {str(name): str(digest) for name, digest in document.items() if _inside(str(name))}
            own[MANIFEST] = _found_digest(folder / MANIFEST) or ""
            return own
    return {}


def _inside(name: str) -> bool:
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _found_digest(path: Path) -> str | None:
    """Digest of a file as it is; None: it is none, or cannot be read."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _cannot_write(folder: Path, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    return InputError(f"cannot write there: {reason}", source=str(folder), remedy="name a folder you may write to")


def listing(files: Files) -> Iterator[str]:
    """Names in the order a reader wants them: README first."""
    yield from sorted(files, key=lambda name: (name != "README.md", name))
