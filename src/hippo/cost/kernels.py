"""Seconds of single GPU kernels: matrix products, fused attention, elementwise passes over memory (roofline)."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.cost.calibration import Calibration, Generation
from hippo.problem.cluster import Gpu


@dataclass(frozen=True)
class Kernels:
    """Kernel times of one GPU type at one precision."""

    gpu: Gpu
    precision: str
    calibration: Calibration

    @property
    def generation(self) -> Generation:
        """Constants of the GPU's generation (ampere where the catalogue does not say)."""
        return self.calibration.generations.get(self.gpu.family, self.calibration.generations["ampere"])

    @property
    def peak_flops(self) -> float:
        """Dense peak in FLOP/s of matrix products at this precision."""
        return peak_flops(self.gpu, self.precision)

    @property
    def core_flops(self) -> float:
        """Dense peak in FLOP/s of the attention core, which stays in 16 bit (32 bit when everything is)."""
        return peak_flops(self.gpu, self.precision if self.precision == "fp32" else "bf16")

    def gemm_s(self, m: float, n: float, k: float) -> float:
        """Seconds of an (m, k) x (k, n) product: compute or memory bound, whichever is longer."""
        if min(m, n, k) <= 0:
            return 0.0
        saturation = min(m, n, k) / (min(m, n, k) + self.calibration.k_half)
        rate = self.peak_flops * self.generation.gemm_efficiency * saturation
        moved = 2.0 * (m * k + k * n + m * n)
        return max(2.0 * m * n * k / rate, self.memory_s(moved))

    def attention_s(self, flops: float) -> float:
        """Seconds of the attention core (both batched products and the softmax) of ``flops`` FLOP."""
        return flops / (self.core_flops * self.calibration.attention_efficiency)

    def memory_s(self, num_bytes: float) -> float:
        """Seconds to move ``num_bytes`` through HBM."""
        return num_bytes / (self.gpu.hbm_bytes_per_s * self.calibration.hbm_efficiency)


def peak_flops(gpu: Gpu, precision: str) -> float:
    """Dense peak in FLOP/s; a precision the GPU lacks runs at the next wider one it has."""
    for name in (precision, *_WIDER.get(precision, ()), "bf16", "fp16", "fp32"):
        if name in gpu.peak_flops:
            return gpu.peak_flops[name]
    return max(gpu.peak_flops.values())


_WIDER = {
    "nvfp4": ("fp8",),
    "mxfp8": ("fp8",),
    "fp8-cs": ("fp8",),
    "bf16": ("fp16",),
    "fp16": ("bf16",),
    "fp32": ("tf32",),
}
