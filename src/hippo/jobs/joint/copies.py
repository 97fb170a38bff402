"""Copies of a world, in which something is tried out, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hippo.jobs.engine.world import QueueWorld

STILL = {"weights", "levels", "order", "shape", "allowed", "partly", "sets", "speed", "offers", "tenant", "tenant_s"}
STILL |= {"factor", "usd_per_s", "exchange", "route", "reach", "learned", "time_s", "history", "usd_per_byte"}
STILL |= {"latency_history", "clients", "bound_s", "large_enough", "serving"}
"""Fields of a world that never change."""


@dataclass(frozen=True, eq=False)
class WorldCopy:
    """A copy, and the way back to what it was made of, as that stands by then."""

    copy: QueueWorld
    pairs: tuple[tuple[NDArray[Any], NDArray[Any]], ...]  # of the copy, of what it was made of

    @classmethod
    def of(cls, world: QueueWorld) -> Self:
        """A copy of a world as it stands."""
        copy = _copied(world)
        return cls(copy, tuple(_pairs(copy, world)))

    def restore(self) -> None:
        """Let the copy be as the world stands now."""
        for ours, theirs in self.pairs:
            np.copyto(ours, theirs)


def _copied(world: Any) -> Any:
    """A world of its own arrays, but for those that stand still and what is written down for people."""
    own = {}
    for name, value in zip(world._fields, world, strict=True):
        if name in ("segment", "segment_s"):
            own[name] = value[:0]
        elif hasattr(value, "_fields") and name not in STILL:
            own[name] = _copied(value)
        else:
            own[name] = value.copy() if isinstance(value, np.ndarray) and name not in STILL else value
    return type(world)(**own)


def _pairs(world: Any, other: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    for name, value, known in zip(world._fields, world, other, strict=True):
        if hasattr(value, "_fields") and name not in STILL:
            yield from _pairs(value, known)
        elif isinstance(value, np.ndarray) and name not in STILL and value.size:
            yield value, known
