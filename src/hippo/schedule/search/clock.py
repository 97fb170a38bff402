"""A time limit that runs, and whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Callable

Watch = Callable[[str, float], None]
"""Called with what goes on and the share of the time that is over (0..1)."""


class Clock:
    """A time limit that starts to run when it is made, and whoever watches it.

    ``slack``: searches that count their own tries end by those; the clock ends them only after so many times the limit,
    so that what they find does not depend on how busy the machine is. ``rang``: it did.
    """

    def __init__(self, limit_s: float, watch: Callable[[str, float], None] | None = None, slack: float = 1.0) -> None:
        self.limit_s, self.watch, self.slack, self._began = limit_s, watch, slack, time.perf_counter()
        self.rang = False

    @property
    def spent_s(self) -> float:
        """Since it was made."""
        return time.perf_counter() - self._began

    def over(self, what: str, share: float = 1.0) -> bool:
        """Whether that share of the limit is spent; tells the watcher what goes on."""
        spent = self.spent_s / self.limit_s
        if self.watch is not None:
            self.watch(what, min(1.0, spent))
        rings = spent >= self.slack * share
        self.rang = self.rang or rings
        return rings
