"""``hippo explain``: reasons of a plan from a file, in sentences and as data."""

from __future__ import annotations

import json

import pytest


def test_the_document(hippo, toy_plan):
    answer = hippo("explain", toy_plan, "--json")
    assert answer.code == 0
    document = answer.document
    assert {"status", "plan", "score", "reasons"} <= set(document)
    assert document["plan"]["pipelines"] == json.loads(toy_plan.read_text())["pipelines"]
    assert all(reason["kind"] for reason in document["reasons"])


def test_people_read_sentences(hippo, toy_plan):
    answer = hippo("explain", toy_plan)
    assert answer.code == 0
    assert "Why" in answer.out
    assert "bottleneck" in answer.out


def test_a_plan_that_needs_too_much_memory(hippo, toy_plan, tmp_path):
    document = json.loads(toy_plan.read_text())
    document["micro_batch"], document["schedule"] = 64, {"name": "1f1b"}
    line = document["pipelines"][0]
    line["num_micro_batches"] = 1024 // (64 * line["stages"][0]["dp"])
    line.pop("order", None)
    line.pop("warm_up", None)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    answer = hippo("explain", path, "--json")
    assert (answer.code, answer.document["status"]) == (3, "infeasible")


@pytest.mark.parametrize(("option", "value"), [("--time-limit", 0), ("--time-limit", "nan"), ("--seed", "x")])
def test_wrong_options(refused, toy_plan, option, value):
    assert option in refused("explain", toy_plan, option, value)
