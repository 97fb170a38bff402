"""Whether to wait a moment for what the schedule wants next, or to run something else meanwhile.

Operations cannot be interrupted: a weight gradient begun just before the awaited message comes delays what others wait
for. So where the message came soon after this moment in the step before, the seat waits for it; when it is late, the
seat goes on with what is ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from hippo.run.work import Operation

PATIENCE = 0.5
"""Of the other operation's length: less than that is waited."""


class Foresight:
    """When messages came, and how long operations took, in the step before; knows nothing in the first step."""

    def __init__(self) -> None:
        self._came_s: dict[Operation, float] = {}
        self._lasts_s: dict[int, float] = {}

    def learn(self, came_s: Mapping[Operation, float], lasted_s: Iterable[tuple[int, float]]) -> None:
        """Takes note of a step: when each message came, seconds from its start; kind and seconds of each operation."""
        self._came_s = dict(came_s)
        kinds: dict[int, list[float]] = {}
        for kind, seconds in lasted_s:
            kinds.setdefault(kind, []).append(seconds)
        self._lasts_s = {kind: median(each) for kind, each in kinds.items()}

    def pause_s(self, awaited: Operation, other: Operation, now_s: float) -> float:
        """Seconds to wait for ``awaited`` before ``other`` is begun; 0: begin it now."""
        left = self._came_s.get(awaited, 0.0) - now_s
        return left if 0 < left < PATIENCE * self._lasts_s.get(other[0], 0.0) else 0.0
