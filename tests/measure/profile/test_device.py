"""Figures measured here go into a cluster file and come back the same, whatever was measured."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hippo.measure.profile import device
from hippo.measure.profile.rows import cluster_with
from hippo.problem.cluster_yaml import cluster_from_document
from hippo.problem.document import parse_yaml

CPU = torch.device("cpu")


def measured(flops: float, bytes_per_s: float, memory: int) -> device.Gpu:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_product_flops", lambda *_: flops)
        patch.setattr(device, "_copy_bytes_per_s", lambda *_: bytes_per_s)
        patch.setattr(device, "memory_bytes", lambda *_: float(memory))
        return device.gpu_of(CPU, "this-cpu", "fp32")


@given(st.floats(1e8, 1e16), st.floats(1e8, 1e14), st.integers(10**8, 10**13))
def test_what_was_measured_is_read_back(flops, bytes_per_s, memory):
    gpu = measured(flops, bytes_per_s, memory)
    text = cluster_with(gpu, None)
    assert cluster_from_document(parse_yaml(text, "own"), source="own", name="own").gpu == gpu
    assert gpu.peak_flops["fp32"] == pytest.approx(flops, rel=6e-4)
    assert gpu.hbm_bytes_per_s == pytest.approx(bytes_per_s, rel=6e-4)
    assert gpu.memory_bytes == pytest.approx(memory, abs=5.1e5)


@pytest.mark.parametrize("flops", [1.7e10, 1.34e11, 1.251e11])
def test_figures_that_no_number_of_the_file_gives(flops):
    """None of these is a double times 1e12: what is kept is the double beside it."""
    gpu = measured(flops, 1.07e9, 2 * 10**9)
    assert gpu.peak_flops["fp32"] == pytest.approx(flops, rel=1e-15)
    assert gpu.hbm_bytes_per_s == 1.07 * 1e9
    assert "fp32: 0." in cluster_with(gpu, None)
