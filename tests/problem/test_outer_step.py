"""The outer step of local SGD: its words, and what is refused."""

from __future__ import annotations

import pytest

from hippo.errors import InputError
from hippo.plan.check import check
from hippo.plan.codec import plan_from_document, plan_to_document
from hippo.plan.plan import Sync
from hippo.planners.base import Stop
from hippo.planners.baselines.diloco import Diloco
from hippo.problem.load import load_problem
from hippo.problem.outer_step import OuterStep, outer_step_from_text


def test_what_is_left_out_is_as_usual():
    assert outer_step_from_text("100") == OuterStep(100)
    assert outer_step_from_text("100,4,1,4") == OuterStep(100, 4, 1, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no outer step"),
        ("many", "is no outer step"),
        ("1,2,3,4,5", "is no outer step"),
        ("0", "at least one step"),
        ("4,8", "no more fragments than steps"),
        ("100,7", "7 fragments do not divide 100 steps"),
        ("100,4,25", "an average that is 25 steps late would meet the next, which begins after 25"),
        ("100,4,1,5", "5 bits are none of"),
    ],
)
def test_what_cannot_be_is_refused(text: str, said: str):
    with pytest.raises(InputError) as error:
        outer_step_from_text(text)
    assert str(error.value).startswith("--outer-step: ")
    assert said in str(error.value)
    assert "To fix: " in str(error.value)


def test_it_is_local_sgds_alone():
    with pytest.raises(InputError, match="--outer-step: is local SGD.*--allow-local-sgd"):
        load_problem(model="gpt2", cluster="toy", outer_step="100")


def test_a_plan_keeps_it_in_its_file():
    asked = {"allow_local_sgd": True, "outer_step": "100,4,1,4"}
    problem = load_problem(model="gpt2", cluster="toy", global_batch=16, seq=512, **asked)
    plan = Diloco().propose(problem, Stop(1.0)).plan
    assert plan is not None
    assert plan.sync == Sync("local_sgd", 100, fragments=4, delay=1, bits=4)
    assert plan_from_document(plan_to_document(problem, plan), "file") == (problem, plan)
    wrong = plan_to_document(problem, plan) | {"sync": {"method": "local_sgd", "every": 100, "fragments": 7}}
    assert [each.rule for each in check(*plan_from_document(wrong, "file"))] == ["outer step"]
    wrong["sync"] = {"method": "allreduce", "fragments": 2}
    assert [each.rule for each in check(*plan_from_document(wrong, "file"))] == ["sync"]
