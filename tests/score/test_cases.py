"""Published rows read: what a row states, what it leaves open, measured seconds from each kind of figure, bad rows."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from hippo.errors import InputError
from hippo.score.cases import MICRO_BATCHES_PER_STAGE, PublishedRun, load_cases, model_flops

ROW: dict[str, Any] = {
    "id": "T1",
    "family": "ours",
    "source": "a table",
    "model": {"name": "GPT", "layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "seq": 2048},
    "gpus": 64,
    "gpu_type": "A100",
    "dp": 8,
    "tp": 4,
    "pp": 2,
    "cp": 1,
    "interleave_v": None,
    "micro_batch": 2,
    "global_batch": 256,
    "recompute": "full",
    "sequence_parallel": False,
    "precision": "fp16",
    "sharding": "none",
    "measured": {"seconds_per_iter": 2.5},
    "memory_gb_per_gpu": None,
    "notes": "",
}


def read(folder: Path, **changes: Any) -> PublishedRun:
    """The one case of a file with ``ROW`` and some keys changed."""
    path = folder / "cases.json"
    path.write_text(json.dumps([{**copy.deepcopy(ROW), **changes}]))
    (case,) = load_cases(path)
    return case


def test_a_row_that_says_everything(tmp_path: Path):
    case = read(tmp_path)
    assert (case.gpus, case.dp, case.tp, case.pp, case.cp, case.ep) == (64, 8, 4, 2, 1, None)
    assert (case.micro_batch, case.global_batch, case.seq) == (2, 256, 2048)
    assert (case.recompute, case.precision, case.sharding) == ("full", "fp16", "none")
    assert case.measured_s == 2.5
    assert case.refusal is None
    assert case.model is not None
    assert case.model.num_blocks == 8


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        ({"seconds_per_iter_derived": 3.0, "mfu": 0.4}, 3.0),
        ({"tokens_per_s_per_gpu": 1024.0}, 256 * 2048 / (1024 * 64)),
        ({"tokens_per_gpu_hour": 3_686_400.0}, 256 * 2048 / (1024 * 64)),
    ],
)
def test_seconds_from_times_and_rates(tmp_path: Path, measured: dict[str, float], seconds: float):
    assert read(tmp_path, measured=measured).measured_s == pytest.approx(seconds)


def test_seconds_from_flops(tmp_path: Path):
    """96 B s l h^2 (1 + s/6h + V/16lh) counts recomputation (Narayanan et al. 2021); without: three quarters."""
    case = read(tmp_path, measured={"hw_tflops_per_gpu": 100.0})
    blocks, head = 256 * 2048 * 8 * 1024**2 * (1 + 2048 / 6144), 256 * 2048 * 51200 * 1024
    assert model_flops(case) == pytest.approx(72 * blocks + 6 * head, rel=1e-3)  # biases and norms are counted too
    assert case.measured_s == pytest.approx(model_flops(case) * 4 / 3 / (64 * 100e12))
    by_model = read(tmp_path, measured={"model_tflops_per_gpu": 100.0}).measured_s
    assert by_model == pytest.approx(model_flops(case) / (64 * 100e12))
    by_share = read(tmp_path, measured={"mfu": 0.5}).measured_s
    assert by_share == pytest.approx(model_flops(case) / (64 * 156e12))


def test_out_of_memory_has_no_time(tmp_path: Path):
    case = read(tmp_path, measured={"oom": True})
    assert case.out_of_memory
    assert case.measured_s is None
    assert case.refusal is None


def test_what_cannot_be_compared_is_refused(tmp_path: Path):
    assert "no measured time" in (read(tmp_path, measured={"gpu_hours": 5.0}).refusal or "")
    nameless = {"name": "Secret-1T", "layers": None, "hidden": None, "heads": None, "seq": 4096}
    assert "layers, hidden, heads" in (read(tmp_path, model=nameless).refusal or "")


def test_a_model_of_the_catalogue_needs_no_sizes(tmp_path: Path):
    known = {"name": "DeepSeek-V3-671B-A37B", "layers": None, "hidden": None, "heads": None, "seq": 4096}
    case = read(tmp_path, model=known)
    assert case.refusal is None
    assert case.model is not None
    assert (case.model.name, case.seq) == ("deepseek-v3", 4096)


def test_a_rate_without_a_batch_gets_a_long_pipeline(tmp_path: Path):
    case = read(tmp_path, global_batch=None, measured={"tokens_per_s_per_gpu": 1000.0})
    assert case.global_batch == 8 * 2 * MICRO_BATCHES_PER_STAGE
    assert case.measured_s == pytest.approx(case.global_batch * 2048 / 64e3)


def test_degrees_and_links_in_the_notes(tmp_path: Path):
    case = read(tmp_path, pp=None, notes="PP16 EP64 ZeRO-1; inter-node 800 Gb/s")
    assert (case.pp, case.ep, case.node_bytes_per_s) == (16, 64, 100e9)
    assert read(tmp_path, notes="8/node, 4 InfiniBand 200Gb").node_bytes_per_s == 100e9


def test_what_the_software_does_follows_from_what_the_row_states(tmp_path: Path):
    old = read(tmp_path).software
    assert (old.attention, old.overlap_dp, old.overlap_tp, old.list_gathers) == ("unfused", False, False, False)
    assert read(tmp_path, sharding="zero3").software.list_gathers
    assert not read(tmp_path, notes="4 OmniPath 100Gb").software.blocking_launches
    assert read(tmp_path, notes="CUDA_LAUNCH_BLOCKING=1").software.blocking_launches
    new = read(tmp_path, gpu_type="H100")
    assert (new.software.attention, new.software.overlap_tp, new.sharding) == ("tuned", True, "optimizer")
    torch = read(tmp_path, gpu_type="H100", sharding="fsdp-full").software
    assert (torch.attention, torch.fused_elementwise, torch.overlap_tp) == ("flash2", False, False)
    compiled = read(tmp_path, gpu_type="H100", sharding="fsdp-full", notes="torch.compile, async TP").software
    assert compiled.fused_elementwise
    assert compiled.overlap_tp


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"gpus": 0}, "[0].gpus"),
        ({"gpus": 2.5}, "[0].gpus"),
        ({"gpu_type": "A1000"}, "[0].gpu_type"),
        ({"recompute": "sometimes"}, "[0].recompute"),
        ({"precision": "int3"}, "[0].precision"),
        ({"sharding": "zero9"}, "[0].sharding"),
        ({"sequence_parallel": "yes"}, "[0].sequence_parallel"),
        ({"measured": None}, "[0].measured"),
        ({"measured": {"seconds_per_iter": -1.0}}, "[0].measured.seconds_per_iter"),
        ({"model": {**ROW["model"], "layers": 10**9}}, "[0].model.layers"),
        ({"id": ""}, "[0].id"),
    ],
)
def test_a_bad_row_is_named_by_place_and_value(tmp_path: Path, changes: dict[str, Any], key: str):
    with pytest.raises(InputError) as caught:
        read(tmp_path, **changes)
    assert caught.value.key == key
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["{}", "[1]", "[{", "\xff"])
def test_a_file_that_is_no_list_of_rows(tmp_path: Path, text: str):
    path = tmp_path / "cases.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError):
        load_cases(path)
    with pytest.raises(InputError):
        load_cases(tmp_path / "missing.json")


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text("[]")
    with pytest.raises(InputError, match=r"cases\.json: the file holds no rows\. To fix: give one row"):
        load_cases(tmp_path / "cases.json")


def test_what_a_source_network_achieves_is_an_input_of_its_rows_and_not_discounted_again(tmp_path: Path):
    """Of the row, else of its family; else the links that it states, of which collectives reach a share."""
    stated = read(tmp_path, notes="4 OmniPath 100Gb")
    assert (stated.node_bytes_per_s, stated.achieved) == (5e10, ())
    family = read(tmp_path, family="bigscience", notes="4 OmniPath 100Gb")
    assert (family.node_bytes_per_s, family.achieved) == (40.5e9 / 8, ("bus_efficiency_inter",))
    own = read(tmp_path, family="bigscience", network={"node_gbps": 80.0, "source": "a bench"})
    assert (own.node_bytes_per_s, own.achieved) == (1e10, ("bus_efficiency_inter",))
    with pytest.raises(InputError, match="network.node_gbps"):
        read(tmp_path, network={"source": "a bench"})


def test_keys_that_nothing_reads_are_counted_by_name(tmp_path: Path):
    assert read(tmp_path, cooling="water").unknown == ("cooling",)
    assert read(tmp_path).unknown == ()
