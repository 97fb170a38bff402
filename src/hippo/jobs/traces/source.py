"""The text of a trace: files packed or not, whole or from their beginning, and what their first lines tell."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TextIO, cast

from hippo.errors import InputError
from hippo.files import MAX_TABLE_BYTES

GZIP = b"\x1f\x8b"
HEAD_CHARACTERS = 1 << 16
TAR, TAR_PLACE = "ustar", 257
"""What stands in an archive, and where."""


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The text of a trace, line by line; ``InputError`` when it is missing, no text, or cut off inside gzip.

    Errors while reading are told too, so read inside the ``with``.
    """
    source = str(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError("is no plain file", source=source, remedy="write it into a file first: it is read twice")
    try:
        with open(path, "rb") as stream:
            packed = stream.read(2) == GZIP
            stream.seek(0)
            inner = cast("IO[bytes]", gzip.GzipFile(fileobj=stream)) if packed else stream
            with io.TextIOWrapper(inner, encoding="utf-8-sig", newline="") as text:
                yield text
    except FileNotFoundError:
        raise InputError("trace does not exist", source=source, remedy="give the path of an existing file") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(
            f"trace is not text: byte {byte:#04x} is not UTF-8", source=source, remedy="save the file as UTF-8"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(
            f"cannot unpack the trace: {error}", source=source, remedy="give the whole file, or unpack it first"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot read the trace: {reason}", source=source, remedy="give a readable file") from None


def first_characters(path: Path) -> str:
    """The first 65,536 characters of a trace; ``InputError`` for an archive (PAI's and Philly's are published so)."""
    with opened(path) as text:
        first = text.read(HEAD_CHARACTERS)
    if first[TAR_PLACE:].startswith(TAR):
        raise InputError("is a tar archive", source=str(path), remedy="unpack it (tar -xf) and give a file of it")
    return first


def whole_text(path: Path) -> str:
    """The whole text of a trace; ``InputError`` when it is larger than ``MAX_TABLE_BYTES`` characters."""
    with opened(path) as text:
        content = text.read(MAX_TABLE_BYTES + 1)
    if len(content) > MAX_TABLE_BYTES:
        limit = f"{MAX_TABLE_BYTES / 1e6:g} MB"
        raise InputError(f"trace is larger than {limit}", source=str(path), remedy=f"give at most {limit} of JSON")
    return content


@dataclass(frozen=True)
class Head:
    """The beginning of a file: at most 65,536 characters of it."""

    source: str
    text: str

    @classmethod
    def of(cls, path: Path) -> Head:
        """The head of a file; ``InputError`` when it is empty."""
        text = first_characters(path)
        if not text.strip():
            raise InputError("the trace is empty", source=str(path), remedy="give a trace with at least one job")
        return cls(str(path), text)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Lines that are not blank; one that the head cuts off is left out."""
        found = self.text.splitlines()
        if len(self.text) == HEAD_CHARACTERS:
            found = found[:-1]
        return tuple(line for line in found if line.strip())

    @cached_property
    def columns(self) -> frozenset[str]:
        """Names of the first line, if it is a header parted by commas."""
        return frozenset(name.strip().strip('"').lower() for name in self.first.split(","))

    @property
    def first(self) -> str:
        """The first line."""
        return self.lines[0] if self.lines else ""

    @property
    def json(self) -> bool:
        """Whether it begins like a JSON document."""
        return self.text.lstrip()[:1] in ("{", "[")

    def names(self, *columns: str) -> bool:
        """Whether the first line names all of these columns."""
        return self.columns.issuperset(columns)


def require(columns: frozenset[str], *names: str, source: str) -> None:
    """``InputError`` where the header lacks one of the columns that the format needs."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise InputError(
            f"the header lacks {', '.join(missing)}",
            source=source,
            key="line 1",
            remedy=f"write a header with {', '.join(names)}, or name the format with --format",
        )
