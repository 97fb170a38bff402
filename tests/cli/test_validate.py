"""``hippo validate``: the document's keys, and rows that are wrong."""

from __future__ import annotations

import json

import pytest

from hippo.cost.calibration import RANGES
from hippo.score.interval import TOLD


@pytest.fixture(scope="module")
def rows(data):
    return json.loads((data / "training_open.json").read_text())


@pytest.fixture
def few(rows, tmp_path):
    """The rows of one small family."""
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([row for row in rows if row["family"] == "korthikanti"]))
    return path


def test_the_document(hippo, few):
    answer = hippo("validate", few, "--json")
    assert answer.code == 0
    document = answer.document
    errors = {"n", "mape", "median", "bias", "pairs_right"}
    assert errors <= set(document["overall"])
    assert errors <= set(document["families"]["korthikanti"])
    keys = {"id", "measured_s", "predicted_s", "predicted_memory_gb", "out_of_memory", "refused"}
    assert all(keys <= set(row) for row in document["rows"])
    assert document["overall"]["mape"] < 0.2
    chunked = [row["interleave_v"] for row in json.loads(few.read_text()) if (row["interleave_v"] or 1) > 1]
    assert document["chunks"]["several chunks a stage"]["n"] == len(chunked) > 0


def test_people_read_a_table(hippo, few):
    answer = hippo("validate", few)
    assert answer.code == 0
    assert "korthikanti" in answer.out
    assert "overall" in answer.out


@pytest.mark.parametrize(
    ("change", "said"),
    [({"gpus": 0}, "gpus"), ({"gpu_type": "A101"}, "A101"), ({"sharding": "zero9"}, "zero9"), ({"tp": -1}, "tp")],
)
def test_a_wrong_row(refused, rows, tmp_path, change, said):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([rows[0] | change]))
    message = refused("validate", path)
    assert str(path) in message
    assert said in message


@pytest.mark.parametrize("text", ["", "[", "{}", "3"])
def test_a_file_that_holds_no_rows(refused, tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    assert str(path) in refused("validate", path)


def test_a_folder_of_known_files_and_what_is_not_there(hippo, few, tmp_path):
    few.rename(tmp_path / "training_open.json")
    page = tmp_path / "accuracy.html"
    answer = hippo("validate", "--data", tmp_path, "--html", page, "--json")
    assert answer.code == 0
    assert [path.rsplit("/", 1)[1] for path in answer.document["skipped_files"]] == [
        "geo_open.json",
        "emulated_runs.csv",
        "pipemorph_measured_pipelines.csv",
        "training_throughput.csv",
        "megatron_memory_time.csv",
        "mindspore_dryrun_memory_dsv3.csv",
    ]
    assert answer.document["unknown_columns"] == {}
    text = page.read_text()
    assert "korthikanti" in text
    heads, groups, memory, intervals, fitted, families, worst = 6, 1, 1, len(TOLD), len(RANGES), 2, 3
    assert text.count("<tr>") == heads + groups + memory + intervals + fitted + families + worst
    assert "one place, dense, ampere" in text
    assert "Assumed: NCCL over a WAN was not measured" in text
    assert "skipped, not there" in text
    assert "skipped, not there" in hippo("validate", "--data", tmp_path).out


def test_the_folder_that_holds_the_tables_themselves(hippo, data, few, tmp_path):
    few.rename(tmp_path / "training_open.json")
    table = (data / "published" / "megatron_memory_time.csv").read_text().splitlines(keepends=True)
    (tmp_path / "megatron_memory_time.csv").write_text("".join(table[:4]))
    answer = hippo("validate", "--data", tmp_path, "--json")
    assert [path.rsplit("/", 1)[1] for path in answer.document["skipped_files"]] == [
        *("geo_open.json", "emulated_runs.csv", "pipemorph_measured_pipelines.csv", "training_throughput.csv"),
        "mindspore_dryrun_memory_dsv3.csv",
    ]
    assert len(answer.document["rows"]) == len(json.loads((tmp_path / "training_open.json").read_text())) + 3


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_predicted(refused, few, tmp_path):
    assert "--html: is a folder" in refused("validate", few, "--html", tmp_path)


def test_a_file_in_the_place_of_a_folder(refused, few):
    assert "--data" in refused("validate", "--data", few)


def test_no_rows_are_named(refused, tmp_path):
    assert "--data DIR" in refused("validate")
    assert "training_open.json" in refused("validate", "--data", tmp_path)
