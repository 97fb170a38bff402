"""Dollars: rent of GPUs by the second, egress by the byte."""

from __future__ import annotations

from hippo.problem.cluster import Gpu
from hippo.units import SECONDS_PER_HOUR, gb_from_bytes


def rent_usd_per_s(gpu: Gpu, gpus: int) -> float:
    """Rent of ``gpus`` GPUs in USD per second."""
    return gpu.price_usd_per_hour * gpus / SECONDS_PER_HOUR


def egress_usd(num_bytes: float, price_usd_per_gb: float) -> float:
    """Price in USD of ``num_bytes`` sent over a link (GB = 1e9 bytes)."""
    return gb_from_bytes(num_bytes) * price_usd_per_gb
