"""How unevenly tokens go to experts: by hand, by every order of the experts, in files old and new."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest

from hippo.errors import InputError
from hippo.files import json_text
from hippo.problem.codec import problem_from_document, problem_to_document
from hippo.problem.load import load_problem
from hippo.problem.model import Experts
from hippo.problem.problem import Problem
from hippo.problem.routing import Routing
from hippo.problem.workload import DISPATCHERS

EIGHT = Experts(8, 2, 1024)


def mixtral(**given: object) -> Problem:
    return load_problem(model="mixtral-8x7b", cluster="toy", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("routing", "skews"),
    [
        (Routing(), (1.0, 1.0, 1.0, 1.0)),
        (Routing(2.5), (1.0, 2.0, 2.5, 2.5)),  # two ranks cannot differ more
        (Routing(counts=(4, 4, 1, 1, 1, 1, 2, 2)), (1.0, 10 / 8, 8 / 4, 4 / 2)),  # the two that are full stand together
        (Routing(counts=(4, 0, 4, 0, 4, 0, 4, 0)), (1.0, 1.0, 1.0, 2.0)),
    ],
)
def test_the_fullest_of_1_2_4_and_8_ranks(routing: Routing, skews: tuple[float, ...]) -> None:
    assert [routing.skew(ep, EIGHT) for ep in (1, 2, 4, 8)] == pytest.approx(skews)


@pytest.mark.parametrize("exponent", [0.3, 1.0])
def test_a_power_law_is_the_mean_over_all_orders_of_the_experts(exponent: float) -> None:
    weights = [place**-exponent for place in range(1, 7)]
    every = [max(a + b, c + d, e + f) for a, b, c, d, e, f in permutations(weights)]
    assert Routing(exponent=exponent).skew(3, Experts(6, 1, 64)) == pytest.approx(3 * fmean(every) / sum(weights), 0.01)


def test_no_expert_gets_more_than_one_copy_of_each_token() -> None:
    steep = Routing(exponent=3.0)
    assert steep.skew(8, EIGHT) == pytest.approx(8 / 2)
    assert steep.skew(8, Experts(8, 8, 1024)) == pytest.approx(1.0)


@pytest.mark.parametrize("given", ["even", "1.5", "power:0.6", "counts.json"])
def test_what_was_asked_is_read_back(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("counts.json").write_text("[4, 4, 1, 1, 1, 1, 2, 2]")
    asked = mixtral(routing=given, dispatcher="deepep")
    assert asked.workload.software.dispatcher == "deepep"
    document = json.loads(json_text(problem_to_document(asked)))
    assert problem_from_document(document, source="plan.json") == asked
    told = document["workload"].pop("routing")
    assert told == {"1.5": 1.5, "counts.json": [4, 4, 1, 1, 1, 1, 2, 2]}.get(given, given)


def test_files_of_before_are_read() -> None:
    for model, skew, routing in (("mixtral-8x7b", 1.5, Routing(1.5)), ("gpt2", 1.0, Routing())):
        document = problem_to_document(load_problem(model=model, cluster="toy"))
        del document["workload"]["routing"]  # type: ignore[attr-defined]
        assert problem_from_document(document, source="plan.json").workload.routing == Routing()
        document["workload"]["routing_skew"] = skew  # type: ignore[index]
        assert problem_from_document(document, source="plan.json").workload.routing == routing


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        ("gpt2", {"routing": "1.5"}, "--routing: gpt2 has no experts (got 1.5). To fix: leave it out"),
        ("gpt2", {"dispatcher": "deepep"}, "--dispatcher: gpt2 has no experts (got 'deepep')."),
        ("gpt2", {"dispatcher": "hybridep"}, "--dispatcher: gpt2 has no experts (got 'hybridep')."),
        (
            "mixtral-8x7b",
            {"dispatcher": "hybrid"},
            "--dispatcher: unknown dispatcher 'hybrid'.",
        ),
        ("mixtral-8x7b", {"dispatcher": "allgather"}, "--dispatcher: unknown dispatcher 'allgather'. To fix: use one"),
        ("mixtral-8x7b", {"routing": "skewed"}, "--routing: is no routing of tokens to experts (got 'skewed')."),
        ("mixtral-8x7b", {"routing": "missing.json"}, "missing.json: file of tokens that each expert got does not"),
        ("mixtral-8x7b", {"routing": "seven.json"}, "seven.json: mixtral-8x7b has 8 experts a block (got '7 numbers')"),
        ("mixtral-8x7b", {"routing": "map.json"}, "map.json: is no list of counts"),
    ],
)
def test_what_is_refused(
    model: str, given: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seven.json").write_text("[1, 1, 1, 1, 1, 1, 1]")
    Path("map.json").write_text('{"0": 1}')
    with pytest.raises(InputError) as error:
        load_problem(model=model, cluster="toy", **given)  # type: ignore[arg-type]
    assert str(error.value).startswith(words)


def test_a_dispatcher_in_a_file_is_one_that_is_costed() -> None:
    asked = mixtral()
    for name in DISPATCHERS:
        own = mixtral(dispatcher=name)
        assert problem_from_document(problem_to_document(own), source="plan.json") == own
    software = replace(asked.workload.software, dispatcher="hybrid")
    document = problem_to_document(replace(asked, workload=replace(asked.workload, software=software)))
    with pytest.raises(
        InputError, match=r"plan.json: problem.workload.software.dispatcher: unknown dispatcher 'hybrid'"
    ):
        problem_from_document(document, source="plan.json")
