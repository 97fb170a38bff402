"""Measured peaks of memory: how rows are read, what is refused, and how near the shipped tables are met."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hippo.cost.calibration import CALIBRATION
from hippo.score import allocated
from hippo.score.allocated import MemoryRun
from hippo.score.published import load, predict, validate

DATA = Path(__file__).parents[2] / "data" / "published"
ROW = {
    **{"family": "gpt", "test_case": "gpt_te_tp1_pp1", "environment": "dev", "platform": "dgx_a100", "gpus": "8"},
    **{"num-layers": "12", "hidden-size": "512", "num-attention-heads": "8", "seq-length": "1024", "bf16": "True"},
    **{"micro-batch-size": "4", "global-batch-size": "32", "transformer-impl": "transformer_engine"},
    **{"use-distributed-optimizer": "True", "vocab-file": "${DATA_PATH}/bpe/vocab.json", "gpus": "8"},
    **{allocated.PEAK: "2708000000", "other_args": "--max-position-embeddings=1024 --deterministic-mode=True"},
}


def case(tmp_path: Path, **said: str) -> MemoryRun:
    path, row = tmp_path / "rows.csv", dict(ROW)
    for key, value in said.items():
        dashed = key.replace("_", "-")
        row[key if key in ROW else dashed] = value
    columns = list(row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerow(row)
    (found,) = load(path)
    assert isinstance(found, MemoryRun)
    return found


def test_a_peak_by_hand(tmp_path: Path):
    """64.1 M parameters at 6 + 12 / 8 bytes; 12 blocks of 34 + 2 and the head's and embedding's 2 bytes for
    4 x 1024 x 512 values; 6 bytes for each of 4 x 1024 x 50304 logits; 68 MiB of the libraries."""
    values = 4 * 1024 * 512
    parameters = 50304 * 512 + 1024 * 512 + 12 * (12 * 512**2 + 13 * 512) + 2 * 512
    expected = 7.5 * parameters + values * (12 * 36 + 4) + 6 * 4096 * 50304 + 68 * 2**20
    found = case(tmp_path)
    assert found.allocated_bytes(CALIBRATION) == pytest.approx(expected)
    assert found.allocated_bytes(CALIBRATION) == pytest.approx(float(ROW[allocated.PEAK]), rel=0.01)
    told = predict(found)
    assert (told.peak_only, told.out_of_memory, told.four_times) == (True, False, None)
    assert told.predicted_s is None


def test_what_the_last_rank_holds(tmp_path: Path):
    """Interleaved by one layer: 4 of each chunk but the last, of which one; a layout that is written out."""
    said = {"pipeline_model_parallel_size": "4", "num_layers_per_virtual_pipeline_stage": "1"}
    (rank,) = case(tmp_path, **said).ranks
    assert [(len(chunk), live) for chunk, live in rank] == [(1, 4.0), (1, 4.0), (2, 1.0)]
    said = {"pipeline_model_parallel_size": "2", "pipeline_model_parallel_layout": "Et*3|(tt|)*2tttttL"}
    (rank,) = case(tmp_path, **said).ranks
    assert [len(chunk) for chunk, _ in rank] == [2, 6]
    said = {"account_for_loss_in_pipeline_split": "True", "account_for_embedding_in_pipeline_split": "True"}
    (rank,) = case(tmp_path, num_layers="6", pipeline_model_parallel_size="4", **said).ranks
    assert [len(chunk) for chunk, _ in rank] == [2]  # of 8 places the last two: a block and the head


def test_how_arguments_are_read(tmp_path: Path):
    found = case(tmp_path, recompute_granularity="selective", recompute_modules="[layernorm moe_act]")
    assert found.layout is not None
    assert found.layout.recompute == "layernorm+moe_act"
    assert found.workload.gradient_bytes_per_parameter == 4.0
    assert found.workload.software.attention == "flash2"
    whole = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": "3"}
    layout = case(tmp_path, **whole).layout
    assert layout is not None
    assert layout.recompute == "full:3"
    assert case(tmp_path, platform="dgx_h100").workload.software.attention == "tuned"
    assert case(tmp_path, attention_backend="unfused").workload.software.attention == "unfused"
    half = case(tmp_path, bf16="", fp16="True").workload
    assert (half.gradient_bytes_per_parameter, half.state_bytes_per_parameter) == (2.0, 16.0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"recompute_method": "uniform", "recompute_num_layers": "2"}, "several layers that are computed again as one"),
        ({"family": "t5"}, "an encoder"),
        ({"num_layers": ""}, "does not give num-layers"),
        ({"vocab_file": ""}, "does not give the vocabulary"),
        ({"optimizer": "muon"}, "Muon"),
        ({allocated.PEAK: ""}, "gives no peak"),
    ],
)
def test_what_is_refused(tmp_path: Path, said: dict[str, str], why: str):
    refusal = case(tmp_path, **said).refusal
    assert refusal is not None
    assert why in refusal


def test_the_shipped_tables():
    """Megatron-LM's runs by family; every row that is left out has its reason."""
    report = validate(load(DATA / "megatron_memory_time.csv"))
    overall = report.memory
    assert overall["n"] + overall["refused"] == len(report.rows) == 837
    assert overall["mape"] < 0.04
    assert overall["p90"] < 0.10
    assert overall["called_out"] == 0
    assert {name: errors["mape"] < 0.08 for name, errors in report.memory_families.items() if errors["n"]} == {
        f"megatron-memory {name}": True for name in ("bert", "gpt", "moe")
    }
    assert all((row.predicted_memory_gb is None) == (row.refused is not None) for row in report.rows)
