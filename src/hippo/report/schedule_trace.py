"""A played schedule as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

Form: Chrome's "Trace Event Format", as in ``perfetto.py``. One process has a track per rank and a counter of the memory
that it holds, and behind its last operation the reduction of its gradients, where the problem has one; another the
links, a track per direction and more where messages overlap while they travel. An arrow (flow, ``s`` to ``t`` to ``f``)
goes from the operation that sends to the message to the operation that receives. A schedule has no unit of time: one
unit is shown as a millisecond, or a thousandth or thousandfold of it (``otherData``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from hippo.engine.program import BACKWARD, FORWARD
from hippo.report.schedule_marks import SentMessage, memory_over_time, messages, operation_ranks
from hippo.schedule.replay import Replay

RANKS, LINKS = 1, 2
"""Processes."""

KINDS = ("Forward", "Backward", "Weight gradient")
FUSED, REDUCTION = "Backward and weight gradient", "Reduction of gradients"
_MESSAGES = ("Activations", "Gradients of activations")
_LEAST_NS = 1000
"""The shortest operation is shown no shorter."""

Event = dict[str, Any]


def schedule_trace(replay: Replay) -> str:
    """The trace as JSON text, events in order of time after the names of all tracks."""
    scale = _ns_per_unit(replay)
    sent = messages(replay)
    tracks = _tracks(sent)
    events = [*_operations(replay, scale), *_counters(replay, scale), *_on_links(sent, tracks, scale)]
    events += _arrows(replay, sent, tracks, scale)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "schedule": replay.schedule.name,
            "makespan": replay.makespan,
            "one_unit_of_time_is_shown_as": f"{scale / 1e6:g} ms",
        },
        "traceEvents": [*_names(replay, sent, tracks), *sorted(events, key=lambda event: event["ts"])],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _ns_per_unit(replay: Replay) -> float:
    shortest, scale = float((replay.end - replay.start).min()), 1e6
    while shortest * scale < _LEAST_NS:
        scale *= 1000
    while shortest * scale > 1e6 * _LEAST_NS * 1000:
        scale /= 1000
    return scale


def _operations(replay: Replay, scale: float) -> Iterator[Event]:
    """A slice per operation, and for what follows the last one, on the track of its rank."""
    several, kinds = replay.problem.chunks > 1, KINDS if not replay.schedule.fused else (KINDS[0], FUSED)
    columns = (operation_ranks(replay).tolist(), replay.schedule.order.tolist(), replay.start, replay.end)
    for rank, (kind, chunk, micro_batch), start, end in zip(*columns, strict=True):
        args = {"chunk": chunk, "micro-batch": micro_batch} if several else {"micro-batch": micro_batch}
        yield {
            **{"ph": "X", "name": f"{kinds[kind]} {micro_batch}", "pid": RANKS, "tid": rank + 1},
            **_span(start, end, scale),
            "args": args,
        }
    for rank, lasts in enumerate(replay.problem.reduction):
        done = float(replay.end[replay.schedule.order_start[rank + 1] - 1])
        if lasts > 0:
            yield {"ph": "X", "name": REDUCTION, "pid": RANKS, "tid": rank + 1, **_span(done, done + lasts, scale)}


def _counters(replay: Replay, scale: float) -> Iterator[Event]:
    """Memory of each rank wherever it changes."""
    for rank in range(replay.problem.ranks):
        for at, held in zip(*(column.tolist() for column in memory_over_time(replay, rank)), strict=True):
            place = {"pid": RANKS, "tid": rank + 1, "ts": _us(at, scale)}
            yield {"ph": "C", "name": f"rank {rank}: memory", **place, "args": {"held": round(held, 9)}}


# -------------------------------------------------------------------------------------------------------------- links
def _tracks(sent: tuple[SentMessage, ...]) -> list[int]:
    """Track of each message, (messages,): the first one of its direction that is free when it leaves."""
    found, free = [0] * len(sent), dict[tuple[int, int], list[tuple[float, int]]]()
    count = 0
    for index in sorted(range(len(sent)), key=lambda each: (sent[each].sender, sent[each].receiver, sent[each].leaves)):
        message = sent[index]
        lanes = free.setdefault((message.sender, message.receiver), [])
        lane = next((at for at, (until, _) in enumerate(lanes) if until <= message.leaves), len(lanes))
        if lane == len(lanes):
            count += 1
            lanes.append((0.0, count))
        lanes[lane] = (message.arrives, lanes[lane][1])
        found[index] = lanes[lane][1]
    return found


def _on_links(sent: tuple[SentMessage, ...], tracks: list[int], scale: float) -> Iterator[Event]:
    """A slice per message that takes any time."""
    for message, tid in zip(sent, tracks, strict=True):
        if message.arrives > message.leaves:
            name = f"{_MESSAGES[message.kind]} {message.micro_batch}"
            yield {"ph": "X", "name": name, "pid": LINKS, "tid": tid, **_span(message.leaves, message.arrives, scale)}


def _arrows(replay: Replay, sent: tuple[SentMessage, ...], tracks: list[int], scale: float) -> Iterator[Event]:
    """From the end of the sending operation over the message to the start of the receiving one."""
    starts, ends = _times(replay)
    onward, v = replay.problem.tables.onward, replay.problem.chunks
    for index, (message, tid) in enumerate(zip(sent, tracks, strict=True)):
        slot = message.sender * v + message.chunk
        receiver = int(onward[message.kind, slot])
        common: Event = {"name": "message", "cat": "message", "id": index}
        left = ends[message.kind, slot, message.micro_batch]
        yield {"ph": "s", "pid": RANKS, "tid": message.sender + 1, "ts": _us(left, scale) - 0.001, **common}
        if message.arrives > message.leaves:
            yield {"ph": "t", "pid": LINKS, "tid": tid, "ts": _us(message.leaves, scale), **common}
        began = starts[message.kind, receiver, message.micro_batch]
        yield {"ph": "f", "bp": "e", "pid": RANKS, "tid": message.receiver + 1, "ts": _us(began, scale), **common}


def _times(replay: Replay) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of every F and B, both (2, S, m)."""
    problem, order = replay.problem, replay.schedule.order
    chosen = order[:, 0] <= BACKWARD
    at = (order[chosen, 0], (operation_ranks(replay) * problem.chunks + order[:, 1])[chosen], order[chosen, 2])
    starts = np.zeros((BACKWARD - FORWARD + 1, problem.ranks * problem.chunks, problem.micro_batches))
    ends = starts.copy()
    starts[at], ends[at] = replay.start[chosen], replay.end[chosen]
    return starts, ends


# -------------------------------------------------------------------------------------------------------------- names
def _names(replay: Replay, sent: tuple[SentMessage, ...], tracks: list[int]) -> Iterator[Event]:
    """Metadata: names and order of processes and tracks."""
    yield from _named("process", RANKS, 0, f"ranks ({replay.schedule.name})")
    for rank in range(replay.problem.ranks):
        yield from _named("thread", RANKS, rank + 1, f"rank {rank}")
    travelling = [each for each in zip(sent, tracks, strict=True) if each[0].arrives > each[0].leaves]
    if travelling:
        yield from _named("process", LINKS, 0, "links")
    seen: dict[int, str] = {}
    for message, tid in sorted(travelling, key=lambda each: each[1]):
        name = f"rank {message.sender} -> rank {message.receiver}"
        if tid not in seen:
            lanes = sum(1 for other in seen.values() if other.startswith(f"{name}\n")) + 1
            seen[tid] = f"{name}\n{lanes}"
            yield from _named("thread", LINKS, tid, name if lanes == 1 else f"{name} ({lanes})")


def _named(what: str, pid: int, tid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}
    index = pid if what == "process" else tid
    yield {"ph": "M", "name": f"{what}_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": index}}


def _span(start: float, end: float, scale: float) -> Event:
    began, ended = round(start * scale), round(end * scale)
    return {"ts": began / 1000, "dur": (ended - began) / 1000}


def _us(time: float, scale: float) -> float:
    return round(time * scale) / 1000
