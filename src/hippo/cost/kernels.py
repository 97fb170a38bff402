"""Seconds of single GPU kernels: matrix products, the attention core, elementwise passes over memory (roofline).

Matrix products follow NVIDIA's "Matrix Multiplication Background User's Guide": work is cut into output tiles, tiles
are dealt to the multiprocessors in waves, the last wave may be partly empty (wave quantisation), small tiles reuse
less, a short inner dimension hides less of a tile's start and end. Attention: Dao, "FlashAttention-2" (2023) for the
fused kernel; Korthikanti et al. (2022), section 4 for the unfused one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from hippo.cost.calibration import Calibration, Generation
from hippo.problem.cluster import Gpu

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 64))  # rows and columns of output tiles, largest first
LARGEST = 256 * 128
WIDE = ("fp32", "fp16", "bf16")  # precisions of 16 bit and more; the products of all others are of 8 or 4 bit
WIDER = {
    "nvfp4": ("fp8", "bf16", "fp16", "fp32"),
    "mxfp8": ("fp8", "bf16", "fp16", "fp32"),
    "fp8-cs": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp32": ("fp32",),
}


def peak_flops(gpu: Gpu, precision: str) -> float:
    """Dense peak in FLOP/s; a precision the GPU lacks runs at the next wider one it has."""
    for name in (precision, *WIDER.get(precision, ())):
        if name in gpu.peak_flops:
            return gpu.peak_flops[name]
    return max(gpu.peak_flops.values())


def number_bytes(precision: str) -> float:
    """Bytes of a number that a product reads: 4-bit ones come with a scale for sixteen."""
    return {"nvfp4": 0.5625, "fp32": 4.0}.get(precision, 2.0 if precision in WIDE else 1.0)


def roofline_s(gpu: Gpu, precision: str, shape: tuple[float, float, float], count: float = 1.0) -> float:
    """The least seconds of ``count`` products (m, k) x (k, n) by data-sheet peak and bandwidth; 16-bit results."""
    m, n, k = shape
    moved = (m * k + k * n) * number_bytes(precision) + 2.0 * m * n
    return count * max(2.0 * m * n * k / peak_flops(gpu, precision), moved / gpu.hbm_bytes_per_s)


@dataclass(frozen=True)
class Kernels:
    """Kernel times of one GPU type at one precision of the linear layers."""

    gpu: Gpu
    precision: str
    calibration: Calibration

    @property
    def generation(self) -> Generation:
        """Constants of the GPU's generation (ampere where the catalogue does not say)."""
        generations = self.calibration.generations
        return generations.get(self.gpu.family, generations["ampere"])

    @property
    def wide(self) -> str:
        """Precision of what does not run in 8 or 4 bit: attention core, head, router."""
        return self.precision if self.precision in ("fp32", "fp16") else "bf16"

    def gemm_s(self, m: float, n: float, k: float, *, count: float = 1.0, wide: bool = False) -> float:
        """Seconds of ``count`` products (m, k) x (k, n), batched; ``wide`` keeps them at 16 (or 32) bit."""
        if min(m, n, k, count) <= 0:
            return 0.0
        precision = self.wide if wide else self.precision
        low = precision not in WIDE
        generation, calibration = self.generation, self.calibration
        rate = peak_flops(self.gpu, precision) * generation.gemm_efficiency
        rate *= calibration.low_precision if low else 1.0
        rate *= k / (k + calibration.k_half)
        rate *= tile_efficiency(m, n, count, generation.multiprocessors, calibration.tile_halving)
        moved = count * (m * k + k * n) * (1.0 if low else 2.0) + count * m * n * 2.0
        return max(2.0 * count * m * n * k / rate, self.memory_s(moved))

    def quantise_s(self, elements: float) -> float:
        """Seconds to cast ``elements`` 16-bit values to 8 or 4 bit, with the transposed copy; 0 at 16 bit and wider."""
        if self.precision in WIDE:
            return 0.0
        return self.memory_s(self.calibration.cast_bytes * elements)

    def memory_s(self, num_bytes: float) -> float:
        """Seconds to move ``num_bytes`` through HBM."""
        return num_bytes / (self.gpu.hbm_bytes_per_s * self.calibration.hbm_efficiency)

    def fused_attention_s(self, flops: float, tuned: bool) -> float:
        """Seconds of a fused attention kernel on ``flops`` FLOP of the causal core (a backward pass: 2.5 forwards)."""
        generation = self.generation
        share = generation.attention_efficiency if tuned else generation.flash2_efficiency
        return flops / (peak_flops(self.gpu, self.wide) * share)

    def unfused_attention_s(self, heads: float, rows: float, columns: float, dim: float) -> float:
        """Seconds of the unfused core, forward: two batched products over the full square, softmax, dropout."""
        aligned = 1.0 if dim % 8 == 0 else 1.0 / self.calibration.misaligned
        products = self.gemm_s(rows, columns, dim, count=heads, wide=True)
        products += self.gemm_s(rows, dim, columns, count=heads, wide=True)
        return products * aligned + self.memory_s(9.0 * heads * rows * columns)


@lru_cache(maxsize=1 << 14)
def tile_efficiency(m: float, n: float, count: float, multiprocessors: int, halving: float) -> float:
    """Share of the full rate that the best tile reaches: tile rate x filled share of tiles x filled share of waves.

    A tile of half the area reuses less of what it loads: its rate is ``halving`` times that of the larger one.
    """
    best = 0.0
    for rows, columns in TILES:
        across, down = math.ceil(m / rows), math.ceil(n / columns)
        tiles = across * down * count
        waves = math.ceil(tiles / multiprocessors)
        filled = (m / (across * rows)) * (n / (down * columns)) * tiles / (waves * multiprocessors)
        best = max(best, halving ** math.log2(LARGEST / (rows * columns)) * filled)
    return best
