"""The file of ``--rollouts``: examples are read, what is wrong is said with file, key, value and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import ROOT

from hippo.errors import InputError
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem
from hippo.problem.rollouts import load_rollouts, rollouts_from_document

GOOD = {
    "replica": {"gpus": 2, "tokens_per_s": 6000, "sequences": 64},
    "generated_tokens": 512,
    "push": {"every": [1, 2]},
}


@pytest.fixture
def problem() -> Problem:
    return load_problem(model="llama-3-8b", cluster="three-aws-regions", seq=2048)


def changed(**change: object) -> dict[str, object]:
    document = json.loads(json.dumps(GOOD))
    for key, value in change.items():
        head, _, tail = key.partition("__")
        (document[head] if tail else document)[tail or head] = value
    return document


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"replica__tokens_per_s": None}, ["replica.tokens_per_s", "measure it"]),
        ({"replica__gpus": 3}, ["replica.gpus", "divide", "(got 3)", "multiple of 8"]),
        ({"replica__gpus": 0}, ["replica.gpus", "(got 0)"]),
        ({"replica__sequences": -1}, ["replica.sequences", "(got -1)"]),
        ({"replica__load_s": "4 s"}, ["replica.load_s", "'4 s'"]),
        ({"generated_tokens": 4096}, ["generated_tokens", "2048", "(got 4096)", "--seq"]),
        ({"push__kinds": ["half"]}, ["push.kinds", "half", "delta, whole"]),
        ({"push__kinds": []}, ["push.kinds", "is empty"]),
        ({"push__every": [0]}, ["push.every", "[0]", "1 to 256"]),
        ({"push__every": [4]}, ["staleness", "every 4 steps", "(got 1)", "at least 3"]),
        ({"push__delta_share": 1.5}, ["push.delta_share", "1.5"]),
        ({"staleness": -1}, ["staleness", "(got -1)"]),
        ({"trainers": ["east"]}, ["trainers", "east", "aws-us-east-1"]),
        ({"pools": {"east": 4}}, ["pools.east", "aws-us-east-1"]),
        ({"samples": 512}, ["samples", "--global-batch"]),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(problem: Problem, change: dict[str, object], said: list[str]):
    with pytest.raises(InputError) as error:
        rollouts_from_document(changed(**change), problem, source="rolls.yaml")
    message = str(error.value)
    assert message.startswith("rolls.yaml: ")
    assert "To fix: " in message
    assert [each for each in said if each not in message] == []


def test_weights_that_no_replica_holds():
    problem = load_problem(model="llama-3-70b", cluster="three-aws-regions", seq=2048)
    with pytest.raises(InputError, match=r"replica.gpus: hold 80 GB, llama-3-70b takes 141 GB \(got 1\)"):
        rollouts_from_document(changed(replica__gpus=1), problem, source="rolls.yaml")
    assert rollouts_from_document(changed(replica__gpus=1, push__bits=8), problem, source="") is not None


@pytest.mark.parametrize(
    ("file", "model", "seq"),
    [
        ("rollouts-small.yaml", "llama-3-8b", 2048),
        ("rollouts-trainer-at-home.yaml", "llama-3-70b", 4096),
        ("rollouts-fresh.json", "qwen3-30b-a3b", 2048),
    ],
)
def test_the_examples_are_read(file: str, model: str, seq: int):
    problem = load_problem(model=model, cluster="three-aws-regions", seq=seq)
    assert load_rollouts(Path(ROOT) / "examples" / file, problem).generated_tokens < seq


def test_a_delta_of_many_steps_is_no_more_than_the_whole(problem: Problem):
    pushes = rollouts_from_document(GOOD, problem, source="").pushes
    assert pushes.share("delta", 1) == pytest.approx(0.03)
    assert 0.03 < pushes.share("delta", 2) < 0.06
    assert pushes.share("delta", 10_000) <= 1.0 == pushes.share("whole", 1)
