"""``hippo pareto``: the document's keys, points that none of the others beats, what is written."""

from __future__ import annotations

import json

from .conftest import SCORE

ASKED = ("pareto", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "even,sailor,single_domain")


def test_the_document(hippo):
    answer = hippo(*ASKED, "--json")
    assert answer.code == 0
    document = answer.document
    assert set(document) >= {"points", "hypervolume"}
    assert 0 <= document["hypervolume"] <= 1
    for point in document["points"]:
        assert point["plan"]["hippo_plan"] == 1
        assert set(point["score"]) >= SCORE


def test_no_point_beats_another(hippo):
    points = hippo(*ASKED, "--json").document["points"]
    assert len(points) > 1
    losses = [
        (score["step_time_s"], score["egress_usd_per_step"], 1 - score["utilization"])
        for score in (point["score"] for point in points)
    ]
    beaten = [
        (one, other)
        for one in losses
        for other in losses
        if one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))
    ]
    assert beaten == []
    assert losses == sorted(losses)  # the quickest first


def test_out_writes_the_document(hippo, tmp_path):
    answer = hippo(*ASKED, "--json", "--out", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "pareto.json").read_text()) == answer.document
    assert "pareto.json" in answer.err


def test_people_read_a_table(hippo):
    answer = hippo(*ASKED)
    assert answer.code == 0
    assert "step time" in answer.out
    assert "hypervolume" in answer.out


def test_nothing_fits(hippo, tmp_path):
    arguments = ("pareto", "--model", "llama-3-405b", "--cluster", "toy", "--planner", "even", "--json")
    answer = hippo(*arguments, "--out", tmp_path / "out")
    assert (answer.code, answer.document["points"]) == (3, [])
    assert not (tmp_path / "out").exists()
