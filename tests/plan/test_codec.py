"""Plan files: what is written is read the same; what was edited by hand is refused in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import planned, problems

from hippo.errors import InputError
from hippo.files import json_text
from hippo.plan.codec import load_plan, plan_from_document, plan_to_document, save_plan
from hippo.plan.plan import Pipeline, Plan, Stage
from hippo.problem.codec import problem_from_document, problem_to_document
from hippo.problem.load import load_problem
from hippo.problem.problem import Problem


def toy() -> tuple[Problem, Plan]:
    problem = load_problem(model="gpt2", cluster="toy", global_batch=8)
    stages = (
        Stage("east", (0, 7), 1, 2, ("east/0/0", "east/0/1")),
        Stage("west", (7, 14), 2, 1, ("west/0/0", "west/0/1")),
    )
    return problem, Plan((Pipeline(stages, 2),), micro_batch=2)


@given(planned())
def test_a_plan_is_read_as_it_was_written(pair: tuple[Problem, Plan]) -> None:
    document = json.loads(json_text(plan_to_document(*pair)))
    assert plan_from_document(document, "plan.json") == pair


@given(problems())
def test_a_problem_is_read_as_it_was_written(problem: Problem) -> None:
    document = json.loads(json_text(problem_to_document(problem)))
    assert problem_from_document(document, source="plan.json") == problem


@pytest.mark.parametrize("model", ["gpt-oss-20b", "llama-4-maverick-17b-128e", "qwen3-next-80b-a3b", "deepseek-v3"])
def test_every_form_of_attention_is_read_as_it_was_written(model: str) -> None:
    problem = load_problem(model=model, cluster="four-hubs")
    document = json.loads(json_text(problem_to_document(problem)))
    assert problem_from_document(document, source="plan.json") == problem
    attention = document["model"]["layers"][1]["attention"]
    attention["window"] = 0
    with pytest.raises(InputError, match=r"layers\[1\].attention.window: is out of range"):
        problem_from_document(document, source="plan.json")


def test_the_document_has_the_contract_s_form() -> None:
    document = plan_to_document(*toy())
    assert document["hippo_plan"] == 1
    assert document["pipelines"] == [
        {
            "stages": [
                {"domain": "east", "layers": [0, 7], "tp": 1, "dp": 2, "devices": ["east/0/0", "east/0/1"]},
                {"domain": "west", "layers": [7, 14], "tp": 2, "dp": 1, "devices": ["west/0/0", "west/0/1"]},
            ],
            "num_micro_batches": 2,
        }
    ]
    assert document["micro_batch"] == 2
    assert document["schedule"] == {"name": "1f1b"}
    assert document["sync"] == {"method": "allreduce", "every": 1, "all_reduce": "two-level"}
    assert document["relays"] == document["compression"] == []
    assert document["problem"]["cluster"]["gpu"] == "A100-SXM-80GB"
    assert document["problem"]["model"]["layers"][1]["count"] == 12


def test_keys_that_do_not_apply_may_be_absent() -> None:
    problem, plan = toy()
    document = plan_to_document(problem, plan)
    short = {key: document[key] for key in ("hippo_plan", "problem", "pipelines", "micro_batch")}
    assert plan_from_document(short, "plan.json") == (problem, plan)


def test_a_saved_file_is_whole_and_stands_alone(tmp_path: Path) -> None:
    pair = toy()
    save_plan(*pair, tmp_path / "out" / "plan.json")
    assert load_plan(tmp_path / "out" / "plan.json") == pair
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plan.json"]


def test_the_answer_of_plan_json_is_unwrapped() -> None:
    pair = toy()
    assert plan_from_document({"status": "optimal", "plan": plan_to_document(*pair)}, "answer.json") == pair
    with pytest.raises(InputError, match=r"answer\.json: plan: this answer holds no plan"):
        plan_from_document({"status": "infeasible", "plan": None}, "answer.json")


Edit = Callable[[dict[str, Any]], object]


def stage(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["pipelines"][0]["stages"][0]
    return found


EDITS: list[tuple[Edit, str]] = [
    (lambda d: d.pop("hippo_plan"), "plan.json: is not a plan file: it has no key 'hippo_plan'."),
    (lambda d: d.update(hippo_plan=2), "plan.json: hippo_plan: unknown version of the plan file (got 2)."),
    (lambda d: d.pop("micro_batch"), "plan.json: micro_batch: is missing. To fix: add the key 'micro_batch'."),
    (lambda d: d.update(microbatch=1), "plan.json: microbatch: unknown key (got 1). To fix: write micro_batch,"),
    (
        lambda d: d.update(shardng="full"),
        "plan.json: shardng: unknown key 'shardng' (got 'full'). To fix: did you mean 'sharding'?",
    ),
    (lambda d: d.update(sharding="zero3"), "plan.json: sharding: unknown sharding 'zero3'. To fix: use one of full,"),
    (lambda d: d.update(micro_batch=0), "micro_batch: is out of range (got 0). To fix: write a whole number from 1 to"),
    (lambda d: d.update(micro_batch=True), "micro_batch: must be a whole number (got True)."),
    (lambda d: d.update(pipelines=[]), "plan.json: pipelines: is empty (got [])."),
    (lambda d: d.update(pipelines={}), "plan.json: pipelines: must be a list (got {})."),
    (lambda d: d["pipelines"][0].update(warm_up=[0]), "pipelines[0].warm_up: must be a list of positive integers"),
    (lambda d: stage(d).pop("domain"), "plan.json: pipelines[0].stages[0].domain: is missing."),
    (lambda d: stage(d).update(layers=[7, 0]), "pipelines[0].stages[0].layers: is not a range of layers (got [7, 0])."),
    (lambda d: stage(d).update(layers=[0, 7.5]), "pipelines[0].stages[0].layers: is not a range of layers"),
    (lambda d: stage(d).update(devices="east/0/0"), "pipelines[0].stages[0].devices: must be a list"),
    (lambda d: stage(d).update(devices=[0, 1]), "pipelines[0].stages[0].devices: must be a list of names"),
    (lambda d: stage(d).update(gpu="H100"), "pipelines[0].stages[0].gpu: unknown key 'gpu' (got 'H100')."),
    (lambda d: d.update(sync={"method": "gossip"}), "plan.json: sync.method: unknown method 'gossip'."),
    (lambda d: d.update(problem=None), "plan.json: problem: is null."),
    (lambda d: d["problem"].pop("cluster"), "plan.json: problem.cluster: is missing."),
    (
        lambda d: d["problem"].update(cluster="tou"),
        "problem.cluster: unknown cluster 'tou'. To fix: did you mean 'toy'?",
    ),
    (lambda d: d["problem"].update(model="gtp2"), "plan.json: problem.model: unknown model 'gtp2'."),
    (lambda d: d["problem"]["objective"].update(name="x"), "plan.json: problem.objective.name: unknown name 'x'."),
    (lambda d: d["problem"]["cluster"].update(gpu="K80"), "plan.json: problem.cluster: gpu: unknown gpu 'K80'."),
    (lambda d: d["problem"]["workload"].update(seq=0), "plan.json: problem.workload.seq: is out of range (got 0)."),
    (lambda d: d["problem"]["model"]["layers"].pop(), "problem.model.layers: are not an embedding, blocks and a head"),
    (
        lambda d: d["problem"]["model"]["layers"][1].update(count=10**6),
        "problem.model.layers[1].count: is out of range (got 1000000).",
    ),
]


@pytest.mark.parametrize(("edit", "words"), EDITS)
def test_edited_plans_are_refused_in_words(edit: Edit, words: str) -> None:
    document = copy.deepcopy(plan_to_document(*toy()))
    edit(document)
    with pytest.raises(InputError) as caught:
        plan_from_document(document, "plan.json")
    assert words in str(caught.value)
    assert "To fix: " in str(caught.value)


def test_names_of_the_catalogue_stand_for_descriptions() -> None:
    problem, plan = toy()
    document = plan_to_document(problem, plan)
    document["problem"] |= {"model": problem.model.name, "cluster": problem.cluster.name}
    assert plan_from_document(document, "plan.json") == (problem, plan)


@given(st.integers(0, 3000))
def test_truncated_files_are_refused(length: int) -> None:
    text = json_text(plan_to_document(*toy()))
    from hippo.problem.document import parse_json

    with pytest.raises(InputError, match="not valid JSON"):
        parse_json(text[: min(length, len(text) - 3)], "plan.json")
