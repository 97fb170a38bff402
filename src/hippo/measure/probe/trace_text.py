"""The network trace of all samples, in the form that ``simulate``, ``evaluate`` and ``watch`` read."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import groupby

from hippo.errors import InputError
from hippo.measure.probe.sample import Sample
from hippo.problem.cluster import Cluster
from hippo.problem.trace_csv import HEADER
from hippo.units import gbps_from_bytes_per_s, ms_from_s

Pair = tuple[str, str]


def trace_text(samples: Sequence[Sample], cluster: Cluster) -> str:
    """The CSV: seconds from the first sample, one row per sample of a link of ``cluster``, an outage as bandwidth 0.

    A sample without rate (or without latency) keeps what held before; one with neither is left out. Every link has a
    row at the first time: one that was not sampled then begins with its figures in ``cluster``, which is how traces are
    read anyway.

    Raises
    ------
    InputError
        Two samples of one link at one instant, or none of any link of the cluster.
    """
    state = {
        (link.source, link.destination): (link.rate_bytes_per_s(cluster.domain(link.source).nodes), link.latency_s)
        for link in cluster.links
    }
    own = sorted((sample for sample in samples if sample.pair in state), key=lambda sample: sample.time_s)
    if not own:
        raise InputError("no link has a sample", source="hippo probe", remedy="measure at least one link")
    zero_s = own[0].time_s
    rows: list[tuple[str, ...]] = []
    for time_s, same in groupby(own, key=lambda sample: sample.time_s):
        changes = _changes(list(same), state, cluster)
        state |= changes
        shown = state if not rows else changes
        rows += [_row(time_s - zero_s, pair, *shown[pair]) for pair in shown]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
    return text.getvalue()


def _changes(
    same: Sequence[Sample], state: Mapping[Pair, tuple[float, float]], cluster: Cluster
) -> dict[Pair, tuple[float, float]]:
    """Bytes/s and one-way seconds of each link that has a sample at this instant."""
    changes: dict[Pair, tuple[float, float]] = {}
    for sample in same:
        if sample.pair in changes:
            problem = f"{sample.source}->{sample.destination} has two samples at one instant"
            remedy = "leave one of the two measurements out"
            raise InputError(problem, source="hippo probe", value=sample.time_s, remedy=remedy)
        rate, trip = sample.rate_bytes_per_s, sample.round_trip_s
        if rate is None and trip is None:
            continue
        before = state[sample.pair]
        changes[sample.pair] = (
            before[0] if rate is None else rate * _senders(sample, cluster),
            before[1] if trip is None else trip / 2,
        )
    return changes


def _senders(sample: Sample, cluster: Cluster) -> int:
    """Nodes that send together: one pair of hosts measured the share of one node where links are given per node."""
    link = cluster.link(*sample.pair)
    assert link is not None
    return cluster.domain(link.source).nodes if link.bandwidth_bytes_per_s is None else 1


def _row(time_s: float, pair: Pair, rate_bytes_per_s: float, latency_s: float) -> tuple[str, ...]:
    gbps, latency_ms = gbps_from_bytes_per_s(rate_bytes_per_s), ms_from_s(latency_s)
    return f"{round(time_s, 3):.12g}", *pair, f"{gbps:.6g}", f"{latency_ms:.6g}"
