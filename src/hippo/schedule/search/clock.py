"""A time limit that runs, and whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Callable

Watch = Callable[[str, float], None]
"""Called with what goes on and the share of the time that is over (0..1)."""


class Clock:
    """A time limit that starts to run when it is made, and whoever watches it."""

    def __init__(self, limit_s: float, watch: Callable[[str, float], None] | None = None) -> None:
        self.limit_s, self.watch, self._began = limit_s, watch, time.perf_counter()

    @property
    def spent_s(self) -> float:
        """Since it was made."""
        return time.perf_counter() - self._began

    def over(self, what: str, share: float = 1.0) -> bool:
        """Whether that share of the limit is spent; tells the watcher what goes on."""
        spent = self.spent_s / self.limit_s
        if self.watch is not None:
            self.watch(what, min(1.0, spent))
        return spent >= share
