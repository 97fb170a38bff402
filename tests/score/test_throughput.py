"""Tables of published throughputs: what a row says, what has one default, what is refused, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippo.problem.catalogue.models import MODELS
from hippo.score import throughput
from hippo.score.cases import PublishedRun
from hippo.score.published import load

ROW = {
    **{"family": "megatron-bridge 25.11", "model": "Qwen3_30B_a3B", "task": "Pre-Training", "gpu_type": "DGX-GB200"},
    **{"gpus": "8", "precision": "FP8-MX", "tp": "1", "pp": "1", "cp": "1", "ep": "8", "mbs": "4", "gbs": "512"},
    **{"seq": "4096", "tokens_per_s_per_gpu": "23723"},
}


def case(tmp_path: Path, **said: str) -> PublishedRun:
    (found,) = cases(tmp_path, ROW | said)
    return found


def cases(tmp_path: Path, *rows: dict[str, str]) -> tuple[PublishedRun, ...]:
    path = tmp_path / "rows.csv"
    names = throughput.COLUMNS
    lines = [",".join(f'"{row.get(name, "")}"' for name in names) for row in rows]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    assert throughput.is_throughput(path)
    return tuple(each for each in load(path) if isinstance(each, PublishedRun))


def test_a_row_as_it_stands(tmp_path: Path):
    found = case(tmp_path)
    assert found.model is not None
    assert found.model.name == "qwen3-30b-a3b"
    assert (found.gpu.name, found.gpus, found.precision, found.sharding) == ("GB200", 8, "mxfp8", "optimizer")
    assert (found.tp, found.pp, found.cp, found.ep, found.micro_batch, found.global_batch) == (1, 1, 1, 8, 4, 512)
    assert found.measured_s == pytest.approx(512 * 4096 / (23723 * 8))
    assert found.refusal is None
    assert found.recompute == "none"  # as its recipe says
    assert case(tmp_path, family="moe-modelzoo").recompute is None  # filled as everywhere


@pytest.mark.parametrize(("precision", "pp", "fully"), [("FP8-CS", 1, True), ("FP8-MX", 4, False)])
def test_two_precisions_that_share_a_row_of_the_source(tmp_path: Path, precision: str, pp: int, fully: bool):
    notes = "tp printed as 1 (2); pp printed as 1 (4); vp printed as 1 (5)"
    said = {"model": "LLAMA3_70B", "tp": "", "pp": "", "ep": "1", "fsdp": "64 (0)", "notes": notes, "gpus": "64"}
    found = case(tmp_path, precision=precision, **said)
    assert (found.pp, found.sharding) == (pp, "full" if fully else "optimizer")


def test_what_a_row_does_not_say_has_the_default_of_its_source(tmp_path: Path):
    early, late = (case(tmp_path, family=f"megatron-bridge {version}") for version in ("26.04", "26.06"))
    assert not early.software.fused_experts
    assert late.software.fused_experts
    assert case(tmp_path, seq="", model="gpt3", family="mlperf-training v3.0", precision="", ep="").precision == "fp8"
    assert case(tmp_path, seq="", model="gpt3", ep="").seq == 2048
    said = case(tmp_path, schedule_or_dispatcher="alltoall; EP overlap")
    assert (said.software.dispatcher, said.software.overlap_ep) == ("alltoall", True)
    assert not case(tmp_path, schedule_or_dispatcher="alltoall; no EP overlap").software.overlap_ep
    assert case(tmp_path, notes="dropless ").routing_skew > case(tmp_path, notes="forced balance ").routing_skew


def test_a_module_for_a_further_token_is_there_unless_it_is_said_not_to_be(tmp_path: Path):
    plain = MODELS["deepseek-v3"]
    with_it, without = (case(tmp_path, model=name).model for name in ("DeepSeekV3", "DeepSeekV3 (w/o MTP)"))
    assert with_it is not None
    assert without is not None
    assert (with_it.num_layers, without.num_layers) == (plain.num_layers + 1, plain.num_layers)
    hybrid = MODELS["nemotron-3-super-120b-a12b"]
    for family, modules in (("megatron-bridge 26.04", 2), ("nemo-automodel", 0)):
        found = case(tmp_path, family=family, model="Nemotron_3_Super").model
        assert found is not None
        assert found.num_layers == hybrid.num_layers + 2 * modules  # attention and experts each


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"model": "DeepSeekV4 Flash"}, "attention"),
        ({"model": "something else"}, "sizes are not known"),
        ({"gpu_type": "TPU-trillium"}, "not in the catalogue"),
        ({"gpus": ""}, "does not give gpus"),
        ({"precision": "posit"}, "precision posit"),
        ({"tokens_per_s_per_gpu": ""}, "no measured time"),
        ({"tokens_per_s_per_gpu": "many"}, "no measured time"),
        ({"notes": "allocator thrash at 79.7 GB"}, "allocator"),
        ({"ep": "", "schedule_or_dispatcher": "TE + DeepEP"}, "not ep"),
        ({"gbs": "", "pp": ""}, "does not give gbs"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(tmp_path: Path, said: dict[str, str], why: str):
    assert why in (case(tmp_path, **said).refusal or "")


@pytest.mark.parametrize(
    ("release", "model", "card", "precision", "dispatcher", "graphs", "recompute", "overlap"),
    [
        ("26.02", "GPT OSS 120B", "DGX-B200", "BF16", "alltoall", "none", "layernorm+moe_act", False),
        ("26.04", "GPT OSS 120B", "DGX-B300", "BF16", "deepep", "attention", "none", False),
        ("26.06", "DeepSeekV3", "DGX-GB300", "MXFP8", "deepep", "full", "none", True),
        ("26.04.01", "DeepSeekV3", "DGX-GB200", "MXFP8", "deepep", "attention", "none", False),
        ("25.11", "Qwen3_30B_a3B", "DGX-GB300", "FP8-MX", "deepep", "routing", "none", False),
        ("26.02", "Qwen3_Next_80B", "DGX-GB300", "FP8-MX", "alltoall", "none", "none", False),
        ("26.04", "Nemotron_3_Super", "DGX-B200", "MXFP8", "deepep", "none", "layernorm+moe_act", False),
    ],
)
def test_recipes_say_what_rows_of_their_release_do_not(
    tmp_path: Path,
    release: str,
    model: str,
    card: str,
    precision: str,
    dispatcher: str,
    graphs: str,
    recompute: str,
    overlap: bool,
):
    said = {"family": f"megatron-bridge {release}", "model": model, "gpu_type": card, "precision": precision}
    found = case(tmp_path, **said)
    software = found.software
    assert (software.dispatcher, software.graphs, software.overlap_ep) == (dispatcher, graphs, overlap)
    assert found.recompute == recompute
    assert software.fused_experts == (graphs == "full")


def test_mixtures_that_do_not_tell_their_experts_are_refused(tmp_path: Path):
    said = {"family": "tpu-recipes-ironwood", "gpu_type": "TPU v7x (ironwood)", "ep": "", "precision": "bf16"}
    assert "experts lie" in (case(tmp_path, **said).refusal or "")
    dense = case(tmp_path, **said | {"model": "llama3.1-70b"})
    assert (dense.refusal, dense.sharding, dense.gpu.family) == (None, "full", "tpu")
    notes = "layers 16 hidden 5120 ffn 12288 heads 128 kv None; experts 160 top 6"
    assert "its experts" in (case(tmp_path, model="somebody's", notes=notes).refusal or "")


def test_rows_of_other_files_and_adapters_are_left_out(tmp_path: Path):
    rows = (ROW, ROW | {"in_hippo": "mbridge-h100"}, ROW | {"task": "LoRA"}, ROW | {"task": "SFT"})
    assert len(cases(tmp_path, *rows)) == 2


def test_the_rate_of_operations_counts_half_of_the_square(tmp_path: Path):
    """A block of h 2, one head of 2, and a vocabulary of 4: by hand."""
    said = {"tokens_per_s_per_gpu": "", "model_tflops_per_gpu": "1", "model": "tiny", "ep": "1", "seq": "8", "gbs": "1"}
    notes = "layers 1 hidden 2 ffn 3 heads 1 kv None"
    found = case(tmp_path, notes=notes, gpus="1", mbs="1", **said)
    assert found.model is not None
    block, seq = found.model.layers[1], 8
    by_hand = 3 * seq * (2 * block.active_parameters + 2 * seq * 2 / 2 * 2 + 2 * found.model.vocab * 2)
    assert found.measured_s == pytest.approx(by_hand / 1e12)
