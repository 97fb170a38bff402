"""How a run fails. No torch."""

from __future__ import annotations

from collections.abc import Collection

from hippo.errors import HippoError


class RunError(HippoError):
    """A run ended early: a process died, or nothing moved for the stated time."""


class LostError(RunError):
    """Processes are lost: they died, or are silent while others move; ``stuck``: none is known to have died;
    ``failed``: by a fault of the program, not by a signal."""

    def __init__(self, told: str, lost: Collection[int], *, stuck: bool = False, failed: bool = False) -> None:
        super().__init__(told)
        self.lost, self.stuck, self.failed = frozenset(lost), stuck, failed
