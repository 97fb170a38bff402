"""Kernels on a machine without losses: waves and tiles, roofline, precisions, attention; all by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.cost.calibration import CALIBRATION
from hippo.cost.kernels import Kernels, peak_flops, tile_efficiency
from hippo.problem.gpus import GPUS, gpu

from .worlds import PERFECT, exact

A100 = Kernels(gpu("A100-SXM-80GB"), "bf16", PERFECT)
ONE_WAVE = (256 * 9, 128 * 12)  # 9 x 12 tiles of 256 x 128: one for each of the A100's 108 multiprocessors


def test_a_product_of_one_full_wave_runs_at_peak():
    m, n = ONE_WAVE
    assert A100.gemm_s(m, n, 4096) == pytest.approx(2 * m * n * 4096 / 312e12)


def test_one_row_of_tiles_more_takes_a_second_wave_of_smaller_tiles():
    """120 tiles of 256 x 128 fill 120 of 216 places, 240 of half the size 240 of 324, and so on: 64 x 64 fills best."""
    m, n = ONE_WAVE
    seconds = A100.gemm_s(m + 256, n, 4096)
    best = max(120 / 216, 240 / 324, 480 / 540, 960 / 972)
    assert seconds == pytest.approx(2 * (m + 256) * n * 4096 / 312e12 / best)


def test_small_tiles_cost_what_halving_says():
    """One tile of 64 x 64 is three halvings below 256 x 128."""
    assert tile_efficiency(64, 64, 108, 108, 1.0) == pytest.approx(1.0)
    assert tile_efficiency(64, 64, 108, 108, 0.9) == pytest.approx(0.9**3)


def test_half_the_rate_at_k_half():
    kernels = Kernels(A100.gpu, "bf16", exact(k_half=512.0))
    assert kernels.gemm_s(*ONE_WAVE, 512) == pytest.approx(2 * A100.gemm_s(*ONE_WAVE, 512))


def test_thin_products_are_bound_by_memory():
    """One column: 2 n k bytes are read for 2 n k FLOP."""
    seconds = A100.gemm_s(1, 4096, 4096)
    assert seconds == pytest.approx(2 * (4096 + 4096 * 4096 + 4096) / 2039e9)


def test_eight_bit_halves_the_time_where_the_gpu_has_it_and_only_there():
    for name, ratio in (("H100-SXM-80GB", 1979 / 989), ("A100-SXM-80GB", 1.0)):
        wide, narrow = (Kernels(gpu(name), precision, PERFECT) for precision in ("bf16", "fp8"))
        assert wide.gemm_s(8192, 8192, 8192) / narrow.gemm_s(8192, 8192, 8192) == pytest.approx(ratio)
    assert peak_flops(gpu("A100-SXM-80GB"), "nvfp4") == 312e12


def test_casts_cost_traffic_only_below_sixteen_bit():
    assert A100.quantise_s(1e9) == 0.0
    assert Kernels(A100.gpu, "fp8", PERFECT).quantise_s(1e9) == pytest.approx(PERFECT.cast_bytes * 1e9 / 2039e9)


def test_misaligned_heads_slow_the_unfused_core():
    """BigScience: 128 heads on hidden 13824 (108 values each) against 96 (144 each)."""
    slow, quick = (A100.unfused_attention_s(16, 2048, 2048, dim) for dim in (108, 144))
    assert slow > 2 * quick


def test_fused_attention_by_hand():
    kernels = Kernels(gpu("H100-SXM-80GB"), "fp8", CALIBRATION)  # the core stays at 16 bit
    share = CALIBRATION.generations["hopper"].attention_efficiency
    assert kernels.fused_attention_s(1e12, tuned=True) == pytest.approx(1e12 / (989e12 * share))


@given(
    m=st.integers(1, 20000),
    n=st.integers(1, 20000),
    k=st.integers(1, 20000),
    name=st.sampled_from(sorted(GPUS)),
    precision=st.sampled_from(["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]),
)
def test_no_product_beats_the_peak_or_the_memory(m: int, n: int, k: int, name: str, precision: str):
    kernels = Kernels(gpu(name), precision, CALIBRATION)
    seconds = kernels.gemm_s(m, n, k)
    best_rate = peak_flops(gpu(name), precision) * CALIBRATION.low_precision
    assert seconds >= 2.0 * m * n * k / best_rate
    assert seconds >= kernels.memory_s(2.0 * m * n)
    assert kernels.gemm_s(0, n, k) == 0.0
