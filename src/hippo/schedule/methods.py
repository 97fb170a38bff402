"""Methods by name: what makes a schedule for a problem. Every answer has passed the checker.

One method, one file in ``generators/`` (or ``optimal``, ``best``): a function from a ``ScheduleProblem`` to the rows of
all ranks. Methods that need no times are in ``schedule.SCHEDULES`` too, where plans name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.engine.program import WEIGHT
from hippo.errors import InfeasibleError, UnknownNameError
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import peak_memory
from hippo.schedule.schedule import Schedule, Shape

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows (N, 3) of (kind, chunk, micro-batch), ranks one after the other, and where each rank starts, (p + 1,)."""


class Generator(Protocol):
    """What makes the orders of all ranks."""

    def __call__(self, problem: ScheduleProblem) -> Rows:
        """Operations of every rank in the order they run; may leave the memory limit to the checker."""
        ...


@dataclass(frozen=True)
class ScheduleMethod:
    """Where a generator is, and which placement it is for."""

    where: str  # module:attribute
    placement: str = "plain"


_HERE = "hippo.schedule.generators."

METHODS: Mapping[str, ScheduleMethod] = MappingProxyType(
    {
        "gpipe": ScheduleMethod(_HERE + "gpipe:generate"),
        "1f1b": ScheduleMethod(_HERE + "one_f_one_b:generate"),
        "interleaved": ScheduleMethod(_HERE + "interleaved:generate", "looped"),
        "zb-h1": ScheduleMethod(_HERE + "zb_h1:generate"),
        "zb-h2": ScheduleMethod(_HERE + "zb_h2:generate"),
        "zb-auto": ScheduleMethod(_HERE + "zb_auto:generate"),
        "zb-v": ScheduleMethod(_HERE + "zb_v:generate", "v"),
        "v-half": ScheduleMethod(_HERE + "v_half:generate", "v"),
        "v-min": ScheduleMethod(_HERE + "v_min:generate", "v"),
        "dualpipe": ScheduleMethod(_HERE + "dualpipe:generate", "bidirectional"),
        "cross-domain": ScheduleMethod(_HERE + "cross_domain:generate"),
    }
)
"""Named methods. ``optimal`` and ``best``, which take a time limit, and ``learned``, a policy, stand apart."""

LEARNED = "learned"
POLICIES: Mapping[str, ScheduleMethod] = MappingProxyType(
    {LEARNED: ScheduleMethod("hippo.dispatch.dispatch:made_by_policy")}
)
"""What makes orders by asking a policy whenever a rank is free; the rooms that hold them lie above this one."""


def generate(name: str, problem: ScheduleProblem) -> Schedule:
    """The schedule of that method, checked.

    Raises
    ------
    UnknownNameError
        No method has that name.
    InfeasibleError
        The method has no schedule for this problem: it needs more memory (the smallest limit that would work is named)
        or another placement.
    """
    if name not in METHODS:
        raise UnknownNameError("schedule method", name, (*METHODS, *POLICIES, "optimal", "best"), source="--method")
    method = METHODS[name]
    must_be_placed(name, method.placement, problem)
    generator: Generator = loaded(method)
    return checked(name, problem, generator(problem))


def loaded(method: ScheduleMethod) -> Any:
    """What stands at ``ScheduleMethod.where``."""
    module, attribute = method.where.split(":")
    return getattr(import_module(module), attribute)


def must_be_placed(name: str, placement: str, problem: ScheduleProblem) -> None:
    """``InfeasibleError`` where a method lays the model out otherwise than the problem does."""
    if placement != problem.placement:
        raise InfeasibleError(
            [
                f"{name} lays the model out as '{placement}', the problem as '{problem.placement}': "
                f"another problem. Nearest way out: --placement {placement}."
            ]
        )


def checked(name: str, problem: ScheduleProblem, rows: Rows) -> Schedule:
    """The rows as a schedule, when they are one: complete, free of deadlock, within memory.

    Raises ``InfeasibleError`` when the memory does not do; an illegal order is our own mistake (``AssertionError``).
    """
    from hippo.schedule.check import violations

    order, start = rows
    for array in rows:
        array.setflags(write=False)
    shape = Shape(problem.ranks, problem.micro_batches, problem.chunks)
    schedule = Schedule(name, shape, not bool((order[:, 0] == WEIGHT).any()), order, start)
    wrong = violations(problem, schedule, memory=False)
    assert not wrong, f"{name}: {wrong[0]}"
    need, limit = peak_memory(problem, schedule), np.array(problem.limit)
    over = need > limit * (1 + 1e-9)
    if over.any():
        rank = int(np.argmax(np.where(over, need / limit, 0)))
        raise InfeasibleError(
            [
                f"{name} keeps {need[rank]:g} on rank {rank}, the limit is {limit[rank]:g}. "
                f"Nearest way out: --memory {need.max():g}, or --method best."
            ]
        )
    return schedule
