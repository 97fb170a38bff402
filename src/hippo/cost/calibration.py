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
                "volta": Generation(80, 0.75, 1, 0.324, 0.324),
                "ampere": Generation(108, 0.825, 1, 0.324, 0.324),
                "hopper": Generation(132, 0.696, 1.1, 0.615, 0.171),
                "blackwell": Generation(148, 0.56, 1.08, 0.398, 0.09),
                "blackwell-ultra": Generation(148, 0.839, 1.08, 0.398, 0.09),
            }
        )
    )
    k_half: float = 106.0  # inner dimension at which a product reaches half of its best rate, 32..1024
    tile_halving: float = 1.0  # rate of an output tile of half the area against the larger one, 0.7..1
    misaligned: float = 0.0761  # rate of products whose inner dimension is no multiple of 8, 0.1..1
    hbm_efficiency: float = 0.82  # share of the HBM bandwidth that elementwise kernels reach, 0.5..0.95
    cast_bytes: float = 5.69  # HBM bytes per value cast to 8 or 4 bit, with its transposed copy, 3..12
    launch_s: float = 2.49e-05  # seconds the CPU needs to launch one kernel, 2e-6..6e-5
    checkpoint_serial: float = 0.367  # share of launches that full recomputation puts in line with the kernels, 0..1
    bus_efficiency_intra: float = 0.557  # share of NVLink that collectives reach, 0.4..0.95
    bus_efficiency_inter: float = 0.47  # share of the node's network that collectives reach, 0.2..0.95
    latency_intra_s: float = 3e-05  # start of a collective inside a node, 2e-6..3e-5
    hop_latency_s: float = 2.19e-07  # one more rank on a ring that crosses nodes, 1e-6..1e-5
    exposed_tp: float = 0.425  # share of overlapped tensor-parallel communication that stays visible, 0..1
    eager_traffic: float = 1.84  # HBM traffic of eager elementwise kernels against fused ones, 1..4
    exposed_fsdp: float = 0.362  # share of parameter gathers that overlap never hides, 0..0.5
    exposed_dp: float = 0.438  # share of the overlapped gradient synchronisation that stays visible, 0..1
    optimizer_bytes_per_parameter: float = 34.0  # HBM bytes moved per updated parameter, 28..60
    step_overhead_s: float = 0.0143  # per step: data loading, loss scale, logging, 0..0.1
    fragmentation: float = 0.2  # share by which the caching allocator holds more than the activations need, 0..0.4
    context_bytes: float = 1e9  # CUDA context and kernels' own memory, 0.5e9..2e9
    reserved_share: float = 0.08  # of the device memory: communicators, buckets, unusable blocks, 0.02..0.12


CALIBRATION = Calibration()
