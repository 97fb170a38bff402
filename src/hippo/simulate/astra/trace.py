"""What ASTRA-sim logs with ``trace-enabled``: when each node of each rank was issued and when it was done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOG = "log.log"
_LINE = re.compile(r"(issue|callback),sys->id=(\d+), tick=(\d+), node->id=(\d+),")


@dataclass(frozen=True)
class Ticks:
    """Nanoseconds by rank and node number."""

    issued: tuple[dict[int, int], ...]
    done: tuple[dict[int, int], ...]


def read_ticks(folder: Path, ranks: int) -> Ticks:
    """The ticks of all nodes from a folder of logs. A log that grew is in several files, of which the oldest may be
    gone; then nodes are missing here."""
    issued: list[dict[int, int]] = [{} for _ in range(ranks)]
    done: list[dict[int, int]] = [{} for _ in range(ranks)]
    for line in _lines(folder):
        found = _LINE.search(line)
        if found is not None:
            what, rank, tick, node = found.groups()
            (issued if what == "issue" else done)[int(rank)][int(node)] = int(tick)
    return Ticks(tuple(issued), tuple(done))


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("log*.log")):
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from stream
