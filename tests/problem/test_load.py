"""Names and files to problems, with the defaults of the contract."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hippo.errors import InputError
from hippo.problem.catalogue.clusters import cluster
from hippo.problem.catalogue.models import model
from hippo.problem.load import load_cluster, load_model, load_problem, load_profile, load_trace
from hippo.problem.objective import Objective

CONFIG = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
}


def test_the_contract_s_defaults() -> None:
    found = load_problem(model="llama-3-8b", cluster="toy")
    work = found.workload
    assert (work.global_batch, work.seq, work.precision, work.state_bytes_per_parameter) == (1024, 4096, "bf16", 16.0)
    assert (found.runtime, found.uniform_cuts, found.allow_local_sgd, found.profile) == ("hippo", False, False, None)
    assert found.objective == Objective()
    assert load_problem(model="gpt2", cluster="toy").workload.seq == 1024


def test_a_name_of_a_hub_is_an_unknown_model() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama-3-70b'.*or give the path of its config\.json"):
        load_model("meta-llama/Llama-3.3-70B-Instruct")
    assert load_model("openai/gpt-oss-20b").name == "gpt-oss-20b"
    nearest = {
        "unsloth/gpt-oss-120b-BF16": "gpt-oss-120b",
        "Qwen/Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b",
        "Qwen/Qwen3-8B-Base": "qwen3-8b",
        "deepseek-ai/DeepSeek-R1": "deepseek-v3",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama-4-scout-17b-16e",
        "meta-llama/Llama-3.2-1B-Instruct": "llama-3.2-1b",
        "mistralai/Mistral-7B-Instruct-v0.2": "mistral-7b",
        "mistralai/Mistral-Nemo-Instruct-2407": "mistral-nemo-12b",
        "mistralai/Mistral-Small-24B-Instruct-2501": "mistral-small-24b",
        "zai-org/GLM-4.5-Air-FP8": "glm-4.5-air",
        "moonshotai/Kimi-K2-Instruct-0905": "kimi-k2",
        "microsoft/Phi-3-mini-128k-instruct": "phi-3-mini",
        "google/gemma-2-9b-it": "gemma-2-9b",
        "google/gemma-3-27b-it": "gemma-3-27b",
        "allenai/OLMo-2-1124-7B-Instruct": "olmo-2-7b",
        "deepseek-ai/DeepSeek-V2-Lite-Chat": "deepseek-v2-lite",
    }
    for name, meant in nearest.items():
        with pytest.raises(InputError, match=rf"did you mean '{re.escape(meant)}'\? use one of"):
            load_model(name)


@pytest.mark.parametrize("top", [{}, {"gpu": ["H100", "A100"]}])
def test_domains_of_unlike_gpus_are_refused_with_the_reason(top: dict[str, object]) -> None:
    domains = [{"name": "a", "nodes": 1, "gpus_per_node": 8, "gpu": "H100"}]
    with pytest.raises(InputError, match="all domains hold one type"):
        load_cluster({**top, "domains": domains})


def test_a_config_json_or_its_folder_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    by_folder, by_file = load_model(str(folder)), load_model(str(folder / "config.json"))
    assert by_folder == by_file
    assert (by_file.name, by_file.num_blocks) == ("My-Llama", 2)
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
    assert load_model(str(tmp_path / "tiny.json")).name == "tiny"
    assert load_problem(model=str(folder), cluster="toy").workload.seq == 512


def test_a_path_that_is_there_wins_over_a_page_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_model("Qwen/Qwen3-8B") is model("qwen3-8b")
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    (tmp_path / "Qwen" / "Qwen3-8B" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert load_model("Qwen/Qwen3-8B").num_blocks == 2
    with pytest.raises(InputError, match="--model: is empty"):
        load_model(" ")


def test_clusters_by_name_and_file(tmp_path: Path) -> None:
    assert load_cluster("Four-Hubs") is cluster("four-hubs")
    path = tmp_path / "mine.yaml"
    path.write_text("gpu: H100\ndomains: [{name: a, nodes: 1, gpus_per_node: 8}]\n")
    assert load_cluster(str(path)).name == "mine"
    (tmp_path / "mine.json").write_text('{"gpu": "H100", "domains": [{"name": "a", "nodes": 1, "gpus_per_node": 8}]}')
    assert replace(load_cluster(str(tmp_path / "mine.json")), source="") == replace(load_cluster(str(path)), source="")


def test_values_may_be_given_instead_of_names() -> None:
    found = load_problem(model=model("gpt2"), cluster=cluster("toy"), runtime="ideal")
    assert (found.model, found.cluster) == (model("gpt2"), cluster("toy"))


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("time", Objective()),
        ("COST", Objective("cost", 0.0, 0.0, 1.0)),
        ("0.5, 0.3,0.2", Objective("weighted", 0.5, 0.3, 0.2)),
    ],
)
def test_objectives(objective: str, expected: Objective) -> None:
    assert load_problem(model="gpt2", cluster="toy", objective=objective).objective == expected


def test_constraints_of_the_objective() -> None:
    found = load_problem(model="gpt2", cluster="toy", balance_delta=0.3, bandwidth_floor_gbps=2).objective
    assert (found.balance_delta, found.bandwidth_floor_bytes_per_s) == (0.3, 2.5e8)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "lama-3-8b"}, "--model: unknown model 'lama-3-8b'. To fix: did you mean 'llama-3-8b'"),
        ({"model": "missing/config.json"}, "missing/config.json: model file does not exist."),
        ({"cluster": "mars"}, "--cluster: unknown cluster 'mars'."),
        ({"cluster": "mars.yaml"}, "mars.yaml: cluster file does not exist."),
        (
            {"runtime": "jax"},
            "--runtime: unknown runtime 'jax'. To fix: use one of deepspeed, hippo, hippo:live, ideal, megatron, "
            "torch.",
        ),
        ({"objective": "speed"}, "--objective: is not an objective (got 'speed')."),
        ({"objective": "1,2"}, "--objective: is not an objective (got '1,2')."),
        ({"objective": "0,0,0"}, "--objective: weights must be finite, not negative, not all 0"),
        ({"objective": "1,nan,0"}, "--objective: weights must be finite"),
        ({"global_batch": 0}, "--global-batch: must be a positive whole number (got 0)."),
        ({"global_batch": 10**9}, "--global-batch: must be a positive whole number (got 1000000000)."),
        ({"seq": -1}, "--seq: must be a positive whole number (got -1)."),
        ({"seq": 2048}, "--seq: exceeds the 1024 learned positions of gpt2 (got 2048)."),
        ({"precision": "fp8"}, "--precision: unknown precision of A100-SXM-80GB 'fp8'. To fix:"),
        ({"balance_delta": -1.0}, "balance_delta: must be a finite number, not negative (got -1.0)."),
        ({"bandwidth_floor_gbps": -3.0}, "bandwidth_floor_gbps: must be a finite number, not negative (got -3.0)."),
        ({"profile": "missing.json"}, "missing.json: profile does not exist."),
        ({"model": "a" * 5000}, "--model: unknown model 'aaaa"),
        ({"model": "a\0/b"}, "cannot read the model file"),
    ],
)
def test_refusals(given: dict[str, object], words: str) -> None:
    arguments = {"model": "gpt2", "cluster": "toy", **given}
    with pytest.raises(InputError) as caught:
        load_problem(**arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_longer_sequences_than_trained_are_fine_without_learned_positions() -> None:
    assert load_problem(model="llama-3-8b", cluster="toy", seq=32768).workload.seq == 32768


def write_profile(path: Path, precision: str) -> str:
    rows = [
        {"layer_kind": kind, "gpu": "A100", "tp": 1, "micro_batch": 1, "forward_s": 0.1, "backward_s": 0.2}
        | {"parameter_bytes": 1, "activation_bytes": 1, "output_bytes": 1}
        for kind in ("embedding", "block", "head")
    ]
    path.write_text(json.dumps({"precision": precision, "state_bytes_per_parameter": 18, "rows": rows}))
    return str(path)


def test_a_profile_sets_precision_and_state(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.json", "fp16")
    work = load_problem(model="gpt2", cluster="toy", profile=path).workload
    assert (work.precision, work.state_bytes_per_parameter) == ("fp16", 18.0)
    assert load_profile(path).source == path
    with pytest.raises(InputError, match=r"--precision: the profile is measured in fp16 \(got 'bf16'\)"):
        load_problem(model="gpt2", cluster="toy", profile=path, precision="bf16")


def test_a_profile_in_a_precision_that_the_gpu_lacks_is_named(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "p.json", "fp8")
    told = rf"^{re.escape(path)}: precision: A100-SXM-80GB has no rate for it \(got 'fp8'\). To fix: profile in one of "
    for asked in (None, "fp8", "bf16"):
        with pytest.raises(InputError, match=told):
            load_problem(model="gpt2", cluster="toy", profile=path, precision=asked)


def test_traces_come_from_files(tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text("time_s,src,dst,bandwidth_gbps,latency_ms\n0,east,west,4,30\n")
    assert load_trace(path, cluster("toy")).source == str(path)
