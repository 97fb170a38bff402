"""``hippo schedule``: problems from options and files, answers in their order, files written, bad input refused."""

from __future__ import annotations

import csv
import json
from importlib import import_module

import pytest
from tests.dispatch.drawn_draws import lazy_weights

from hippo.dispatch.guard import followed
from hippo.schedule.problem import ScheduleProblem

SMALL = ("--stages", 2, "--micro-batches", 4, "--times", "1,1,1")
"""Optimum 13 with two live micro-batches, 1F1B 15 (data/schedules_open.json, "check_yourself")."""

PROBLEM = {"id": "a", "p": 2, "m": 4, "f": 1, "b": 1, "w": 1, "K": 2}
CONTRACT = {"id", "makespan", "lower_bound", "gap", "bubble_rate", "peak_live", "method", "seconds", "order"}


@pytest.fixture
def file(tmp_path):
    """Writes a problem file."""

    def written(document: object, name: str = "q.json") -> str:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return written


def test_the_document(hippo):
    document = hippo("schedule", *SMALL, "--memory", 2, "--method", "1f1b", "--json").document
    assert set(document) >= CONTRACT
    assert (document["id"], document["makespan"], document["lower_bound"]) == (None, 15.0, 13.0)
    assert document["order"][1][:4] == [["F", 0, 0], ["B", 0, 0], ["W", 0, 0], ["F", 0, 1]]


def test_best_is_the_usual_method(hippo):
    document = hippo("schedule", *SMALL, "--memory", 2, "--json").document
    assert (document["method"], document["makespan"], document["gap"]) == ("best", 13.0, 0.0)
    assert {row["method"] for row in document["tried"]} >= {"1f1b", "zb-h1", "zb-auto"}


def test_people_read_figures_and_a_timeline(hippo):
    answer = hippo("schedule", *SMALL, "--memory", 2, "--method", "zb-h1")
    assert answer.code == 0
    for words in ("makespan", "13.000", "proved optimal", "bubble rate", "bubble, full", "peak live", "rank 1", "F0"):
        assert words in answer.out


def test_times_and_links_per_rank(hippo):
    document = hippo(
        "schedule", "--stages", 2, "--micro-batches", 1, "--times", "1,2/3,4/5,6", "--links", "10/20",
        "--transfers", 1, "--method", "gpipe", "--json",
    ).document  # fmt: skip
    # down: 1, 1 + 10, 2; the backward is fused on rank 1 (10) and on rank 0 (8), 1 + 20 between them
    assert document["makespan"] == 1 + 11 + 2 + 10 + 21 + 8


def test_reductions_after_the_last_operation(hippo):
    """p 2, m 4, K 2, all times 1: with ZB-H1 both ranks end at 13."""
    ask = ("schedule", *SMALL, "--memory", 2, "--method", "zb-h1")
    assert hippo(*ask, "--reduction", "0,5", "--json").document["makespan"] == 13 + 5
    assert hippo(*ask, "--reduction", "3", "--json").document["makespan"] == 13 + 3
    shown = hippo(*ask, "--reduction", "5,0").out
    assert "18.000" in shown
    assert "/ agreeing" in shown


def test_reductions_go_with_a_file(hippo, file):
    """Those of the file, or those of the option in their place."""
    name = file(PROBLEM | {"reduction": [100, 0]})
    long = hippo("schedule", "--problem", name, "--json").document["makespan"]
    none = hippo("schedule", "--problem", name, "--reduction", 0, "--json").document["makespan"]
    assert long > 100 > none == hippo("schedule", "--problem", file(PROBLEM), "--json").document["makespan"]


def test_a_named_method_brings_its_placement(hippo):
    assert hippo("schedule", *SMALL, "--method", "interleaved", "--json").document["placement"] == "looped"
    assert hippo("schedule", *SMALL, "--method", "zb-v", "--json").document["placement"] == "v"
    refused = hippo("schedule", *SMALL, "--method", "zb-v", "--placement", "plain", "--json")
    assert refused.code == 3
    assert "--placement v" in refused.err


# --------------------------------------------------------------------------------------------------------------- files
def test_one_problem_one_document_and_a_list_for_a_list(hippo, file):
    assert hippo("schedule", "--problem", file(PROBLEM), "--json").document["id"] == "a"
    answers = hippo("schedule", "--problem", file([PROBLEM | {"id": 2}, PROBLEM]), "--json").document
    assert [answer["id"] for answer in answers] == [2, "a"]
    answers = hippo("schedule", "--problem", file({"header": {}, "problems": [PROBLEM]}), "--json").document
    assert [answer["id"] for answer in answers] == ["a"]


def test_published_baselines(hippo, data, file):
    published = json.loads((data / "schedules_open.json").read_text())["problems"][::7]
    answers = hippo("schedule", "--problem", file(published), "--method", "1f1b", "--json").document
    for answer, problem in zip(answers, published, strict=True):
        assert answer["id"] == problem["id"]
        assert answer["makespan"] == pytest.approx(problem["one_f_one_b"], abs=2e-3)
        assert problem["jps_bound"] - 2e-3 <= answer["lower_bound"] <= problem["best_of_all"] + 2e-3


def test_an_infeasible_problem_keeps_its_place(hippo, file):
    answer = hippo("schedule", "--problem", file([PROBLEM, PROBLEM | {"id": "b", "K": 0.5}, PROBLEM]), "--json")
    assert answer.code == 3
    assert [each["makespan"] for each in answer.document] == [13.0, None, 13.0]
    assert answer.document[1]["id"] == "b"
    assert "--memory 1" in answer.document[1]["infeasible"]
    assert "infeasible: b: " in answer.err


def test_a_list_for_people(hippo, file):
    answer = hippo("schedule", "--problem", file([PROBLEM, PROBLEM | {"id": "b", "K": 0.5}]), "--method", "zb-h1")
    assert answer.code == 3
    assert "gap to the bound: mean 0.00%" in answer.out
    assert "found by" in answer.out


def test_options_overrule_the_file(hippo, file):
    asked = ("schedule", "--problem", file(PROBLEM | {"placement": "looped", "chunks": 3}), "--json")
    document = hippo(*asked, "--placement", "v", "--memory", 4, "--method", "zb-v").document
    assert (document["placement"], document["chunks"]) == ("v", 2)
    assert 2 < document["peak_live"] <= 4


def test_unknown_keys_are_said_and_passed_over(hippo, file):
    answer = hippo("schedule", "--problem", file(PROBLEM | {"remark": 1, "jps_bound": 3}), "--json")
    assert answer.code == 0
    assert "unknown keys: remark" in answer.err


# -------------------------------------------------------------------------------------------------------------- options
def test_as_a_hint(hippo):
    document = hippo("schedule", *SMALL, "--method", "1f1b", "--hint", "--json").document
    assert document["hint"]
    assert document["makespan"] < 15.0


def test_sizes(hippo, file):
    times = {"f": {"fixed": 2, "per_sample": 1}, "samples": 16, "micro_batch_size": 1}
    problem = {key: value for key, value in PROBLEM.items() if key not in ("m", "K")} | times
    asked = ("schedule", "--problem", file(problem), "--method", "gpipe", "--micro-batch-sizes", "1,2,4,8")
    document = hippo(*asked, "--json").document
    spans = {row["micro_batch_size"]: row["makespan"] for row in document["sizes"]}
    assert spans == {n: (16 // n + 1) * (2 + 3 * n) for n in (1, 2, 4, 8)}
    assert document["micro_batch_size"] == min(spans, key=spans.__getitem__) == 4
    assert document["makespan"] == spans[4]
    assert "micro-batch" in hippo(*asked).out


def test_sizes_of_which_some_do_not_fit(hippo):
    asked = ("schedule", *SMALL, "--memory", 2, "--method", "1f1b", "--micro-batch-sizes", "1,2", "--json")
    document = hippo(*asked).document
    assert document["micro_batch_size"] == 1
    assert document["sizes"][1]["makespan"] is None
    assert "--memory 4" in document["sizes"][1]["infeasible"]


def test_side_by_side(hippo):
    asked = ("schedule", *SMALL, "--memory", 2, "--compare", "--time-limit", 0.2)
    document = hippo(*asked, "--json").document
    rows = {row["method"]: row for row in document["compare"]}
    assert rows["1f1b"]["makespan"] == 15.0
    assert rows["best"]["makespan"] == 13.0
    assert rows["gpipe"]["makespan"] is None
    answer = hippo(*asked)
    assert all(name in answer.out for name in rows)


def test_fluctuation(hippo):
    asked = ("schedule", *SMALL, "--method", "zb-h1", "--json")
    still = hippo(*asked, "--fluctuation", 0, "--samples", 3).document
    assert still["fluctuation"]["fixed"] == pytest.approx(dict.fromkeys(("mean", "p50", "p95"), still["makespan"]))
    noisy = hippo(*asked, "--samples", 50)
    assert noisy.out.partition('"seconds"')[0] == hippo(*asked, "--samples", 50).out.partition('"seconds"')[0]
    spread = noisy.document["fluctuation"]
    assert (spread["level"], spread["samples"]) == (0.2, 50)
    for how in ("fixed", "hint"):
        assert spread[how]["p50"] < spread[how]["p95"]


def test_a_policy_beside_the_fixed_order_and_the_hint(hippo, monkeypatch):
    asked = ("schedule", *SMALL, "--memory", 2, "--method", "zb-h1")
    noise = hippo(*asked, "--fluctuation", 0.3, "--samples", 40, "--json").document["fluctuation"]
    assert noise["learned"]["samples"] == 40
    assert 13.0 < noise["learned"]["p50"] < noise["learned"]["p95"]
    assert "by a policy" in hippo(*asked, "--fluctuation", 0.3, "--samples", 40).out
    monkeypatch.setattr("hippo.cli.schedule.MOST_LEARNED_OPERATIONS", 240)
    fewer = hippo(*asked, "--fluctuation", 0.3, "--samples", 40, "--json").document["fluctuation"]
    assert fewer["learned"]["samples"] == 10
    assert fewer["fixed"] == noise["fixed"]
    first = hippo(*asked, "--fluctuation", 0.3, "--samples", 10, "--json").document["fluctuation"]
    assert fewer["learned"] == first["learned"]  # on the same plays, whatever the others play beyond
    for name in ("fixed", "hint"):
        saved = 1 - first["learned"]["mean"] / first[name]["mean"]
        assert first["learned"]["saves"][name]["share"] == pytest.approx(saved, abs=1e-12)
        assert first["learned"]["saves"][name]["error"] > 0
    shown = " ".join(hippo(*asked, "--fluctuation", 0.3, "--samples", 40).out.split())
    assert f"on the same plays it saves {100 * fewer['learned']['saves']['fixed']['share']:.1f} ±" in shown


def test_a_policy_has_nothing_to_say_of_several_chunks(hippo):
    noise = ("--fluctuation", 0.3, "--samples", 5)
    assert hippo("schedule", *SMALL, "--method", "zb-v", *noise, "--json").document["fluctuation"]["learned"] is None
    assert "by a policy" not in hippo("schedule", *SMALL, "--method", "zb-v", *noise).out
    answer = hippo("schedule", *SMALL, "--placement", "v", "--method", "learned")
    assert answer.code == 3
    assert "--placement plain" in answer.err


def test_who_made_the_order_is_said_where_the_policy_is_not_trusted(hippo, slow_policy):
    asked = ("--stages", 4, "--micro-batches", 8, "--times", "1,1.05,.75", "--links", 1, "--memory", 4)
    noise = ("--fluctuation", 0.3, "--samples", 5)
    document = hippo("schedule", *asked, "--method", "learned", *noise, "--json").document
    problem = ScheduleProblem.uniform(4, 8, (1.0, 1.05, 0.75), comm=1.0, live_limit=4)
    base = followed(problem, lazy_weights(), 0.0)  # of the order, where nothing moves
    assert document["found_by"] == base
    assert document["fluctuation"]["learned"]["followed"] == followed(problem, lazy_weights(), 0.3)
    assert document["why"].startswith(f"The policy was slower in trial plays: its base, {base}, is followed.")
    assert "by its base" in hippo("schedule", *asked, "--method", "learned", *noise).out


def test_the_order_of_a_policy(hippo):
    document = hippo("schedule", *SMALL, "--memory", 2, "--method", "learned", "--json").document
    assert document["method"] == "learned"
    assert "policy" in document["why"]
    assert document["found_by"] == "learned" or document["found_by"] in document["why"]
    assert document["makespan"] >= document["lower_bound"] == 13.0
    assert max(document["peak_live_by_rank"]) <= 2


def test_the_csv_for_torch_comes_back(hippo, tmp_path):
    path = tmp_path / "new" / "order.csv"
    document = hippo("schedule", *SMALL, "--method", "zb-h1", "--csv", path, "--json").document
    assert document["csv"]["file"] == str(path)
    rows = list(csv.reader(path.read_text().splitlines()))
    assert [len(rows), rows[0][:3], rows[1][0]] == [2, ["0F0", "0F1", "0B0"], "1F0"]
    again = hippo("schedule", *SMALL, "--order", path, "--json").document
    assert (again["method"], again["makespan"]) == ("given", document["makespan"])
    assert again["lower_bound"] == document["lower_bound"]


def test_an_order_of_ones_own_as_text(hippo, file):
    mine = file("mine stages=2 micro_batches=4\n" + "F0 F1 F2 F3 B0 W0 B1 W1 B2 W2 B3 W3\n" * 2, "mine.txt")
    document = hippo("schedule", *SMALL, "--order", mine, "--json").document
    assert document["makespan"] == 14.0  # rank 1 from 1 to 13, its last B ends at 12; B3 and W3 of rank 0 follow
    assert document["peak_live"] == 4.0


def test_files_for_people(hippo, tmp_path):
    answer = hippo("schedule", *SMALL, "--out", tmp_path / "new", "--json")
    assert answer.code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"schedule.html", "trace.json"}
    assert json.loads((tmp_path / "new" / "trace.json").read_text())["traceEvents"]


# ------------------------------------------------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--method", "zb-h3"), "zb-h3"),
        (("--times", "0,1,1"), "--times: is out of range (got 0.0)"),
        (("--times", "1,-2,1"), "--times: is out of range (got -2.0)"),
        (("--times", "1,nan,1"), "--times"),
        (("--times", "1,1"), "--times"),
        (("--times", "1,x,1"), "'x'"),
        (("--times", "1,1,1/1/1"), "--times: holds 3 numbers, not 2"),
        (("--links", "1,2"), "--links: holds 2 numbers, not 1"),
        (("--links", "-1"), "--links: is out of range (got -1.0)"),
        (("--links", "1/2/3"), "--links"),
        (("--transfers", "-1"), "--transfers"),
        (("--micro-batches", 0), "--micro-batches: is out of range (got 0)"),
        (("--micro-batches", 10**9), "--micro-batches"),
        (("--stages", 0), "--stages"),
        (("--memory", 0), "--memory: is out of range (got 0.0)"),
        (("--memory", "1,2,3"), "--memory"),
        (("--memory", "inf"), "--memory"),
        (("--reduction", "-1"), "--reduction: is out of range (got -1.0)"),
        (("--reduction", "1,2,3"), "--reduction: holds 3 numbers, not 2"),
        (("--layers", 1), "--layers: are fewer than the 2 virtual stages (got 1)"),
        (("--placement", "looped", "--chunks", 3, "--layers", 5), "--layers"),
        (("--placement", "w"), "'w'"),
        (("--chunks", 2), "--chunks"),
        (("--time-limit", 0), "--time-limit"),
        (("--fluctuation", 1), "--fluctuation"),
        (("--fluctuation", "nan"), "--fluctuation"),
        (("--samples", 0), "--samples"),
        (("--seed", -1), "--seed"),
        (("--micro-batch-sizes", "3"), "--micro-batch-sizes: does not divide the 4 samples of a step (got 3)"),
        (("--micro-batch-sizes", "1.5"), "1.5"),
        (("--order", "absent.csv"), "absent.csv"),
        (("--order", "absent.csv", "--hint"), "--hint"),
        (("--problem", "q.json"), "--stages"),
    ],
)
def test_wrong_options(refused, options, said):
    given = dict(zip(SMALL[::2], SMALL[1::2], strict=True))
    pairs = [option for option in given.items() if option[0] not in options]
    assert said in refused("schedule", *(word for pair in pairs for word in pair), *options)


def test_a_file_that_cannot_be_written_is_refused_before_the_search(refused, tmp_path, monkeypatch):
    def search(*_: object, **__: object) -> None:
        raise AssertionError("searched first")

    monkeypatch.setattr(import_module("hippo.schedule.solve"), "solve", search)
    (tmp_path / "taken").write_text("")
    assert "--csv: is a folder" in refused("schedule", *SMALL, "--csv", tmp_path)
    assert "is a file, not a folder" in refused("schedule", *SMALL, "--csv", tmp_path / "taken" / "order.csv")


def test_a_problem_that_is_not_whole(refused):
    assert "--micro-batches: is missing" in refused("schedule", "--stages", 2, "--times", "1,1,1")
    assert "--problem" in refused("schedule")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"m": 0}, "m: is out of range (got 0)"),
        ({"f": -1}, "f: is out of range (got -1)"),
        ({"comm": [1, 2, 3]}, "comm: holds 3 numbers, not 1"),
        ({"K": "two"}, "K: must be a number (got 'two')"),
        ({"p": 3, "layers": 2}, "layers: are fewer than the 3 virtual stages (got 2)"),
    ],
)
def test_a_wrong_file(refused, file, change, said):
    path = file([PROBLEM, PROBLEM | change])
    assert f"{path}: [1].{said}" in refused("schedule", "--problem", path)


def test_files_that_are_none(refused, file, tmp_path):
    assert "not valid JSON" in refused("schedule", "--problem", file("{"))
    assert "does not exist" in refused("schedule", "--problem", tmp_path / "absent.json")


@pytest.mark.parametrize("memory", [0.5, 1])
def test_memory_that_does_not_do_names_a_limit_that_does(hippo, memory):
    asked = ("schedule", *SMALL, "--method", "1f1b", "--json")
    answer = hippo(*asked, "--memory", memory)
    assert answer.code == 3
    assert answer.document["makespan"] is None
    least = answer.err.split("--memory ")[1].split(",")[0].rstrip(".\n")
    again = hippo(*asked, "--memory", least)
    assert again.code == (0 if memory == 1 else 3)  # one micro-batch fits into 1; 1F1B keeps 2


def test_an_illegal_order_names_file_row_and_cell(refused, file):
    path = file("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1B0,1F0\n", "order.csv")
    assert f"{path}: row 2 (rank 1), cell 1: runs before 1F0 (got '1B0')" in refused(
        "schedule", *SMALL, "--order", path
    )
    stuck = file("0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n", "stuck.csv")
    assert "the ranks wait for each other: rank 0 at B0, rank 1 at F1" in refused("schedule", *SMALL, "--order", stuck)


@pytest.mark.parametrize("options", [("--csv", "o.csv"), ("--out", "out"), ("--order", "o.csv"), ("--compare",)])
def test_what_takes_one_problem(refused, file, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refused("schedule", "--problem", file([PROBLEM, PROBLEM]), *options)
    assert f"{options[0]}: takes one problem, the file holds 2" in message


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_csv_that_torch_cannot_have(refused, tmp_path, form):
    message = refused("schedule", *SMALL, "--method", "dualpipe", "--csv", tmp_path / "o.csv", *form)
    assert "take --placement v" in message
    assert not (tmp_path / "o.csv").exists()
