"""One layer timed on the CPU: its passes are those of the executor's model, its bytes those that can be counted."""

from __future__ import annotations

import pytest
import torch

from hippo.cost.memory import activation_bytes
from hippo.cost.stage import Layout
from hippo.measure.profile.device import catalogue_name, device_at_hand, gpu_of
from hippo.measure.profile.layer import time_layer
from hippo.measure.profile.rows import LayerTimes, TimedShape
from hippo.problem.gpus import GPUS
from hippo.problem.model import gpt_model
from hippo.problem.workload import Software, Workload

CPU = torch.device("cpu")
LLAMA = gpt_model("small", layers=2, hidden=64, heads=4, kv_heads=2, vocab=300, seq=32, gated=True)
GPT2 = gpt_model("small", layers=2, hidden=64, heads=4, vocab=300, seq=32)
EMBEDDING, BLOCK, HEAD = 0, 1, 3


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def timed(model, layer: int, tp: int = 1, micro_batch: int = 2) -> LayerTimes:
    shape = TimedShape(tp, micro_batch, 32)
    return time_layer(model, layer, shape, device=CPU, dtype=torch.float32, budget_s=1e-3)


@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("layer", [EMBEDDING, BLOCK, HEAD])
def test_a_layer(model, layer):
    found = timed(model, layer)
    for times in (found.forward, found.backward, found.weight):
        assert 0 < times.least_s <= times.median_s <= times.most_s
    assert found.repeats >= 3
    assert found.parameter_bytes == 4 * model.layers[layer].parameters
    assert found.output_bytes == 4 * 2 * 32 * 64
    assert found.peak_bytes > 2 * found.parameter_bytes
    if layer != EMBEDDING:
        assert found.peak_bytes > found.activation_bytes > 0


@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_what_a_block_keeps_is_near_the_formula(model):
    """More than Megatron's fused kernels keep, never less than what the products need."""
    eager = Workload(2, 32, "fp32", software=Software(attention="flash2"))
    formula = activation_bytes(model.layers[BLOCK], Layout(1, 1, 2, precision="fp32"), eager)
    assert 0.9 * formula < timed(model, BLOCK).activation_bytes < 1.7 * formula


def test_what_is_kept_grows_with_the_micro_batch():
    one, four = (timed(LLAMA, BLOCK, micro_batch=size).activation_bytes for size in (1, 4))
    assert four == pytest.approx(4 * one, rel=0.05)


def test_a_shard_is_smaller():
    whole, half = timed(LLAMA, BLOCK), timed(LLAMA, BLOCK, tp=2)
    norms = 4 * 2 * 64
    assert half.parameter_bytes - norms == pytest.approx((whole.parameter_bytes - norms) / 2)
    assert half.activation_bytes < 0.75 * whole.activation_bytes
    assert half.output_bytes == whole.output_bytes


def test_names_of_devices():
    told = {
        "NVIDIA H100 80GB HBM3": "H100-SXM-80GB",
        "NVIDIA H200": "H200-SXM-141GB",
        "NVIDIA A100-SXM4-80GB": "A100-SXM-80GB",
        "NVIDIA A100-SXM4-40GB": "A100-SXM-40GB",
        "NVIDIA GH200 480GB": "GH200-96GB",
        "Tesla V100-SXM2-16GB": "V100-SXM2-16GB",
        "NVIDIA B200": "B200",
        "NVIDIA GB200": "GB200",
        "NVIDIA H100 PCIe": None,
        "NVIDIA GeForce RTX 4090": None,
    }
    assert {name: catalogue_name(name) for name in told} == told
    assert {name for name in told.values() if name} <= set(GPUS)


def test_a_device_of_ones_own():
    gpu = gpu_of(CPU, "mine", "fp32")
    assert gpu.name == "mine"
    assert gpu.peak_flops["fp32"] > 1e8
    assert gpu.memory_bytes > 1e8
    assert gpu.hbm_bytes_per_s > 1e8
    assert device_at_hand().type in ("cpu", "cuda")
