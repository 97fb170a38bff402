"""The report as text: whole, offline, and nothing a user wrote becomes markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from hippo.decide.reasons import Rejected, RewardParts
from hippo.report import leads
from hippo.report.frame import inline_json
from hippo.report.html import report
from hippo.report.story import PlanStory

VOID = {"meta", "link", "br", "img", "input", "hr"}
EVIL = (
    '<script>document.documentElement.dataset.fault="xss"</script>',
    '"><img src=x onerror=alert(1)>',
    "'};alert(1)//",
)


class Page(HTMLParser):
    """Collects tags, attributes and the inline data; checks that every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def small_page(small_story: PlanStory) -> str:
    return report(small_story)


def test_every_section_is_there(small_page: str) -> None:
    page = Page(small_page)
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert {"why", "step", "layers", "network", "memory", "planners", "front", "inputs"} <= ids
    anchors = {(attrs["href"] or "")[1:] for tag, attrs in page.tags if tag == "a" and attrs.get("href")}
    assert anchors <= ids


def test_headline_figures(small_page: str) -> None:
    text = " ".join("".join(Page(small_page).text).split())
    for said in (
        "toy-4b on hand-made",
        "11.0 s",
        "beijing [0-12) tp2 dp1 → guizhou [12-24) tp2 dp1",
        "Proven by the planner exact: no plan that it knows is quicker",
    ):
        assert said in text


def test_the_answer_and_the_map_come_before_all_figures(small_page: str) -> None:
    """One domain alone takes 14.5 s at the same price by hand; where letters stand for layers, they are explained."""
    answer = small_page.index("Use beijing and guizhou; leave wuhu idle.")
    gain = small_page.index(
        "24\u00a0% less than with one domain alone (beijing, 14.5\u00a0s), at the same price, $0.20 a step."
    )
    assert answer < gain < small_page.index("<svg viewBox") < small_page.index('class="figures"')
    assert "Layers count from 0, the embedding, over 22 blocks to 23, the head" in small_page


def test_an_answer_in_one_domain_is_held_against_crossing(small_story: PlanStory) -> None:
    (crossing, score), (alone, cheaper) = small_story.front
    game = replace(small_story.game, plan=alone)
    story = replace(small_story, game=game, score=replace(cheaper, usd_per_step=0.1), front=((crossing, score),))
    use, than = leads.answer(story)
    assert use == "Use beijing; leave guizhou and wuhu idle."
    assert than == (
        "A step takes 14.5 s, 32 % more than with 2 domains (beijing and guizhou, 11.0 s), "
        "50 % cheaper ($0.10 in place of $0.20)."
    )


def test_a_page_says_no_letters_of_the_reward(small_story: PlanStory) -> None:
    parts = RewardParts("even", *(0.58, 0.7, 0.33), *(1.0, 0.0, 0.0), 0.58, 264.0, 2.0, 3.0)
    text = report(
        replace(small_story, reasons=(parts, Rejected("exact", (("cannot beat the best plan (bound)", 12),))))
    )
    assert "pays 0.330 times its egress.</p>" in text
    assert "by cause; cannot beat the best plan: 12." in text
    assert not re.search(r"R_|R = |Turned down by", text)


def test_nothing_outside_is_named(small_page: str) -> None:
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|url\((?!#)", small_page)
    for tag, attrs in Page(small_page).tags:
        assert tag not in {"link", "iframe", "object", "embed", "img"}
        assert "src" not in attrs
        assert not any(name.startswith("on") for name in attrs)


def test_only_its_own_scripts_may_run(small_page: str) -> None:
    policy = next(attrs["content"] for tag, attrs in Page(small_page).tags if tag == "meta" and "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_evil_names_stay_text(story_of_domains: Callable[..., PlanStory]) -> None:
    text = report(story_of_domains(EVIL, model="</title><script>alert(1)</script>"))
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 4  # three of ours, one of data
    assert "img" not in {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert EVIL[1] in {attrs.get("data-tip", "").split("\n")[0] for _, attrs in page.tags if attrs.get("data-tip")}


def test_braces_of_users_are_not_templates(story_of_domains: Callable[..., PlanStory]) -> None:
    text = report(story_of_domains(("{{ 7 * 7 }}", "{% raw %}", "wuhu")))
    assert "{{ 7 * 7 }}" in text
    assert "{% raw %}" in text


def test_inline_json_survives_html() -> None:
    document = {"name": "</script><!-- & \u2028"}
    text = str(inline_json(document))
    assert not set(text) & set("<>&")
    assert json.loads(text) == document


def test_a_large_schedule_stays_light(wide_story: PlanStory) -> None:
    text = report(wide_story)
    assert len(wide_story.timeline.op_rank) > 32_000
    assert len(text) < 1_500_000
    assert 'id="planners"' not in text  # one planner: nothing to compare
    assert 'id="front"' not in text


def test_reports_repeat_exactly(small_story: PlanStory, small_page: str) -> None:
    assert report(small_story) == small_page


def test_styles_name_only_known_colours(small_page: str) -> None:
    used = set(re.findall(r"var\((--[a-z0-9-]+)", small_page))
    defined = set(re.findall(r"(--[a-z0-9-]+):", small_page))
    assert used <= defined


def test_headings_name_every_section_in_order(small_page: str) -> None:
    page = Page(small_page)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert all(attrs.get("aria-labelledby") in ids for tag, attrs in page.tags if tag == "section")


def test_pictures_are_told_in_words(small_page: str) -> None:
    pictures = [attrs for tag, attrs in Page(small_page).tags if tag in {"svg", "canvas"} or attrs.get("role") == "img"]
    assert len(pictures) >= 5
    assert all(attrs.get("aria-label") or attrs.get("aria-hidden") == "true" for attrs in pictures)


def test_tables_and_buttons_have_names(small_page: str) -> None:
    page = Page(small_page)
    heads = [attrs for tag, attrs in page.tags if tag == "th"]
    assert heads
    assert all(attrs.get("scope") in {"row", "col"} for attrs in heads)
    assert '<th scope="col" class="n"></th>' not in small_page
    buttons = re.findall(r"<button([^>]*)>([^<]*)", small_page)
    assert len(buttons) == 6
    assert all("aria-label=" in attributes or text[0].isalpha() for attributes, text in buttons)
