"""The cost model of a problem: additivity, what happens once per step, shardings, memory, transfers inside a domain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.cost.calibration import CALIBRATION, RANGES
from hippo.cost.cost_model import CostModel
from hippo.cost.memory import rank_parameters
from hippo.cost.stage import Layout, StageMemory
from hippo.problem.workload import Software

from .worlds import PERFECT, exact, gpt, mixture, problem

N = gpt().num_layers
SIMPLE = CostModel(problem(software=Software(overlap_dp=False)), PERFECT)
REAL = CostModel(problem())
BLOCK = gpt().layers[1].parameters

layouts = st.builds(
    Layout,
    tp=st.sampled_from([1, 2, 4, 8]),
    dp=st.sampled_from([1, 2, 4]),
    micro_batch=st.integers(1, 4),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sharding=st.sampled_from(["none", "optimizer", "gradients", "full", "hybrid"]),
    interleave=st.sampled_from([1, 2]),
    precision=st.sampled_from(["bf16", "fp16", "fp32", "fp8"]),
    replicas=st.sampled_from([1, 4]),
)


def block(**given: object) -> dict[str, float]:
    """Once-per-step seconds of one block on tp 1, dp 32: the whole domain."""
    costs = SIMPLE.stage("d", 1, 2, Layout(1, 32, 1, replicas=32, **given))  # type: ignore[arg-type]
    return {"sync": costs.sync_s, "optimizer": costs.optimizer_s}


@given(layout=layouts, cuts=st.tuples(st.integers(0, N), st.integers(0, N), st.integers(0, N)))
def test_a_stage_costs_what_its_layers_cost(layout: Layout, cuts: tuple[int, int, int]):
    start, middle, stop = sorted(cuts)
    whole, first, second = (REAL.stage("d", a, b, layout) for a, b in ((start, stop), (start, middle), (middle, stop)))
    for field in ("forward_s", "backward_s", "weight_gradient_s", "tp_s", "flops", "gradient_bytes", "parameter_bytes"):
        assert getattr(whole, field) == pytest.approx(getattr(first, field) + getattr(second, field), abs=1e-15)
    sums = REAL.layer_seconds("d", layout)[start:stop].sum(axis=0)
    assert [whole.forward_s, whole.backward_s, whole.weight_gradient_s] == pytest.approx(sums.tolist(), abs=1e-15)


@given(layout=layouts, cuts=st.tuples(st.integers(0, N), st.integers(0, N)), again=st.integers(1, N))
def test_of_some_blocks_computed_again_the_first_cost_so_and_the_others_not(
    layout: Layout, cuts: tuple[int, int], again: int
):
    """One chunk: layers before the border as under ``full``, those behind it as under ``none``."""
    start, stop = sorted(cuts)
    layout = replace(layout, interleave=1, recompute=f"full:{again}")
    border = max(start, min(max(start, 1) + again, stop))
    parts = (start, border, replace(layout, recompute="full")), (border, stop, replace(layout, recompute="none"))
    whole, (first, second) = REAL.stage("d", start, stop, layout), [REAL.stage("d", *part) for part in parts]
    for field in ("forward_s", "backward_s", "weight_gradient_s", "tp_s", "flops"):
        assert getattr(whole, field) == pytest.approx(getattr(first, field) + getattr(second, field), abs=1e-15)
    seconds = whole.forward_s, whole.backward_s, whole.weight_gradient_s
    assert REAL.chunk_seconds("d", start, stop, layout) == pytest.approx(seconds, abs=1e-15)
    kept, halves = (
        REAL.memory("d", start, stop, layout, live=0.0),
        [REAL.memory("d", *part, live=0.0) for part in parts],
    )
    assert kept.activation_bytes == pytest.approx(sum(half.activation_bytes for half in halves))
    assert kept.weights_bytes == REAL.memory("d", start, stop, parts[1][2], live=0.0).weights_bytes


def test_each_chunk_of_a_rank_computes_its_first_blocks_again():
    """Seven blocks in three chunks are three, two and two: of two each six are computed again, of one each three."""
    layout = Layout(1, 1, 1, interleave=3)
    assert [replace(layout, recompute=f"full:{n}").blocks_again(7) for n in (1, 2, 3, 9)] == [3, 6, 7, 7]
    assert replace(layout, recompute="full").blocks_again(7) is None


@given(layout=layouts, start=st.integers(0, N - 1), live=st.floats(0, 16))
def test_memory_is_that_of_the_live_micro_batches(layout: Layout, start: int, live: float):
    idle, busy = (REAL.memory("d", start, N, layout, live=each) for each in (0.0, live))
    assert isinstance(idle, StageMemory)
    assert busy.peak_bytes == pytest.approx(idle.peak_bytes + live * idle.activation_bytes)
    assert idle.peak_bytes > idle.reserved_bytes >= CALIBRATION.context_bytes


def test_seconds_of_layers_have_their_shape_and_equal_layers_cost_the_same():
    seconds = REAL.layer_seconds("d", Layout(2, 2, 1))
    assert seconds.shape == (N, 3)
    assert np.ptp(seconds[1:-1], axis=0).tolist() == [0.0, 0.0, 0.0]
    assert (seconds[:, 0] > 0).all()
    assert REAL.layer_seconds("d", Layout(2, 2, 1)) is not None


def test_plain_data_parallelism_reduces_all_gradients_and_updates_all():
    """32 ranks on 4 nodes: two passes of 3/4 of 2 bytes a parameter at 200 GB/s; 28 bytes a parameter through HBM."""
    assert block(sharding="none")["sync"] == pytest.approx(2 * 0.75 * 2 * BLOCK / 200e9)
    assert block(sharding="none")["optimizer"] == pytest.approx(28 * BLOCK / 2039e9)


def test_a_sharded_optimizer_updates_its_share_and_gathers_the_weights():
    gather = 0.75 * 2 * BLOCK / 200e9
    assert block(sharding="optimizer")["sync"] == pytest.approx(block(sharding="none")["sync"] / 2)
    assert block(sharding="optimizer")["optimizer"] == pytest.approx(28 * BLOCK / 32 / 2039e9 + gather)


def test_overlap_hides_its_share():
    hidden = CostModel(problem(), exact(exposed_dp=0.25)).stage("d", 1, 2, Layout(1, 32, 1, replicas=32))
    assert hidden.sync_s == pytest.approx(block()["sync"] / 4)


def test_fully_sharded_has_agreed_when_the_last_layer_is_done():
    assert block(sharding="full") == pytest.approx({"sync": 0.0, "optimizer": 28 * BLOCK / 32 / 2039e9})


def test_gradients_in_fp32_take_twice_the_time_to_agree():
    wide = CostModel(problem(software=Software(overlap_dp=False), gradient_bytes_per_parameter=4.0), PERFECT)
    assert wide.stage("d", 1, 2, Layout(1, 32, 1, replicas=32)).sync_s == pytest.approx(2 * block()["sync"])


def test_what_goes_to_the_next_stage():
    assert SIMPLE.stage("d", 0, 2, Layout(4, 2, 3)).output_bytes == 3 * 2048 * 2048 * 2
    assert SIMPLE.stage("d", 0, 2, Layout(4, 2, 3, precision="fp32")).output_bytes == 3 * 2048 * 2048 * 4


def test_sharding_saves_memory_in_its_order():
    peaks = [
        REAL.memory("d", 1, 5, Layout(1, 8, 1, sharding=kind, replicas=32), live=0.0)
        for kind in ("none", "optimizer", "gradients", "hybrid", "full")
    ]
    kept = [each.weights_bytes + each.gradients_bytes + each.optimizer_bytes for each in peaks]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == pytest.approx(16 * 4 * BLOCK)
    assert kept[-1] == pytest.approx(kept[0] / 32)


def test_expert_parallelism_saves_memory():
    moe = CostModel(problem(mixture()))
    whole, spread = (moe.memory("d", 1, 2, Layout(1, 8, 1, ep=ep), live=1.0) for ep in (1, 8))
    layer = mixture().layers[1]
    assert spread.weights_bytes == pytest.approx(2 * rank_parameters(layer, Layout(1, 8, 1, ep=8)))
    assert spread.peak_bytes < whole.peak_bytes


def test_transfers_inside_a_domain():
    assert SIMPLE.p2p_seconds("d", 3e9, same_node=True) == pytest.approx(0.01)
    assert SIMPLE.p2p_seconds("d", 3e9, same_node=False) == pytest.approx(0.015)
    assert REAL.p2p_seconds("d", 0.0, same_node=True) == CALIBRATION.latency_intra_s


def test_a_plan_may_use_the_whole_card():
    assert REAL.usable_memory_bytes() == 80e9
    assert REAL.allowed_layouts() is None


def test_a_quicker_gpu_is_quicker():
    names = ("V100-SXM2-16GB", "A100-SXM-80GB", "H100-SXM-80GB", "B200")
    steps = [CostModel(problem(card=name)).stage("d", 0, N, Layout(2, 2, 4)).forward_s for name in names]
    assert steps == sorted(steps, reverse=True)


def test_models_are_values():
    one, other = CostModel(problem()), CostModel(problem())
    one.layer_seconds("d", Layout(1, 1, 1))
    assert one == other
    assert one != replace(one, calibration=PERFECT)


def test_constants_stay_inside_their_plausible_ranges_and_the_page_gives_them():
    page = (Path(__file__).resolve().parents[2] / "results" / "cost_model.md").read_text()
    for name, (low, high) in RANGES.items():
        family, _, field = name.rpartition(".")
        value = getattr(CALIBRATION.generations[family] if family else CALIBRATION, field)
        assert low <= value <= high, name
        assert f"| `{name}` | {value:.3g} | {low:g} to {high:g} |" in page
