"""Conversions, each done once at the edge. Inside hippo: seconds, bytes, bytes per second, FLOP, US dollars.

GB = 1e9 bytes, Gbit/s = 1e9 bit/s, TFLOP/s = 1e12 FLOP/s.
"""

from __future__ import annotations

BYTES_PER_GB = 1e9
BITS_PER_BYTE = 8.0
SECONDS_PER_HOUR = 3600.0


def bytes_per_s_from_gbps(gbps: float) -> float:
    """Gbit/s (1e9 bit/s) to bytes/s."""
    return gbps * 1e9 / BITS_PER_BYTE


def gbps_from_bytes_per_s(bytes_per_s: float) -> float:
    """Bytes/s to Gbit/s (1e9 bit/s)."""
    return bytes_per_s * BITS_PER_BYTE / 1e9


def gb_from_bytes(num_bytes: float) -> float:
    """Bytes to GB (1e9 bytes)."""
    return num_bytes / BYTES_PER_GB


def s_from_ms(milliseconds: float) -> float:
    """Milliseconds to seconds."""
    return milliseconds * 1e-3


def ms_from_s(seconds: float) -> float:
    """Seconds to milliseconds."""
    return seconds * 1e3


def s_from_us(microseconds: float) -> float:
    """Microseconds to seconds."""
    return microseconds * 1e-6


def flops_from_tflops(tflops: float) -> float:
    """TFLOP/s to FLOP/s."""
    return tflops * 1e12
