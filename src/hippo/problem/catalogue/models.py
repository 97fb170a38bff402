"""Models by name. Sizes are those of the source that stands beside them; names are lower-case.

Sources: a paper's table, or the ``config.json`` published with the weights (``hf:`` = huggingface.co). Parameter counts
are tested against ``transformers`` and against the counts their makers publish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from hippo.errors import UnknownNameError
from hippo.problem.config_json import model_from_config
from hippo.problem.model import Model, gpt_model


def _gpt2() -> Iterable[Model]:
    """GPT-2, four sizes."""
    source = "Radford et al. 2019, table 2; hf:openai-community/gpt2*"
    sizes = {
        "gpt2": (12, 768, 12),
        "gpt2-medium": (24, 1024, 16),
        "gpt2-large": (36, 1280, 20),
        "gpt2-xl": (48, 1600, 25),
    }
    for name, (layers, hidden, heads) in sizes.items():
        yield gpt_model(name, layers=layers, hidden=hidden, heads=heads, vocab=50257, seq=1024, source=source)


def _gpt3() -> Iterable[Model]:
    """GPT-3, all sizes. Where the printed sizes do not make a model, Cerebras-GPT's of the same name are taken."""
    source = "Brown et al. 2020 (arXiv 2005.14165), table 2.1; vocabulary of GPT-2"
    repaired = "; {} (Cerebras-GPT, arXiv 2304.03208) where {} is printed, which does not divide"
    sizes = {
        "gpt3-125m": (12, 768, 12, ""),
        "gpt3-350m": (24, 1024, 16, ""),
        "gpt3-760m": (24, 1536, 16, ""),
        "gpt3-1.3b": (24, 2048, 16, repaired.format("16 heads", "24")),
        "gpt3-2.7b": (32, 2560, 32, ""),
        "gpt3-6.7b": (32, 4096, 32, ""),
        "gpt3-13b": (40, 5120, 40, repaired.format("hidden size 5120", "5140")),
        "gpt3-175b": (96, 12288, 96, ""),
    }
    for name, (layers, hidden, heads, repair) in sizes.items():
        yield gpt_model(
            name, layers=layers, hidden=hidden, heads=heads, vocab=50257, seq=2048, source=f"{source}{repair}"
        )


def _megatron() -> Iterable[Model]:
    """The ten models of Megatron-LM's scaling study, and three others trained with it."""
    source = "Narayanan et al. 2021 (arXiv 2104.04473), table 1 and section 5.1: vocabulary 51,200, sequences of 2,048"
    sizes = {
        "megatron-1.7b": (24, 2304, 24),
        "megatron-3.6b": (30, 3072, 32),
        "megatron-7.5b": (36, 4096, 32),
        "megatron-18b": (40, 6144, 48),
        "megatron-39b": (48, 8192, 64),
        "megatron-76b": (60, 10240, 80),
        "megatron-145b": (80, 12288, 96),
        "megatron-310b": (96, 16384, 128),
        "megatron-530b": (105, 20480, 128),
        "megatron-1t": (128, 25600, 160),
    }
    for name, (layers, hidden, heads) in sizes.items():
        yield gpt_model(name, layers=layers, hidden=hidden, heads=heads, vocab=51200, seq=2048, source=source)
    yield gpt_model(
        "mt-nlg-530b",
        layers=105,
        hidden=20480,
        heads=128,
        vocab=50257,
        seq=2048,
        source="Smith et al. 2022 (arXiv 2201.11990), section 2.3; vocabulary of GPT-2, unpadded",
    )
    yield gpt_model(
        "megatron-22b",
        layers=48,
        hidden=6144,
        heads=64,
        vocab=51200,
        seq=2048,
        source="Korthikanti et al. 2022 (arXiv 2205.05198), table 3",
    )
    yield gpt_model(
        "megatron-8.3b",
        layers=72,
        hidden=3072,
        heads=32,
        vocab=51200,
        seq=1024,
        source="Shoeybi et al. 2019 (arXiv 1909.08053), table 1",
    )


def _bloom() -> Iterable[Model]:
    """BLOOM, all sizes: ALiBi instead of learned positions, a LayerNorm after the embedding."""
    source = "BigScience 2022 (arXiv 2211.05100), table 3; hf:bigscience/bloom*"
    sizes = {
        "bloom-560m": (24, 1024, 16),
        "bloom-1b1": (24, 1536, 16),
        "bloom-1b7": (24, 2048, 16),
        "bloom-3b": (30, 2560, 32),
        "bloom-7b1": (30, 4096, 32),
        "bloom-176b": (70, 14336, 112),
    }
    for name, (layers, hidden, heads) in sizes.items():
        yield gpt_model(
            name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            vocab=250880,
            seq=2048,
            learned_positions=False,
            embedding_norm=True,
            source=source,
        )


# name: (layers, hidden, heads, key-value heads, width, vocabulary, longest sequence, source)
_LLAMA = {
    "llama-1-7b": (32, 4096, 32, 32, 11008, 32000, 2048, "arXiv 2302.13971, table 2; hf:huggyllama/llama-7b"),
    "llama-1-13b": (40, 5120, 40, 40, 13824, 32000, 2048, "arXiv 2302.13971, table 2; hf:huggyllama/llama-13b"),
    "llama-1-33b": (60, 6656, 52, 52, 17920, 32000, 2048, "arXiv 2302.13971, table 2; hf:huggyllama/llama-30b"),
    "llama-1-65b": (80, 8192, 64, 64, 22016, 32000, 2048, "arXiv 2302.13971, table 2; hf:huggyllama/llama-65b"),
    "llama-2-7b": (32, 4096, 32, 32, 11008, 32000, 4096, "hf:meta-llama/Llama-2-7b-hf"),
    "llama-2-13b": (40, 5120, 40, 40, 13824, 32000, 4096, "hf:meta-llama/Llama-2-13b-hf"),
    "llama-2-70b": (80, 8192, 64, 8, 28672, 32000, 4096, "hf:meta-llama/Llama-2-70b-hf"),
    "llama-3-8b": (32, 4096, 32, 8, 14336, 128256, 8192, "arXiv 2407.21783, table 3; hf:meta-llama/Meta-Llama-3-8B"),
    "llama-3-70b": (80, 8192, 64, 8, 28672, 128256, 8192, "arXiv 2407.21783, table 3; hf:meta-llama/Meta-Llama-3-70B"),
    "llama-3-405b": (
        126,
        16384,
        128,
        8,
        53248,
        128256,
        131072,
        "arXiv 2407.21783, table 3; hf:meta-llama/Llama-3.1-405B",
    ),
}


def _llama() -> Iterable[Model]:
    """Llama 1 to 3."""
    for name, (layers, hidden, heads, kv_heads, ffn, vocab, seq, source) in _LLAMA.items():
        yield gpt_model(
            name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            ffn=ffn,
            vocab=vocab,
            seq=seq,
            gated=True,
            source=source,
        )


_TIED = {"tie_word_embeddings": True}
_LATENT_EXPERTS = {"n_routed_experts": 512, "num_experts_per_tok": 22}

# name: (architecture, layers, hidden, heads, key-value heads, width, vocabulary, longest sequence, more keys, source)
_GEMMA_2 = "arXiv 2408.00118, table 1; hf:google/gemma-2-"
_GEMMA_3 = "arXiv 2503.19786, table 1; hf:google/gemma-3-"
_OLMO_2 = "arXiv 2501.00656, table 3"


def _deepseek(*, experts: int, shared: int, per_token: int, width: int, dense: int) -> dict[str, object]:
    """Keys that DeepSeek-V2, V3 and Kimi K2 have in common."""
    return {
        "moe_intermediate_size": width,
        "n_routed_experts": experts,
        "n_shared_experts": shared,
        "num_experts_per_tok": per_token,
        "first_k_dense_replace": dense,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }


def _glm(*, experts: int, width: int, dense: int) -> dict[str, object]:
    """Keys that both sizes of GLM-4.5 have in common."""
    return {
        "head_dim": 128,
        "attention_bias": True,
        "moe_intermediate_size": width,
        "n_routed_experts": experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": dense,
    }


_CONFIGS: Mapping[str, tuple[str, int, int, int, int, int, int, int, Mapping[str, object], str]] = {
    "llama-3.2-1b": ("llama", 16, 2048, 32, 8, 8192, 128256, 131072, _TIED, "hf:meta-llama/Llama-3.2-1B"),
    "llama-3.2-3b": ("llama", 28, 3072, 24, 8, 8192, 128256, 131072, _TIED, "hf:meta-llama/Llama-3.2-3B"),
    "qwen2.5-0.5b": ("qwen2", 24, 896, 14, 2, 4864, 151936, 32768, _TIED, "hf:Qwen/Qwen2.5-0.5B"),
    "qwen2.5-1.5b": ("qwen2", 28, 1536, 12, 2, 8960, 151936, 131072, _TIED, "hf:Qwen/Qwen2.5-1.5B"),
    "qwen2.5-3b": ("qwen2", 36, 2048, 16, 2, 11008, 151936, 32768, _TIED, "hf:Qwen/Qwen2.5-3B"),
    "qwen2.5-14b": ("qwen2", 48, 5120, 40, 8, 13824, 152064, 131072, {}, "hf:Qwen/Qwen2.5-14B"),
    "qwen2.5-7b": ("qwen2", 28, 3584, 28, 4, 18944, 152064, 131072, {}, "hf:Qwen/Qwen2.5-7B"),
    "qwen2.5-32b": ("qwen2", 64, 5120, 40, 8, 27648, 152064, 131072, {}, "hf:Qwen/Qwen2.5-32B"),
    "qwen2.5-72b": ("qwen2", 80, 8192, 64, 8, 29568, 152064, 131072, {}, "hf:Qwen/Qwen2.5-72B"),
    "qwen3-0.6b": ("qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, _TIED, "hf:Qwen/Qwen3-0.6B"),
    "qwen3-1.7b": ("qwen3", 28, 2048, 16, 8, 6144, 151936, 40960, _TIED, "hf:Qwen/Qwen3-1.7B"),
    "qwen3-4b": ("qwen3", 36, 2560, 32, 8, 9728, 151936, 40960, _TIED, "hf:Qwen/Qwen3-4B"),
    "qwen3-8b": ("qwen3", 36, 4096, 32, 8, 12288, 151936, 40960, {}, "hf:Qwen/Qwen3-8B"),
    "qwen3-14b": ("qwen3", 40, 5120, 40, 8, 17408, 151936, 40960, {}, "hf:Qwen/Qwen3-14B"),
    "qwen3-32b": ("qwen3", 64, 5120, 64, 8, 25600, 151936, 40960, {}, "hf:Qwen/Qwen3-32B"),
    "qwen3-30b-a3b": (
        *("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960),
        {"head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8},
        "hf:Qwen/Qwen3-30B-A3B",
    ),
    "qwen3-235b-a22b": (
        *("qwen3_moe", 94, 4096, 64, 4, 12288, 151936, 40960),
        {"head_dim": 128, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8},
        "hf:Qwen/Qwen3-235B-A22B",
    ),
    "qwen1.5-moe-a2.7b": (
        *("qwen2_moe", 24, 2048, 16, 16, 5632, 151936, 8192),
        {
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "num_experts_per_tok": 4,
        },
        "hf:Qwen/Qwen1.5-MoE-A2.7B",
    ),
    "qwen2-57b-a14b": (
        *("qwen2_moe", 28, 3584, 28, 4, 18944, 151936, 131072),
        {
            "moe_intermediate_size": 2560,
            "shared_expert_intermediate_size": 20480,
            "num_experts": 64,
            "num_experts_per_tok": 8,
        },
        "arXiv 2407.10671, table 1; hf:Qwen/Qwen2-57B-A14B",
    ),
    "qwen3-next-80b-a3b": (
        *("qwen3_next", 48, 2048, 16, 2, 5120, 151936, 262144),
        {
            "head_dim": 256,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
        },
        "hf:Qwen/Qwen3-Next-80B-A3B-Instruct (without the multi-token prediction module)",
    ),
    "gpt-oss-20b": (
        *("gpt_oss", 24, 2880, 64, 8, 2880, 201088, 131072),
        {"head_dim": 64, "sliding_window": 128, "num_local_experts": 32, "num_experts_per_tok": 4},
        "arXiv 2508.10925, table 1; hf:openai/gpt-oss-20b",
    ),
    "gpt-oss-120b": (
        *("gpt_oss", 36, 2880, 64, 8, 2880, 201088, 131072),
        {"head_dim": 64, "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4},
        "arXiv 2508.10925, table 1; hf:openai/gpt-oss-120b",
    ),
    "llama-4-scout-17b-16e": (
        *("llama4_text", 48, 5120, 40, 8, 8192, 202048, 262144),
        {
            "head_dim": 128,
            "intermediate_size_mlp": 16384,
            "attention_chunk_size": 8192,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
        },
        "hf:meta-llama/Llama-4-Scout-17B-16E (text alone)",
    ),
    "llama-4-maverick-17b-128e": (
        *("llama4_text", 48, 5120, 40, 8, 8192, 202048, 262144),
        {
            "head_dim": 128,
            "intermediate_size_mlp": 16384,
            "attention_chunk_size": 8192,
            "num_local_experts": 128,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
        },
        "hf:meta-llama/Llama-4-Maverick-17B-128E (text alone)",
    ),
    "nemotron-h-8b": (
        *("nemotron_h", 52, 4096, 32, 8, 21504, 131072, 8192),
        {"hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"},
        "arXiv 2504.03624, table 1; hf:nvidia/Nemotron-H-8B-Base-8K",
    ),
    "nemotron-h-56b": (
        *("nemotron_h", 118, 8192, 64, 8, 32768, 131072, 8192),
        {
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-" + "M-M-M-M-M*-" * 8 + "M-M-M-M-M-",
            "mamba_num_heads": 256,
            "ssm_state_size": 256,
        },
        "arXiv 2504.03624, table 1; hf:nvidia/Nemotron-H-56B-Base-8K",
    ),
    "nemotron-3-nano-30b-a3b": (
        *("nemotron_h", 52, 2688, 32, 2, 1856, 131072, 262144),
        {
            "hybrid_override_pattern": "MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME",
            "mamba_num_heads": 64,
            "n_routed_experts": 128,
            "num_experts_per_tok": 6,
            "moe_intermediate_size": 1856,
            "moe_shared_expert_intermediate_size": 3712,
        },
        "arXiv 2512.20848; hf:nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ),
    "nemotron-3-super-120b-a12b": (
        *("nemotron_h", 88, 4096, 32, 2, 2688, 131072, 262144),
        {
            "hybrid_override_pattern": "MEMEMEM*" + "EMEMEMEM*" * 2 + "EMEMEMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME",
            **_LATENT_EXPERTS,
            "moe_latent_size": 1024,
            "moe_intermediate_size": 2688,
            "moe_shared_expert_intermediate_size": 5376,
        },
        "hf:nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16 (without the multi-token prediction modules)",
    ),
    "nemotron-3-ultra-550b-a55b": (
        *("nemotron_h", 108, 8192, 64, 2, 5120, 131072, 262144),
        {
            "hybrid_override_pattern": "MEMEMEM*EMEMEM*" + "EMEMEMEM*EMEMEMEM*EMEMEM*" * 3 + "EMEMEMEM*EMEMEMEME",
            "mamba_num_heads": 256,
            **_LATENT_EXPERTS,
            "moe_latent_size": 2048,
            "moe_intermediate_size": 5120,
            "moe_shared_expert_intermediate_size": 10240,
        },
        "hf:nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16 (without the multi-token prediction modules)",
    ),
    "mixtral-8x7b": (
        *("mixtral", 32, 4096, 32, 8, 14336, 32000, 32768),
        {"num_local_experts": 8, "num_experts_per_tok": 2},
        "arXiv 2401.04088, table 1; hf:mistralai/Mixtral-8x7B-v0.1",
    ),
    "mixtral-8x22b": (
        *("mixtral", 56, 6144, 48, 8, 16384, 32000, 65536),
        {"num_local_experts": 8, "num_experts_per_tok": 2},
        "hf:mistralai/Mixtral-8x22B-v0.1",
    ),
    "deepseek-v2": (
        *("deepseek_v2", 60, 5120, 128, 128, 12288, 102400, 163840),
        _deepseek(experts=160, shared=2, per_token=6, width=1536, dense=1),
        "arXiv 2405.04434, section 2.2; hf:deepseek-ai/DeepSeek-V2",
    ),
    "deepseek-v2-lite": (
        *("deepseek_v2", 27, 2048, 16, 16, 10944, 102400, 163840),
        {**_deepseek(experts=64, shared=2, per_token=6, width=1408, dense=1), "q_lora_rank": None},
        "arXiv 2405.04434, appendix B; hf:deepseek-ai/DeepSeek-V2-Lite",
    ),
    "deepseek-v3": (
        *("deepseek_v3", 61, 7168, 128, 128, 18432, 129280, 163840),
        _deepseek(experts=256, shared=1, per_token=8, width=2048, dense=3),
        "arXiv 2412.19437, section 4.2; hf:deepseek-ai/DeepSeek-V3 (without the multi-token prediction module)",
    ),
    "kimi-k2": (
        *("deepseek_v3", 61, 7168, 64, 64, 18432, 163840, 131072),
        _deepseek(experts=384, shared=1, per_token=8, width=2048, dense=1),
        "arXiv 2507.20534, table 2; hf:moonshotai/Kimi-K2-Base hf:moonshotai/Kimi-K2-Instruct",
    ),
    "glm-4.5": (
        *("glm4_moe", 92, 5120, 96, 8, 12288, 151552, 131072),
        {**_glm(experts=160, width=1536, dense=3), "use_qk_norm": True},
        "arXiv 2508.06471, table 1; hf:zai-org/GLM-4.5 (without the multi-token prediction module)",
    ),
    "glm-4.5-air": (
        *("glm4_moe", 46, 4096, 96, 8, 10944, 151552, 131072),
        _glm(experts=128, width=1408, dense=1),
        "arXiv 2508.06471, table 1; hf:zai-org/GLM-4.5-Air (without the multi-token prediction module)",
    ),
    "mistral-7b": (
        *("mistral", 32, 4096, 32, 8, 14336, 32768, 32768),
        {"sliding_window": None},
        "arXiv 2310.06825, table 1; hf:mistralai/Mistral-7B-v0.3 (its vocabulary; no windows)",
    ),
    "mistral-nemo-12b": (
        *("mistral", 40, 5120, 32, 8, 14336, 131072, 131072),
        {"head_dim": 128, "sliding_window": None},
        "hf:mistralai/Mistral-Nemo-Base-2407",
    ),
    "mistral-small-24b": (
        *("mistral", 40, 5120, 32, 8, 32768, 131072, 32768),
        {"head_dim": 128, "sliding_window": None},
        "hf:mistralai/Mistral-Small-24B-Base-2501",
    ),
    "mistral-large-123b": (
        *("mistral", 88, 12288, 96, 8, 28672, 32768, 131072),
        {"sliding_window": None},
        "hf:mistralai/Mistral-Large-Instruct-2407",
    ),
    "phi-3-mini": (
        *("phi3", 32, 3072, 32, 32, 8192, 32064, 4096),
        {"sliding_window": 2047},
        "arXiv 2404.14219, section 2; hf:microsoft/Phi-3-mini-4k-instruct",
    ),
    "phi-3-medium": (
        *("phi3", 40, 5120, 40, 10, 17920, 32064, 4096),
        {"sliding_window": 2047},
        "hf:microsoft/Phi-3-medium-4k-instruct",
    ),
    "phi-4": (
        *("phi3", 40, 5120, 40, 10, 17920, 100352, 16384),
        {"sliding_window": None},
        "arXiv 2412.08905, section 3; hf:microsoft/phi-4",
    ),
    "gemma-2-2b": ("gemma2", 26, 2304, 8, 4, 9216, 256000, 8192, {"head_dim": 256}, _GEMMA_2 + "2b"),
    "gemma-2-9b": ("gemma2", 42, 3584, 16, 8, 14336, 256000, 8192, {"head_dim": 256}, _GEMMA_2 + "9b"),
    "gemma-2-27b": ("gemma2", 46, 4608, 32, 16, 36864, 256000, 8192, {"head_dim": 128}, _GEMMA_2 + "27b"),
    "gemma-3-1b": (
        *("gemma3_text", 26, 1152, 4, 1, 6912, 262144, 32768),
        {"head_dim": 256, "sliding_window": 512},
        _GEMMA_3 + "1b-pt",
    ),
    "gemma-3-4b": (
        *("gemma3_text", 34, 2560, 8, 4, 10240, 262208, 131072),
        {"head_dim": 256, "sliding_window": 1024},
        _GEMMA_3 + "4b-pt (text alone)",
    ),
    "gemma-3-12b": (
        *("gemma3_text", 48, 3840, 16, 8, 15360, 262208, 131072),
        {"head_dim": 256, "sliding_window": 1024},
        _GEMMA_3 + "12b-pt (text alone)",
    ),
    "gemma-3-27b": (
        *("gemma3_text", 62, 5376, 32, 16, 21504, 262208, 131072),
        {"head_dim": 128, "sliding_window": 1024},
        _GEMMA_3 + "27b-pt (text alone)",
    ),
    "olmo-2-1b": ("olmo2", 16, 2048, 16, 16, 8192, 100352, 4096, {}, "hf:allenai/OLMo-2-0425-1B"),
    "olmo-2-7b": ("olmo2", 32, 4096, 32, 32, 11008, 100352, 4096, {}, f"{_OLMO_2}; hf:allenai/OLMo-2-1124-7B"),
    "olmo-2-13b": ("olmo2", 40, 5120, 40, 40, 13824, 100352, 4096, {}, f"{_OLMO_2}; hf:allenai/OLMo-2-1124-13B"),
    "olmo-2-32b": ("olmo2", 64, 5120, 40, 8, 27648, 100352, 4096, {}, f"{_OLMO_2}; hf:allenai/OLMo-2-0325-32B"),
}


def _configs() -> Iterable[Model]:
    """Models given by the keys of their config.json."""
    for name, (kind, layers, hidden, heads, kv_heads, ffn, vocab, seq, further, source) in _CONFIGS.items():
        document: dict[str, object] = {
            "model_type": kind,
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": ffn,
            "vocab_size": vocab,
            "max_position_embeddings": seq,
            **further,
        }
        yield replace(model_from_config(document, source=source, name=name), source=source)


MODELS: Mapping[str, Model] = MappingProxyType(
    {each.name: each for family in (_gpt2, _gpt3, _megatron, _bloom, _llama, _configs) for each in family()}
)
"""Every model of the catalogue by its name."""


def _pages(each: Model) -> Iterable[str]:
    """Its page on huggingface.co, without the families' (``bloom*``)."""
    words = each.source.lower().split()
    return (word.removeprefix("hf:") for word in words if word.startswith("hf:") and not word.endswith("*"))


_GPT3_SIZES = tuple(name.removeprefix("gpt3-") for name in MODELS if name.startswith("gpt3-"))

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        **{page: each.name for each in MODELS.values() for page in _pages(each)},
        **{f"{way}{size}": f"gpt3-{size}" for size in _GPT3_SIZES for way in ("gpt-", "gpt-3-")},
        "gpt-3": "gpt3-175b",
        "gpt3": "gpt3-175b",
        "bloom": "bloom-176b",
        "llama-3.1-8b": "llama-3-8b",
        "llama-3.1-70b": "llama-3-70b",
        "llama-3.1-405b": "llama-3-405b",
        "llama-3.3-70b": "llama-3-70b",
        "qwen2-7b": "qwen2.5-7b",
        "qwen2-72b": "qwen2.5-72b",
        "deepseek-r1": "deepseek-v3",
        "mistral-nemo": "mistral-nemo-12b",
        "mistral-small": "mistral-small-24b",
        "mistral-large": "mistral-large-123b",
        "phi-3": "phi-3-mini",
        "llama3-8b": "llama-3-8b",
        "llama3-70b": "llama-3-70b",
        "llama3-405b": "llama-3-405b",
        "mixtral": "mixtral-8x7b",
        "deepseek-v3-671b": "deepseek-v3",
    }
)


def model(name: str) -> Model:
    """The model of that name or alias, whatever its case; ``UnknownNameError`` lists the known names."""
    key = name.strip().lower()
    found = MODELS.get(ALIASES.get(key, key))
    if found is None:
        raise UnknownNameError("model", name[:60], MODELS)
    return found
