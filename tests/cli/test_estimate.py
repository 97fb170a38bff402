"""``hippo estimate``: one layout; degrees that are wrong; too little memory and the nearest change that fits."""

from __future__ import annotations

import pytest

GPU = ("estimate", "--model", "llama-3-8b", "--gpu", "A100-SXM-80GB", "--global-batch", "64")


def test_the_document(hippo):
    answer = hippo(*GPU, "--tp", 4, "--pp", 2, "--dp", 2, "--micro-batch", 1, "--json")
    assert answer.code == 0
    document = answer.document
    assert document["gpus"] == 16
    assert document["fits"] is True
    assert len(document["stages"]) == len(document["memory"]) == 2
    assert 0.2 < document["score"]["mfu"] < 0.8
    assert document["reasons"] == []


def test_people_read_time_and_memory(hippo):
    answer = hippo(*GPU, "--tp", 8)
    assert answer.code == 0
    assert "Time per micro-batch" in answer.out
    assert "Peak memory" in answer.out


def test_too_little_memory(hippo):
    answer = hippo(*GPU, "--dp", 2, "--json")
    assert answer.code == 3
    assert answer.document["status"] == "infeasible"
    assert answer.document["missing_bytes"] > 0
    missing, nearest = answer.document["reasons"]
    assert "GB more than" in missing
    options = nearest.split(": ")[1].rstrip(".").split()
    assert hippo(*GPU, "--dp", 2, *options).code == 0  # what is advised does fit


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tp", 0), "--tp"),
        (("--tp", 3), "tp"),
        (("--pp", 100), "--pp"),
        (("--pp", 8, "--interleave", 8), "--pp"),
        (("--dp", 3), "--global-batch"),
        (("--recompute", "some"), "--recompute"),
        (("--sharding", "zero3"), "--sharding"),
        (("--schedule", "zigzag", "--pp", 2), "zigzag"),
        (("--gpus-per-node", 0), "--gpus-per-node"),
        (("--node-gbps", -1), "inter_node_gbps"),
        (("--tp", 1_000_000, "--dp", 1_000_000), ""),
        (("--ep", 2), ""),
    ],
)
def test_wrong_degrees(refused, options, said):
    assert said in refused(*GPU, *options)


def test_an_unknown_gpu(refused):
    assert "did you mean" in refused("estimate", "--model", "llama-3-8b", "--gpu", "A100-SXM-80")
