"""A program as traces of real and virtual ranks: what ``fast`` plays, in words that ASTRA-sim knows.

ASTRA-sim's analytical networks have one bandwidth and one latency for all pairs (or per dimension). So each directed
link becomes a rank whose COMP nodes are its messages' times on the wire: one at a time, as on the link. Latencies are
COMP nodes of ranks that wait. A real rank only sends one byte to the wire's rank, so its next message need not wait
until the last has arrived. What this judges is the order of things, the queueing and the arithmetic, not a network.

Letters: G real ranks, C chunks, N operations, L links of all groups. Slots of messages are those of
``engine.program.Record``: 2 * operation + hop, then the links of groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hippo.simulate.astra.chakra import ChakraNode
from hippo.simulate.astra.draft import HOP_NS, NodePool, Step, TraceDraft, numbered, written
from hippo.simulate.packed import destinations, sending_nodes, stretched_durations
from hippo.simulate.program import BACKWARD, FORWARD, WEIGHT, Program

Floats = NDArray[np.float64]
Node = tuple[int, int]
"""Rank and number of a node."""

_LETTER = {FORWARD: "F", BACKWARD: "B", WEIGHT: "W"}


@dataclass(frozen=True)
class State:
    """The links while the program is played, (E,) each; ``nic_scale``: factor on the caps of sending nodes."""

    bandwidth_bytes_per_s: Floats
    latency_s: Floats
    nic_scale: Floats


@dataclass(frozen=True)
class Crossing:
    """Where a message's time on a link is to be found."""

    begin: Node  # its first COMP node on the wire's rank
    asked: tuple[Node, ...]  # what that waits for: the message itself, and its nodes' turn to send
    arrived: tuple[Node, ...]  # what the receiver waits for; empty: there is none (first hop, groups)


@dataclass(frozen=True)
class AstraWorkload:
    """Traces, and which node is what."""

    traces: tuple[tuple[ChakraNode, ...], ...]  # one per rank, the G real ones first
    roles: tuple[str, ...]  # what each rank is
    operations: tuple[Node | None, ...]  # (N + 2 G,) with synchronisation and optimizer of each rank; None: no time
    agreed: tuple[tuple[Node, ...], ...]  # (G,) what each rank waits for before its optimizer
    crossings: dict[int, Crossing]  # by slot of the message

    @property
    def num_nodes(self) -> int:
        """Nodes of all ranks."""
        return sum(map(len, self.traces))


def workload(program: Program, state: State, service: Floats) -> AstraWorkload:
    """The traces of one step. ``service``: per slot of a message any number that grows in the order in which each link
    serves (its start in another engine's play), (2 N + L,); NaN: no message."""
    writer = _StepWriter(program, state, service)
    writer.operations()
    writer.inside_domains()
    writer.groups_begin()
    for slot in np.argsort(service, kind="stable")[: np.count_nonzero(~np.isnan(service))].tolist():
        writer.cross(slot)
    writer.groups_end()
    return writer.finished()


def nanoseconds(seconds: float) -> int:
    """The nearest whole number of them."""
    return round(seconds * 1e9)


@dataclass
class _Made:
    """Steps by what they are."""

    ops: list[Step] = field(default_factory=list)
    closing: dict[int, Step] = field(default_factory=dict)  # by operation index from N
    last: list[Step] = field(default_factory=list)  # (G,) what each rank ends its own work with
    agreed: list[list[Step]] = field(default_factory=list)
    hubs: list[Step] = field(default_factory=list)  # per group, when it asks for its links
    shares: list[list[Step]] = field(default_factory=list)  # per group, what came back from its links
    begins: dict[int, tuple[Step, tuple[Step, ...]]] = field(default_factory=dict)
    arrived: dict[int, list[Step]] = field(default_factory=dict)
    onward: dict[int, Step] = field(default_factory=dict)  # per operation, what asks for the second link of its relay


class _StepWriter:
    """One workload in the making."""

    def __init__(self, program: Program, state: State, service: Floats) -> None:
        self.program, self.state = program, state
        self.ranks, self.chunks = program.forward_s.shape
        self.op_rank = np.repeat(np.arange(self.ranks), np.diff(program.order_start))
        places = zip(program.rank_pipeline, program.rank_stage, strict=True)
        self.draft = TraceDraft(f"pipeline {pipeline} stage {stage}" for pipeline, stage in places)
        self.dest, self.nodes = destinations(program), sending_nodes(program)
        self.made, self.wires = _Made(), dict[int, int]()
        self.pools: dict[tuple[object, ...], NodePool] = {}
        self.port_free: dict[tuple[int, int], Step] = {}
        self.group_slots = [(g, i) for g, group in enumerate(program.groups) for i in range(len(group.links))]
        self.consumer = self._consumers()
        self.spacing = self._spacings(service)

    # ------------------------------------------------------------------------------------------------ what there is
    def _consumers(self) -> dict[tuple[int, int, int], int]:
        """Operation by kind, slot and micro-batch."""
        rows = zip(self.program.order.tolist(), self.op_rank.tolist(), strict=True)
        return {(kind, rank * self.chunks + c, m): op for op, ((kind, c, m), rank) in enumerate(rows)}

    def _message(self, op: int) -> tuple[int, int, tuple[int, int]]:
        """Kind, slot and (rank, chunk) of an operation."""
        kind, chunk, _ = self.program.order[op].tolist()
        return kind, int(self.op_rank[op]) * self.chunks + chunk, (int(self.op_rank[op]), chunk)

    def _bytes(self, op: int) -> float:
        kind, _, at = self._message(op)
        return float((self.program.down_bytes, self.program.up_bytes)[kind][at])

    def _route(self, op: int) -> list[int]:
        kind, _, at = self._message(op)
        links: list[int] = (self.program.down_route, self.program.up_route)[kind][at].tolist()
        return [link for link in links if link >= 0]

    def _on_link_ns(self, slot: int) -> tuple[int, int]:
        """The link that a slot's message crosses, and nanoseconds it takes it."""
        if slot < 2 * len(self.op_rank):
            link, size = self._route(slot // 2)[slot % 2], self._bytes(slot // 2)
        else:
            group, index = self.group_slots[slot - 2 * len(self.op_rank)]
            link, size = self.program.groups[group].links[index], self.program.groups[group].taken_bytes[index]
        return link, nanoseconds(size / self.state.bandwidth_bytes_per_s[link])

    def _spacings(self, service: Floats) -> dict[int, int]:
        """The shortest time of a message on each link: so often one may leave it."""
        found: dict[int, int] = {}
        for slot in np.flatnonzero(~np.isnan(service)).tolist():
            link, length = self._on_link_ns(slot)
            found[link] = min(length, found.get(link, length))
        return found

    def _pool(self, spacing_ns: int, name: str, *key: object) -> NodePool:
        pool = self.pools.get((name, *key))
        if pool is None:
            pool = self.pools[name, *key] = NodePool(self.draft, name, spacing_ns)
        return pool

    def _wire(self, link: int) -> int:
        if link not in self.wires:
            self.wires[link] = self.draft.rank(f"link {link}")
        return self.wires[link]

    # -------------------------------------------------------------------------------------------------- what runs
    def operations(self) -> None:
        """The operations of every rank in their order, then its synchronisation."""
        program, state = self.program, self.state
        seconds = stretched_durations(program, state.bandwidth_bytes_per_s, state.latency_s)
        for rank in range(self.ranks):
            before: list[Step] = []
            for op in range(program.order_start[rank], program.order_start[rank + 1]):
                kind, chunk, micro_batch = program.order[op].tolist()
                name = f"{_LETTER[kind]}{chunk}.{micro_batch}"
                step = self.draft.run(rank, name, nanoseconds(seconds[kind, rank, chunk]), before)
                self.made.ops.append(step)
                before = [step]
            self.made.last.append(before[0])
            if sync := nanoseconds(float(program.sync_s[rank])):
                self.made.last[rank] = self.draft.run(rank, "sync", sync, before)
                self.made.closing[len(self.op_rank) + 2 * rank] = self.made.last[rank]
        self.made.agreed = [[] for _ in range(self.ranks)]

    def inside_domains(self) -> None:
        """Messages that cross no link: a delay, as many under way at once as there are."""
        for op, step in enumerate(self.made.ops):
            kind, slot, at = self._message(op)
            if kind == WEIGHT or self.dest[kind, slot] < 0 or (self._route(op) and self._bytes(op) > 0):
                continue
            delay = float((self.program.down_delay_s, self.program.up_delay_s)[kind][at])
            pool = self._pool(step.length_ns, f"{_LETTER[kind]} of rank {at[0]} chunk {at[1]}")
            to = self._receiver(op)
            to.after.append(self.draft.tell_later(step, to.rank, nanoseconds(delay), pool))

    def _receiver(self, op: int) -> Step:
        kind, slot, _ = self._message(op)
        return self.made.ops[self.consumer[kind, int(self.dest[kind, slot]), int(self.program.order[op, 2])]]

    # ------------------------------------------------------------------------------------------------------ over links
    def cross(self, slot: int) -> None:
        """The next message of a link."""
        if slot >= 2 * len(self.op_rank):
            self._cross_for_group(slot)
        elif slot % 2:
            self._second_hop(slot)
        else:
            self._first_hop(slot)

    def _first_hop(self, slot: int) -> None:
        op = slot // 2
        route, step, (link, length) = self._route(op), self.made.ops[op], self._on_link_ns(slot)
        wire, name = self._wire(link), f"{step.name} of {step.rank}"
        kind, _, at = self._message(op)
        nic = float((self.program.down_nic_bytes_per_s, self.program.up_nic_bytes_per_s)[kind][at])
        port_ns = nanoseconds(self._bytes(op) / (nic * float(self.state.nic_scale[link])))
        port = (int(self.nodes[at[0]]), link)
        asked = [self.draft.tell(step, wire, name)]
        if np.isfinite(nic) and port in self.port_free:
            asked.append(self.port_free[port])
        cuts = sorted({cut for cut in (1 if len(route) > 1 else 0, port_ns) if 0 < cut < length})
        pieces = self._pieces(wire, name, (*cuts, length), asked)
        self.made.begins[slot] = (pieces[0][1], tuple(asked))
        gone = dict(pieces)
        last = gone[length]
        if np.isfinite(nic):
            timer = self._pool(1 << 62, f"nodes {port[0]} on link {link}")
            free = gone.get(port_ns)
            self.port_free[port] = free or self._back(last, port_ns - length, timer)
        beyond = max(0, port_ns - length) + nanoseconds(float(self.state.latency_s[link])) - HOP_NS
        if len(route) == 1:
            self._arrive(slot, self._after_latency(last, beyond, link, self._receiver(op).rank))
        else:
            self._stream_on(op, route, (pieces[0][1], last), beyond)

    def _pieces(self, wire: int, name: str, ends: tuple[int, ...], asked: list[Step]) -> list[tuple[int, Step]]:
        """A message's time on the wire, cut where something else begins; nothing comes between the pieces."""
        found: list[tuple[int, Step]] = []
        for end in ends:
            begin, after = found[-1] if found else (0, None)
            before = asked if after is None else [after]
            found.append((end, self.draft.run(wire, name, end - begin, before, urgent=after is not None)))
        return found

    def _back(self, after: Step, wait_ns: int, timer: NodePool) -> Step:
        """The same rank ``wait_ns`` later."""
        if wait_ns <= 2 * HOP_NS:
            return after
        waiting = timer.take(0)
        there = self.draft.tell(after, waiting, timer.name)
        return self.draft.tell(
            self.draft.run(waiting, timer.name, wait_ns - 2 * HOP_NS, [there]), after.rank, timer.name
        )

    def _after_latency(self, after: Step, wait_ns: int, link: int, to: int, purpose: str = "on") -> Step:
        name = f"link {link} {purpose}"
        return self.draft.tell_later(after, to, wait_ns, self._pool(self.spacing[link], name))

    def _stream_on(self, op: int, route: list[int], ends: tuple[Step, Step], beyond: int) -> None:
        """A relay: the first byte asks for the second link, and the receiver waits for the last one of both."""
        begin, last = ends
        second = self._wire(route[1])
        first_byte = nanoseconds(float(self.state.latency_s[route[0]])) - begin.length_ns
        self.made.onward[op] = self._after_latency(begin, first_byte, route[0], second, "first byte on")
        whole = beyond + nanoseconds(float(self.state.latency_s[route[1]]))
        to = self._receiver(op).rank
        self._arrive(2 * op + 1, self._after_latency(last, whole, route[0], to, f"and link {route[1]} on"))

    def _second_hop(self, slot: int) -> None:
        op, (link, length) = slot // 2, self._on_link_ns(slot)
        asked = [self.made.onward[op]]
        ((_, last),) = self._pieces(self._wire(link), self.made.ops[op].name, (length,), asked)
        self.made.begins[slot] = (last, tuple(asked))
        latency = nanoseconds(float(self.state.latency_s[link])) - HOP_NS
        self._arrive(slot, self._after_latency(last, latency, link, self._receiver(op).rank))

    def _arrive(self, slot: int, received: Step) -> None:
        self.made.arrived.setdefault(slot, []).append(received)
        self._receiver(slot // 2).after.append(received)

    # ---------------------------------------------------------------------------------------------------------- groups
    def groups_begin(self) -> None:
        """A rank per group: it waits for all members, then for their agreement inside the domains."""
        for index, group in enumerate(self.program.groups):
            hub, name = self.draft.rank(f"group {index}"), f"group {index}"
            ready = [self.draft.tell(self.made.last[rank], hub, name) for rank in group.ranks]
            local = nanoseconds(group.local_s) - HOP_NS
            self.made.hubs.append(self.draft.run(hub, f"{name} begins", local, ready))
            self.made.shares.append([])

    def _cross_for_group(self, slot: int) -> None:
        group, index = self.group_slots[slot - 2 * len(self.op_rank)]
        link, length = self._on_link_ns(slot)
        hub, name = self.made.hubs[group], f"group {group} on link {link}"
        asked = [self.draft.tell(hub, self._wire(link), name)]
        ((_, last),) = self._pieces(self._wire(link), name, (length,), asked)
        self.made.begins[slot] = (last, tuple(asked))
        caps = self.program.groups[group].nic_bytes_per_s
        size = self.program.groups[group].taken_bytes[index]
        beyond = nanoseconds(size / (caps[index] * float(self.state.nic_scale[link]))) - length if caps else 0
        self.made.shares[group].append(self.draft.tell_later(last, hub.rank, beyond, self._pool(length, name)))

    def groups_end(self) -> None:
        """Latencies in a row after the last byte, then word to the members; then the optimizer of every rank."""
        latency = self.state.latency_s
        for index, group in enumerate(self.program.groups):
            routes = group.routes or tuple((link,) for link in group.links)
            slowest = max((float(latency[list(route)].sum()) for route in routes), default=0.0)
            after = self.made.shares[index] or [self.made.hubs[index]]
            wait = nanoseconds(group.hops * slowest) - 3 * HOP_NS
            end = self.draft.run(after[0].rank, f"group {index} ends", wait, after)
            for rank in group.ranks:
                self.made.agreed[rank].append(self.draft.tell(end, rank, f"group {index}"))
        for rank, seconds in enumerate(self.program.finish_s.tolist()):
            if finish := nanoseconds(seconds):
                after = [self.made.last[rank], *self.made.agreed[rank]]
                step = self.draft.run(rank, "optimizer", finish, after)
                self.made.closing[len(self.op_rank) + 2 * rank + 1] = step

    # ---------------------------------------------------------------------------------------------------------- finish
    def finished(self) -> AstraWorkload:
        """Everything numbered; a single rank gets a neighbour, as the network needs two."""
        if len(self.draft.roles) < 2:
            self.draft.run(self.draft.rank("idle"), "idle", 1, [])
        numbers = [numbered(steps) for steps in self.draft.steps]

        def node(step: Step) -> Node:
            return step.rank, numbers[step.rank][step]

        def nodes(steps: list[Step] | tuple[Step, ...]) -> tuple[Node, ...]:
            return tuple(map(node, steps))

        made, closing = self.made, range(len(self.op_rank), len(self.op_rank) + 2 * self.ranks)
        ends = [made.closing.get(index) for index in closing]
        return AstraWorkload(
            traces=tuple(map(written, numbers)),
            roles=tuple(self.draft.roles),
            operations=tuple(node(step) if step else None for step in [*made.ops, *ends]),
            agreed=tuple(map(nodes, made.agreed)),
            crossings={
                slot: Crossing(node(begin), nodes(asked), nodes(made.arrived.get(slot, ())))
                for slot, (begin, asked) in made.begins.items()
            },
        )
