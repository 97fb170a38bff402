"""ASTRA-sim's play of a step held against ``fast``'s, node by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hippo.simulate.astra.binary import digest
from hippo.simulate.astra.play import Played
from hippo.simulate.program import BACKWARD, FORWARD, WEIGHT

_KIND = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weight gradient"}


@dataclass(frozen=True)
class AstraComparison:
    """How far apart two plays of the same step are. Differences are ASTRA-sim less ``fast``, in seconds."""

    step_time_s: float  # by ASTRA-sim
    fast_step_time_s: float
    operations: int  # whose start and end were compared
    messages: int  # whose time on a link or arrival was compared
    missing: int  # nodes without an entry in the log
    largest_difference_s: float
    where: str  # what is farthest off
    median_difference_s: float  # of the sizes of all differences

    @property
    def difference(self) -> float:
        """Of the step time, as a share of ``fast``'s."""
        return self.step_time_s / self.fast_step_time_s - 1


def compare(found: Played) -> AstraComparison:
    """All operations (start and end) and all messages (first byte on the link, arrival) of one step."""
    ours, theirs = found.fast, found.record
    operations = np.stack([theirs.op_start - ours.op_start, theirs.op_end - ours.op_end])
    messages = np.stack([theirs.message_start - ours.message_start, theirs.message_end - ours.message_end])
    sizes = np.abs(np.concatenate([operations.ravel(), messages.ravel()]))
    known = ~np.isnan(sizes)
    worst = int(np.nanargmax(sizes))
    return AstraComparison(
        step_time_s=found.step_time_s,
        fast_step_time_s=found.fast_step_time_s,
        operations=int((~np.isnan(operations)).any(axis=0).sum()),
        messages=int((~np.isnan(messages)).any(axis=0).sum()),
        missing=int(np.isnan(operations).any(axis=0).sum()) + len(found.work.crossings) - _begun(found),
        largest_difference_s=float(sizes[worst]),
        where=_where(found, worst, operations.shape[1], messages.shape[1]),
        median_difference_s=float(np.median(sizes[known])),
    )


def document(found: Played) -> dict[str, object]:
    """The comparison as ``simulate --json`` tells it."""
    told = compare(found)
    return {
        "fast_step_time_s": told.fast_step_time_s,
        "difference": told.difference,
        "operations_compared": told.operations,
        "messages_compared": told.messages,
        "nodes_missing": told.missing,
        "largest_difference_s": told.largest_difference_s,
        "median_difference_s": told.median_difference_s,
        "where": told.where,
        "ranks": len(found.program.rank_stage),
        "virtual_ranks": len(found.work.traces) - len(found.program.rank_stage),
        "nodes": found.work.num_nodes,
        "runs": found.runs,
        "links_in_order": found.in_order,
        "seconds": found.seconds,
        "binary": found.binary.name,
        "binary_sha256": digest(found.binary),
    }


def _begun(found: Played) -> int:
    """Messages whose time on a link is in the log."""
    return int((~np.isnan(found.record.message_start)).sum())


def _where(found: Played, worst: int, operations: int, messages: int) -> str:
    """A place among starts and ends of operations, then of messages, in words."""
    program, ends = found.program, ("start", "end")
    if worst >= 2 * operations:
        end, slot = divmod(worst - 2 * operations, messages)
        wire = found.work.roles[found.work.crossings[slot].begin[0]]
        if slot >= 2 * len(program.order):
            return f"{ends[end]} of a group's share on {wire}"
        return f"{ends[end]} of the message of {_operation(found, slot // 2)} on {wire}"
    end, index = divmod(worst, operations)
    if index < len(program.order):
        return f"{ends[end]} of {_operation(found, index)}"
    rank, closing = divmod(index - len(program.order), 2)
    return f"{ends[end]} of {('synchronisation', 'optimizer')[closing]} of {found.work.roles[rank]}"


def _operation(found: Played, op: int) -> str:
    kind, chunk, micro_batch = found.program.order[op].tolist()
    rank = int(np.searchsorted(found.program.order_start, op, side="right")) - 1
    return f"{_KIND[kind]} of micro-batch {micro_batch}, chunk {chunk}, {found.work.roles[rank]}"
