"""A directed link as a queue: one frame after the other at the set rate, then the one-way delay, in order.

    departure = max(arrival, departure of the frame before) + wire bytes / rate
    release   = max(departure + delay, release of the frame before)

A frame that would wait behind more than a limit of bytes is dropped. When rate or delay change, frames that have not
departed are timed anew; those on their way keep their time. Rate 0 is an outage: what has not departed is lost.
"""

from __future__ import annotations

from collections import deque

SMALLEST_QUEUE_BYTES = 256 * 1024
QUEUE_BEYOND_BDP_S = 0.02
_NS = 1_000_000_000


def queue_limit_bytes(rate_bytes_per_s: float, latency_s: float) -> float:
    """Bytes that may wait: one product of rate and round trip and 20 ms more, 256 KiB at least."""
    return max(SMALLEST_QUEUE_BYTES, rate_bytes_per_s * (2 * latency_s + QUEUE_BEYOND_BDP_S))


class Line:
    """State and counts of one directed link. Times in ns of ``time.monotonic_ns``."""

    def __init__(self, rate_bytes_per_s: float, latency_s: float) -> None:
        self.waiting: deque[tuple[int, int, int, bytes]] = deque()  # release, departure, wire bytes, frame
        self.carried_bytes = self.carried_frames = self.dropped_bytes = self.dropped_frames = 0
        self._free_ns = self._last_release_ns = 0
        self._set(rate_bytes_per_s, latency_s)

    def _set(self, rate_bytes_per_s: float, latency_s: float) -> None:
        self.rate_bytes_per_s, self.latency_s = rate_bytes_per_s, latency_s
        self._ns_per_byte = _NS / rate_bytes_per_s if rate_bytes_per_s > 0 else 0.0
        self._latency_ns = round(latency_s * _NS)
        self._limit_ns = queue_limit_bytes(rate_bytes_per_s, latency_s) * self._ns_per_byte

    def take(self, arrival_ns: int, wire_bytes: int, frame: bytes) -> bool:
        """Admits a frame, or drops it (False)."""
        start_ns = max(arrival_ns, self._free_ns)
        length_ns = wire_bytes * self._ns_per_byte
        if not self._ns_per_byte or start_ns - arrival_ns + length_ns > self._limit_ns:
            self.dropped_bytes += wire_bytes
            self.dropped_frames += 1
            return False
        self._free_ns = departure_ns = start_ns + int(length_ns)
        self._append(departure_ns, wire_bytes, frame)
        self.carried_bytes += wire_bytes
        self.carried_frames += 1
        return True

    def _append(self, departure_ns: int, wire_bytes: int, frame: bytes) -> None:
        self._last_release_ns = release_ns = max(departure_ns + self._latency_ns, self._last_release_ns)
        self.waiting.append((release_ns, departure_ns, wire_bytes, frame))

    def change(self, now_ns: int, rate_bytes_per_s: float, latency_s: float) -> None:
        """Another rate and delay from ``now_ns`` on, also for what has not departed."""
        old_ns_per_byte = self._ns_per_byte
        late = []
        while self.waiting and self.waiting[-1][1] > now_ns:
            late.append(self.waiting.pop())
        self._set(rate_bytes_per_s, latency_s)
        self._free_ns = now_ns
        self._last_release_ns = self.waiting[-1][0] if self.waiting else 0
        for _, departure_ns, wire_bytes, frame in reversed(late):
            if not self._ns_per_byte:
                self._lose(wire_bytes)
                continue
            # of the frame being sent only the rest is left
            rest_bytes = min(wire_bytes, (departure_ns - now_ns) / old_ns_per_byte)
            self._free_ns += int(rest_bytes * self._ns_per_byte)
            self._append(self._free_ns, wire_bytes, frame)

    def _lose(self, wire_bytes: int) -> None:
        """An admitted frame that never departs."""
        self.carried_bytes -= wire_bytes
        self.carried_frames -= 1
        self.dropped_bytes += wire_bytes
        self.dropped_frames += 1
