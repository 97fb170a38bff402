"""Messages as they were: processes tell what they sent and what came, the launcher joins both sides. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hippo.engine.program import BACKWARD, FORWARD

WAYS = {f"pair-{FORWARD}": "activations", f"pair-{BACKWARD}": "gradients", "note": "announcement"}
"""What goes over a channel, by what is in its name; every other one carries sums."""
VIA = "via-"
"""How names of ways through a third domain begin; the number of the process there follows."""

MOST_KEPT = 100_000  # messages of which only one side is known: of a step that was given up


@dataclass(frozen=True)
class RunMessage:
    """One message as it was."""

    what: str  # activations, gradients, announcement, sum
    source: int  # rank
    destination: int
    tag: int  # tells those of a channel apart in a step
    size_bytes: int
    sent_s: float  # when it was handed to the network
    came_s: float  # when all of it was there
    through: str | None = None  # a third domain that handed it on


class MessageJoin:
    """Both sides of messages, put together when the second is told: sums of local SGD come some steps later."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, int], tuple[int, float]] = {}

    def __call__(
        self, told: Sequence[Mapping[str, Any]], members: Sequence[int], domains: Mapping[int, str]
    ) -> tuple[RunMessage, ...]:
        """Messages that came, of what every process of ``members`` told of a step; ``domains``: of all processes."""
        ranks = {process: rank for rank, process in enumerate(members)}
        for one in told:
            self._sent |= {(way, tag): (size, at_s) for way, tag, size, at_s in one["sent"]}
        found = []
        for one in told:
            for way, tag, came_s in one["came"]:
                if (sent := self._sent.pop((way, tag), None)) is None:
                    continue
                *_, source, destination = way.split("-")
                if int(source) in ranks and int(destination) in ranks:
                    ends = ranks[int(source)], ranks[int(destination)]
                    middle = domains.get(int(way.split("-")[1])) if way.startswith(VIA) else None
                    found.append(RunMessage(_what(way), *ends, tag, sent[0], sent[1], came_s, middle))
        if len(self._sent) > MOST_KEPT:
            self._sent.clear()
        return tuple(sorted(found, key=lambda one: one.sent_s))


def _what(way: str) -> str:
    return next((what for name, what in WAYS.items() if name in way), "sum")
