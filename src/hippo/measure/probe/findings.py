"""What probing found, as data and as the two files that it is written to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from hippo.measure.probe.cluster_text import cluster_text, measured_cluster
from hippo.measure.probe.links import LinkSeen, Spread, links_seen
from hippo.measure.probe.rounds import Look
from hippo.measure.probe.sample import Sample, frame_share
from hippo.measure.probe.trace_text import trace_text
from hippo.measure.probe.wire import RAMP_TRIPS, Effort
from hippo.problem.cluster import Cluster
from hippo.units import BITS_PER_BYTE, gbps_from_bytes_per_s, ms_from_s

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


def _figures(spread: Spread | None, unit: float) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"p5": spread.p5 * unit, "median": spread.median * unit, "p95": spread.p95 * unit}


# -------------------------------------------------------------------------------------------------------- own prober
def how_probed(effort: Effort, looks: Sequence[Look]) -> tuple[str, ...]:
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


def _look(look: Look) -> str:
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
