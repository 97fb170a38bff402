"""Programs from bare numbers, without a model or a cluster: for worlds solved by hand and for studies.

Letters: p stages, v chunks per stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.schedule.schedule import Schedule
from hippo.simulate.packed import destinations
from hippo.simulate.program import Program, SyncGroup

Times = float | Sequence[float]


@dataclass(frozen=True)
class PlannedLine:
    """A directed link of an abstract world."""

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0


def abstract_program(
    schedule: Schedule,
    *,
    forward_s: Times,
    backward_s: Times,
    weight_s: Times = 0.0,
    delay_s: Times = 0.0,
    loop_delay_s: float | None = None,
) -> Program:
    """One pipeline whose messages take a pure delay: infinite bandwidth, no cost for the sender.

    Times are per stage, (p,) or one number for all; the chunks of a stage share them equally. ``delay_s`` (p - 1,)
    holds between stage i and i + 1, each way; ``loop_delay_s`` (default: the largest of them) from the last stage to
    the first.
    """
    p, v, m = schedule.shape.stages, schedule.shape.chunks, schedule.shape.micro_batches
    hop = np.broadcast_to(np.asarray(delay_s, dtype=np.float64), (max(p - 1, 0),))
    loop = loop_delay_s if loop_delay_s is not None else float(hop.max(initial=0.0))
    down, up = np.append(hop, loop), np.insert(hop, 0, loop)
    none, empty = np.full((p, v, 2), -1), np.zeros((p, v))
    return Program(
        num_waves=np.array([m]),
        rank_pipeline=np.zeros(p, dtype=np.int64),
        rank_stage=np.arange(p),
        rank_domain=np.arange(p),
        forward_s=_per_chunk(forward_s, p, v),
        backward_s=_per_chunk(backward_s, p, v),
        weight_s=_per_chunk(weight_s, p, v),
        fused=schedule.fused,
        sync_s=np.zeros(p),
        finish_s=np.zeros(p),
        down_bytes=empty,
        up_bytes=empty,
        down_route=none,
        up_route=none,
        down_delay_s=np.repeat(down[:, None], v, axis=1),
        up_delay_s=np.repeat(up[:, None], v, axis=1),
        down_nic_bytes_per_s=np.full((p, v), np.inf),
        up_nic_bytes_per_s=np.full((p, v), np.inf),
        order=schedule.order,
        order_start=schedule.order_start,
        groups=(),
        link_bandwidth_bytes_per_s=np.zeros(0),
        link_latency_s=np.zeros(0),
        extra_link_bytes=np.zeros(0),
    )


def on_links(
    program: Program,
    lines: Sequence[PlannedLine],
    *,
    down: Sequence[Sequence[int]],
    up: Sequence[Sequence[int]],
    num_bytes: float,
    nic_bytes_per_s: float = np.inf,
) -> Program:
    """The same ranks with messages of ``num_bytes`` over links instead of delays.

    ``down`` and ``up`` give, per rank, the links crossed by what it sends (one, two for a relay, none for no link);
    nothing is sent beyond the ends of the model.
    """
    shape = program.down_bytes.shape
    down_bytes, up_bytes = (float(num_bytes) * (side >= 0).reshape(shape) for side in destinations(program))
    nic = np.full(shape, float(nic_bytes_per_s))
    return replace(
        program,
        down_bytes=down_bytes,
        up_bytes=up_bytes,
        down_route=_routes(down, program),
        up_route=_routes(up, program),
        down_nic_bytes_per_s=nic,
        up_nic_bytes_per_s=nic,
        link_bandwidth_bytes_per_s=np.array([line.bandwidth_bytes_per_s for line in lines]),
        link_latency_s=np.array([line.latency_s for line in lines]),
        extra_link_bytes=np.zeros(len(lines)),
    )


def side_by_side(programs: Sequence[Program], groups: tuple[SyncGroup, ...] = ()) -> Program:
    """Several pipelines at once on the links of the first program; ranks are numbered through."""
    first = programs[0]
    offsets = np.cumsum([0] + [len(program.order) for program in programs])
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(program, name) for program in programs])
        for name, value in vars(first).items()
        if isinstance(value, np.ndarray) and not name.startswith(("link_", "extra_", "order_start", "rank_pipeline"))
    }
    starts = [program.order_start[:-1] + offset for program, offset in zip(programs, offsets, strict=False)]
    return replace(
        first,
        **joined,
        rank_pipeline=np.repeat(np.arange(len(programs)), [len(program.rank_stage) for program in programs]),
        order_start=np.concatenate([*starts, offsets[-1:]]),
        groups=groups,
    )


def _per_chunk(times: Times, p: int, v: int) -> NDArray[np.float64]:
    stage = np.broadcast_to(np.asarray(times, dtype=np.float64), (p,))
    return np.repeat(stage[:, None] / v, v, axis=1)


def _routes(links: Sequence[Sequence[int]], program: Program) -> NDArray[np.int64]:
    ranks, chunks = program.forward_s.shape
    assert len(links) == ranks, "one route per rank"
    padded = np.array([[*route, -1, -1][:2] for route in links], dtype=np.int64)
    return np.repeat(padded[:, None, :], chunks, axis=1)
