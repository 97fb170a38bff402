"""``hippo plan``: the document's keys, what goes where, files whole or not at all, infeasible as an answer."""

from __future__ import annotations

import json
import os
import sys

import pytest

from hippo.cli.question import Question
from hippo.front_door import planning

from .conftest import FILES, SCORE, TOY
from .test_bad_input import CLUSTER, MODEL, written


@pytest.fixture
def small(tmp_path):
    """A model that plans in no time, and two domains."""
    model, cluster = written(tmp_path, "config.json", MODEL), written(tmp_path, "net.yaml", CLUSTER)
    return (
        "plan",
        "--model",
        model,
        "--cluster",
        cluster,
        "--global-batch",
        "32",
        "--planner",
        "sailor",
        "--time-limit",
        "100",
    )


def test_the_document(hippo):
    answer = hippo(*TOY.split(), "--json")
    assert answer.code == 0
    document = answer.document
    keys = {"status", "plan", "score", "gap", "planning_s", "planner", "reasons", "rejected"}
    assert keys <= set(document)
    assert set(document["score"]) >= SCORE
    assert document["status"] in ("optimal", "feasible")
    assert isinstance(document["reasons"], list)
    assert document["plan"]["hippo_plan"] == 1


def test_the_same_question_gets_the_same_plan(hippo, small):
    first, second = hippo(*small, "--json").document, hippo(*small, "--json").document
    assert first["plan"] == second["plan"]
    assert first["score"] == second["score"]


def test_a_sequence_beyond_the_models_context_is_said(capsys):
    question = Question(model="llama-3-8b", cluster="toy", seq=100_000)
    assert question.answer(lambda problem, *_, **__: problem.workload.seq, "planning") == 100_000
    assert "sequences of 100,000 tokens: llama-3-8b has a context of 8,192" in capsys.readouterr().err


def test_people_read_the_plan_and_the_reasons(hippo, small):
    answer = hippo(*small)
    assert answer.code == 0
    for words in ("step time", "Plan", "Why", "binds"):
        assert words in answer.out


def test_the_plan_is_printed_before_its_reasons_are_looked_for(hippo, small, monkeypatch):
    explained = planning.with_reasons

    def late(*args, **options):
        sys.stdout.write("now the reasons\n")
        return explained(*args, **options)

    monkeypatch.setattr(planning, "with_reasons", late)
    answer = hippo(*small)
    said = [
        answer.out.index(words) for words in ("step time", "\nPlan\n", "now the reasons", "\nWhy\n", ", the reasons ")
    ]
    assert said == sorted(said)
    assert hippo(*small, "--json", "--no-why").document["reasons_s"] == 0.0
    plain = hippo(*small, "--no-why").out
    assert "\nPlan\n" in plain
    assert "Why" not in plain


def test_the_answer_stands_although_its_files_cannot_be_written(hippo, small, tmp_path, monkeypatch):
    out = tmp_path / "out"
    assert hippo(*small, "--out", out).code == 0
    before = {path.name: path.read_text() for path in out.iterdir()}
    written = iter((True, False))  # the disk is full after the first file

    def sync(handle):
        if not next(written):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", sync)
    answer = hippo(*small, "--seed", "1", "--out", out)
    assert answer.code == 2
    assert "step time" in answer.out
    assert f"{out}: cannot write: No space left on device. To fix: " in answer.err
    assert {path.name: path.read_text() for path in out.iterdir()} == before


def test_out_writes_three_files(toy_folder):
    assert {path.name for path in toy_folder.iterdir()} == FILES
    assert json.loads((toy_folder / "plan.json").read_text())["pipelines"]
    assert (toy_folder / "report.html").read_text().startswith("<!")
    assert json.loads((toy_folder / "trace.json").read_text())


def test_out_says_on_stderr_what_it_wrote(hippo, small, tmp_path):
    answer = hippo(*small, "--json", "--out", tmp_path / "out")
    assert answer.code == 0
    assert answer.document["plan"] == json.loads((tmp_path / "out" / "plan.json").read_text())
    assert "plan.json" in answer.err


def test_out_over_an_older_one(hippo, small, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text("old")
    assert hippo(*small, "--out", tmp_path / "out").code == 0
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["hippo_plan"] == 1


@pytest.mark.parametrize("below", [(), ("deeper", "still")])
def test_out_with_a_file_in_the_way(refused, small, tmp_path, below):
    (tmp_path / "out").write_text("mine")
    message = refused(*small, "--out", tmp_path.joinpath("out", *below))
    assert "--out" in message
    assert (tmp_path / "out").read_text() == "mine"


def test_out_where_a_folder_bears_a_files_name(hippo, small, tmp_path):
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    answer = hippo(*small, "--out", tmp_path / "out")
    assert answer.code == 2
    assert "step time" in answer.out
    assert f"{tmp_path / 'out' / 'report.html'}: cannot write: Is a directory. To fix: " in answer.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_out_without_the_right_to_write(refused, small, tmp_path, monkeypatch):
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: real(path, mode) and not mode & os.W_OK)
    assert "no right to write" in refused(*small, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_an_answer(hippo, tmp_path):
    arguments = ("plan", "--model", "llama-3-405b", "--cluster", "toy", "--time-limit", "1")
    answer = hippo(*arguments, "--json", "--out", tmp_path / "out")
    assert answer.code == 3
    document = answer.document
    assert (document["status"], document["plan"], document["score"]) == ("infeasible", None, None)
    kinds = {reason["kind"]: reason for reason in document["reasons"]}
    figures = kinds["missing_memory"]["figures"]
    assert figures["needed_bytes"] > figures["usable_bytes"] == 80e9
    assert "nearest_change" in kinds
    assert not (tmp_path / "out").exists()


def test_too_little_memory_in_words(hippo):
    answer = hippo("plan", "--model", "llama-3-405b", "--cluster", "toy", "--planner", "even")
    assert answer.code == 3
    assert "missing per GPU" in " ".join(answer.out.split())
    assert "It fits" in answer.out


@pytest.mark.parametrize("objective", ["cost", "1,0.5,0.5"])
def test_other_objectives(hippo, small, objective):
    assert hippo(*small, "--objective", objective, "--json").document["score"]["reward"] is not None


def test_quiet_says_the_answer_alone_and_verbose_who_was_asked(hippo, tmp_path):
    quiet = hippo(*TOY.split(), "--quiet", "--out", tmp_path)
    assert (quiet.code, quiet.err) == (0, "")
    assert {file.name for file in tmp_path.iterdir()} == FILES
    verbose = hippo(*TOY.split(), "-v", "--json")
    assert verbose.document["planner"] == "crosspipe"
    assert "hippo: planning ...\n" in verbose.err
    assert "hippo: crosspipe: feasible after " in verbose.err


def test_quiet_does_not_go_with_verbose(refused):
    assert "--quiet: does not go with --verbose" in refused(*TOY.split(), "-q", "-v")


ROLLOUTS = {"replica": {"gpus": 2, "tokens_per_s": 90_000, "sequences": 8}, "generated_tokens": 64, "staleness": 2}


@pytest.fixture
def with_rollouts(tmp_path):
    """A small model that learns from its own samples in two domains."""
    model, cluster = written(tmp_path, "config.json", MODEL), written(tmp_path, "net.yaml", CLUSTER)
    file = written(tmp_path, "rolls.json", ROLLOUTS)
    return ("plan", "--model", model, "--cluster", cluster, "--global-batch", "32", "--rollouts", file)


def test_rollouts_are_placed(hippo, with_rollouts, tmp_path):
    answer = hippo(*with_rollouts, "--json", "--out", str(tmp_path / "out"))
    assert answer.code == 0
    assert {"trainer", "pools", "push", "staleness", "binds", "others", "covers", "plan"} <= set(answer.document)
    assert answer.document["plan"]["hippo_plan"] == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rollouts.json", "plan.json"}
    assert hippo("explain", str(tmp_path / "out" / "plan.json"), "--json").code == 0
    shown = hippo(*with_rollouts)
    assert "GPUs generate" in shown.out
    assert "this answer" in shown.out


def test_rollouts_go_with_no_other_planner(hippo, with_rollouts):
    answer = hippo(*with_rollouts, "--planner", "even")
    assert (answer.code, answer.out) == (2, "")
    assert "--planner: does not go with --rollouts" in answer.err


def test_rollouts_without_room_are_an_answer(hippo, with_rollouts, tmp_path):
    pools = {"pools": {"a": 0, "b": 0}}
    answer = hippo(*with_rollouts[:-1], written(tmp_path, "none.json", ROLLOUTS | pools), "--json")
    assert answer.code == 3
    assert answer.document["status"] == "infeasible"
    assert "allow more under pools" in answer.document["reasons"][1]
