"""``hippo compare``: the rows' keys, one judge for all, what is written, wrong names."""

from __future__ import annotations

import json

import pytest

from .conftest import FILES, SCORE

ASKED = ("compare", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "even, sailor,single_domain")


def test_the_document(hippo):
    answer = hippo(*ASKED, "--json")
    assert answer.code == 0
    rows = answer.document["rows"]
    assert [row["planner"] for row in rows] == ["even", "sailor", "single_domain"]
    for row in rows:
        assert {"planner", "status", "score", "gap", "planning_s"} <= set(row)
        assert set(row["score"]) >= SCORE
        assert row["status"] in ("optimal", "feasible", "infeasible")
        assert row["planning_s"] > 0


def test_the_best_of_the_rows_is_the_answer(hippo):
    document = hippo(*ASKED, "--json").document
    quickest = min(document["rows"], key=lambda row: row["score"]["step_time_s"])
    assert document["planner"] == quickest["planner"]
    assert document["score"]["step_time_s"] == quickest["score"]["step_time_s"]


def test_people_read_one_line_per_planner(hippo):
    answer = hippo(*ASKED)
    assert answer.code == 0
    lines = [line.split()[0] for line in answer.out.splitlines() if line.strip()]
    assert {"even", "sailor", "single_domain", "planner"} <= set(lines)
    assert lines.index("planner") < lines.index("Plan") < lines.index("Why")  # then the best plan and its reasons


def test_out_writes_the_best_plan(hippo, tmp_path):
    answer = hippo(*ASKED, "--json", "--out", tmp_path / "out")
    assert answer.code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["hippo_plan"] == 1


def test_nothing_fits_anywhere(hippo, tmp_path):
    arguments = ("compare", "--model", "llama-3-405b", "--cluster", "toy", "--planner", "even,single_domain")
    answer = hippo(*arguments, "--json", "--out", tmp_path / "out")
    assert answer.code == 3
    assert [(row["status"], row["score"]) for row in answer.document["rows"]] == [("infeasible", None)] * 2
    assert not (tmp_path / "out").exists()


def test_runtimes_side_by_side(hippo, refused):
    asked = ("compare", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "single_domain", "--runtimes")
    rows = hippo(*asked, "--json").document["runtimes"]
    assert [row["runtime"] for row in rows] == ["hippo", "megatron", "torch", "deepspeed", "ideal"]
    assert "every runtime has its row" in refused(*asked, "--runtime", "megatron")


@pytest.mark.parametrize("names", ["even,sailer", "even,,sailor", "auto,even", ""])
def test_wrong_names(refused, names):
    assert "--planner" in refused("compare", "--model", "llama-3-8b", "--cluster", "toy", "--planner", names)
