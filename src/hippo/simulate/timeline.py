"""What would happen: when each operation and message starts and ends in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hippo.records import Record, html_table
from hippo.simulate.program import Program

SYNC, OPTIMIZER = 3, 4
KINDS = ("F", "B", "W", "sync", "optimizer")
"""Names of the kinds of operations."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """One played step. N operations, X messages, G ranks, E links; seconds from the start of the step.

    Operation kinds: 0 F, 1 B (input gradient, or fused), 2 W, 3 synchronisation, 4 optimizer.
    """

    step_time_s: float
    op_rank: NDArray[np.int64]  # (N,)
    op_kind: NDArray[np.int64]  # (N,)
    op_chunk: NDArray[np.int64]  # (N,)
    op_micro_batch: NDArray[np.int64]  # (N,) -1 for synchronisation and optimizer
    op_start_s: NDArray[np.float64]  # (N,)
    op_end_s: NDArray[np.float64]  # (N,)
    message_link: NDArray[np.int64]  # (X,) link crossed (a relayed message appears once per hop)
    message_rank: NDArray[np.int64]  # (X,) sending rank
    message_kind: NDArray[np.int64]  # (X,) 0 activations, 1 gradients of activations, 3 synchronisation
    message_micro_batch: NDArray[np.int64]  # (X,)
    message_start_s: NDArray[np.float64]  # (X,) first byte leaves
    message_end_s: NDArray[np.float64]  # (X,) last byte has arrived
    message_bytes: NDArray[np.float64]  # (X,)
    rank_busy_s: NDArray[np.float64]  # (G,) sum of F, B, W
    link_bytes: NDArray[np.float64]  # (E,) bytes per step

    def records(self) -> list[Record]:
        """A row per operation, in the order of ``op_rank``: what ``pandas.DataFrame`` takes; seconds."""
        columns = (self.op_rank, self.op_kind, self.op_chunk, self.op_micro_batch, self.op_start_s, self.op_end_s)
        names = ("rank", "kind", "chunk", "micro_batch", "start_s", "end_s")
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [dict(zip(names, (rank, KINDS[kind], *rest), strict=True)) for rank, kind, *rest in rows]

    def __repr__(self) -> str:
        told = f"{len(self.op_rank)} operations on {len(self.rank_busy_s)} ranks, {len(self.message_link)} messages"
        return f"Timeline(step_time_s={self.step_time_s:.6g}, {told})"

    def _repr_html_(self) -> str:
        rows = [
            {"rank": rank, "busy_s": busy_s, "busy_share": busy_s / self.step_time_s}
            for rank, busy_s in enumerate(self.rank_busy_s.tolist())
        ]
        return html_table(rows, title=repr(self))


def timeline(
    program: Program,
    step_time_s: float,
    operations: tuple[NDArray[np.float64], NDArray[np.float64]],
    messages: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Timeline:
    """The times an engine recorded, as a timeline.

    ``operations``: start and end, (N + 2 G,), the operations of ``program.order`` and then synchronisation and
    optimizer of each rank. ``messages``: start and end, (2 N + group links,), at 2 * operation + hop, then the links of
    the groups; NaN: no message.
    """
    rank, order = np.repeat(np.arange(len(program.rank_stage)), np.diff(program.order_start)), program.order
    ranks = np.arange(len(program.rank_stage)).repeat(2)
    closing = np.stack(
        [np.tile([SYNC, OPTIMIZER], len(program.rank_stage)), np.zeros_like(ranks), np.full_like(ranks, -1)], axis=1
    )
    every = np.concatenate([order, closing])
    sent = _messages(program, rank, *messages)
    return Timeline(
        step_time_s=step_time_s,
        op_rank=np.concatenate([rank, ranks]),
        op_kind=every[:, 0],
        op_chunk=every[:, 1],
        op_micro_batch=every[:, 2],
        op_start_s=operations[0],
        op_end_s=operations[1],
        **sent,
        rank_busy_s=busy_s(program),
        link_bytes=link_bytes(program),
    )


def busy_s(program: Program) -> NDArray[np.float64]:
    """Seconds of F, B and W on each rank, (G,), without waiting for gathered parameters: each runs once per wave."""
    per_wave = (program.forward_s + program.backward_s + program.weight_s).sum(axis=1)
    total: NDArray[np.float64] = per_wave * program.num_waves[program.rank_pipeline]
    return total


def link_bytes(program: Program) -> NDArray[np.float64]:
    """Bytes per step on each link, (E,): messages (both hops of a relay), agreement, and what is not played."""
    total = program.extra_link_bytes.copy()
    waves = program.num_waves[program.rank_pipeline][:, None]
    for route, num_bytes in ((program.down_route, program.down_bytes), (program.up_route, program.up_bytes)):
        for hop in range(2):
            used = route[:, :, hop] >= 0
            np.add.at(total, route[:, :, hop][used], (num_bytes * waves)[used])
    for group in program.groups:
        np.add.at(total, list(group.links), group.link_bytes)
    return total


def _messages(
    program: Program, rank: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> dict[str, Any]:
    """The message columns of a timeline, in order of start; ties keep the order of senders."""
    routes = np.stack([program.down_route, program.up_route])
    sizes = np.stack([program.down_bytes, program.up_bytes])
    kind, chunk, micro_batch = (np.repeat(column, 2) for column in program.order.T)
    sender, hop = np.repeat(rank, 2), np.tile([0, 1], len(rank))
    up = np.minimum(kind, 1)
    groups = [
        (link, group.ranks[0], size)
        for group in program.groups
        for link, size in zip(group.links, group.link_bytes, strict=True)
    ]
    group_link, group_rank, group_bytes = (np.array([entry[column] for entry in groups]) for column in range(3))
    none = np.full(len(groups), -1)
    columns = {
        "message_link": np.concatenate([routes[up, sender, chunk, hop], group_link]).astype(np.int64),
        "message_rank": np.concatenate([sender, group_rank]).astype(np.int64),
        "message_kind": np.concatenate([kind, np.full(len(groups), SYNC)]),
        "message_micro_batch": np.concatenate([micro_batch, none]),
        "message_start_s": start,
        "message_end_s": end,
        "message_bytes": np.concatenate([sizes[up, sender, chunk], group_bytes]).astype(np.float64),
    }
    sent = np.flatnonzero(~np.isnan(start))
    sent = sent[np.argsort(start[sent], kind="stable")]
    return {name: column[sent] for name, column in columns.items()}
