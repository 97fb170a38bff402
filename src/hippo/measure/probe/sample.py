"""What was seen of a directed link at one instant, whoever looked: own prober, iperf3, Prometheus.

Rates are of the link, frames and headers included, as cluster files write them: a measured goodput is multiplied by
``frame_share`` (1518 bytes of an Ethernet frame carry 1448 of a TCP stream: 1.048).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

USUAL_SEGMENT_BYTES = 1448  # of a TCP stream, in a frame of an MTU of 1500 with time stamps
_AROUND_SEGMENT_BYTES = 70  # Ethernet 18, IPv4 20, TCP 20, time stamps 12


@dataclass(frozen=True)
class Sample:
    """One look at a link. ``None``: not seen. A rate of 0 is an outage: nobody answered."""

    time_s: float  # seconds since 1970, of the round that it belongs to
    source: str  # domain that sends
    destination: str
    rate_bytes_per_s: float | None  # of the link, see the module
    round_trip_s: float | None

    @property
    def pair(self) -> tuple[str, str]:
        """The link's two ends."""
        return self.source, self.destination


def frame_share(segment_bytes: float) -> float:
    """Bytes on the wire for each byte of a stream whose segments carry so many."""
    return 1.0 + _AROUND_SEGMENT_BYTES / segment_bytes


# --------------------------------------------------------------------------------------------------------------- links
# Samples of all links made into figures of each: medians, percentiles, how many, how often nobody answered.


@dataclass(frozen=True)
class LinkSpread:
    """Percentiles of what was seen."""

    p5: float
    median: float
    p95: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> LinkSpread | None:
        """None: nothing was seen."""
        if not values:
            return None
        p5, p50, p95 = (float(value) for value in np.percentile(values, (5, 50, 95)))
        return cls(p5, p50, p95, len(values))


@dataclass(frozen=True)
class LinkSeen:
    """A directed link over all samples. Outages count apart, not as slow."""

    source: str
    destination: str
    rate_bytes_per_s: LinkSpread | None
    round_trip_s: LinkSpread | None
    outages: int
    samples: int


def links_seen(samples: Iterable[Sample]) -> Mapping[tuple[str, str], LinkSeen]:
    """Every link that has samples, in the order in which they appear."""
    by_pair: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        by_pair.setdefault(sample.pair, []).append(sample)
    return {pair: _seen(pair, own) for pair, own in by_pair.items()}


def _seen(pair: tuple[str, str], own: Sequence[Sample]) -> LinkSeen:
    return LinkSeen(
        *pair,
        rate_bytes_per_s=LinkSpread.of([sample.rate_bytes_per_s for sample in own if sample.rate_bytes_per_s]),
        round_trip_s=LinkSpread.of([sample.round_trip_s for sample in own if sample.round_trip_s is not None]),
        outages=sum(sample.rate_bytes_per_s == 0 for sample in own),
        samples=len(own),
    )
