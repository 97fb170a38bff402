"""The latest round as a text file for node_exporter's textfile collector, so that Prometheus keeps what was probed."""

from __future__ import annotations

from collections.abc import Sequence

from hippo.measure.probe.sample import Sample
from hippo.units import BITS_PER_BYTE

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
