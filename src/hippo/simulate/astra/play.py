"""The engine ``astra``: a program played by the user's ASTRA-sim binary.

A rank of ASTRA-sim serves what waits in the order of numbers, a link of ours in the order of arrival. Numbers follow
the order in ``fast``'s play at first; if then a link has served a message before one that came earlier by ASTRA-sim's
own clock, they follow what that clock said, and the run is made again. So the order that counts is ASTRA-sim's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hippo.engine import fixed_order
from hippo.engine.program import Record, room_for
from hippo.errors import InputError
from hippo.simulate import fast
from hippo.simulate.astra.binary import TIMEOUT_S, BinaryRun, find_binary, run
from hippo.simulate.astra.configuration import files
from hippo.simulate.astra.workload import AstraWorkload, Node, State, workload
from hippo.simulate.packed import pack
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline, timeline

Floats = NDArray[np.float64]
MOST_RUNS = 12
SAME_INSTANT_NS = 100
"""Messages that reach a link within this are one instant: two hops more or less are no order."""


@dataclass(frozen=True)
class Played:
    """One step by ASTRA-sim and the same by ``fast``."""

    program: Program
    work: AstraWorkload
    step_time_s: float
    record: Record  # ASTRA-sim's times; NaN: no such node (a relay's middle, a group's last byte)
    fast_step_time_s: float
    fast: Record
    runs: int
    in_order: bool  # whether every link served in the order of arrival in the last run, as far as its log tells
    seconds: float  # of wall clock, all runs
    binary: Path


def play(
    program: Program,
    *,
    bandwidth_bytes_per_s: Floats | None = None,
    latency_s: Floats | None = None,
) -> Timeline:
    """The whole timeline of one step under a state of the links (default: the base state).

    Raises ``InputError`` when the binary is not to be had or fails, or when a link that the plan needs is out, or for
    a plan whose runtime's messages wait for their receivers.
    """
    found = played(program, state_of(program, bandwidth_bytes_per_s, latency_s), find_binary())
    record = found.record
    times = (record.op_start, record.op_end), (record.message_start, record.message_end)
    return timeline(program, found.step_time_s, *times)


def state_of(program: Program, bandwidth_bytes_per_s: Floats | None, latency_s: Floats | None) -> State:
    """The links as the engines see them."""
    network = fast.network(program, bandwidth_bytes_per_s, latency_s)
    return State(network.bandwidth, network.latency, network.nic_scale)


def drawn_up(program: Program, state: State) -> AstraWorkload:
    """The traces of one step, in the order of ``fast``'s play; ``InputError`` when a link that it needs is out."""
    return workload(program, state, by_fast(program, state)[1].message_start)


def played(program: Program, state: State, binary: Path, *, timeout_s: float = TIMEOUT_S) -> Played:
    """One step by the binary, run again until every link has served in the order of arrival."""
    if program.messages.calls != "free":
        remedy = "use --engine fast or reference, or a plan for --runtime hippo"
        raise InputError("plays messages that go when they are made", source="--engine astra", remedy=remedy)
    expected, guess = by_fast(program, state)
    service, seconds, runs, in_order = guess.message_start, 0.0, 0, False
    while not in_order and runs < MOST_RUNS:
        work = workload(program, state, service)
        result = run(binary, files(program, work), len(work.traces), timeout_s=timeout_s)
        runs, seconds = runs + 1, seconds + result.seconds
        asked = _asked(work, result, len(service))
        in_order = _in_order(work, result, asked)
        if np.isnan(asked[list(work.crossings)]).any():  # a log that ASTRA-sim cut off says no order
            in_order = False
            break
        service = asked
    step = max(result.finished_ns[: len(program.rank_stage)]) / 1e9
    record = _record(program, work, result)
    return Played(program, work, step, record, expected, guess, runs, in_order, seconds, binary)


def by_fast(program: Program, state: State) -> tuple[float, Record]:
    """Step time and all times by the compiled engine."""
    tables = pack(program)
    record = room_for(tables)
    network = fast.network(program, state.bandwidth_bytes_per_s, state.latency_s)
    step = float(fixed_order.play(tables, network, record))
    if not np.isfinite(step):
        raise InputError("a link that the plan needs is out", source="--engine", value="astra", remedy="use fast")
    return step, record


def _asked(work: AstraWorkload, result: BinaryRun, slots: int) -> Floats:
    """When each message asked for its link by ASTRA-sim's clock, in nanoseconds, (2 N + L,)."""
    found = np.full(slots, np.nan)
    for slot, crossing in work.crossings.items():
        found[slot] = max(_done(result, node) for node in crossing.asked)
    return found


def _in_order(work: AstraWorkload, result: BinaryRun, asked: Floats) -> bool:
    """Whether each link began with messages in the order in which they asked for it."""
    by_wire: dict[int, list[tuple[float, float]]] = {}
    for slot, crossing in work.crossings.items():
        rank, number = crossing.begin
        begun = float(result.ticks.issued[rank].get(number, np.nan))
        by_wire.setdefault(rank, []).append((begun, float(asked[slot])))
    for served in by_wire.values():
        came = np.array([when for _, when in sorted(served)])
        if (came < np.maximum.accumulate(came) - SAME_INSTANT_NS).any():
            return False
    return True


def _record(program: Program, work: AstraWorkload, result: BinaryRun) -> Record:
    """ASTRA-sim's times in the places of an engine's record, in seconds."""
    ops, ranks = len(program.order), len(program.rank_stage)
    start, end = np.full((2, ops + 2 * ranks), np.nan)
    for index, node in enumerate(work.operations):
        if node is not None:
            start[index], end[index] = _issued(result, node), _done(result, node)
    for rank in range(ranks):  # what takes no time has no node
        at, last = ops + 2 * rank, int(program.order_start[rank + 1]) - 1
        start[at] = end[last]
        own = end[last] if np.isnan(end[at]) else end[at]
        end[at] = max([own, *(_done(result, node) for node in work.agreed[rank])])
        start[at + 1] = end[at]
        end[at + 1] = end[at] if np.isnan(end[at + 1]) else end[at + 1]
    sent, arrived = np.full((2, 2 * ops + sum(len(group.links) for group in program.groups)), np.nan)
    for slot, crossing in work.crossings.items():
        sent[slot] = _issued(result, crossing.begin)
        if crossing.arrived:
            arrived[slot] = max(_done(result, node) for node in crossing.arrived)
    return Record(start / 1e9, end / 1e9, sent / 1e9, arrived / 1e9)


def _issued(result: BinaryRun, node: Node) -> float:
    return float(result.ticks.issued[node[0]].get(node[1], np.nan))


def _done(result: BinaryRun, node: Node) -> float:
    return float(result.ticks.done[node[0]].get(node[1], np.nan))
