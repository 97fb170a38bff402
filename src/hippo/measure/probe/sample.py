"""What was seen of a directed link at one instant, whoever looked: own prober, iperf3, Prometheus.

Rates are of the link, frames and headers included, as cluster files write them: a measured goodput is multiplied by
``frame_share`` (1518 bytes of an Ethernet frame carry 1448 of a TCP stream: 1.048).
"""

from __future__ import annotations

from dataclasses import dataclass

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
