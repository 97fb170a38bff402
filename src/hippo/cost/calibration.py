"""The constants of the performance model: few, physical, fitted once (``benchmarks/fit_calibration.py``).

Every field says what it means and the range that is physically plausible; the fit stays inside the ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Generation:
    """What changes from one GPU generation to the next."""

    multiprocessors: int  # streaming multiprocessors (data sheet); tiles are dealt to them in waves
    gemm_efficiency: float  # share of the dense peak that a large 16-bit matrix product reaches, 0.5..0.95
    low_precision: float  # the same for 8 and 4 bit, against gemm_efficiency, 0.6..1.1
    attention_efficiency: float  # share of the 16-bit peak of a fused attention kernel tuned for it, 0.2..0.75
    flash2_efficiency: float  # the same of FlashAttention-2, written for Ampere, 0.1..0.6


@dataclass(frozen=True)
class Calibration:
    """All fitted constants in one place."""

    generations: Mapping[str, Generation] = field(
        default_factory=lambda: MappingProxyType(
            {
                "volta": Generation(80, 0.75, 1.0, 0.3, 0.3),
                "ampere": Generation(108, 0.84, 1.0, 0.333, 0.333),
                "hopper": Generation(132, 0.72, 1.0, 0.45, 0.2),
                "blackwell": Generation(148, 0.62, 0.9, 0.45, 0.15),
                "blackwell-ultra": Generation(148, 0.72, 0.9, 0.6, 0.15),
            }
        )
    )
    k_half: float = 150.0  # inner dimension at which a product reaches half of its best rate, 32..1024
    misaligned: float = 0.3  # rate of products whose inner dimension is no multiple of 8, 0.1..1
    hbm_efficiency: float = 0.8  # share of the HBM bandwidth that elementwise kernels reach, 0.5..0.95
    cast_bytes: float = 4.0  # HBM bytes per value cast to 8 or 4 bit, with its transposed copy, 3..12
    launch_s: float = 20e-6  # seconds the CPU needs to launch one kernel, 2e-6..6e-5
    bus_efficiency_intra: float = 0.75  # share of NVLink that collectives reach, 0.4..0.95
    bus_efficiency_inter: float = 0.5  # share of the node's network that collectives reach, 0.2..0.95
    latency_intra_s: float = 1e-5  # start of a collective inside a node, 2e-6..3e-5
    hop_latency_s: float = 3e-6  # one more rank on a ring that crosses nodes, 1e-6..1e-5
    exposed_tp: float = 0.5  # share of overlapped tensor-parallel communication that stays visible, 0..1
    eager_traffic: float = 2.0  # HBM traffic of eager elementwise kernels against fused ones, 1..4
    exposed_fsdp: float = 0.1  # share of parameter gathers that overlap never hides, 0..0.5
    exposed_dp: float = 0.4  # share of the overlapped gradient synchronisation that stays visible, 0..1
    optimizer_bytes_per_parameter: float = 34.0  # HBM bytes moved per updated parameter, 28..60
    step_overhead_s: float = 0.02  # per step: data loading, loss scale, logging, 0..0.1
    reserved_bytes: float = 3e9  # CUDA context, NCCL buffers, fragmentation, 1e9..6e9


CALIBRATION = Calibration()
