"""Traces in the making: ranks, their nodes, and what waits for what.

What ASTRA-sim does with a rank's nodes (measured): one COMP runs at a time, one SEND is under way until it has arrived,
a RECV takes no place, and of the nodes that may start the one with the lowest number does. So a rank with nothing but
COMP nodes is a queue, and numbers are its order of service.

Real ranks and all others sit on one network on which a message of one byte takes ``HOP_NS``; every other duration is a
COMP node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hippo.simulate.astra.chakra import COLLECTIVE, COMP, RECV, SEND, ChakraNode

HOP_NS = 1
"""What a message between any two ranks takes: the latency of the network file; a byte takes no time beside it."""


@dataclass(frozen=True, eq=False)
class Step:
    """A node in the making. Only ``after`` grows, and only until the traces are numbered."""

    rank: int
    type: int
    name: str
    length_ns: int = 0
    peer: int = -1  # the other end of a message
    tag: int = 0  # of a message; of a collective: its communicator group
    num_bytes: int = 1  # of a message or a collective
    kind: int = 0  # of a collective
    urgent: bool = False  # goes before all others that wait on its rank: what must follow its predecessor at once
    after: list[Step] = field(default_factory=list)


class TraceDraft:
    """Ranks and their nodes."""

    def __init__(self, ranks: Iterable[str]) -> None:
        self.roles = list(ranks)
        self.steps: list[list[Step]] = [[] for _ in self.roles]
        self.tags = 0

    def rank(self, role: str) -> int:
        """A rank that no GPU has."""
        self.roles.append(role)
        self.steps.append([])
        return len(self.roles) - 1

    def run(self, rank: int, name: str, length_ns: int, after: Sequence[Step], *, urgent: bool = False) -> Step:
        """A duration on a rank (at least 1 ns: the simulator knows none of zero)."""
        step = Step(rank, COMP, name, max(1, length_ns), urgent=urgent, after=list(after))
        self.steps[rank].append(step)
        return step

    def tell(self, after: Step, to: int, name: str, num_bytes: int = 1) -> Step:
        """A message (a byte) to another rank when ``after`` has ended; what the receiver waits for."""
        if after.rank == to:
            return after
        self.tags += 1
        sent = Step(after.rank, SEND, f"send {name}", peer=to, tag=self.tags, num_bytes=num_bytes, after=[after])
        received = Step(to, RECV, f"receive {name}", peer=after.rank, tag=self.tags, num_bytes=num_bytes)
        self.steps[after.rank].append(sent)
        self.steps[to].append(received)
        return received

    def join(self, rank: int, name: str, collective: tuple[int, int, int], after: Sequence[Step]) -> Step:
        """A rank's part in a collective: its type, the number of its group, bytes."""
        kind, group, num_bytes = collective
        step = Step(rank, COLLECTIVE, name, tag=group, num_bytes=num_bytes, kind=kind, after=list(after))
        self.steps[rank].append(step)
        return step

    def tell_later(self, after: Step, to: int, wait_ns: int, pool: NodePool) -> Step:
        """The same so that it is there ``wait_ns`` after ``after`` has ended: by way of a rank that waits."""
        if wait_ns <= 2 * HOP_NS:
            return self.tell(after, to, pool.name)
        waiting = pool.take(wait_ns)
        there = self.tell(after, waiting, pool.name)
        return self.tell(self.run(waiting, f"wait {pool.name}", wait_ns - 2 * HOP_NS, [there]), to, pool.name)


class NodePool:
    """Ranks that wait: as many as may have to wait at once when a new wait begins at most every ``spacing_ns``.

    So many are enough, and it does not matter how many messages there are: the rank that is asked again has waited out.
    """

    def __init__(self, draft: TraceDraft, name: str, spacing_ns: int) -> None:
        self.draft, self.name, self.spacing_ns = draft, name, max(1, spacing_ns)
        self.ranks: deque[int] = deque()
        self.most = 1  # waits that may be under way at once

    def take(self, wait_ns: int) -> int:
        """The rank whose last wait began longest ago, or a new one as long as they may all be waiting."""
        self.most = max(self.most, -(-wait_ns // self.spacing_ns))
        if len(self.ranks) < self.most:
            self.ranks.append(self.draft.rank(f"waits: {self.name}"))
        else:
            self.ranks.rotate(-1)
        return self.ranks[-1]


def numbered(steps: Sequence[Step]) -> dict[Step, int]:
    """Numbers of a rank's nodes from 1: urgent ones first, then in the order in which they were made."""
    return {step: number for number, step in enumerate(sorted(steps, key=lambda step: not step.urgent), 1)}


def written(numbers: dict[Step, int], called: Mapping[int, int] | None = None) -> tuple[ChakraNode, ...]:
    """A rank's nodes as they go into its trace. All waits are on nodes of the same rank. ``called``: what ASTRA-sim
    calls each rank (None: as here)."""
    found = []
    for step, number in numbers.items():
        after = tuple(sorted(numbers[other] for other in step.after))
        found.append(ChakraNode(number, step.name, step.type, after, _about(step, called)))
    return tuple(found)


def _about(step: Step, called: Mapping[int, int] | None) -> tuple[tuple[str, int | bool | str], ...]:
    """Attributes of a node. A duration is written as work on a machine of 10^12 operations a second that never waits
    for memory: whole nanoseconds (``duration_micros`` knows microseconds), and half of one against rounding down."""
    if step.type == COMP:
        return ("is_cpu_op", False), ("num_ops", step.length_ns * 1000 + 500), ("tensor_size", 1)
    gpu, size = ("is_cpu_op", False), ("comm_size", step.num_bytes)
    if step.type == COLLECTIVE:
        return gpu, ("comm_type", step.kind), size, ("pg_name", str(step.tag))
    peer, own = (step.peer, step.rank) if called is None else (called[step.peer], called[step.rank])
    ends = ("comm_src", "comm_dst") if step.type == RECV else ("comm_dst", "comm_src")
    return gpu, (ends[0], peer), (ends[1], own), size, ("comm_tag", step.tag)
