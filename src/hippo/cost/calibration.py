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
    gemm_efficiency: float  # share of the dense peak that a large matrix product reaches, 0.5..0.95
    flash: bool  # whether training code of its time used a fused (flash) attention kernel


@dataclass(frozen=True)
class Calibration:
    """All fitted constants in one place."""

    generations: Mapping[str, Generation] = field(
        default_factory=lambda: MappingProxyType(
            {
                "volta": Generation(multiprocessors=80, gemm_efficiency=0.75, flash=False),
                "ampere": Generation(multiprocessors=108, gemm_efficiency=0.80, flash=True),
                "hopper": Generation(multiprocessors=132, gemm_efficiency=0.72, flash=True),
                "blackwell": Generation(multiprocessors=148, gemm_efficiency=0.75, flash=True),
            }
        )
    )
    k_half: float = 256.0  # inner dimension at which a product reaches half of its best rate, 32..1024
    attention_efficiency: float = 0.5  # share of the peak of the fused attention kernel, 0.2..0.8
    hbm_efficiency: float = 0.8  # share of the HBM bandwidth that elementwise kernels reach, 0.5..0.95
    launch_s: float = 6e-6  # seconds the CPU needs to launch one kernel, 2e-6..3e-5
    bus_efficiency_intra: float = 0.75  # share of NVLink that collectives reach, 0.4..0.95
    bus_efficiency_inter: float = 0.75  # share of the node's network that collectives reach, 0.3..0.95
    latency_intra_s: float = 8e-6  # start of a collective inside a node, 2e-6..3e-5
    exposed_tp: float = 0.8  # share of tensor-parallel communication that computation does not hide, 0..1
    exposed_dp: float = 0.4  # share of the overlapped gradient synchronisation that stays visible, 0..1
    optimizer_bytes_per_parameter: float = 34.0  # HBM bytes moved per updated parameter, 28..60
    step_overhead_s: float = 0.02  # per step: data loading, loss scale, logging, 0..0.1
    reserved_bytes: float = 3e9  # CUDA context, NCCL buffers, fragmentation, 1e9..6e9


CALIBRATION = Calibration()
