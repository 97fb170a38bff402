"""Memory by the formulas of Korthikanti et al. (2022), "Reducing Activation Recomputation", on GPT-3 175B; shards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippo.cost.memory import (
    activation_bytes,
    again_bytes,
    library_bytes,
    rank_parameters,
    state_bytes,
    state_shards,
    weight_bytes,
    workspace_bytes,
)
from hippo.cost.stage import Layout
from hippo.problem.catalogue.models import model
from hippo.problem.model import gpt_model
from hippo.problem.routing import Routing
from hippo.problem.workload import Software, Workload

from .worlds import mixture

GPT3 = gpt_model("175b", layers=96, hidden=12288, heads=96, vocab=51200, seq=2048)
BLOCK = GPT3.layers[1]
SBH = 2048 * 1 * 12288
SCORES = 5 * 96 * 2048 / 12288  # 5 a s / h


def layout(tp: int = 8, **given: object) -> Layout:
    return Layout(**{"tp": tp, "dp": 1, "micro_batch": 1, "sequence_parallel": False, **given})  # type: ignore[arg-type]


def work(seq: int, attention: str = "tuned", **given: object) -> Workload:
    return Workload(seq=seq, software=Software(attention), **given)  # type: ignore[arg-type]


def test_tensor_parallel_block_as_in_equation_2():
    """s b h (10 + 24 / t + 5 a s / (h t))."""
    kept = activation_bytes(BLOCK, layout(), work(2048, "unfused"))
    assert kept == pytest.approx(SBH * (10 + 24 / 8 + SCORES / 8))


def test_sequence_parallel_block_as_in_equation_4():
    """s b h / t (34 + 5 a s / h)."""
    kept = activation_bytes(BLOCK, layout(sequence_parallel=True), work(2048, "unfused"))
    assert kept == pytest.approx(SBH / 8 * (34 + SCORES))


def test_selective_recomputation_as_in_equation_6():
    """34 s b h / t: the attention core is gone."""
    lay = layout(sequence_parallel=True, recompute="selective")
    assert activation_bytes(BLOCK, lay, work(2048, "unfused")) == pytest.approx(SBH / 8 * 34)


def test_full_recomputation_keeps_the_input_alone():
    """2 s b h, table 2 of the paper."""
    assert activation_bytes(BLOCK, layout(recompute="full"), work(2048, "unfused")) == pytest.approx(2 * SBH)


def test_fused_attention_keeps_no_square():
    tuned = activation_bytes(BLOCK, layout(sequence_parallel=True), work(2048))
    assert tuned == pytest.approx(SBH / 8 * 34)


def test_the_order_of_recomputation():
    for attention in ("unfused", "flash2", "tuned"):
        none, selective, full = (
            activation_bytes(BLOCK, layout(recompute=kind), work(2048, attention))
            for kind in ("none", "selective", "full")
        )
        assert none > selective > full


def test_context_parallelism_divides_the_tokens():
    whole, half = (activation_bytes(BLOCK, layout(cp=cp), work(2048)) for cp in (1, 2))
    assert half == pytest.approx(whole / 2)


def test_sixteen_bytes_per_parameter():
    """bf16: weights 2, gradients 2, fp32 master and moments 12; over tp 8."""
    weights, gradients, optimizer = state_bytes((BLOCK,), layout(), Workload())
    per_rank = BLOCK.parameters / 8
    assert [weights, gradients, optimizer] == pytest.approx([2 * per_rank, 2 * per_rank, 12 * per_rank])
    assert weight_bytes("fp32") == 4.0


def test_sums_in_fp32():
    """Megatron-LM: weights 2, sums 4, fp32 weight and moments 12; DeepSpeed keeps the 16-bit gradients, too."""
    per_rank = BLOCK.parameters / 8
    for late, gradient in ((False, 4), (True, 6)):
        given = {"state_bytes_per_parameter": 18.0, "gradient_bytes_per_parameter": 4.0}
        found = state_bytes((BLOCK,), layout(), Workload(**given, software=Software(late_sums=late)))
        assert found == pytest.approx((2 * per_rank, gradient * per_rank, 12 * per_rank))


def test_a_tied_head_holds_its_matrix_where_the_embedding_lies_elsewhere():
    head = GPT3.layers[-1]
    alone, piped = (sum(state_bytes((head,), layout(num_stages=stages), Workload())) for stages in (1, 2))
    assert alone == pytest.approx(16 * 2 * 12288 / 8)
    assert piped - alone == pytest.approx(16 * 51200 * 12288 / 8)


def test_full_sharding_in_a_pipeline_leaves_weights_and_sums_whole():
    """Each of 4 ranks: 16 bytes of its quarter, 16-bit weights and fp32 sums of all; nothing is gathered beside."""
    lay = layout(sharding="full", dp=4, replicas=4, num_stages=2)
    per_rank = BLOCK.parameters / 8
    assert sum(state_bytes((BLOCK,), lay, Workload())) == pytest.approx((16 / 4 + 2 + 4) * per_rank)
    assert workspace_bytes((BLOCK,), lay, work(2048)) == 0.0


def test_sharded_gradients_are_whole_in_a_pipeline():
    """Until the last micro-batch, so a rank of 4 keeps what it does where the optimizer alone is sharded."""
    per_rank = BLOCK.parameters / 8
    kept = {
        (sharding, stages): state_bytes((BLOCK,), layout(sharding=sharding, dp=4, num_stages=stages), Workload())
        for sharding in ("optimizer", "gradients")
        for stages in (1, 2)
    }
    assert kept["gradients", 1] == pytest.approx((2 * per_rank, 2 / 4 * per_rank, 12 / 4 * per_rank))
    assert kept["gradients", 2] == kept["optimizer", 2] == pytest.approx((2 * per_rank, 2 * per_rank, 3 * per_rank))


def test_experts_are_shared_by_the_ranks_that_hold_the_same():
    """tp 4, dp 8, ep 16 and whole experts: a sixteenth of them, whose optimizer two ranks share."""
    layer = mixture().layers[1]
    lay = layout(tp=4, dp=8, ep=16, etp=1, sharding="optimizer", replicas=8)
    dense, experts = layer.parameters - layer.expert_parameters, layer.expert_parameters / 16
    weights, gradients, optimizer = state_bytes((layer,), lay, Workload())
    assert [weights, gradients] == pytest.approx([2 * (dense / 4 + experts)] * 2)
    assert optimizer == pytest.approx(12 * (dense / 4 / 8 + experts / 2))


def test_what_each_sharding_divides():
    dp, cp, world = 4, 2, 12
    expected = {
        "none": (1, 1, 1),
        "optimizer": (1, 1, 8),
        "gradients": (1, 8, 8),
        "hybrid": (8, 8, 8),
        "full": (24, 24, 24),
    }
    for sharding, shards in expected.items():
        assert state_shards(layout(dp=dp, cp=cp, sharding=sharding, replicas=world)) == shards


def test_experts_are_divided_by_ep_and_the_rest_is_not():
    layer = mixture().layers[1]
    dense = layer.parameters - layer.expert_parameters
    assert rank_parameters(layer, layout(tp=2, ep=4)) == pytest.approx(dense / 2 + layer.expert_parameters / 8)
    assert layer.expert_parameters > 0.5 * layer.parameters


def test_experts_keep_what_their_tokens_bring():
    """Two experts of a quarter of the width keep half the inner values, but two copies of the input."""
    one, two = (mixture(per_token=k).layers[1] for k in (1, 2))
    tokens = 2048
    gap = activation_bytes(two, layout(tp=1), work(tokens)) - activation_bytes(one, layout(tp=1), work(tokens))
    assert gap == pytest.approx(tokens * (2 * 2048 + 1024 * (2 * 2 + 2)))


def test_each_module_frees_what_it_computes_again():
    """Of 2048 tokens with two experts each of width 1024 and 2048 wide input (16 bit; gates are as wide)."""
    block, tokens, k, h, w = mixture(per_token=2).layers[1], 2048, 2, 2048, 1024
    none = activation_bytes(block, layout(tp=1), work(tokens))
    frees = {
        "moe_act": 2 * tokens * k * w,
        "moe": 2 * tokens * k * (h + 3 * w) + 8 * tokens * block.feed_forward.experts.count,  # type: ignore[union-attr]
        "layernorm": 2 * 2 * tokens * h,
        "mlp": 0,  # this block has no dense network
    }
    for module, freed in frees.items():
        lay = layout(tp=1, recompute=module)
        assert none - activation_bytes(block, lay, work(tokens)) == pytest.approx(freed)
        assert again_bytes(block, lay, work(tokens)) == pytest.approx(freed)
    both = layout(tp=1, recompute="layernorm+moe")
    assert again_bytes(block, both, work(tokens)) == pytest.approx(frees["layernorm"] + frees["moe"])


def test_the_fullest_rank_of_experts_has_its_copies():
    """A skew of 1.5 is half of the copies more; an expert cut over two ranks has all copies of both on each."""
    block, tokens = mixture(per_token=2).layers[1], 2048
    lay = layout(tp=2, ep=4, etp=1, sequence_parallel=True)
    even = activation_bytes(block, lay, work(tokens))
    copies = 2 * tokens / 2 * 2 * (2048 + 3 * 1024)
    assert activation_bytes(block, lay, work(tokens, routing=Routing(1.5))) - even == pytest.approx(copies / 2)
    cut = activation_bytes(block, layout(tp=2, ep=4, sequence_parallel=True), work(tokens))
    assert cut - even == pytest.approx(2 * tokens / 2 * 2 * 2048)


def test_flash_attention_keeps_its_result_twice():
    flash, tuned = (activation_bytes(BLOCK, layout(), work(2048, kind)) for kind in ("flash2", "tuned"))
    assert flash - tuned == pytest.approx(2 * SBH / 8)


def test_latent_attention_keeps_latents_when_it_may_recompute():
    """DeepSeek-V3: queries, keys, values of 128 heads against vectors of 1536 and 576."""
    block = model("deepseek-v3").layers[10]
    none, selective = (
        activation_bytes(block, layout(tp=1, recompute=kind), work(4096)) for kind in ("none", "selective")
    )
    spared = 2 * 4096 * 128 * (2 * 192 + 128)
    assert none - selective > spared


def test_linear_attention_keeps_what_goes_into_its_kernels():
    """Qwen3-Next, values a token: 8192 before and 8192 behind the convolution, gates, result and gated result of 4096
    each, 64 for each of 32 heads. A full block: 4096 queries, gates, results and gated results, keys and values of 512;
    its queries and keys are normed, and stand before it, too.
    """
    linear, full = model("qwen3-next-80b-a3b").layers[1], model("qwen3-next-80b-a3b").layers[4]
    assert linear.feed_forward == full.feed_forward
    one, other = (activation_bytes(each, layout(tp=1), work(4096)) for each in (linear, full))
    assert one - other == 2 * 4096 * ((2 * 8192 + 3 * 4096 + 64 * 32) - (4 * 4096 + 2 * 512 + 4096 + 512))
    square = activation_bytes(full, layout(tp=1), work(4096, "unfused")) - other
    assert square > 0.0
    assert activation_bytes(linear, layout(tp=1), work(4096, "unfused")) == one


def test_gathered_parameters_stand_whole_for_a_while():
    plain, sharded = (
        workspace_bytes((BLOCK,), layout(sharding=kind, dp=8, replicas=8), work(2048)) for kind in ("none", "full")
    )
    assert sharded - plain == pytest.approx(3 * 2 * BLOCK.parameters / 8)


def test_logits_are_temporary():
    head = GPT3.layers[-1]
    assert workspace_bytes((head,), layout(), work(2048)) == pytest.approx(6 * 2048 * 51200 / 8)


def test_a_further_token_has_a_loss_of_its_own():
    """6 bytes a logit, and 4 that the other loss left."""
    block, head = replace(BLOCK, vocab=51200), GPT3.layers[-1]
    assert workspace_bytes((block, head), layout(), work(2048)) == pytest.approx(10 * 2048 * 51200 / 8)


def test_libraries_take_from_the_allocator():
    """MiB: Ampere 2 x 8 + 4, deterministic 2 x 32 + 4; Hopper 2 x 32 + 32, with grouped products four of 32 more."""
    found = [library_bytes("ampere"), library_bytes("ampere", deterministic=True), library_bytes("hopper")]
    assert [each / 2**20 for each in found] == [20, 68, 96]
    assert library_bytes("hopper", grouped=True) / 2**20 == 224


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    micro_batch=st.integers(1, 16),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sequence_parallel=st.booleans(),
    attention=st.sampled_from(["unfused", "flash2", "tuned"]),
    precision=st.sampled_from(["fp32", "bf16", "fp16", "fp8"]),
)
def test_activations_grow_with_the_micro_batch_and_shrink_with_tp(
    tp: int, micro_batch: int, recompute: str, sequence_parallel: bool, attention: str, precision: str
):
    def kept(size: int, ranks: int) -> float:
        lay = layout(
            ranks,
            micro_batch=size,
            recompute=recompute,
            sequence_parallel=sequence_parallel,
            precision=precision,
        )
        return activation_bytes(BLOCK, lay, work(2048, attention))

    assert kept(2 * micro_batch, tp) == pytest.approx(2 * kept(micro_batch, tp))
    assert kept(micro_batch, 2 * tp) <= kept(micro_batch, tp)
