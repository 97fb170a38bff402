"""One rank of a running pipeline: what it hears goes in, what it does next comes out.

It decides by the very kernel of the simulator (``dispatch.play.decide``), on a state of which it knows its own rows
alone: its past, its memory, the messages that are there, and what is announced. Any clock will do, counted from the
start of the step in the unit of the problem. One chunk per rank, micro-batches in order; kinds F, B, W = 0, 1, 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from hippo.compiling import Row
from hippo.dispatch.base import Base
from hippo.dispatch.features import WAIT
from hippo.dispatch.network import DispatchWeights
from hippo.dispatch.play import Known, decide, remember, room
from hippo.dispatch.state import begin, new_state
from hippo.engine.program import BACKWARD, FORWARD
from hippo.schedule.problem import ScheduleProblem

Counts = tuple[int, int, int]  # F, B and W that a rank has begun


class RankDispatch(Protocol):
    """Who says what a rank does next."""

    wake: float
    """When it is to be asked; before that there is nothing new."""

    def begin(self) -> None:
        """A step starts: nothing has run."""
        ...

    def announced(self, kind: int, index: int, heard: float, expected: float, told: Counts) -> None:
        """The producer of an input has begun it: when that is heard, when it is expected, what the producer had begun
        by then, this operation among it."""
        ...

    def arrives(self, kind: int, index: int, at: float) -> None:
        """When an input is there."""
        ...

    def next(self, now: float) -> int | None:
        """The kind to begin now; None: nothing before ``wake``."""
        ...

    def begins(self, kind: int) -> Counts:
        """It begins; what the rank has begun with it."""
        ...

    def ended(self, kind: int, began: float, end: float) -> None:
        """It has ended."""
        ...


class ChoosingRank:
    """A rank that runs what is ready: by a hint with its patience (weights of ``network.follower``), or by a policy."""

    def __init__(self, problem: ScheduleProblem, rank: int, base: Base, weights: DispatchWeights) -> None:
        self._rank, self._state = rank, new_state(problem)
        self._known = Row(1)
        self._known[0] = Known(self._state, base, weights, room(len(weights.first_bias)))
        self._decide = decide.entry(self._known, rank, 0.0)
        self.wake = 0.0
        self.begin()

    def begin(self) -> None:
        """A step starts: nothing has run."""
        begin(self._state)
        self.wake = 0.0

    def announced(self, kind: int, index: int, heard: float, expected: float, told: Counts) -> None:
        """See ``RankDispatch``."""
        board, place = self._state.board, kind * self._state.pipe.slots + self._rank
        assert board.heard is not None
        assert board.expected is not None
        board.heard[place, index], board.expected[place, index] = heard, expected
        self._state.told[kind, self._rank, index] = told
        if self._state.waiting[self._rank]:
            self.wake = min(self.wake, heard)

    def arrives(self, kind: int, index: int, at: float) -> None:
        """See ``RankDispatch``."""
        self._state.board.arrived[kind * self._state.pipe.slots + self._rank, index] = at
        self.wake = min(self.wake, at)

    def next(self, now: float) -> int | None:
        """See ``RankDispatch``."""
        choice, wake = self._decide(self._known.place, self._rank, now)
        if choice < WAIT:
            return int(choice)
        self.wake = float(wake)
        return None

    def begins(self, kind: int) -> Counts:
        """See ``RankDispatch``."""
        pipe, board, rank = self._state.pipe, self._state.board, self._rank
        board.begun[rank, kind] += 1
        board.live[rank] += pipe.memory[kind, rank]
        f, b, w = board.begun[rank].tolist()
        return f, b, w

    def ended(self, kind: int, began: float, end: float) -> None:
        """See ``RankDispatch``."""
        state, rank = self._state, self._rank
        remember(state, rank, kind, began, end)
        if kind == FORWARD and rank == len(state.pipe.length) - 1:  # the model ends here: its backward can follow
            self.arrives(BACKWARD, int(state.board.begun[rank, FORWARD]) - 1, end)
        self.wake = end


class OrderedRank:
    """A rank that keeps to an order: it waits for the input of what comes next. A B of a fused backward holds its W."""

    def __init__(self, order: Sequence[tuple[int, int]], *, fed: tuple[bool, bool]) -> None:
        """``order``: kind and micro-batch; ``fed``: whether F and B wait for messages."""
        self._order, self._fed = tuple(order), (*fed, False)
        self.wake, self._done, self._begun = 0.0, 0, [0, 0, 0]
        self._arrived: dict[tuple[int, int], float] = {}

    def begin(self) -> None:
        """A step starts: nothing has run."""
        self.wake, self._done, self._begun = 0.0, 0, [0, 0, 0]
        self._arrived.clear()

    def announced(self, kind: int, index: int, heard: float, expected: float, told: Counts) -> None:
        """It changes nothing."""

    def arrives(self, kind: int, index: int, at: float) -> None:
        """See ``RankDispatch``."""
        self._arrived[kind, index] = at
        self.wake = min(self.wake, at)

    def next(self, now: float) -> int | None:
        """See ``RankDispatch``."""
        kind, index = self._order[self._done]
        there = self._arrived.get((kind, index), inf) if self._fed[kind] else 0.0
        if there <= now:
            return kind
        self.wake = there
        return None

    def begins(self, kind: int) -> Counts:
        """See ``RankDispatch``."""
        self._done += 1
        self._begun[kind] += 1
        f, b, w = self._begun
        return f, b, w

    def ended(self, kind: int, began: float, end: float) -> None:
        """See ``RankDispatch``."""
        self.wake = end
