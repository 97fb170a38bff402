"""Which operation is next: the schedule's own, or (across a WAN) whatever is ready among what memory allows.

Operations of a kind keep the schedule's order among themselves, so messages of a channel come in a known order. As a
hint, the schedule says which of the ready operations goes first; a forward beyond the waves in flight that the schedule
itself needs is never begun. With one chunk a seat this cannot deadlock: the seat that holds the oldest wave can always
go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.work import Operation

Ready = Callable[[Operation], bool]


class Order:
    """The operations of one step that are not done yet."""

    def __init__(self, operations: Iterable[Operation], *, live_limit: float, free: bool, fused: bool) -> None:
        self._all = list(operations)
        self._place = {operation: place for place, operation in enumerate(self._all)}
        self._queues = {kind: [op for op in self._all if op[0] == kind] for kind in (FORWARD, BACKWARD, WEIGHT)}
        self._done = dict.fromkeys(self._queues, 0)
        self._release = BACKWARD if fused else WEIGHT
        waves = [[op[1:] for op in queue] for queue in self._queues.values() if queue]
        self._limit, self._free = live_limit, free and all(each == waves[0] for each in waves)

    def __bool__(self) -> bool:
        return sum(self._done.values()) < len(self._all)

    def next(self, ready: Ready) -> Operation | None:
        """The operation to begin now; None: wait for a message. ``ready``: whether its message is here."""
        heads = sorted(self._heads(), key=self._place.__getitem__)
        if not self._free:
            heads = heads[:1]
        for operation in heads:
            if self._allowed(operation) and ready(operation):
                return operation
        return None

    def awaited(self) -> Operation:
        """The first operation of the schedule that is not done."""
        return min(self._heads(), key=self._place.__getitem__)

    def is_last(self, operation: Operation) -> bool:
        """Whether no other operation of its kind and chunk is left."""
        kind, chunk, _ = operation
        return not any(other[1] == chunk for other in self._queues[kind][self._done[kind] + 1 :])

    def did(self, operation: Operation) -> None:
        """It is done."""
        self._done[operation[0]] += 1

    def _heads(self) -> list[Operation]:
        return [queue[self._done[kind]] for kind, queue in self._queues.items() if self._done[kind] < len(queue)]

    def _allowed(self, operation: Operation) -> bool:
        """Whether the operations before it in its wave are done, and memory holds it."""
        kind, done = operation[0], self._done
        if kind == FORWARD:
            return not self._free or done[FORWARD] - done[self._release] < self._limit
        if not self._free:
            return True
        before = FORWARD if kind == BACKWARD else BACKWARD
        return done[before] > done[kind]
