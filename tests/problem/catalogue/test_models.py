"""The catalogue against counts that the makers publish, transformers, and the published training rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hippo.errors import UnknownNameError
from hippo.problem.catalogue import models as catalogue
from hippo.problem.catalogue.models import ALIASES, MODELS, model

# Totals of the published weights (safetensors index or model card).
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "bloom-560m": 559_214_592,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "llama-1-7b": 6_738_415_616,
    "llama-1-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "mistral-7b": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mistral-large-123b": 122_610_069_504,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200 - 58 * 256,  # the weights also hold the routers' balancing biases, not trained
}

# Millions of parameters as papers print them: GPT-3 table D.1 (2005.14165), Megatron-LM table 1 (2104.04473).
PRINTED = {
    "gpt3-125m": 125,
    "gpt3-350m": 356,
    "gpt3-760m": 760,
    "gpt3-1.3b": 1_320,
    "gpt3-2.7b": 2_650,
    "gpt3-6.7b": 6_660,
    "gpt3-13b": 12_850,
    "gpt3-175b": 174_600,
    "megatron-1.7b": 1_700,
    "megatron-3.6b": 3_600,
    "megatron-7.5b": 7_500,
    "megatron-18b": 18_400,
    "megatron-39b": 39_100,
    "megatron-76b": 76_100,
    "megatron-145b": 145_600,
    "megatron-310b": 310_100,
    "megatron-530b": 529_600,
    "megatron-1t": 1_008_000,
    "megatron-8.3b": 8_300,
    "megatron-22b": 22_000,
    "mt-nlg-530b": 530_000,
}


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_round_to_what_papers_print(name: str) -> None:
    digits = len(str(PRINTED[name]).rstrip("0"))
    unit = 10 ** (6 + len(str(PRINTED[name])) - digits)
    assert abs(model(name).parameters - PRINTED[name] * 1e6) <= 0.51 * unit


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert model(name).parameters == PUBLISHED[name]


# All parameters and those that a token passes through, as transformers builds the published config.json.
MIXTURES = {
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248),
    "qwen1.5-moe-a2.7b": (14_315_784_192, 2_689_173_504),
    "qwen2-57b-a14b": (57_408_658_944, 14_249_270_784),
    "qwen3-235b-a22b": (235_093_634_560, 22_190_763_520),
    "qwen3-next-80b-a3b": (79_674_391_296, 3_874_929_408),
    "gpt-oss-20b": (20_914_757_184, 4_187_440_704),
    "gpt-oss-120b": (116_829_156_672, 5_711_982_912),
    "llama-4-scout-17b-16e": (107_769_861_120, 17_172_894_720),
    "llama-4-maverick-17b-128e": (400_711_848_960, 17_184_691_200),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_active_parameters_of_mixtures(name: str) -> None:
    assert (model(name).parameters, model(name).active_parameters) == MIXTURES[name]
    assert model("llama-3-8b").active_parameters == model("llama-3-8b").parameters


def test_active_parameters_of_gpt_oss_are_those_of_its_model_card() -> None:
    """arXiv 2508.10925, table 1: 20.91 and 116.83 billion; active without the embedding: 3.61 and 5.13."""
    for name, billions in {"gpt-oss-20b": (20.91, 3.61), "gpt-oss-120b": (116.83, 5.13)}.items():
        found = model(name)
        active = found.active_parameters - found.layers[0].parameters
        assert (round(found.parameters / 1e9, 2), round(active / 1e9, 2)) == billions


@pytest.mark.parametrize("name", catalogue._CONFIGS)
def test_parameters_equal_transformers_at_full_size(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, layers, hidden, heads, kv_heads, width, vocab, _, further, _ = catalogue._CONFIGS[name]
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": width, "vocab_size": vocab}
    attention = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    with torch.device("meta"):
        judge = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **attention, **further))
    assert model(name).parameters == sum(p.numel() for p in judge.parameters())
    experts = [p for part, p in judge.named_parameters() if ".experts." in part]  # those of a block are one tensor
    idle = sum(p.numel() // p.shape[0] * (p.shape[0] - judge.config.num_experts_per_tok) for p in experts)
    assert model(name).active_parameters == model(name).parameters - idle


def test_bloom_blocks_equal_transformers() -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("bloom", n_layer=24, hidden_size=1024, n_head=16, vocab_size=250880)
    with torch.device("meta"):
        judge = AutoModelForCausalLM.from_config(config)
    ours = model("bloom-560m")
    assert ours.parameters == sum(p.numel() for p in judge.parameters())
    assert ours.layers[1].parameters == sum(p.numel() for p in judge.base_model.h[0].parameters())


@pytest.mark.parametrize("each", MODELS.values(), ids=lambda each: each.name)
def test_every_model_names_its_source_and_keeps_its_key(each) -> None:  # type: ignore[no-untyped-def]
    assert each.source
    assert model(each.name.upper()) is each
    assert each.layers[0].parameters > 0
    assert each.num_layers == each.num_blocks + 2


def test_aliases_lead_to_models() -> None:
    assert all(model(alias).name == name for alias, name in ALIASES.items())
    assert not set(ALIASES) & set(MODELS)
    names = {"GPT-2.7B": "gpt3-2.7b", "gpt-3": "gpt3-175b", "meta-llama/Llama-3.1-405B": "llama-3-405b"}
    assert {alias: model(alias).name for alias in names} == names
    with pytest.raises(UnknownNameError, match="did you mean 'llama-3-8b'"):
        model("llama-3-8")


ROW_NAMES = {
    "GPT-3.6B": "megatron-3.6b",
    "GPT-7.5B": "megatron-7.5b",
    "GPT-39B": "megatron-39b",
    "GPT-310B": "megatron-310b",
    "GPT-530B": "megatron-530b",
    "GPT-1T": "megatron-1t",
    "GPT-22B": "megatron-22b",
    "Llama2-13B": "llama-2-13b",
    "Llama2-70B": "llama-2-70b",
    "Llama3-8B": "llama-3-8b",
    "Llama3.1-405B": "llama-3-405b",
}


def test_sizes_agree_with_the_published_rows(data: Path) -> None:
    rows = json.loads((data / "training_open.json").read_text())
    found = {row["model"]["name"]: row["model"] for row in rows if row["model"]["name"] in ROW_NAMES}
    assert set(found) == set(ROW_NAMES)
    for name, row in found.items():
        ours = model(ROW_NAMES[name])
        block = ours.layers[1]
        assert block.attention is not None
        assert block.feed_forward is not None
        sizes = (
            ours.num_blocks,
            ours.hidden,
            block.attention.heads,
            block.attention.kv_heads,
            block.feed_forward.width,
        )
        assert sizes == (row["layers"], row["hidden"], row["heads"], row["kv_heads"], row["ffn"])
        assert block.feed_forward.gated == row["gated_mlp"]
        assert row["vocab"] in (None, ours.vocab)
