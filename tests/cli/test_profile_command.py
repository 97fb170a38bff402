"""``hippo profile`` from end to end: what it writes is what ``--profile`` reads, and plans are made with it."""

from __future__ import annotations

import json

import pytest

from hippo.problem.load import load_cluster, load_model, load_profile
from hippo.problem.profile import check_profile

CONFIG = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_a_plan_from_measured_layers(hippo, model, tmp_path):
    out = tmp_path / "made" / "profile.json"
    words = ("--tp", "1,2", "--micro-batch", "2,1", "--seconds", "0.001", "--cluster", "toy", "--gpu", "this-cpu")
    answer = hippo("profile", "--model", model, *words, "--out", out, "--json")
    assert answer.code == 0, answer
    rows = answer.document["rows"]
    assert [(row["layer_kind"], row["tp"], row["micro_batch"]) for row in rows] == [
        (kind, tp, size) for tp in (1, 2) for size in (1, 2) for kind in ("embedding", "block", "head")
    ]
    assert "without the collectives" in answer.document["profile"]["source"]

    profile, cluster = load_profile(out), load_cluster(str(tmp_path / "made" / "profile.cluster.yaml"))
    check_profile(profile, load_model(str(model)), cluster.gpu, source="own")
    assert cluster.gpu.name == "this-cpu"
    assert [domain.name for domain in cluster.domains] == ["east", "west"]
    assert cluster.links == load_cluster("toy").links

    words = ("--cluster", tmp_path / "made" / "profile.cluster.yaml", "--profile", out, "--global-batch", "16")
    planned = hippo("plan", "--model", model, *words, "--planner", "sailor", "--json")
    assert planned.code == 0, planned
    assert planned.document["plan"]["micro_batch"] in (1, 2)
    assert planned.document["plan"]["precision"] == "fp32"


def test_alone_it_writes_a_cluster_of_one(hippo, model, tmp_path):
    out = tmp_path / "made" / "p.json"
    answer = hippo("profile", "--model", model, "--seconds", "0.001", "--out", out)
    assert answer.code == 0, answer
    assert "input gradient ms" in answer.out
    cluster = load_cluster(str(tmp_path / "made" / "p.cluster.yaml"))
    assert (cluster.gpus, cluster.gpu.name) == (1, "cpu")
    assert cluster.gpu.peak_flops.keys() == {"fp32"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tp", "3"), "tp 3 does not divide the 4 attention heads"),
        (("--tp", "0"), "is no list of numbers"),
        (("--tp", "1,,2"), "is no list of numbers"),
        (("--micro-batch", "1e3"), "is no list of numbers"),
        (("--micro-batch", "1000000", "--seq", "100000"), "too little memory"),
        (("--seq", "0"), "--seq"),
        (("--precision", "int8"), "unknown precision"),
        (("--seconds", "nan"), "--seconds"),
        (("--gpu", "H100-SXM-80GB"), "is a CPU"),
        (("--cluster", "toy"), "no place to write"),
        (("--out", "."), "is a folder"),
        (("--cluster", "nowhere", "--out", "p.json"), "unknown cluster"),
    ],
)
def test_mistakes(refused, model, words, said, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert said in refused("profile", "--model", model, *words)
    assert list((tmp_path / "empty").iterdir()) == []


def test_mixtures_of_experts_are_refused(refused):
    assert "mixtures of experts" in refused("profile", "--model", "mixtral-8x7b")
