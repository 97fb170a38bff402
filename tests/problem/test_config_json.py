"""Models from config.json; the judge of parameter counts is transformers on torch's meta device."""

from __future__ import annotations

from typing import Any

import pytest

from hippo.errors import InputError
from hippo.problem.config_json import model_from_config

SMALL: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "intermediate_size": 176,
}
MOE: dict[str, Any] = {**SMALL, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_key_value_heads": 4}
DEEPSEEK: dict[str, Any] = {
    **MOE,
    "num_key_value_heads": 8,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "first_k_dense_replace": 1,
}
NEXT: dict[str, Any] = {
    **MOE,
    "num_hidden_layers": 5,
    "num_experts": 8,
    "head_dim": 12,
    "shared_expert_intermediate_size": 40,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
    "linear_conv_kernel_dim": 3,
}
LLAMA4: dict[str, Any] = {**SMALL, "num_hidden_layers": 5, "num_key_value_heads": 4, "num_local_experts": 8}
GPT2: dict[str, Any] = {"vocab_size": 1000, "n_embd": 64, "n_layer": 3, "n_head": 8, "n_positions": 128}

HYBRID: dict[str, Any] = {
    **SMALL,
    "hybrid_override_pattern": "ME*-M",
    "num_hidden_layers": 5,
    "num_key_value_heads": 4,
    "head_dim": 12,
    "mamba_num_heads": 6,
    "mamba_head_dim": 10,
    "n_groups": 3,
    "ssm_state_size": 14,
    "conv_kernel": 3,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 40,
}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", GPT2),
    ("gpt2", {**GPT2, "n_inner": 100}),
    ("gpt2", {**GPT2, "tie_word_embeddings": False}),
    ("llama", SMALL),
    ("llama", {**SMALL, "num_key_value_heads": 2, "tie_word_embeddings": True}),
    ("llama", {**SMALL, "num_key_value_heads": 1, "head_dim": 16, "attention_bias": True}),
    ("llama", {**SMALL, "mlp_bias": True}),
    ("qwen2", {**SMALL, "num_key_value_heads": 2}),
    ("qwen2", {**SMALL, "num_key_value_heads": None, "tie_word_embeddings": True}),
    ("qwen2", {**SMALL, "num_attention_heads": 32}),
    ("qwen2", {**SMALL, "num_key_value_heads": 4, "head_dim": 12}),
    ("qwen3", {**SMALL, "num_key_value_heads": 4}),
    ("qwen3", {**SMALL, "num_attention_heads": 64}),
    ("qwen3", {**SMALL, "num_key_value_heads": 4, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True}),
    ("mistral", SMALL),
    ("mistral", {**SMALL, "num_key_value_heads": 2, "head_dim": 12, "sliding_window": 64}),
    ("ministral", {**SMALL, "num_key_value_heads": 4, "head_dim": 8}),
    ("phi3", {**SMALL, "num_key_value_heads": 4, "pad_token_id": 0}),
    ("mistral", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    ("ministral", {**SMALL, "head_dim": 8, "attention_bias": True, "mlp_bias": True}),
    ("phi3", {**SMALL, "pad_token_id": 0, "attention_bias": True, "mlp_bias": True}),
    ("gemma", SMALL | {"num_key_value_heads": 4}),
    ("gemma", {**SMALL, "num_key_value_heads": 1, "head_dim": 16, "attention_bias": True}),
    ("gemma2", SMALL),
    (
        "gemma2",
        {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": False},
    ),
    ("gemma3_text", {**SMALL, "num_key_value_heads": 2, "head_dim": 16}),
    ("olmo2", SMALL),
    ("olmo2", {**SMALL, "num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": True}),
    ("granite", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    ("smollm3", {**SMALL, "pad_token_id": 0}),
    ("glm4_moe", {**MOE, "n_routed_experts": 8, "head_dim": 8}),
    ("glm4_moe", {**MOE, "n_routed_experts": 8, "head_dim": 16, "use_qk_norm": True, "attention_bias": True}),
    ("deepseek_v2", {key: value for key, value in DEEPSEEK.items() if key != "first_k_dense_replace"}),
    ("deepseek_v2", {**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2}),
    ("mixtral", {**SMALL, "num_local_experts": 4}),
    ("mixtral", {**SMALL, "num_local_experts": 4, "head_dim": 12, "num_key_value_heads": 2}),
    ("qwen3_moe", {**MOE, "num_experts": 8}),
    ("qwen3_moe", {**MOE, "num_experts": 8, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3_moe", {**MOE, "num_experts": 8, "mlp_only_layers": [0]}),
    ("qwen3_moe", {**MOE, "num_experts": 8, "decoder_sparse_step": 2}),
    ("deepseek_v3", DEEPSEEK),
    ("deepseek_v3", {**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2}),
    ("deepseek_v3", {**DEEPSEEK, "attention_bias": True, "tie_word_embeddings": True}),
    ("deepseek_v3", {**DEEPSEEK, "first_k_dense_replace": 0}),
    ("deepseek_v3", {**DEEPSEEK, "first_k_dense_replace": 9}),
    ("gpt_oss", {**SMALL, "num_local_experts": 8}),
    ("gpt_oss", {**SMALL, "num_local_experts": 8, "head_dim": 12, "num_key_value_heads": 2, "sliding_window": 16}),
    ("gpt_oss", {**SMALL, "num_experts": 8, "attention_bias": False, "tie_word_embeddings": True}),
    ("qwen2_moe", {**MOE, "num_experts": 8, "shared_expert_intermediate_size": 40}),
    ("qwen2_moe", {**MOE, "num_experts": 8, "qkv_bias": False, "mlp_only_layers": [1], "tie_word_embeddings": True}),
    ("qwen2_moe", {**MOE, "num_experts": 8, "decoder_sparse_step": 2, "use_sliding_window": True}),
    ("qwen3_next", NEXT),
    ("qwen3_next", {**NEXT, "full_attention_interval": 2, "attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3_next", {**NEXT, "layer_types": ["linear_attention", "full_attention"] * 2 + ["linear_attention"]}),
    ("qwen3_next", {**NEXT, "mlp_only_layers": [0], "decoder_sparse_step": 3}),
    ("llama4_text", LLAMA4),
    ("llama4_text", {**LLAMA4, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 200, "attention_bias": True}),
    ("llama4_text", {**LLAMA4, "moe_layers": [0, 3], "head_dim": 12, "tie_word_embeddings": True}),
]
HYBRIDS: list[tuple[str, dict[str, Any]]] = [
    ("nemotron_h", HYBRID),
    ("nemotron_h", {**HYBRID, "moe_latent_size": 20, "use_conv_bias": False, "tie_word_embeddings": True}),
    (
        "nemotron_h",
        {**HYBRID, "use_bias": True, "hybrid_override_pattern": "M*", "num_hidden_layers": 2, "sliding_window": 8},
    ),
    (
        "nemotron_h",
        {key: value for key, value in HYBRID.items() if key != "hybrid_override_pattern"}
        | {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"], "num_hidden_layers": 4},
    ),
]
"""Each block is attention, Mamba-2 or a feed-forward network alone."""


def meta_counts(kind: str, config: dict[str, Any]) -> tuple[int, int, list[int]]:
    """Parameters of the model, those that a token passes through, those of each block, as transformers builds it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config))
    base = getattr(model, "model", model.base_model)
    blocks = base.h if hasattr(base, "h") else base.layers
    count = [sum(p.numel() for p in block.parameters()) for block in blocks]
    total, idle = sum(p.numel() for p in model.parameters()), 0
    for name, experts in model.named_parameters():
        if ".experts." in name:  # all experts of a block are one tensor
            idle += experts.numel() // experts.shape[0] * (experts.shape[0] - model.config.num_experts_per_tok)
    return total, total - idle, count


@pytest.mark.parametrize(("kind", "config"), [*CASES, *HYBRIDS])
def test_parameters_equal_transformers(kind: str, config: dict[str, Any]) -> None:
    model = model_from_config({"model_type": kind, **config}, source="config.json", name="m")
    total, active, blocks = meta_counts(kind, config)
    assert [layer.parameters for layer in model.layers[1:-1]] == blocks
    assert (model.parameters, model.active_parameters) == (total, active)


WINDOWS: list[tuple[str, dict[str, Any]]] = [
    ("qwen2", {**SMALL, "num_key_value_heads": 2, "use_sliding_window": True, "max_window_layers": 1}),
    ("qwen3", {**SMALL, "num_key_value_heads": 2, "use_sliding_window": True, "max_window_layers": 2}),
    ("qwen3_moe", {**MOE, "num_experts": 8, "use_sliding_window": True, "sliding_window": 32}),
    ("mixtral", {**SMALL, "num_local_experts": 4, "sliding_window": 32}),
    ("mistral", {**SMALL, "sliding_window": None}),
    ("phi3", {**SMALL, "pad_token_id": 0, "sliding_window": 32}),
    ("smollm3", {**SMALL, "pad_token_id": 0, "use_sliding_window": True, "sliding_window": 8, "num_hidden_layers": 9}),
    (
        "smollm3",
        {**SMALL, "pad_token_id": 0, "use_sliding_window": True, "sliding_window": 8, "no_rope_layers": [0] * 3},
    ),
    ("gemma3_text", {**SMALL, "num_hidden_layers": 13, "sliding_window_pattern": 4}),
    ("gemma3_text", {**SMALL, "num_hidden_layers": 13}),
    ("gemma2", {**SMALL, "layer_types": ["full_attention"] * 2 + ["sliding_attention"]}),
    ("gpt_oss", {**SMALL, "num_local_experts": 8, "sliding_window": None}),
    ("llama4_text", {**LLAMA4, "no_rope_layer_interval": 2, "attention_chunk_size": 32}),
    ("llama4_text", {**LLAMA4, "no_rope_layers": [], "attention_chunk_size": None}),
    ("llama4_text", {**LLAMA4, "no_rope_layers": [0, 0, 1, 1, 0]}),
]


@pytest.mark.parametrize(("kind", "config"), [*CASES, *WINDOWS])
def test_windows_of_attention_equal_transformers(kind: str, config: dict[str, Any]) -> None:
    from transformers import AutoConfig

    model = model_from_config({"model_type": kind, **config}, source="config.json", name="m")
    judge = AutoConfig.for_model(kind, **config)
    found, blocks = [], model.layers[1:-1]
    for attention in (block.attention for block in blocks):
        assert attention is not None
        windowed = ("chunked" if attention.chunked else "sliding") if attention.window else "full"
        found.append("linear" if attention.linear else windowed)
    width = judge.attention_chunk_size if kind == "llama4_text" else getattr(judge, "sliding_window", None)
    usual = ["sliding_attention" if width else "full_attention"] * len(blocks)
    kinds = [each.removesuffix("_attention") for each in getattr(judge, "layer_types", None) or usual]
    expected = [each if width or each == "linear" else "full" for each in kinds]
    assert found == expected
    assert {block.attention.window for block in blocks if block.attention} <= {None, width or None}


def test_the_language_model_of_a_model_of_text_and_images_is_read() -> None:
    whole = {"model_type": "llama4", "text_config": {**LLAMA4, "model_type": "llama4_text"}, "vision_config": {}}
    alone = model_from_config({**LLAMA4, "model_type": "llama4_text"}, source="c", name="m")
    assert model_from_config(whole, source="c", name="m") == alone
    gemma = {**SMALL, "num_key_value_heads": 2}
    nested = model_from_config({"model_type": "gemma3", "text_config": gemma}, source="c", name="m")
    assert nested == model_from_config({"model_type": "gemma3_text", **gemma}, source="c", name="m")


def test_old_and_new_keys_give_the_same_model() -> None:
    old = {
        **MOE,
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 8,
        "torch_dtype": "bfloat16",
        "rope_theta": 1e6,
    }
    new = {**MOE, "model_type": "qwen3_moe", "num_local_experts": 8, "dtype": "bfloat16", "rope_parameters": {}}
    a, b = (model_from_config(each, source="config.json", name="m") for each in (old, new))
    assert a == b
    gpt2 = {
        "model_type": "gpt2",
        "vocab_size": 1000,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
    }
    assert model_from_config(gpt2, source="c", name="m").num_blocks == 3


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in CASES}))
def test_keys_that_nobody_reads_are_passed_over(kind: str) -> None:
    from transformers import AutoConfig

    sizes = next(config for name, config in CASES if name == kind)
    whole = AutoConfig.for_model(kind, **sizes).to_dict() | {"_name_or_path": "x", "quantization_config": {"bits": 4}}
    found = model_from_config(whole, source="config.json", name="m")
    assert found.parameters == model_from_config({"model_type": kind, **sizes}, source="", name="m").parameters


def test_a_misspelt_key_with_a_default_is_refused() -> None:
    config = {**SMALL, "model_type": "llama", "num_key_value_head": 2}
    with pytest.raises(InputError, match="c: num_key_value_head: unknown key, close to 'num_key_value_heads'"):
        model_from_config(config, source="c", name="m")
    assert model_from_config({**config, "num_key_value_heads": 2}, source="c", name="m").num_blocks == 3


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "c: model_type: no 'model_type' says which architecture this is."),
    ({**DEEPSEEK, "model_type": "deepseek_v2", "mlp_bias": True}, "c: mlp_bias: is not supported beside experts"),
    ({"model_type": "mamba"}, "c: model_type: unknown architecture 'mamba'."),
    ({"model_type": ["llama4"]}, "c: model_type: must be text (got ['llama4'])"),
    ({"model_type": "qwen"}, "To fix: did you mean 'qwen3' or 'qwen2'"),
    ({"architectures": ["BertModel"]}, "c: architectures: unknown architecture 'BertModel'."),
    ({"model_type": "llama", "text_config": SMALL}, "c: text_config: a configuration of several models"),
    ({**SMALL, "model_type": "llama", "num_hidden_layers": 10**6}, "write a whole number from 1 to 2048"),
    ({**SMALL, "model_type": "llama", "num_hidden_layers": 0}, "c: num_hidden_layers: is out of range (got 0)"),
    ({**SMALL, "model_type": "llama", "hidden_size": "4096"}, "must be a whole number, without quotes (got '4096')"),
    ({**SMALL, "model_type": "llama", "hidden_size": -1}, "c: hidden_size: is out of range (got -1)"),
    ({**SMALL, "model_type": "llama", "hidden_size": float("nan")}, "c: hidden_size: must be a whole number (got nan)"),
    ({**SMALL, "model_type": "llama", "hidden_size": 65}, "is not a multiple of the 8 attention heads (got 65)"),
    ({**SMALL, "model_type": "llama", "num_key_value_heads": 3}, "does not divide num_attention_heads (8) (got 3)"),
    (
        {**SMALL, "model_type": "qwen2"},
        "num_key_value_heads: is missing, and its default in transformers, 32, does",
    ),
    ({**SMALL, "model_type": "qwen3"}, "does not divide num_attention_heads (8). To fix: write a divisor of 8"),
    ({**SMALL, "model_type": "llama", "attention_bias": "no"}, "must be true or false (got 'no')"),
    ({**MOE, "model_type": "qwen3_moe", "num_experts": 1}, "num_experts_per_tok: exceeds the 1 experts (got 2)"),
    ({**MOE, "model_type": "qwen3_moe", "num_experts": 8, "mlp_only_layers": ["a"]}, "must be a list of layer indices"),
    ({**GPT2, "model_type": "gpt2", "add_cross_attention": True}, "an encoder-decoder is not supported"),
    ({"model_type": "llama4", "text_config": {"hidden_size": 64}}, "c: text_config.num_hidden_layers: is missing"),
    ({**NEXT, "model_type": "qwen3_next", "linear_num_key_heads": 4}, "does not divide linear_num_value_heads (6)"),
    ({**NEXT, "model_type": "qwen3_next", "layer_types": ["full_attention"]}, "holds 1 entries for 5 blocks"),
    (
        {**SMALL, "model_type": "gemma2", "layer_types": ["mamba", "full_attention", "full_attention"]},
        "c: layer_types: names attention that this architecture is not known to have (got 'mamba'). To fix: write "
        "sliding_attention or full_attention.",
    ),
    (
        {**HYBRID, "model_type": "nemotron_h", "num_hidden_layers": 8, "hybrid_override_pattern": "ME*"},
        "c: hybrid_override_pattern: names 3 blocks, but num_hidden_layers is 8 (got 'ME*')",
    ),
    ({**LLAMA4, "model_type": "llama4_text", "no_rope_layers": [1, 0]}, "holds 2 entries for 5 blocks"),
    ({**LLAMA4, "model_type": "llama4_text", "no_rope_layers": ["a"] * 5}, "must be a list of 0 and 1"),
    ({**LLAMA4, "model_type": "llama4_text", "moe_layers": [0.5]}, "must be a list of layer indices"),
]


@pytest.mark.parametrize(("config", "words"), REFUSED)
def test_refusals_name_key_value_and_remedy(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        model_from_config(config, source="c", name="m")
    assert words in str(caught.value)
    assert "To fix: " in str(caught.value)


def test_a_misspelt_size_is_pointed_at() -> None:
    config = {key: value for key, value in SMALL.items() if key != "hidden_size"}
    with pytest.raises(InputError, match="hiden_size: unknown key, close to 'hidden_size'"):
        model_from_config({**config, "model_type": "llama", "hiden_size": 64}, source="c", name="m")
    with pytest.raises(InputError, match=r"hidden_size: is missing \(there is 'hidden_dim'\)"):
        model_from_config({**config, "model_type": "llama", "hidden_dim": 64}, source="c", name="m")


PUBLISHED: list[tuple[str, float, float, dict[str, Any]]] = [
    (  # hf:mistralai/Mistral-7B-v0.1, its safetensors index
        "mistral",
        7_241_732_096,
        0,
        {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
        | {"num_key_value_heads": 8, "intermediate_size": 14336},
    ),
    (  # hf:microsoft/Phi-3-mini-4k-instruct, its safetensors index
        "phi3",
        3_821_079_552,
        0,
        {"vocab_size": 32064, "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32}
        | {"num_key_value_heads": 32, "intermediate_size": 8192},
    ),
    (  # Kimi K2 (arXiv 2507.20534, table 2): 1.04 trillion, of which 32.6 billion are active
        "kimi_k2",
        1.04e12,
        0.02e12,
        {"vocab_size": 163840, "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64}
        | {"num_key_value_heads": 64, "intermediate_size": 18432, "moe_intermediate_size": 2048, "q_lora_rank": 1536}
        | {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"n_routed_experts": 384, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
    ),
    (  # DeepSeek-V2 (arXiv 2405.04434): 236 billion
        "deepseek_v2",
        236e9,
        0.5e9,
        {"vocab_size": 102400, "hidden_size": 5120, "num_hidden_layers": 60, "num_attention_heads": 128}
        | {"num_key_value_heads": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536, "q_lora_rank": 1536}
        | {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"n_routed_experts": 160, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1},
    ),
    (  # GLM-4.5-Air (arXiv 2508.06471): 106 billion
        "glm4_moe",
        106e9,
        1e9,
        {"vocab_size": 151552, "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96}
        | {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408}
        | {"n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1}
        | {"attention_bias": True},
    ),
    (  # hf:google/gemma-2-9b, its safetensors index
        "gemma2",
        9_241_705_984,
        0,
        {"vocab_size": 256000, "hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16}
        | {"num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336, "sliding_window": 4096},
    ),
    (  # hf:google/gemma-3-1b-pt, its safetensors index
        "gemma3_text",
        999_885_952,
        0,
        {"vocab_size": 262144, "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4}
        | {"num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912, "sliding_window": 512},
    ),
    (  # hf:allenai/OLMo-2-1124-7B, its safetensors index
        "olmo2",
        7_298_617_344,
        0,
        {"vocab_size": 100352, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
        | {"num_key_value_heads": 32, "intermediate_size": 11008},
    ),
]


@pytest.mark.parametrize(("kind", "parameters", "within", "config"), PUBLISHED, ids=[each[0] for each in PUBLISHED])
def test_parameters_are_those_that_makers_publish(
    kind: str, parameters: float, within: float, config: dict[str, Any]
) -> None:
    found = model_from_config({"model_type": kind, **config}, source="config.json", name="m")
    assert abs(found.parameters - parameters) <= within


# All parameters and those that a token passes through, as transformers builds the published sizes above.
BUILT = {
    "mistral": (7_241_732_096, 7_241_732_096),
    "phi3": (3_821_079_552, 3_821_079_552),
    "kimi_k2": (1_026_408_209_408, 32_861_477_888),
    "deepseek_v2": (235_741_434_880, 21_375_800_320),
    "glm4_moe": (106_852_245_504, 13_424_123_904),
    "gemma2": (9_241_705_984, 9_241_705_984),
    "gemma3_text": (999_885_952, 999_885_952),
    "olmo2": (7_298_617_344, 7_298_617_344),
}


@pytest.mark.parametrize(("kind", "config"), [(kind, config) for kind, _, _, config in PUBLISHED])
def test_published_sizes_equal_transformers(kind: str, config: dict[str, Any]) -> None:
    known = "deepseek_v3" if kind == "kimi_k2" else kind
    found = model_from_config({"model_type": kind, **config}, source="config.json", name="m")
    pad = {"pad_token_id": 0} if kind == "phi3" else {}
    total, active, blocks = meta_counts(known, {**config, **pad})
    assert (found.parameters, found.active_parameters) == (total, active) == BUILT[kind]
    assert [layer.parameters for layer in found.layers[1:-1]] == blocks
