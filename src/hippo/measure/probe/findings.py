"""What probing found, as data and as the two files that it is written to."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from hippo.errors import InputError
from hippo.measure.probe.rounds import LegMeasured
from hippo.measure.probe.sample import LinkSeen, LinkSpread, Sample, frame_share, links_seen
from hippo.measure.probe.wire import RAMP_TRIPS, ProbeEffort
from hippo.problem.cluster import Cluster, Link
from hippo.problem.cluster_yaml import cluster_from_document, cluster_to_document
from hippo.problem.document import parse_yaml
from hippo.problem.trace_csv import HEADER
from hippo.units import BITS_PER_BYTE, bytes_per_s_from_gbps, gbps_from_bytes_per_s, ms_from_s, s_from_ms

# -------------------------------------------------------------------------------------------------------- cluster text
# The cluster file with measured links: hardware as given, figures measured, and beside each how it was made.

Seen = Mapping[tuple[str, str], LinkSeen]
_DIGITS = 4
_PLAIN = re.compile(r"[A-Za-z][\w-]*")
_WORDS = frozenset({"true", "false", "null"})


@dataclass(frozen=True)
class MeasuredCluster:
    """A cluster whose links are as measured, and a sentence about each link."""

    cluster: Cluster
    remarks: Mapping[tuple[str, str], str]  # of links in the cluster, and of those left out


def bare_cluster(domains: Sequence[str], *, gpu: str, nodes: int, gpus_per_node: int) -> Cluster:
    """Domains of equal hardware, no links; ``InputError`` for a GPU that the catalogue does not hold."""
    rows = [{"name": name, "nodes": nodes, "gpus_per_node": gpus_per_node} for name in domains]
    document = {"name": "measured", "gpu": gpu, "domains": rows, "links": []}
    return cluster_from_document(document, source="--gpu", name="measured")


def measured_cluster(base: Cluster, seen: Seen, *, source: str) -> MeasuredCluster:
    """``base`` with the figures of what was seen; the two directions of a pair stay apart.

    Latency is half the round trip. A link of which nothing was seen stays as it was; one without figures from either
    side is left out. Where the cluster file gives a link by ``per_node_gbps`` alone, one pair of hosts has measured
    that. Prices are those of ``base``.

    Raises
    ------
    InputError
        A rate was measured but no latency, and ``base`` has none.
    """
    links: list[Link] = []
    remarks: dict[tuple[str, str], str] = {}
    pairs = dict.fromkeys((*base.link_index, *seen))
    for pair in pairs:
        link, own = base.link(*pair), seen.get(pair)
        found = None if own is None else _measured(link, own)
        if found is not None:
            links.append(found)
        elif link is not None:
            links.append(link)
        remarks[pair] = _remark(own, kept=link is not None)
        if link is None and found is not None and base.links:
            remarks[pair] += ", not in the cluster file given: its price is not known"
    return MeasuredCluster(replace(base, links=tuple(links), source=source), remarks)


def _measured(link: Link | None, seen: LinkSeen) -> Link | None:
    """The link with what was seen of it; None: it was never seen to carry anything, and is in no file."""
    rate, trip = seen.rate_bytes_per_s, seen.round_trip_s
    if link is None and rate is None:
        return None
    if link is None and trip is None:
        raise InputError(
            f"{seen.source}->{seen.destination} has a rate but no latency",
            source="hippo probe",
            remedy="give the latency in a cluster file (--cluster), or measure it too (--latency-query)",
        )
    latency_s = None if trip is None else s_from_ms(_round(ms_from_s(trip.median / 2)))
    if link is None:
        assert rate is not None
        assert latency_s is not None
        return Link(seen.source, seen.destination, _rounded(rate), latency_s, 0.0)
    changed = link if latency_s is None else replace(link, latency_s=latency_s)
    if rate is None:
        return changed
    if link.bandwidth_bytes_per_s is None:
        return replace(changed, per_node_bytes_per_s=_rounded(rate))
    return replace(changed, bandwidth_bytes_per_s=_rounded(rate), per_node_bytes_per_s=None)


def _rounded(rate: LinkSpread) -> float:
    return bytes_per_s_from_gbps(_round(gbps_from_bytes_per_s(rate.median)))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _remark(seen: LinkSeen | None, *, kept: bool) -> str:
    otherwise = "as in the cluster file given" if kept else "left out"
    if seen is None:
        return f"not measured: {otherwise}"
    parts = []
    if seen.rate_bytes_per_s is None:
        parts.append(f"no rate seen: {otherwise}")
    else:
        parts.append(f"rate {_percentiles(seen.rate_bytes_per_s, 8e-6)} Mbit/s")
    if seen.round_trip_s is not None:
        parts.append(f"round trip {_percentiles(seen.round_trip_s, 1e3)} ms")
    parts.append("1 sample" if seen.samples == 1 else f"{seen.samples} samples")
    if seen.outages:
        parts.append(f"no answer in {seen.outages} of them")
    return ", ".join(parts)


def _percentiles(spread: LinkSpread, unit: float) -> str:
    middle = f"{spread.median * unit:.4g}"
    if spread.count == 1:
        return middle
    return f"{middle} (5 to 95 %: {spread.p5 * unit:.4g} to {spread.p95 * unit:.4g})"


# ----------------------------------------------------------------------------------------------------------------- text
def cluster_text(measured: MeasuredCluster, *, how: Sequence[str]) -> str:
    """The YAML of a measured cluster; ``how``: sentences at its top."""
    document = cluster_to_document(measured.cluster)
    lines = [f"# {_one_line(sentence)}" for sentence in how]
    lines += [f"{key}: {_flow(document[key])}" for key in ("name", "source", "gpu")]
    for key in ("domains", "links"):
        rows = document[key]
        assert isinstance(rows, list)
        lines.append(f"{key}:" if rows else f"{key}: []")
        for row in rows:
            if key == "links":
                lines.append(f"  # {_one_line(measured.remarks[row['from'], row['to']])}")
            lines.append(f"  - {_flow(row)}")
    left_out = [pair for pair in measured.remarks if measured.cluster.link(*pair) is None]
    lines += [f"  # {_one_line(f'{one} -> {two}: {measured.remarks[one, two]}')}" for one, two in left_out]
    lines.append(f"dynamics: {_flow(document['dynamics'])}")
    text = "\n".join(lines) + "\n"
    assert cluster_from_document(parse_yaml(text, "own"), source="own", name="own") == measured.cluster
    return text


def _flow(value: object) -> str:
    """YAML 1.2 on one line; text is quoted unless it is a plain word."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str) and not (_PLAIN.fullmatch(value) and value.isascii() and value.lower() not in _WORDS):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    return value if isinstance(value, str) else json.dumps(value)


def _one_line(text: str) -> str:
    """A comment cannot hold line breaks or control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


# ---------------------------------------------------------------------------------------------------------- trace text
# The network trace of all samples, in the form that ``simulate``, ``evaluate`` and ``watch`` read.

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


# ------------------------------------------------------------------------------------------------------------ textfile
# The latest round as a text file for node_exporter's textfile collector, so that Prometheus keeps what was probed.

_RATE = "hippo_link_bits_per_second"
_TRIP = "hippo_link_round_trip_seconds"


def textfile(samples: Sequence[Sample]) -> str:
    """Both gauges of every sample, with labels ``src`` and ``dst``."""
    lines = [f"# HELP {_RATE} Rate of the link, frames and headers included; 0 is an outage.", f"# TYPE {_RATE} gauge"]
    lines += [
        f"{_RATE}{_labels(sample)} {sample.rate_bytes_per_s * BITS_PER_BYTE:.6g}"
        for sample in samples
        if sample.rate_bytes_per_s is not None
    ]
    lines += [f"# HELP {_TRIP} Least round trip of small messages.", f"# TYPE {_TRIP} gauge"]
    lines += [
        f"{_TRIP}{_labels(sample)} {sample.round_trip_s:.6g}" for sample in samples if sample.round_trip_s is not None
    ]
    return "\n".join(lines) + "\n"


def _labels(sample: Sample) -> str:
    src, dst = (name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name in sample.pair)
    return f'{{src="{src}",dst="{dst}"}}'


CLUSTER_FILE, TRACE_FILE = "cluster.yaml", "network.csv"
UNLIMITED_BYTES = 1e11
_MBIT = BITS_PER_BYTE / 1e6


@dataclass(frozen=True)
class Findings:
    """Samples of links, how they were made, and what could not be used."""

    samples: tuple[Sample, ...]
    how: tuple[str, ...]  # sentences
    remarks: tuple[str, ...] = ()


def files_of(findings: Findings, base: Cluster) -> Mapping[str, str]:
    """Cluster file and trace by name; ``base`` holds the hardware. ``InputError`` where they cannot be made."""
    first, last = (_date(pick(sample.time_s for sample in findings.samples)) for pick in (min, max))
    source = f"links measured by hippo probe, {first}" + (f" to {last}" if last != first else "")
    measured = measured_cluster(base, links_seen(findings.samples), source=source)
    how = (source, *findings.how, *findings.remarks)
    return {
        CLUSTER_FILE: cluster_text(measured, how=how),
        TRACE_FILE: trace_text(findings.samples, measured.cluster),
    }


def _date(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def document_of(findings: Findings) -> dict[str, object]:
    """The answer of ``hippo probe --json``."""
    links = [_link(seen) for seen in links_seen(findings.samples).values()]
    return {"links": links, "how": list(findings.how), "remarks": list(findings.remarks)}


def _link(seen: LinkSeen) -> dict[str, object]:
    trip = seen.round_trip_s
    return {
        "from": seen.source,
        "to": seen.destination,
        "bandwidth_gbps": _figures(seen.rate_bytes_per_s, gbps_from_bytes_per_s(1.0)),
        "round_trip_ms": _figures(trip, ms_from_s(1.0)),
        "latency_ms": None if trip is None else ms_from_s(trip.median / 2),
        "samples": seen.samples,
        "outages": seen.outages,
    }


def _figures(spread: LinkSpread | None, unit: float) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"p5": spread.p5 * unit, "median": spread.median * unit, "p95": spread.p95 * unit}


# -------------------------------------------------------------------------------------------------------- own prober
def how_probed(effort: ProbeEffort, looks: Sequence[LegMeasured]) -> tuple[str, ...]:
    """How the own prober made its figures; the last round's in full."""
    flows = "one TCP flow" if effort.flows == 1 else f"{effort.flows} TCP flows together"
    most = f", at most {effort.most_bytes / 1e6:g} MB" if effort.most_bytes < UNLIMITED_BYTES else ""
    return (
        f"Goodput: {flows}, one direction at a time, counted by the receiver for {effort.window_s:g} s after a ramp of "
        f"{effort.ramp_s:g} s (of {RAMP_TRIPS} round trips where that is longer){most}. "
        "Rate: goodput times frame bytes over stream bytes.",
        f"Round trip: the least of {effort.trips} small messages on an idle connection. Latency: half of it, median "
        "over the rounds. Percentiles are over the rounds.",
        *(sentence for look in looks if (sentence := _look(look))),
    )


def _look(look: LegMeasured) -> str:
    found, (one, two) = look.measured, look.leg.domains
    if found is None:
        return f"{one} - {two}, last round: no answer: {look.reason}"
    ways = ", ".join(
        f"{name} {flow.num_bytes / 1e6:.4g} MB in {flow.seconds:.3g} s = {flow.bytes_per_s * _MBIT:.4g} Mbit/s"
        for name, flow in (("there", found.there), ("back", found.back))
    )
    trips = f"{found.trips} round trips of {ms_from_s(found.round_trip_min_s):.4g} ms least, "
    trips += f"{ms_from_s(found.round_trip_median_s):.4g} ms median"
    return f"{one} - {two}, last round: goodput {ways} (rate: times {frame_share(found.segment_bytes):.4g}); {trips}"
