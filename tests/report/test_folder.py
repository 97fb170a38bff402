"""What ``--out`` writes, of a real plan: whole documents that their readers accept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.report.test_html import Page
from tests.report.test_perfetto import check_form, check_nesting
from tests.report.worlds import decision_of, make_story

from hippo.decide.choose import decide
from hippo.decide.decision import Decision
from hippo.plan.codec import plan_from_document
from hippo.planners.base import Status, Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.problem.load import load_problem
from hippo.report.folder import decision_files
from hippo.report.story import tell


@pytest.fixture(scope="module")
def found() -> Decision:
    """Two planners asked about the two-domain toy; the pipeline across both domains wins."""
    problem = load_problem(model="llama-3-8b", cluster="toy", global_batch=64)
    return decide(problem, (CrossPipe(), SingleDomain()), Stop(20.0), baseline=(SingleDomain(),))


def test_three_files_of_a_real_plan(found: Decision) -> None:
    files = decision_files(found)
    assert list(files) == ["plan.json", "report.html", "trace.json"]
    problem, plan = plan_from_document(json.loads(files["plan.json"]), "plan.json")
    assert (problem.cluster.name, plan) == ("toy", found.plan)
    ids = {attrs.get("id") for _, attrs in Page(files["report.html"]).tags}
    assert {"why", "step", "layers", "network", "memory", "planners", "front", "inputs"} <= ids
    assert len(files["report.html"]) < 200_000
    document = json.loads(files["trace.json"])
    check_form(document)
    check_nesting(document["traceEvents"])


def test_the_front_of_what_is_known(found: Decision) -> None:
    story = tell(found)
    assert len(story.front) == 2  # quick with egress, or slow without
    assert not story.beaten
    assert story.front[0][0] == found.plan
    assert tell(found, front=story.front[1:]).beaten == story.front[:1]


def test_the_baseline_is_a_row_even_where_it_was_not_asked(found: Decision) -> None:
    alone = replace(found, rows=found.rows[:1])
    assert [row.planner for row in tell(alone).rows] == ["crosspipe", "single_domain"]
    assert [row.planner for row in tell(found).rows] == ["crosspipe", "single_domain"]


def test_no_plan_no_files() -> None:
    nothing = replace(decision_of(make_story()), best=None, status=Status.INFEASIBLE)
    with pytest.raises(ValueError, match="no story"):
        decision_files(nothing)
