"""The view of a decision in a notebook cell: compact, inert, escaped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.report.worlds import decision_of

from hippo.decide.decision import Decision
from hippo.planners.base import Status
from hippo.report.notebook import decision_html
from hippo.report.story import PlanStory


def test_says_what_matters_and_stays_small(small_story: PlanStory) -> None:
    text = decision_html(decision_of(small_story))
    for said in (
        "toy-4b",
        "11.0 s",
        "beijing [0-12) tp2 dp1 →",
        "Proven by exact: no plan that it knows is quicker",
        "bubble",
        "single_domain",
        "+32 %",
    ):
        assert said in text
    assert 'aria-label="Map of 3 domains' in text
    assert text.count("<circle") == len(small_story.problem.cluster.domains)
    assert len(text) < 20_000
    assert "<script" not in text
    assert "http" not in text


def test_an_answer_without_a_plan_is_shown_too(small_story: PlanStory) -> None:
    nothing = Decision(small_story.problem, Status.INFEASIBLE, "exact", reasons=small_story.reasons)
    text = decision_html(nothing)
    assert "No plan fits." in text
    assert "bubble" in text


def test_names_are_escaped(story_of_domains: Callable[..., PlanStory]) -> None:
    text = decision_html(
        decision_of(story_of_domains(("<b>x</b>", "guizhou", "wuhu"), model="<script>alert(1)</script>"))
    )
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def test_more_reasons_unfold_where_there_are_more(small_story: PlanStory) -> None:
    assert "All reasons" in decision_html(decision_of(small_story))
    one = replace(decision_of(small_story), reasons=small_story.reasons[:2])
    assert "All reasons" not in decision_html(one)
