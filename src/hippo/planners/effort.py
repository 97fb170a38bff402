"""How long a search goes on: by work that is counted, not by a clock, so that equal questions get equal answers.

Work is told in seconds: those that it took one core of a usual server, by the rates below. They are fixed, whatever
the machine and whoever else works on it; where they are wrong a search takes longer or shorter than its limit, but
finds the same. Only what takes ``SLACK`` times as long in CPU seconds, or ``CLOCK_SLACK`` times by the clock, is ended
by them, and then the answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from time import monotonic, process_time
from typing import Protocol

from hippo.planners.base import Stop

SLACK, CLOCK_SLACK = 4.0, 20.0
"""Times its limit in CPU seconds, and by the clock, after which a search ends though its work is not done: who else
works on the machine hardly changes the former."""

PREPARE_S, PAIR_S = 0.15, 3e-4
"""Of the tables of a search; and of each pair of its domains."""
CHECK_S = 3e-4
"""Of a plan that is checked alone."""
PLAN_S, GPU_S, OPERATION_S = 1.5e-3, 2.5e-6, 1.5e-7
"""Of a plan that is checked, lowered and played; of each of its GPUs, and of each operation."""
JUDGE_S = 3e-3
"""Of a plan that is judged as well."""
ORDER_S, ORDERED_S = 3e-3, 3e-8
"""Of an order that is made for a pipeline; and of each operation, by each rule that is tried."""
SHAPE_S = 1.2e-4
"""Of a shape whose bound is worked out over all cuts."""
CHAIN_S = 2e-4
"""Of a chain of domains whose quickest cuts are looked for."""
FLUID_S = 3e-9
"""Of the bound of a family of layouts, for each two of them and each layer or mix of domains."""
FIT_S = 4e-10
"""Of a fit of unlike domains, for each stage that is tried and each pair of layers."""


@dataclass(eq=False)
class Effort:
    """Work against a limit, seconds by the rates above. The one thing that a search and its parts mutate together."""

    limit_s: float = inf
    spent_s: float = 0.0
    cut: str = ""  # a sentence where something was left undone
    _began_s: float = field(default_factory=lambda: monotonic())
    _began_cpu_s: float = field(default_factory=lambda: process_time())

    @classmethod
    def of(cls, stop: Stop) -> Effort:
        """One that begins now."""
        return cls(stop.time_limit_s)

    @property
    def left_s(self) -> float:
        """Work that may still be done."""
        return max(0.0, self.limit_s - self.spent_s)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of this process since the beginning."""
        return process_time() - self._began_cpu_s

    def spend(self, seconds: float) -> None:
        """Counts work that is done."""
        self.spent_s += seconds

    def over(self, share: float = 1.0) -> bool:
        """Whether that share of the limit is spent; asked only where there is more to do, which is then left undone."""
        if self.spent_s >= share * self.limit_s:
            self.cut = self.cut or LIMITED
        elif self.cpu_s >= SLACK * self.limit_s:
            self.cut = SLOW
        elif monotonic() - self._began_s >= CLOCK_SLACK * self.limit_s:
            self.cut = BUSY
        else:
            return False
        return True


class Playable(Protocol):
    """A plan, or what becomes one."""

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        ...

    @property
    def operations(self) -> int:
        """Forwards, backwards and weight gradients of all stages and waves."""
        ...


def play_s(plan: Playable) -> float:
    """Work of checking, lowering and playing it."""
    return PLAN_S + GPU_S * plan.gpus + OPERATION_S * plan.operations


LIMITED = "Cut short by its time limit, counted as work: with a higher one it may find a better plan, or prove more."
SLOW = (
    f"Cut short after {SLACK:g} times its time limit in CPU seconds, as this machine is slow: "
    "with a higher one it may find a better plan, or prove more."
)
BUSY = (
    f"Cut short by the clock after {CLOCK_SLACK:g} times its time limit, as this machine was busy: "
    "asked again, it may find a better plan."
)
