"""The played step as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

Form: Chrome's "Trace Event Format" (JSON object with ``traceEvents``). A process per domain and one for the links; in a
domain each rank has a track that computes, tracks that send and tracks that receive. Complete events (``X``) of one
track must nest, and messages overlap while they travel: each goes to the first track of its kind that is free. An arrow
(flow, ``s`` to ``f``) joins the sent to the received end of a message, a counter (``C``) of each link says how fast it
sends. Times are whole nanoseconds, written as microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hippo.report.panels.timeline import KINDS, rank_names
from hippo.report.story import PlanStory
from hippo.units import gbps_from_bytes_per_s

COMPUTE, SEND, RECEIVE, LINK = "compute", "send", "receive", "link"
_MESSAGES = {0: "Activations", 1: "Gradients of activations", 3: "Agreement"}

Event = dict[str, Any]


@dataclass(frozen=True)
class Slice:
    """One event before it has a track. Times in ns from the start of the step."""

    pid: int
    owner: int  # rank, or link
    role: str
    name: str
    start_ns: int
    end_ns: int
    args: tuple[tuple[str, object], ...]
    flow: int = -1  # sent and received ends of one message share a number


def trace(story: PlanStory) -> str:
    """The trace as JSON text, events in order of time after the names of all tracks."""
    slices = [*_operations(story), *_messages(story)]
    tracks = _Tracks(story)
    events = [event for item in sorted(slices, key=lambda s: (s.start_ns, -s.end_ns)) for event in tracks.place(item)]
    events = sorted([*events, *_counters(story)], key=lambda event: event["ts"])
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "model": story.problem.model.name,
            "cluster": story.problem.cluster.name,
            "step_time_s": story.timeline.step_time_s,
        },
        "traceEvents": [*tracks.names(), *events],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _operations(story: PlanStory) -> Iterator[Slice]:
    """What every rank computes; operations of no length are left out."""
    timeline, domains, several = story.timeline, story.program.rank_domain, story.plan.interleave > 1
    columns = (
        timeline.op_rank.tolist(),
        timeline.op_kind.tolist(),
        timeline.op_chunk.tolist(),
        timeline.op_micro_batch.tolist(),
        timeline.op_start_s.tolist(),
        timeline.op_end_s.tolist(),
    )
    for rank, kind, chunk, micro_batch, start, end in zip(*columns, strict=True):
        if _ns(end) <= _ns(start):
            continue
        name = KINDS[kind] if micro_batch < 0 else f"{KINDS[kind]} {micro_batch}"
        args = (("chunk", chunk),) if micro_batch >= 0 and several else ()
        yield Slice(int(domains[rank]) + 1, rank, COMPUTE, name, _ns(start), _ns(end), args)


def _messages(story: PlanStory) -> Iterator[Slice]:
    """Every message on its link, and at the ranks that send and receive it."""
    timeline, cluster, domains = story.timeline, story.problem.cluster, story.program.rank_domain
    links_pid = len(cluster.domains) + 1
    columns = (
        timeline.message_link.tolist(),
        timeline.message_rank.tolist(),
        timeline.message_kind.tolist(),
        timeline.message_micro_batch.tolist(),
        timeline.message_start_s.tolist(),
        timeline.message_end_s.tolist(),
        timeline.message_bytes.tolist(),
    )
    for number, (e, sender, kind, micro_batch, start, end, size) in enumerate(zip(*columns, strict=True)):
        name = _MESSAGES[kind] if micro_batch < 0 else f"{_MESSAGES[kind]} {micro_batch}"
        link = cluster.links[e]
        args = (("link", f"{link.source} -> {link.destination}"), ("megabytes", round(size / 1e6, 6)))
        times = (_ns(start), _ns(end), args)
        yield Slice(links_pid, e, LINK, name, *times)
        if kind not in (0, 1):
            continue
        receiver = _receiver(story, sender, kind)
        if cluster.domain_index[link.source] == domains[sender]:
            yield Slice(int(domains[sender]) + 1, sender, SEND, name, *times, number)
        if cluster.domain_index[link.destination] == domains[receiver]:
            yield Slice(int(domains[receiver]) + 1, receiver, RECEIVE, name, *times, number)


def _counters(story: PlanStory) -> Iterator[Event]:
    """What each link sends, Gbit/s, wherever it changes: a message counts from its first byte until the last has left.

    Its last byte arrives a latency later; the rate is the mean over the message.
    """
    timeline, cluster = story.timeline, story.problem.cluster
    latency_s = np.array([link.delay_s for link in cluster.links])[timeline.message_link]
    left_s = np.maximum(timeline.message_end_s - latency_s, timeline.message_start_s + 1e-9)
    gbps = gbps_from_bytes_per_s(1.0) * timeline.message_bytes / (left_s - timeline.message_start_s)
    for e in np.unique(timeline.message_link).tolist():
        own = timeline.message_link == e
        times = np.rint(np.concatenate([timeline.message_start_s[own], left_s[own]]) * 1e9).astype(np.int64)
        changes = np.concatenate([gbps[own], -gbps[own]])
        at, where = np.unique(times, return_inverse=True)
        rates = np.cumsum(np.bincount(where, changes)).round(3)
        name = f"{cluster.links[e].source} -> {cluster.links[e].destination}, sending"
        for time_ns, rate in zip(at.tolist(), rates.tolist(), strict=True):
            place: Event = {"pid": len(cluster.domains) + 1, "tid": 0}
            yield {"ph": "C", "name": name, "ts": time_ns / 1000, **place, "args": {"Gbit/s": abs(rate)}}


def _receiver(story: PlanStory, sender: int, kind: int) -> int:
    """Rank after (activations) or before (gradients) the sender in its pipeline, which closes to a ring for chunks."""
    stage, pipeline = int(story.program.rank_stage[sender]), int(story.program.rank_pipeline[sender])
    size = len(story.plan.pipelines[pipeline].stages)
    return sender - stage + (stage + (1 if kind == 0 else -1)) % size


class _Tracks:
    """Gives every slice a track on which it nests, and remembers the names of processes and tracks."""

    def __init__(self, story: PlanStory) -> None:
        cluster = story.problem.cluster
        self._processes = [*(domain.name for domain in cluster.domains), "links between domains"]
        self._ranks = rank_names(story)
        self._links = [f"{link.source} -> {link.destination}" for link in cluster.links]
        self._free_ns: dict[tuple[int, int, str], list[tuple[int, int]]] = {}  # owner and role -> (tid, free from)
        self._names: list[tuple[int, int, str]] = []

    def place(self, item: Slice) -> Sequence[Event]:
        """The events of one slice; slices must come in order of their start."""
        tid = self._track(item)
        place: Event = {"pid": item.pid, "tid": tid}
        times = {"ts": item.start_ns / 1000, "dur": (item.end_ns - item.start_ns) / 1000}
        event: Event = {"ph": "X", "name": item.name, **times, **place}
        event |= {"args": dict(item.args)} if item.args else {}
        if item.flow < 0:
            return [event]
        end: Event = {"ph": "s"} if item.role == SEND else {"ph": "f", "bp": "e"}
        arrow = {**end, "name": "message", "cat": "message", "id": item.flow, "ts": item.start_ns / 1000, **place}
        return [event, arrow]

    def names(self) -> Iterator[Event]:
        """Metadata: names and order of processes (those with tracks) and of tracks."""
        for pid in sorted({pid for pid, _, _ in self._names}):
            yield _metadata("process_name", pid, 0, "name", self._processes[pid - 1])
            yield _metadata("process_sort_index", pid, 0, "sort_index", pid)
        for pid, tid, name in self._names:
            yield _metadata("thread_name", pid, tid, "name", name)
            yield _metadata("thread_sort_index", pid, tid, "sort_index", tid)

    def _track(self, item: Slice) -> int:
        lanes = self._free_ns.setdefault((item.pid, item.owner, item.role), [])
        for index, (tid, free_ns) in enumerate(lanes):
            if free_ns <= item.start_ns:
                lanes[index] = (tid, item.end_ns)
                return tid
        tid = self._new_tid(item, len(lanes))
        lanes.append((tid, item.end_ns))
        return tid

    def _new_tid(self, item: Slice, lane: int) -> int:
        """Tracks of one rank stand together: its number in thousands, then compute, send, receive, then the lane."""
        roles = {COMPUTE: 0, SEND: 100, RECEIVE: 200, LINK: 0}
        tid = item.owner * 1000 + roles[item.role] + min(lane, 99) + 1
        while any(pid == item.pid and used == tid for pid, used, _ in self._names):
            tid += 1_000_000  # more than a hundred messages of one rank on their way at once
        owner = self._links[item.owner] if item.role == LINK else f"{self._ranks[item.owner]}: {item.role}"
        self._names.append((item.pid, tid, owner if lane == 0 else f"{owner} ({lane + 1})"))
        return tid


def _metadata(name: str, pid: int, tid: int, key: str, value: object) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {key: value}}


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
