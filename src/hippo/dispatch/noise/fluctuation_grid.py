"""A grid of pipelines on which ways to run them are compared: links, memory, delay, fluctuation.

F, B, W = 1, 1.05, .75. The delay is that of every link (``uniform``), or of one in the middle, and the others have .05
at most (``mid-link``). Operations and messages vary normally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hippo.errors import InputError
from hippo.schedule.problem import ScheduleProblem

TIMES = (1.0, 1.05, 0.75)  # F, B, W
NEAR = 0.05  # delay of links that are not slow
UNIFORM, MID_LINK = "uniform", "mid-link"
PANELS = ((UNIFORM, 1), (UNIFORM, 2), (MID_LINK, 1), (MID_LINK, 2))  # layout, memory in p micro-batches
DELAYS, LEVELS = (0.0, 0.1, 1.0, 5.0), (0.0, 0.1, 0.2, 0.3)


_LIMITS = MappingProxyType({"ranks": (2, 64), "micro_batches": (1, 1000), "samples": (2, 100_000), "seed": (0, 2**31)})


@dataclass(frozen=True)
class Size:
    """What every case has in common; checked when made (``InputError`` names the field)."""

    ranks: int = 8
    micro_batches: int = 32
    samples: int = 1000  # plays of each way to run it
    seed: int = 0

    def __post_init__(self) -> None:
        for key, (low, high) in _LIMITS.items():
            value = getattr(self, key)
            if not low <= value <= high:
                raise InputError(f"must be from {low} to {high}", key=key, value=value, remedy="give such a number")


@dataclass(frozen=True)
class Case:
    """One pipeline, one level of fluctuation."""

    layout: str
    memory: int  # p micro-batches times this
    delay: float  # in F
    level: float  # standard deviation of every operation and message

    def problem(self, size: Size) -> ScheduleProblem:
        """The pipeline of this case."""
        live = self.memory * size.ranks
        return pipeline(self.layout, self.delay, live, ranks=size.ranks, micro_batches=size.micro_batches)


def pipeline(layout: str, delay: float, live: int, *, ranks: int, micro_batches: int) -> ScheduleProblem:
    """Ranks that are alike, with memory for ``live`` micro-batches each."""
    delays = [delay] * (ranks - 1)
    if layout == MID_LINK:
        delays = [min(NEAR, delay)] * (ranks - 1)
        delays[ranks // 2 - 1] = delay
    return ScheduleProblem.uniform(ranks, micro_batches, TIMES, comm=delays, live_limit=live)


def cases(delays: Sequence[float] = DELAYS, levels: Sequence[float] = LEVELS) -> tuple[Case, ...]:
    """Every layout, memory, delay and level; without any delay the two layouts are one."""
    return tuple(
        Case(layout, memory, delay, level)
        for layout, memory in PANELS
        for delay in delays
        for level in levels
        if not (layout == MID_LINK and delay == 0)
    )
