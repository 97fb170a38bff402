"""What a run measures of itself, step by step: operations, messages, links, memory; as JSON and as Prometheus text.

Processes tell what they sent and what came; the launcher, who hears both, joins them. Seconds are those since the step
started. Bytes are payload, as it was sent (packed where it is); those of a sum in a tensor-parallel group are of the
tensor, whatever its ranks send each other, and its seconds count the wait for the last of them. What a run does not
see: messages of NCCL, and those that torch's runtime sends by itself. No torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hippo.engine.program import BACKWARD, FORWARD, WEIGHT
from hippo.run.job import RunJob
from hippo.run.messages import RunMessage
from hippo.run.network import Pair
from hippo.run.run import RunStep
from hippo.run.work import Worker

NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weight", 3: "agreement", 4: "optimizer"}


# -------------------------------------------------------------------------------------------------------------- record
def step_record(step: RunStep, job: RunJob) -> dict[str, Any]:
    """All that is known of a step: one JSON object."""
    workers = job.work.workers
    return {
        "step": step.number,
        "seconds": step.seconds,
        "loss": None if job.options.stand_in else step.loss,
        "ranks": [_rank(worker, step) for worker in workers if worker.rank < len(step.operations)],
        "links": [
            {"from": pair[0], "to": pair[1], **used}
            for pair, used in sorted(links_used(step.messages, workers).items())
        ],
        "operations": [
            {"rank": rank, "kind": NAMES[kind], "chunk": chunk, "wave": wave, "start_s": start_s, "end_s": end_s}
            for rank, rows in enumerate(step.operations)
            for kind, chunk, wave, start_s, end_s in rows
        ],
        "messages": [
            {
                "what": one.what,
                "from": one.source,
                "to": one.destination,
                "through": one.through,
                "tag": one.tag,
                "bytes": one.size_bytes,
                "sent_s": one.sent_s,
                "came_s": one.came_s,
            }
            for one in step.messages
        ],
        "teams": [
            {"rank": rank, "bytes": size, "start_s": start_s, "end_s": end_s}
            for rank, rows in enumerate(step.teams)
            for size, start_s, end_s in rows
        ],
    }


def _rank(worker: Worker, step: RunStep) -> dict[str, Any]:
    """Where a process sits, and how it spent a step: what is neither computed nor agreed is waited."""
    rows = step.operations[worker.rank]
    computed_s = sum(end_s - start_s for kind, _, _, start_s, end_s in rows if kind != 3)
    agreed_s = sum(end_s - start_s for kind, _, _, start_s, end_s in rows if kind == 3)
    return {
        "rank": worker.rank,
        "domain": worker.domain,
        "stage": worker.stage,
        "computed_s": computed_s,
        "agreed_s": agreed_s,
        "waited_s": max(0.0, step.seconds - computed_s - agreed_s),
        "team_s": sum(end_s - start_s for _, start_s, end_s in step.teams[worker.rank]) if step.teams else 0.0,
        "memory_bytes": step.memory_bytes[worker.rank] if step.memory_bytes else None,
    }


def links_used(messages: Iterable[RunMessage], workers: Sequence[Worker]) -> dict[Pair, dict[str, float]]:
    """Of every pair of domains that talked: payload, seconds in which something was under way, and the rate in them.
    A message is under way from when it is handed to the network until all of it is there, so latency counts."""
    sizes: Counter[Pair] = Counter()
    spans: dict[Pair, list[tuple[float, float]]] = {}
    for one in messages:
        ends = workers[one.source].domain, workers[one.destination].domain
        for pair in pairwise(ends if one.through is None else (ends[0], one.through, ends[1])):
            if pair[0] != pair[1]:
                sizes[pair] += one.size_bytes
                spans.setdefault(pair, []).append((one.sent_s, one.came_s))
    found = {}
    for pair, size in sizes.items():
        seconds = _covered_s(spans[pair])
        found[pair] = {"bytes": size, "under_way_s": seconds, "bytes_per_s": size / seconds if seconds > 0 else 0.0}
    return found


def _covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, until = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, until))
        until = max(until, stop)
    return total


# ---------------------------------------------------------------------------------------------------------- Prometheus
Metric = tuple[str, str, tuple[str, ...], Sequence[tuple[tuple[str, ...], float | None]]]
"""Name, what it is, names of its labels, values of those and the number of each sample."""

COUNTERS = ("steps", "sent_bytes")
RANK_METRICS = {
    "computed_s": "Computed in the last step.",
    "agreed_s": "Waited for sums in the last step.",
    "waited_s": "Waited for messages in the last step.",
    "team_s": "In sums of its tensor-parallel group in the last step; counts as computed.",
    "memory_bytes": "Memory that the process holds.",
}


def prometheus_text(status: Mapping[str, Any], sent: Mapping[Pair, int], steps: int) -> str:
    """A run in Prometheus' text format.

    Parameters
    ----------
    status
        As ``Desk.status`` tells it, with the record of the last step.
    sent
        Payload between domains since the run began, bytes.
    steps
        That were made.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families = []
    for name, told, labels, rows in _metrics(status, sent, steps):
        kind = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
        families.append(kind(f"hippo_run_{name}", told, labels=["model", *labels]))
        for values, number in rows:
            if number is not None:
                families[-1].add_metric([status["model"], *values], number)
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    return generate_latest(registry).decode()


def _metrics(status: Mapping[str, Any], sent: Mapping[Pair, int], steps: int) -> Iterator[Metric]:
    yield "steps", "Steps made.", (), [((), steps)]
    yield "step", "Number of the last step.", (), [((), status["step"])]
    yield "last_step", "Number of the step at which the run ends.", (), [((), status["last_step"])]
    yield "step_seconds", "Of the last step.", (), [((), status["step_s"])]
    yield "predicted_step_seconds", "What a step should take now.", (), [((), status["predicted_step_s"])]
    yield "loss", "Of the last step.", (), [((), status["loss"])]
    record = status["record"] or {"ranks": [], "links": []}
    for key, told in RANK_METRICS.items():
        rows = [((str(one["rank"]), one["domain"], str(one["stage"])), one[key]) for one in record["ranks"]]
        yield key.replace("_s", "_seconds"), told, ("rank", "domain", "stage"), rows
    ends = "source", "destination"
    yield "sent_bytes", "Payload between domains since the run began.", ends, list(sent.items())
    rates = [((one["from"], one["to"]), one["bytes_per_s"]) for one in record["links"]]
    yield "link_bytes_per_second", "Payload in the last step while something was under way.", ends, rates
    states = Counter(one["state"] for one in status["orders"])
    yield "orders", "Orders by what became of them.", ("state",), [((state,), count) for state, count in states.items()]


class _Collected:
    """A collector of what is known already."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Sequence[Any]:
        """All of it."""
        return self._families
