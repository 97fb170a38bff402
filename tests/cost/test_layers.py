"""Layers by hand on a machine without losses: FLOP, recomputation, collectives, launches, sharding, experts, cp."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.cost.calibration import Calibration
from hippo.cost.collectives import CollectiveGroup, all_gather_s, all_reduce_s, ring_pass_s
from hippo.cost.kernels import Kernels
from hippo.cost.layers import (
    BACKWARD_KERNELS,
    COLLECTIVE_KERNELS,
    FORWARD_KERNELS,
    LayerSetting,
    LayerTime,
    attention_flops,
    context_seconds,
    context_way,
    core_seconds,
    expert_matrices,
    launch_share,
    layer_time,
    matrices,
    overlapped,
    permutation_bytes,
    sharding_seconds,
)
from hippo.cost.stage import Layout
from hippo.problem.catalogue.models import model
from hippo.problem.gpus import gpu
from hippo.problem.model import Attention, Layer, LinearAttention, with_next_tokens
from hippo.problem.routing import Routing
from hippo.problem.runtimes import CONTEXT_WAYS
from hippo.problem.workload import Software

from .worlds import FABRIC, PERFECT, exact, gpt, mixture

BLOCK, HEAD = gpt().layers[1], gpt().layers[-1]
H, S, V = 2048, 2048, 32768
MEGATRON_2021 = Software("unfused", overlap_dp=False, overlap_tp=False)


def setting(
    tp: int = 1,
    *,
    calibration: Calibration = PERFECT,
    software: Software | None = None,
    card: str = "A100-SXM-80GB",
    seq: int = S,
    **given: object,
) -> LayerSetting:
    layout = Layout(**{"tp": tp, "dp": 1, "micro_batch": 2, **given})  # type: ignore[arg-type]
    return LayerSetting(Kernels(gpu(card), layout.precision, calibration), FABRIC, layout, seq, software or Software())


def seconds(layer: Layer, where: LayerSetting) -> float:
    each = layer_time(layer, where)
    return each.forward_s + each.backward_s + each.weight_s


def test_flops_of_a_block():
    """Narayanan et al. 2021: 24 b s h^2 forward, and 2 b s^2 h for the causal half of the core; three times that."""
    assert layer_time(BLOCK, setting()).flops == pytest.approx(3 * 2 * (24 * S * H**2 + 2 * S**2 * H))


def test_flops_of_the_head():
    assert layer_time(HEAD, setting()).flops == pytest.approx(3 * 2 * 2 * S * H * V)


@given(tp=st.sampled_from([1, 2, 4, 8]), cp=st.sampled_from([1, 2, 4]), recompute=st.sampled_from(["none", "full"]))
def test_flops_of_the_model_do_not_depend_on_the_layout(tp: int, cp: int, recompute: str):
    one = layer_time(BLOCK, setting()).flops
    assert layer_time(BLOCK, setting(tp, cp=cp, recompute=recompute)).flops == pytest.approx(one)


def test_a_block_at_peak():
    """Products of 24 b s h^2 each way at 312 TFLOP/s; the rest (core, memory) only adds."""
    products = sum(2 * m * n * k * c for m, n, k, c in matrices(BLOCK, setting()))
    assert products == 2 * 24 * S * H**2
    least = 3 * products / 312e12
    assert least < seconds(BLOCK, setting()) < 2 * least


def test_full_recomputation_repeats_the_forward_pass():
    none, full = (layer_time(BLOCK, setting(recompute=kind)) for kind in ("none", "full"))
    assert full.forward_s == pytest.approx(none.forward_s)
    assert full.backward_s - none.backward_s == pytest.approx(none.forward_s)


def test_selective_recomputation_repeats_what_the_software_gives_up():
    for software in (MEGATRON_2021, Software("flash2"), Software()):
        none, selective, full = (
            seconds(BLOCK, setting(recompute=kind, software=software)) for kind in ("none", "selective", "full")
        )
        assert none < selective < full


def test_tensor_parallelism_adds_two_all_reduces_each_way():
    """Of b s h 16-bit values, and all of it visible in Megatron-LM of 2021."""
    of_one = all_reduce_s(2 * 2 * S * H, CollectiveGroup(8), FABRIC, PERFECT)
    assert layer_time(BLOCK, setting(8)).communication_s == pytest.approx(4 * of_one)
    hidden = exact(exposed_tp=0.25)
    assert layer_time(BLOCK, setting(8, calibration=hidden)).communication_s == pytest.approx(of_one)
    old = setting(8, calibration=hidden, software=MEGATRON_2021)
    assert layer_time(BLOCK, old).communication_s == pytest.approx(4 * of_one)


def test_sequence_parallelism_spares_elementwise_work():
    """And none of the products: dropouts, norms and adds of each rank see 1/8 of the tokens."""
    with_it, without = (seconds(BLOCK, setting(8, sequence_parallel=flag)) for flag in (True, False))
    norms = 2 * S * H * (2 * 4 + 2 * 7) / 2039e9  # of the forward pass; half as much again backward
    assert without - with_it == pytest.approx(2.5 * norms * 7 / 8)


def test_the_cpu_must_launch_in_time():
    """A small block takes what its launches take; a large one hides them."""
    slow = exact(launch_s=1e-4)
    small = layer_time(gpt(hidden=128, heads=2).layers[1], setting(calibration=slow, micro_batch=1))
    assert small.forward_s == pytest.approx(FORWARD_KERNELS * 1e-4)
    assert small.backward_s + small.weight_s == pytest.approx(BACKWARD_KERNELS * 1e-4)
    large = setting(calibration=exact(launch_s=1e-6), micro_batch=8)
    assert seconds(BLOCK, large) == pytest.approx(seconds(BLOCK, setting(micro_batch=8)))


def test_launches_in_line_are_not_hidden():
    assert overlapped(10.0, 2.0, 0.0) == 10.0
    assert overlapped(10.0, 2.0, 0.5) == 11.0
    assert overlapped(1.0, 2.0, 0.0) == 2.0
    slow = exact(launch_s=1e-5)
    free, blocking = (
        seconds(BLOCK, setting(calibration=slow, software=Software(blocking_launches=flag))) for flag in (False, True)
    )
    assert blocking - free == pytest.approx((FORWARD_KERNELS + BACKWARD_KERNELS) * 1e-5)


def test_collectives_are_launched_too():
    slow = exact(launch_s=1e-3)
    one, two = (layer_time(BLOCK, setting(tp, calibration=slow)).forward_s for tp in (1, 2))
    assert two - one == pytest.approx(2 * COLLECTIVE_KERNELS * 1e-3)


def test_gathers_of_a_fully_sharded_block_hide_behind_it():
    lay = {"sharding": "full", "dp": 32, "replicas": 32}
    plain, sharded = seconds(BLOCK, setting()), layer_time(BLOCK, setting(**lay))
    gather = all_gather_s(2.0 * BLOCK.parameters, CollectiveGroup(32), FABRIC, PERFECT)
    assert gather < plain / 3
    accumulated = 10.0 * BLOCK.parameters / 2039e9  # not the whole gradient, the rank's shard alone is added up
    assert seconds(BLOCK, setting(**lay)) == pytest.approx(plain - accumulated * 31 / 32)
    assert sharded.communication_s == 0.0
    shown = layer_time(BLOCK, setting(calibration=exact(exposed_fsdp=0.5), **lay))
    assert shown.communication_s == pytest.approx(0.5 * (gather + 3 * gather))


def test_lists_of_tensors_are_copied_one_by_one():
    """ZeRO-3 of 2021, full recomputation: four passes gather or scatter 4 matrices of 768 pieces, a launch each."""
    lay = {"sharding": "full", "dp": 768, "replicas": 768, "recompute": "full"}
    slow = exact(launch_s=2e-6, checkpoint_serial=0.0)
    lists = setting(calibration=slow, software=replace(MEGATRON_2021, list_gathers=True), **lay)
    assert layer_time(BLOCK, lists).communication_s == pytest.approx(4 * 4 * 768 * 2e-6)
    transfers = replace(lists, kernels=replace(lists.kernels, calibration=PERFECT))
    gather = all_gather_s(2.0 * BLOCK.parameters, CollectiveGroup(768), FABRIC, PERFECT)
    assert layer_time(BLOCK, transfers).communication_s == pytest.approx(4 * gather)


def test_context_parallelism_halves_the_work_and_exchanges_keys():
    one, two = (layer_time(BLOCK, setting(cp=cp, seq=16384)) for cp in (1, 2))
    assert two.forward_s == pytest.approx(one.forward_s / 2, rel=1e-3)
    assert attention_flops(BLOCK, setting(cp=2)) == attention_flops(BLOCK, setting()) / 2


def test_the_parts_of_a_sequence_meet_in_the_quickest_way():
    """Two ranks on a node each, whose network takes longer than the attention."""
    thin = replace(FABRIC, gpus_per_node=1, inter_bytes_per_s=1e9)
    starved = replace(setting(cp=2, seq=16384), fabric=thin)
    att, core = BLOCK.attention, attention_flops(BLOCK, starved) / 312e12
    assert att is not None
    half = 2 * 2 * 8192 * 2048  # 16-bit keys of one rank: those of half of two sequences
    late = thin.inter_latency_s
    ring, gather, heads = (context_seconds(att, starved, way, (core, 2.5 * core)) for way in CONTEXT_WAYS)
    assert ring == pytest.approx((2 * half / 1e9 + late, 2 * (2 * half / 1e9 + late)))  # the longer of the two counts
    assert gather == pytest.approx((core + ring[0], 2.5 * core + ring[1]))
    there = 4 * half / 2 / 1e9 + 2 * late  # of queries, keys, values and results half of the tokens go
    assert heads == pytest.approx((core + there, 2.5 * core + there))
    assert sum(heads) < sum(ring) < sum(gather)
    alone = replace(starved, context_ways=("ring",))
    assert context_way(BLOCK, starved) == "alltoall"
    assert layer_time(BLOCK, alone).forward_s - layer_time(BLOCK, starved).forward_s == pytest.approx(
        ring[0] - heads[0]
    )
    few = replace(BLOCK, attention=replace(att, kv_heads=1))
    assert context_way(few, starved) == "ring"  # one key-value head is not dealt to two ranks


def test_between_nodes_a_ring_has_its_own_share_of_the_network_alone():
    wide = replace(FABRIC, gpus_per_node=4, inter_bytes_per_s=4e9)
    inside, across = CollectiveGroup(4), CollectiveGroup(8)
    assert ring_pass_s(1e9, inside, wide, PERFECT) == pytest.approx(3e9 / wide.intra_bytes_per_s)
    assert ring_pass_s(1e9, across, wide, PERFECT) == pytest.approx(7e9 / 1e9 + wide.inter_latency_s)
    assert ring_pass_s(1e9, CollectiveGroup(1), wide, PERFECT) == 0.0


def test_experts_cost_what_is_active():
    """Doubling the experts per token adds their products and no more than their elementwise work."""
    one, two = (mixture(per_token=k).layers[1] for k in (1, 2))
    added = layer_time(two, setting()).flops - layer_time(one, setting()).flops
    assert added == pytest.approx(3 * 2 * (2 * S) * 3 * H * 1024)
    assert seconds(two, setting()) > seconds(one, setting())


def test_expert_parallelism_spares_parameters_and_costs_exchange():
    layer = mixture().layers[1]
    alone, spread = layer_time(layer, setting(dp=8)), layer_time(layer, setting(dp=8, ep=8))
    assert alone.communication_s == 0.0
    assert spread.communication_s > 0.0
    assert spread.weight_s < alone.weight_s  # fewer gradients to add up
    beside = replace(setting(dp=8, ep=8), software=Software(overlap_ep=True))
    once = replace(setting(dp=8, ep=8), software=Software(dispatcher="deepep"))  # of two copies some share a rank
    assert layer_time(layer, beside).communication_s < spread.communication_s
    assert layer_time(layer, once).communication_s < spread.communication_s


def test_routing_that_favours_some_experts_takes_longer():
    """Products, sorting and exchange of the fullest rank grow with what it gets; attention does not."""
    layer, even = mixture().layers[1], setting(dp=8, ep=8)
    skewed = replace(even, routing=Routing(2.0))
    one, two = (expert_matrices(layer, each) for each in (even, skewed))
    assert [2 * m for m, *_ in one] == [m for m, *_ in two]
    assert permutation_bytes(layer, skewed) == 2 * permutation_bytes(layer, even)
    assert layer_time(layer, skewed).communication_s > layer_time(layer, even).communication_s
    assert core_seconds(layer, skewed) == core_seconds(layer, even)
    assert layer_time(layer, skewed).flops == layer_time(layer, even).flops  # of all ranks


def test_experts_in_one_kernel_sort_and_cast_no_more():
    """Kernels of microscaled numbers alone: at 8 bit without scales of blocks nothing changes."""
    layer = mixture().layers[1]
    for precision, quicker in (("mxfp8", True), ("fp8", False)):
        apart = setting(dp=8, ep=8, precision=precision, card="B200")
        fused = replace(apart, software=Software(fused_experts=True))
        assert (seconds(layer, fused) < seconds(layer, apart)) is quicker
    plain = model("nemotron-3-nano-30b-a3b").layers[2]  # nor do they for networks without gates
    assert plain.expert_parameters
    apart = setting(dp=8, ep=8, precision="mxfp8", card="B200")
    assert seconds(plain, replace(apart, software=Software(fused_experts=True))) == seconds(plain, apart)


def test_graphs_spare_launches_and_nothing_else():
    """Where launches hold a small layer back each further graph makes it quicker; the whole step's spares them all."""
    layer, calibration = mixture().layers[1], exact(launch_s=1e-4)
    ways = [setting(dp=8, ep=8, calibration=calibration, software=Software(graphs=each)) for each in GRAPHS]
    times = [seconds(layer, each) for each in ways]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(GRAPHS)
    free = setting(dp=8, ep=8, calibration=exact(launch_s=0.0))
    assert times[-1] == pytest.approx(seconds(layer, free))


def test_ranks_with_the_same_experts_agree_on_them_alone():
    """Fully sharded over as many lanes as expert parallel ranks, experts are whole where they are: not gathered."""
    layer = mixture().layers[1]
    apart, together = (setting(dp=8, ep=ep, sharding="full", micro_batch=1) for ep in (8, 1))
    experts = 2.0 * layer.expert_parameters
    gathered = all_gather_s(2.0 * layer.parameters, CollectiveGroup(8), FABRIC, together.kernels.calibration)
    without = all_gather_s(2.0 * layer.parameters - experts, CollectiveGroup(8), FABRIC, apart.kernels.calibration)
    assert sharding_seconds(layer, together)[0] == pytest.approx(gathered)
    assert sharding_seconds(layer, apart)[0] == pytest.approx(without)


def test_a_further_token_costs_another_head():
    """The module joins two vectors of h values into one, and has its block and a product with the vocabulary."""
    model_ = mixture()
    further = with_next_tokens(model_).layers[-2]
    added = Counter(matrices(further, setting())) - Counter(matrices(model_.layers[-2], setting()))
    assert sorted(m * n * k for (m, n, k, _) in added) == sorted([2 * S * H * 2 * H, 2 * S * model_.vocab * H])


def test_latent_attention_has_all_its_products():
    block = model("deepseek-v3").layers[10]
    here = setting(ep=64, dp=64, seq=4096, micro_batch=1)
    products = matrices(block, here) + expert_matrices(block, here)
    per_token = sum(m * n * k * c for m, n, k, c in products) / 4096
    norms = 2 * 7168 + 1536 + 512 + 256  # two norms, the latents' norms, the router's bias
    assert per_token == pytest.approx(block.active_parameters - norms, rel=1e-4)


GRAPHS = ("none", "routing", "attention", "full")
NEW = (
    "gpt-oss-20b",
    "llama-4-maverick-17b-128e",
    "qwen1.5-moe-a2.7b",
    "qwen3-next-80b-a3b",
    "nemotron-3-super-120b-a12b",
)


@pytest.mark.parametrize("name", NEW)
def test_products_are_those_of_the_weights_that_a_token_passes_through(name: str):
    """All but biases, norms, sinks and the convolution: less than a half of a per cent."""
    for block in model(name).distinct_layers[1:-1]:
        here = setting(seq=4096, micro_batch=1)
        products = matrices(block, here) + expert_matrices(block, here)
        per_token = sum(m * n * k * c for m, n, k, c in products) / 4096
        assert per_token == pytest.approx(block.active_parameters, rel=5e-3)


@given(seq=st.integers(1, 300), window=st.integers(1, 300), chunked=st.booleans())
def test_a_window_leaves_the_pairs_that_transformers_masks_leave(seq: int, window: int, chunked: bool):
    """Half a token aside: the causal square is counted as half of a square without its diagonal."""
    from transformers.masking_utils import chunked_overlay, sliding_window_overlay

    allowed = chunked_overlay(window, np.zeros(1, dtype=int)) if chunked else sliding_window_overlay(window)
    query, key = np.arange(seq)[:, None], np.arange(seq)[None, :]
    seen = (np.asarray(allowed(0, 0, query, key)) & (key <= query)).sum() / seq
    found = Attention(1, 1, 8, window=window, chunked=chunked)
    assert 0.0 <= seen - found.seen(seq) <= 0.5 + 1e-9
    assert found.within(seq).seen(seq) == found.seen(seq)


def test_a_window_spares_the_core_and_an_unfused_one_spares_nothing():
    """Of 8192 tokens a window of 1024 leaves 1024 - 64 in place of 4096."""
    assert BLOCK.attention is not None
    narrow = replace(BLOCK, attention=replace(BLOCK.attention, window=1024))
    wide, less = (attention_flops(layer, setting(seq=8192)) for layer in (BLOCK, narrow))
    assert less == pytest.approx(wide * 960 / 4096)
    assert seconds(narrow, setting(seq=8192)) < seconds(BLOCK, setting(seq=8192))
    old = setting(seq=8192, software=MEGATRON_2021)
    assert seconds(narrow, old) == seconds(BLOCK, old)


@pytest.mark.parametrize("seq", [64, 256])
def test_the_gated_delta_rule_has_the_products_that_transformers_does(seq: int):
    """Its triangular systems, which torch's counter does not see, are C (key + value) more a token and head."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers.models.qwen3_next import modeling_qwen3_next as judge

    heads, key, value = 6, 32, 48
    wide, tall = torch.randn(2, seq, heads, key), torch.randn(2, seq, heads, value)
    decay, step = -torch.rand(2, seq, heads), torch.rand(2, seq, heads)
    with FlopCounterMode(display=False) as counter:
        judge.torch_chunk_gated_delta_rule(wide, wide, tall, decay, step)
    attention = Attention(heads, heads, value, linear=LinearAttention(key, conv=4))
    block = replace(BLOCK, attention=attention)
    found = attention_flops(block, setting(seq=seq))
    assert found == counter.get_total_flops() + 2 * seq * heads * 64 * (key + value)


@pytest.mark.parametrize("seq", [128, 512])
def test_mamba_2_has_the_products_that_transformers_does(seq: int):
    """It repeats keys and queries of a group for each head, and hands states on by a product of chunks with chunks."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers.models.nemotron_h import modeling_nemotron_h as judge

    heads, groups, value, state, chunk = 6, 3, 48, 32, 128
    given, step, rate = torch.randn(2, seq, heads, value), torch.rand(2, seq, heads), -torch.rand(heads)
    keys, queries = torch.randn(2, seq, groups, state), torch.randn(2, seq, groups, state)
    with FlopCounterMode(display=False) as counter:
        judge.mamba2_chunk_scan(given, step, rate, keys, queries, chunk)
    scan = LinearAttention(state, conv=4, chunk=chunk, state_space=True)
    block = replace(BLOCK, attention=Attention(heads, groups, value, linear=scan), feed_forward=None)
    repeated = 2 * 2 * seq * chunk * state * (heads - groups)
    handed_on = 2 * 2 * (seq // chunk + 1) ** 2 * heads * value * state
    assert attention_flops(block, setting(seq=seq)) == counter.get_total_flops() - repeated - handed_on


def test_blocks_of_a_hybrid_model_cost_what_their_parts_cost():
    """Two of them, of attention and of a network, take what one of both does but for its launches."""
    whole, calibration = gpt().layers[1], exact(launch_s=0.0)
    halves = [replace(whole, norms=1, **{part: None}) for part in ("attention", "feed_forward")]
    one, *two = (layer_time(each, setting(2, calibration=calibration)) for each in (whole, *halves))
    assert sum(each.forward_s + each.backward_s for each in two) == pytest.approx(one.forward_s + one.backward_s)
    assert sum(each.flops for each in two) == pytest.approx(one.flops)
    assert sum(each.parameters for each in halves) == whole.parameters
    assert launch_share(halves[0], setting()) + launch_share(halves[1], setting()) == pytest.approx(1.0)


def test_linear_attention_grows_with_the_tokens_alone():
    """A full block's core grows with the square; at heads of 128 the rule does 10 x 128^2 a token and value head.

    Megatron-LM counts 8 x 128^2 for its form without chunks.
    """
    linear, full = model("qwen3-next-80b-a3b").layers[1], model("qwen3-next-80b-a3b").layers[4]
    short, long = setting(seq=4096, micro_batch=1), setting(seq=65536, micro_batch=1)
    assert attention_flops(linear, long) == 16 * attention_flops(linear, short) == 65536 * 32 * 10 * 128**2
    assert attention_flops(full, long) == 256 * attention_flops(full, short)
    assert seconds(linear, long) < seconds(full, long)
    assert seconds(linear, setting(tp=2, seq=65536, micro_batch=1)) < seconds(linear, long)


def test_the_delta_rule_waits_for_memory():
    """4864 bytes against 163,840 FLOP a token and head: an A100 moves 2.039 TB/s and computes 312 TFLOP/s."""
    forward, backward = core_seconds(model("qwen3-next-80b-a3b").layers[1], setting(seq=4096, micro_batch=1))
    assert forward == pytest.approx(4096 * 32 * 4864 / 2.039e12)
    assert backward == pytest.approx(2.5 * forward)
    assert forward > 4096 * 32 * 163840 / 312e12


def test_eight_bit_is_quicker_on_large_blocks():
    times = [seconds(BLOCK, setting(card="H100-SXM-80GB", precision=p, micro_batch=8)) for p in ("fp8", "bf16", "fp32")]
    assert times == sorted(times)


@given(
    micro_batch=st.integers(1, 8),
    tp=st.sampled_from([1, 2, 4, 8]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sharding=st.sampled_from(["none", "optimizer", "full"]),
    kind=st.sampled_from([0, 1, -1]),
)
def test_more_sequences_take_longer_but_not_more_than_their_share(
    micro_batch: int, tp: int, recompute: str, sharding: str, kind: int
):
    """Time grows with the micro-batch, and less than in proportion: waves fill up, launches and gathers are shared."""

    def of(size: int) -> LayerTime:
        lay = {"micro_batch": size, "recompute": recompute, "sharding": sharding, "dp": 8}
        return layer_time(gpt().layers[kind], setting(tp, calibration=exact(launch_s=1e-5), **lay))

    one, two = of(micro_batch), of(2 * micro_batch)
    passes = ((each.forward_s, each.backward_s + each.weight_s) for each in (one, two))
    for little, much in zip(*passes, strict=True):
        assert 0 < little <= much * (1 + 1e-9)
        assert much <= 2 * little * (1 + 1e-9)
    assert two.flops == pytest.approx(2 * one.flops)


def test_modules_that_a_block_has_not_are_not_computed_again():
    """A mixture's blocks have no mlp, dense ones no mixture: with a list of both each repeats its own."""
    sparse = mixture().layers[1]
    for layer, own, other in ((BLOCK, "mlp", "moe"), (sparse, "moe", "mlp")):
        none, mine, both, nothing = (
            layer_time(layer, setting(2, recompute=each)) for each in ("none", own, "mlp+moe", other)
        )
        assert nothing == none
        assert both == mine
        assert mine.backward_s > none.backward_s


def test_whole_experts_computed_again_meet_no_other_rank():
    """Experts cut by tp sum once more when they are computed again; whole ones have no sum to repeat."""
    sparse = mixture().layers[1]
    again = [
        layer_time(sparse, setting(2, etp=etp, recompute="moe")).backward_s
        - layer_time(sparse, setting(2, etp=etp)).backward_s
        for etp in (None, 1)
    ]
    once = all_reduce_s(2 * 2.0 * S * H, CollectiveGroup(2), FABRIC, PERFECT)  # of two sequences
    assert again[0] - again[1] == pytest.approx(once, rel=1e-6)
