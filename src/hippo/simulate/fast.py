"""The quick engine (numba): plays a program in microseconds. ``reference`` judges it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hippo.engine.fixed_order import play as _play
from hippo.engine.program import NOTHING, Network, quiet, room_for
from hippo.errors import InputError
from hippo.simulate.packed import pack
from hippo.simulate.program import Program
from hippo.simulate.timeline import Timeline, timeline


def step_time(
    program: Program,
    *,
    bandwidth_bytes_per_s: NDArray[np.float64] | None = None,
    latency_s: NDArray[np.float64] | None = None,
) -> float:
    """Seconds of one step under a state of the links (default: the base state); nothing is recorded.

    ``bandwidth_bytes_per_s`` and ``latency_s`` are (E,) in the order of ``cluster.links``; a link of bandwidth 0 that
    the plan needs makes the step last for ever (inf).
    """
    step = _play(pack(program), network(program, bandwidth_bytes_per_s, latency_s), NOTHING)
    _ends(program, step)
    return float(step)


def play(
    program: Program,
    *,
    bandwidth_bytes_per_s: NDArray[np.float64] | None = None,
    latency_s: NDArray[np.float64] | None = None,
) -> Timeline:
    """The whole timeline of one step under a state of the links (default: the base state)."""
    tables = pack(program)
    record = room_for(tables)
    step = _play(tables, network(program, bandwidth_bytes_per_s, latency_s), record)
    _ends(program, step)
    return timeline(program, float(step), (record.op_start, record.op_end), (record.message_start, record.message_end))


def _ends(program: Program, step: float) -> None:
    """``InputError`` for an order in which ranks wait for each other for ever under the plan's runtime."""
    if step != step and program.messages.calls != "free":
        told = "its ranks would wait for each other for ever under this runtime"
        raise InputError(told, key="schedule", remedy="plan for this runtime (--runtime), or play it under another")
    assert step == step, "the order of operations deadlocks"


def network(
    program: Program, bandwidth_bytes_per_s: NDArray[np.float64] | None, latency_s: NDArray[np.float64] | None
) -> Network:
    """The state of the links without noise; ``None`` means the base state."""
    base = program.link_bandwidth_bytes_per_s
    bandwidth = np.array(base if bandwidth_bytes_per_s is None else bandwidth_bytes_per_s, dtype=np.float64)
    latency = np.array(program.link_latency_s if latency_s is None else latency_s, dtype=np.float64)
    scale = np.ones(len(base))
    if bandwidth_bytes_per_s is not None and program.link_per_node is not None:
        scale = np.where(program.link_per_node, bandwidth / base, 1.0)
    return quiet(bandwidth, latency, scale)
