"""Megatron-LM: the layout in its own grammar (where megatron-core is installed), flags for every model, refusals."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import given

from hippo.errors import InexpressibleError
from hippo.export import megatron
from hippo.export.base import Wishes
from hippo.export.megatron import model_flags, unsaid_of_model
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.problem.catalogue.models import MODELS
from hippo.problem.problem import Problem
from hippo.problem.workload import DISPATCHERS, Workload

from ..strategies import planned
from .examples import example, replicas, split_sequences


def flags(problem: Problem, plan: Plan) -> list[str]:
    return list(megatron.program(problem, plan).words)


def test_the_layout_of_the_example():
    problem, plan = example()
    assert megatron.layout(problem.model, plan) == "Et*5|t*7|t*12|t*8L"
    assert "--pipeline-model-parallel-layout 'Et*5|t*7|t*12|t*8L'" in flags(problem, plan)


def test_chunks_stand_round_after_round():
    problem, plan = example()
    plan = replace(plan, interleave=2, schedule=ScheduleChoice("interleaved"))
    # stages of 6, 7, 12, 9 layers in two chunks each: 3 3, 4 3, 6 6, 4 5 (the last keeps its larger one for the head)
    assert megatron.layout(problem.model, plan) == "Ett|t*4|t*6|t*4|t*3|t*3|t*6|t*4L".replace("tt", "t*2")


@given(drawn=planned())
def test_layers_add_up(drawn: tuple[Problem, Plan]):
    problem, plan = drawn
    letters = expanded(megatron.layout(problem.model, plan))
    stages = letters.split("|")
    assert [len(stage) for stage in stages] == [stage.num_layers for stage in plan.pipelines[0].stages]
    assert "".join(stages) == "E" + "t" * problem.model.num_blocks + "L"


def expanded(layout: str) -> str:
    return re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), layout)


def test_rank_order_follows_the_domains():
    assert "--use-tp-pp-dp-mapping" not in flags(*example())
    assert "--use-tp-pp-dp-mapping" in flags(*replicas())


def test_checkpoints_are_re_plannable_from_the_first_step():
    assert {"--ckpt-format torch_dist", "--dist-ckpt-optim-fully-reshardable"} <= set(flags(*example()))


def test_the_batch_divides():
    problem, plan = example()
    found = " ".join(flags(problem, plan))
    assert "--micro-batch-size 1 --global-batch-size 16" in found
    assert 16 % (1 * 2) == 0


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_of_the_catalogue_has_flags_or_a_reason(name: str):
    model = MODELS[name]
    unsaid = unsaid_of_model(model, 1024)
    if name.startswith("bloom"):
        assert unsaid == [f"Megatron-LM has no norm behind the embedding ({name})"]
        return
    forms = {"gpt-oss": "sinks of attention", "qwen3-next": "linear attention"}
    forms |= dict.fromkeys(("qwen1.5-moe", "qwen2-57b"), "a gate of the shared expert")
    forms |= {"gemma": "norms behind attention and feed-forward network", "olmo": "norms over all heads together"}
    part = next((form for start, form in forms.items() if name.startswith(start)), None)
    if part:
        assert f"No flag is written here for {part} ({name})" in unsaid
        return
    if name.startswith("nemotron-"):
        assert unsaid[-1] == f"No flag is written here for blocks of attention or a network alone ({name})"
        return
    assert unsaid == []
    words = " ".join(model_flags(model, Workload(seq=1024))).split()
    assert words[words.index("--num-layers") + 1] == str(model.num_blocks)
    assert ("--swiglu" in words) == (not name.startswith(("gpt", "megatron", "mt-nlg")))
    mixtures = ("mixtral", "qwen3-30b", "qwen3-235b", "deepseek", "kimi", "glm", "llama-4")
    assert ("--num-experts" in words) == name.startswith(mixtures)
    assert ("--qk-layernorm" in words) == (name.startswith(("qwen3", "deepseek", "kimi")) or name == "glm-4.5")
    assert ("--add-qkv-bias" in words) == name.startswith(("qwen2.5", "glm"))


def test_chunks_of_attention_count_where_they_cut_a_sequence():
    model = MODELS["llama-4-maverick-17b-128e"]
    assert unsaid_of_model(model, 8192) == []
    one_kind, windows = unsaid_of_model(model, 16384)
    assert one_kind == "Megatron-LM has one kind of attention for all blocks"
    assert (
        windows
        == f"No flag is written here for windows of attention below the 16384 tokens of a sequence ({model.name})"
    )


def test_deepseeks_first_blocks_are_dense():
    found = " ".join(model_flags(MODELS["deepseek-v3"], Workload()))
    assert "--moe-layer-freq '([0]*3+[1]*58)'" in found
    assert "--multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536 --qk-head-dim 128" in found
    assert "--moe-shared-expert-intermediate-size 2048" in found


def test_flags_of_a_mixture_cut_over_stages_lanes_and_experts():
    problem, plan = example()
    problem = replace(problem, model=MODELS["mixtral-8x7b"])
    found = " ".join(megatron.parallel_flags(problem, replace(plan, expert_parallel=2)))
    tp = plan.pipelines[0].stages[0].tp
    assert f"--expert-model-parallel-size 2 --expert-tensor-parallel-size {tp}" in found
    whole = replace(plan, expert_parallel=8, expert_tensor_parallel=1)
    assert "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1" in " ".join(
        megatron.parallel_flags(problem, whole)
    )
    for dispatcher in DISPATCHERS[1:]:
        software = replace(problem.workload.software, dispatcher=dispatcher, overlap_ep=True)
        words = " ".join(model_flags(problem.model, replace(problem.workload, software=software)))
        assert f"--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend {dispatcher}" in words
        assert "--overlap-moe-expert-parallel-comm" in words
    assert "--moe-token-dispatcher-type alltoall" in " ".join(model_flags(problem.model, Workload()))
    dense = " ".join(megatron.parallel_flags(replace(problem, model=MODELS["llama-3-8b"]), plan))
    assert "expert" not in dense


def test_experts_that_do_not_divide_the_lanes_are_named():
    problem, plan = example()
    problem = replace(problem, model=MODELS["mixtral-8x7b"])
    (sentence,) = megatron.unsaid(problem, replace(plan, expert_parallel=4))
    assert "expert parallel 4" in sentence


def test_what_it_cannot_express_is_named_with_the_nearest_plan():
    problem, plan = example()
    with pytest.raises(InexpressibleError) as refusal:
        megatron.export(problem, replace(plan, schedule=ScheduleChoice("gpipe")), Wishes())
    first, nearest, *_ = refusal.value.reasons
    told = "Megatron-LM cannot express schedule 'gpipe', only 1f1b or interleaved"
    assert first == f"Megatron-LM cannot run this plan: {told}."
    assert nearest.startswith("Nearest plan that it can run, the same with that left out: ")
    assert "1f1b" in nearest
    assert re.search(r"[\d.]+ s a step instead of [\d.]+ s under no runtime \(ideal\); --nearest exports it", nearest)


# ------------------------------------------------------------------------------------------------------ its own parser
@pytest.fixture(scope="module")
def parsed():
    """Megatron Core's own reader of layouts: stages of a pipeline rank as lists of layer kinds."""
    name = "megatron.core.transformer.pipeline_parallel_layer_layout"
    module = pytest.importorskip(name, reason="megatron-core is not installed (extra 'targets')")

    def read(layout: str, pp: int, num_layers: int):
        found = module.PipelineParallelLayerLayout.from_str(layout=layout, pipeline_model_parallel_size=pp)
        found.validate_layer_layout(num_layers=num_layers, mtp_num_layers=None)
        return [[[each.name for each in stage] for stage in rank] for rank in found.layout]

    return read


def test_megatron_reads_the_layout(parsed):
    problem, plan = example()
    ranks = parsed(megatron.layout(problem.model, plan), 4, 32)
    assert [sum(kind == "decoder" for stage in rank for kind in stage) for rank in ranks] == [5, 7, 12, 8]
    assert ranks[0][0][0] == "embedding"
    assert ranks[3][-1][-1] == "loss"


@pytest.mark.parametrize(
    ("asked", "way"),
    [(None, "p2p"), ("alltoall", "a2a"), ("gather", "all_gather")],
)
@pytest.mark.filterwarnings("ignore:full scope is deprecated:UserWarning")  # a default of Megatron Core 0.16.1
def test_megatron_knows_how_parts_of_a_sequence_meet(asked: str | None, way: str):
    problem, plan = split_sequences()
    if asked is not None:
        software = replace(problem.workload.software, context_way=asked)
        problem = replace(problem, workload=replace(problem.workload, software=software))
    assert f"--context-parallel-size 2 --cp-comm-type {way}" in " ".join(flags(problem, plan))
    name = "megatron.core.transformer.transformer_config"
    module = pytest.importorskip(name, reason="megatron-core is not installed (extra 'targets')")
    words = megatron.context_words(problem, plan).split()
    known = module.TransformerConfig(
        num_layers=32, hidden_size=4096, num_attention_heads=32, context_parallel_size=2, cp_comm_type=words[0]
    )
    assert known.cp_comm_type == way


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_megatron_knows_what_brings_tokens_to_experts(dispatcher: str):
    name = "megatron.core.transformer.transformer_config"
    module = pytest.importorskip(name, reason="megatron-core is not installed (extra 'targets')")
    known = {each.name: get_args(each.type) for each in fields(module.TransformerConfig)}
    for flag in megatron.DISPATCHERS[dispatcher]:
        key, word = flag.removeprefix("--").split()
        assert word in known[key.replace("-", "_")]


def test_megatron_reads_chunks(parsed):
    problem, plan = example()
    plan = replace(plan, interleave=2, schedule=ScheduleChoice("interleaved"))
    ranks = parsed(megatron.layout(problem.model, plan), 4, 32)
    counts = [[sum(kind == "decoder" for kind in stage) for stage in rank] for rank in ranks]
    assert counts == [[2, 3], [4, 3], [6, 6], [4, 4]]


@pytest.mark.parametrize(
    "broken", ["Et*5|t*7|t*12|t*7L", "t*5|t*7|t*12|t*8L", "Et*5|t*7|t*12|t*8", "Et*5|t*7|x*12|t*8L"]
)
def test_megatron_refuses_broken_layouts(parsed, broken: str):
    with pytest.raises((ValueError, AssertionError, KeyError)):
        parsed(broken, 4, 32)


@pytest.mark.parametrize(
    ("name", "recompute", "precision", "expected"),
    [
        ("llama-3-8b", "selective", "bf16", "--recompute-granularity selective --recompute-modules layernorm"),
        ("llama-3-8b", "moe_act", "bf16", ""),
        (
            *("llama-3-8b", "full:3", "bf16"),
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
        ),
        (
            "mixtral-8x7b",
            "moe+layernorm",
            "bf16",
            "--recompute-granularity selective --recompute-modules layernorm moe",
        ),
        (
            *("mixtral-8x7b", "moe_act", "fp8"),
            "--recompute-granularity selective --recompute-modules moe_act --moe-grouped-gemm --fp8-recipe tensorwise",
        ),
    ],
)
def test_modules_that_are_computed_again(name: str, recompute: str, precision: str, expected: str):
    """Only those that the model has: a dense one has no experts' activations."""
    problem, plan = example()
    changed = replace(plan, recompute=recompute, precision=precision)
    found = " ".join(megatron.parallel_flags(replace(problem, model=MODELS[name]), changed))
    assert found.partition("--recompute")[2].strip() == expected.removeprefix("--recompute")
