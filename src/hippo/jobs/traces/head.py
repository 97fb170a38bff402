"""The first lines of a trace: what formats are told apart by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hippo.errors import InputError
from hippo.jobs.traces.source import HEAD_CHARACTERS, head


@dataclass(frozen=True)
class Head:
    """The beginning of a file: at most 65,536 characters of it."""

    source: str
    text: str

    @classmethod
    def of(cls, path: Path) -> Head:
        """The head of a file; ``InputError`` when it is empty."""
        text = head(path)
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
