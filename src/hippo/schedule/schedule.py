"""Schedules as data: the order of operations on each rank. Nothing is timed here.

Letters: p stages (ranks), m micro-batches, v chunks per rank. Virtual stage ``c * p + s`` is chunk c of stage s.
One schedule, one file: a module with ``orders`` (see ``Orders``), named in ``SCHEDULES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hippo.engine.fixed_order import play
from hippo.engine.program import BACKWARD, FORWARD, NOTHING, RANK, WEIGHT
from hippo.errors import InputError, UnknownNameError
from hippo.plan.plan import WITH_ORDER, Pipeline, Plan
from hippo.schedule.problem import ScheduleProblem

MOST_OPERATIONS = 20_000_000
"""Of one pipeline and step: what fits in memory (some 100 bytes each while playing) and is played within a second."""

SCHEDULES: Mapping[str, str] = MappingProxyType(
    {
        "gpipe": "hippo.schedule.generators.gpipe:orders",
        "1f1b": "hippo.schedule.generators.one_f_one_b:orders",
        "interleaved": "hippo.schedule.generators.interleaved:orders",
        "zb-h1": "hippo.schedule.generators.zb_h1:orders",
        "zb-h2": "hippo.schedule.generators.zb_h2:orders",
        "cross-domain": "hippo.schedule.generators.warmed_up:orders",
    }
)
"""Name of a schedule that needs no times to ``module:attribute`` of its ``Orders``; loaded when asked for."""


@dataclass(frozen=True)
class Shape:
    """What a schedule is asked for."""

    stages: int  # p >= 1
    micro_batches: int  # m >= 1
    chunks: int = 1  # v >= 1
    live_limit: int | None = None  # most micro-batches live per rank, for schedules that take one
    warm_up: tuple[int, ...] = ()  # (p,) forwards before the first backward, for schedules that take them; empty: own


class Orders(Protocol):
    """Operations of every rank in the order they run."""

    def __call__(self, shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows (total, 3) of (kind, chunk, micro-batch), ranks one after the other, and where each starts (p + 1,)."""
        ...


@dataclass(frozen=True, eq=False)
class Schedule:
    """Ordered operations of every rank of one pipeline."""

    name: str
    shape: Shape
    fused: bool  # True: backward rows mean input and weight gradient together, and there are no weight rows
    order: NDArray[np.int64]  # (total operations, 3): kind, chunk, micro-batch; ranks one after the other
    order_start: NDArray[np.int64]  # (p + 1,) slice of ``order`` of each rank

    def rank(self, rank: int) -> NDArray[np.int64]:
        """Operations of one rank, (n, 3)."""
        return self.order[self.order_start[rank] : self.order_start[rank + 1]]

    @cached_property
    def in_parts(self) -> Schedule:
        """See ``split``; remembered with the schedule."""
        return _in_parts(self)

    @cached_property
    def peak_live(self) -> tuple[float, ...]:
        """Most micro-batches live on each rank: taken at the start of F, given back at the end of the last gradient.

        One chunk of a micro-batch counts ``1 / chunks``.
        """
        kind, release = self.order[:, 0], BACKWARD if self.fused else WEIGHT
        live = np.cumsum((kind == FORWARD).astype(np.int64) - (kind == release))  # each rank gives all back at its end
        return tuple((np.maximum.reduceat(live, self.order_start[:-1]) / self.shape.chunks).tolist())


def order_of(plan: Plan, pipeline: Pipeline) -> Schedule:
    """The schedule of one pipeline of a plan; raises as ``order`` does."""
    if pipeline.order:
        return given(pipeline.order)
    return order(
        plan.schedule.name,
        stages=len(pipeline.stages),
        micro_batches=pipeline.num_micro_batches,
        chunks=plan.interleave,
        live_limit=plan.schedule.live_limit,
        warm_up=pipeline.warm_up,
    )


@lru_cache(maxsize=64)
def given(texts: tuple[str, ...]) -> Schedule:
    """The schedule of a plan that says it itself: one text of letters F, B, W per rank (``Pipeline.order``).

    Raises ``InputError`` when the ranks have unlike numbers of operations, or would wait for each other.
    """
    letters = np.frombuffer("".join(texts).encode(), dtype=np.uint8)
    kinds = np.select([letters == ord("F"), letters == ord("B")], [FORWARD, BACKWARD], WEIGHT)
    start = np.cumsum([0] + [len(text) for text in texts])
    rows = np.stack([kinds, np.zeros_like(kinds), np.empty_like(kinds)], axis=1)
    for kind in (FORWARD, BACKWARD, WEIGHT):
        for first, last in zip(start[:-1], start[1:], strict=True):
            at = first + np.flatnonzero(kinds[first:last] == kind)
            rows[at, 2] = np.arange(len(at))
    for array in (rows, start):
        array.setflags(write=False)
    schedule = Schedule(WITH_ORDER, Shape(len(texts), texts[0].count("F")), "W" not in texts[0], rows, start)
    _check_given(schedule)
    return schedule


def _check_given(schedule: Schedule) -> None:
    """No rank waits for one that waits for it."""
    p = schedule.shape.stages
    problem = ScheduleProblem.uniform(p, schedule.shape.micro_batches)
    program = problem.program(schedule.order, schedule.order_start, fused=schedule.fused, again=True)
    play(program, problem.network, NOTHING)
    done = program.sequence[: program.known[0]]
    if len(done) < len(schedule.order):
        short = np.bincount(done[:, RANK], minlength=p) < np.diff(schedule.order_start)
        stuck = int(np.argmax(short))
        remedy = "order the stages so that each can go on, or plan again"
        at = int((done[:, RANK] == stuck).sum())
        raise InputError("the stages wait for each other", key=f"order[{stuck}]", value=at, remedy=remedy)


def letters_of(schedule: Schedule) -> tuple[str, ...]:
    """The texts of ``Pipeline.order``: one letter per operation; one chunk per rank, each kind in order."""
    letters = np.frombuffer(b"FBW", dtype=np.uint8)[schedule.order[:, 0]]
    starts = schedule.order_start.tolist()
    return tuple(letters[one:two].tobytes().decode() for one, two in pairwise(starts))


def split(schedule: Schedule) -> Schedule:
    """The same order with each fused backward as B and at once W; itself when nothing is fused."""
    return schedule.in_parts if schedule.fused else schedule


def _in_parts(schedule: Schedule) -> Schedule:
    times = np.where(schedule.order[:, 0] == BACKWARD, 2, 1)
    rows = np.repeat(schedule.order, times, axis=0)
    rows[np.cumsum(times)[times == 2] - 1, 0] = WEIGHT
    start = np.concatenate([[0], np.cumsum(times)])[schedule.order_start]
    for array in (rows, start):
        array.setflags(write=False)
    return Schedule(schedule.name, schedule.shape, False, rows, start)


def order(
    name: str,
    *,
    stages: int,
    micro_batches: int,
    chunks: int = 1,
    live_limit: int | None = None,
    warm_up: tuple[int, ...] = (),
) -> Schedule:
    """The schedule of that name; equal arguments give the same object, as long as it is remembered.

    Raises
    ------
    UnknownNameError
        No schedule has that name.
    InputError
        The schedule does not exist for these numbers (for instance chunks without interleaving).
    """
    shape = Shape(stages, micro_batches, chunks, live_limit, warm_up)
    large = stages * micro_batches * chunks > _LARGE
    return _remembered_large(name, shape) if large else _remembered(name, shape)


def _order(name: str, shape: Shape) -> Schedule:
    _check(name, shape)
    rows, start = _load(name)(shape)
    for array in (rows, start):
        array.setflags(write=False)
    return Schedule(name, shape, not bool((rows[:, 0] == WEIGHT).any()), rows, start)


_LARGE = 100_000
_remembered = lru_cache(maxsize=16)(_order)  # up to 5 MB each
_remembered_large = lru_cache(maxsize=1)(_order)


def _load(name: str) -> Orders:
    if name == WITH_ORDER:
        remedy = "plan again, or name a schedule with an order of its own: " + ", ".join(SCHEDULES)
        raise InputError("the plan says no order", key="pipelines.order", value=name, remedy=remedy)
    if name not in SCHEDULES:
        raise UnknownNameError("schedule", name, SCHEDULES, key="schedule.name")
    module, attribute = SCHEDULES[name].split(":")
    loaded: Orders = getattr(import_module(module), attribute)
    return loaded


def _check(name: str, shape: Shape) -> None:
    for key, value in (("stages", shape.stages), ("micro_batches", shape.micro_batches), ("interleave", shape.chunks)):
        if value < 1:
            raise InputError("must be at least 1", key=key, value=value, remedy=f"give {key} a positive integer")
    operations = 2 * shape.stages * shape.micro_batches * shape.chunks
    if operations > MOST_OPERATIONS:
        remedy = f"at most {MOST_OPERATIONS:,} can be played: larger micro-batches, more lanes, or a smaller batch"
        problem = f"{shape.stages} stages would run {operations:,} operations a step"
        raise InputError(problem, key="micro_batches", value=shape.micro_batches, remedy=remedy)
    if shape.live_limit is not None and shape.live_limit < 1:
        remedy = "leave it out or give a positive integer"
        raise InputError("must be at least 1", key="schedule.live_limit", value=shape.live_limit, remedy=remedy)
    if shape.warm_up:
        _check_warm_up(name, shape)
    if name != "interleaved" and shape.chunks != 1:
        remedy = "use the schedule 'interleaved', or interleave 1"
        raise InputError(
            f"schedule '{name}' has one chunk per rank", key="interleave", value=shape.chunks, remedy=remedy
        )


def warm_up_is_sound(warm_up: tuple[int, ...], micro_batches: int) -> bool:
    """Whether the numbers never rise from stage to stage and lie between 1 and the number of micro-batches."""
    falling = all(a >= b for a, b in zip(warm_up[:-1], warm_up[1:], strict=True))
    return falling and all(1 <= each <= micro_batches for each in warm_up)


def _check_warm_up(name: str, shape: Shape) -> None:
    """One number per stage, none below that of the next stage, which would wait forever."""
    given, shown = shape.warm_up, ", ".join(map(str, shape.warm_up))
    if name != "cross-domain":
        raise InputError("only the schedule 'cross-domain' takes it", key="warm_up", value=shown, remedy="leave it out")
    if len(given) != shape.stages or not warm_up_is_sound(given, shape.micro_batches):
        remedy = f"give {shape.stages} numbers from {shape.micro_batches} down to 1, none above the one before it"
        raise InputError("is no warm-up for these stages", key="warm_up", value=shown, remedy=remedy)
