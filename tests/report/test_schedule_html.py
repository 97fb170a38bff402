"""The page of a schedule: whole, offline, its figures right; a real Chromium opens it and draws every mark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.chromium import CHROMIUM, opened
from tests.report.test_html import EVIL, Page

from hippo.report import schedule_html as pages
from hippo.report.schedule_html import schedule_html
from hippo.report.schedule_marks import messages
from hippo.schedule.bound.lower_bound import bounds
from hippo.schedule.problem import MicroBatchMemory, ScheduleProblem
from hippo.schedule.solve import Answer, solve

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")

SMALL = ScheduleProblem.uniform(4, 6, comm=[0.5, 5.0, 0.5], live_limit=4)


@pytest.fixture(scope="module")
def small() -> Answer:
    """ZB-H1 across a slow link, with what else was tried."""
    found = solve(SMALL, "zb-h1")
    return replace(found, why="Because.", tried=(("zb-h1", found.makespan), ("1f1b", 60.0), ("gpipe", "too much")))


def text_of(page: str) -> str:
    return " ".join(" ".join(Page(page).text).split())


def document(page: str) -> dict[str, object]:
    """What the timeline is drawn from."""
    found = re.search(r'<script type="application/json" id="timeline-data">(.*?)</script>', page, re.DOTALL)
    assert found
    told: dict[str, object] = json.loads(found[1])
    return told


def test_the_figures(small: Answer) -> None:
    """p 4, m 6, all times 1, delay 5 in the middle, K 4: ZB-H1 takes 53, the bound is 45."""
    text = text_of(schedule_html(small))
    for said in (
        "4 ranks, 6 micro-batches, F 1, B 1, W 1, delays 0.5 to 5, 1 slow link, memory 4",
        "Makespan 53 first forward to last end Lower bound 45",
        "17.78 %",
        f"Bubble {small.replay.bubble_rate:.4f} of the longest stage",
        f"Bubble, full {small.replay.bubble_full:.4f} of all ranks to the end",
        "Peak live 4 micro-batches of 4",
        "Because.",
        "Slow: rank 1 to 2 (delay 5).",
        "2 schedules played, 1 refused.",
        "gpipe too much",
    ):
        assert said in text, said


def test_a_proved_optimum_is_called_one() -> None:
    text = text_of(schedule_html(solve(ScheduleProblem.uniform(2, 4), "zb-h1")))
    assert "Proved optimal: the makespan meets the lower bound." in text


def test_memory_of_another_unit() -> None:
    problem = replace(SMALL, memory=(MicroBatchMemory(10.0, 4.0),) * 4, limit=(60.0,) * 4)
    text = text_of(schedule_html(solve(problem, "zb-h1")))
    assert "the limit counts memory" in text
    assert "1 1 1 10 4 60 delay 5" in text


def test_reductions() -> None:
    """ZB-H1 of two ranks, m 2: rank 0 ends at 8, rank 1 at 7; rank 1 agrees its gradients in 5."""
    page = schedule_html(solve(replace(ScheduleProblem.uniform(2, 2), reduction=(0.0, 5.0)), "zb-h1"))
    text = text_of(page)
    for said in ("reductions 0 to 5", "Agreeing gradients", "The last 5 is a reduction of gradients.", "Makespan 12"):
        assert said in text, said
    assert "1 1 1 1 0 none 5" in text
    first, second = document(page)["ranks"]  # type: ignore[misc]
    assert "agreeing" not in first
    assert second["agreeing"] == [round(7 / 12 * 1e6), 1_000_000]
    assert "Agreeing gradients" not in text_of(schedule_html(solve(ScheduleProblem.uniform(2, 2), "zb-h1")))


def test_every_bound_has_words() -> None:
    assert set(bounds(SMALL)) == set(pages.BOUNDS)


def test_every_section_has_its_anchor(small: Answer) -> None:
    page = Page(schedule_html(small))
    ids = {attrs.get("id") for _, attrs in page.tags}
    anchors = {(attrs["href"] or "")[1:] for tag, attrs in page.tags if tag == "a" and attrs.get("href")}
    assert {"timeline", "binds", "ranks", "methods", "problem"} <= anchors <= ids


def test_nothing_outside_is_named(small: Answer) -> None:
    page = schedule_html(small)
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|url\((?!#)", page)
    assert not any("src" in attrs for _, attrs in Page(page).tags)


def test_the_same_answer_gives_the_same_bytes(small: Answer) -> None:
    assert schedule_html(small) == schedule_html(small)


def test_of_very_long_schedules_the_first_operations(small: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_DRAWN", 20)
    page = schedule_html(small)
    ranks = document(page)["ranks"]
    assert isinstance(ranks, list)
    assert sum(len(rank["kind"]) for rank in ranks) == 20
    assert "The picture holds the first 20 of 72 operations; the tables, all." in text_of(page)


# ------------------------------------------------------------------------------------------------------ in a browser
def drawn(page: str, folder: Path) -> dict[str, str]:
    """Attributes that the scripts left on the root element and on the timeline."""
    file = folder / "schedule.html"
    file.write_text(page, encoding="utf-8")
    dom = opened(file, "--dump-dom", "--window-size=1280,900")
    marks = re.findall(r'<html[^>]*>|<div class="card tl"[^>]*>', dom)
    return dict(re.findall(r'data-([a-z]+)="([^"]*)"', " ".join(marks)))


@needs_browser
def test_every_mark_is_drawn(small: Answer, tmp_path: Path) -> None:
    found = drawn(schedule_html(small), tmp_path)
    slow = [each for each in messages(small.replay) if {each.sender, each.receiver} == {1, 2}]
    assert found.get("fault") is None
    assert found["ready"] == "yes"
    assert int(found["marks"]) == 72 + len(slow) == 72 + 12


@needs_browser
def test_reductions_are_drawn(tmp_path: Path) -> None:
    found = drawn(schedule_html(solve(replace(SMALL, reduction=(0.0, 2.0, 90.0, 1.0)), "zb-h1")), tmp_path)
    assert found.get("fault") is None
    assert int(found["marks"]) == 72 + 12 + 3


@needs_browser
@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("zb-h2", ScheduleProblem.uniform(16, 128, comm=0.1)),
        ("zb-v", ScheduleProblem.uniform(4, 8).placed("v")),
        pytest.param("dualpipe", ScheduleProblem.uniform(4, 8).placed("bidirectional"), marks=pytest.mark.slow),
    ],
)
def test_large_ones_and_other_placements(method: str, problem: ScheduleProblem, tmp_path: Path) -> None:
    answer = solve(problem, method)
    found = drawn(schedule_html(answer), tmp_path)
    assert found.get("fault") is None
    assert int(found["marks"]) == len(answer.schedule.order)


@needs_browser
def test_evil_names_run_nothing(small: Answer, tmp_path: Path) -> None:
    evil = replace(
        small, problem=replace(SMALL, name=EVIL[0]), why=EVIL[1], tried=((EVIL[2], 60.0), (EVIL[0], EVIL[1]))
    )
    found = drawn(schedule_html(evil), tmp_path)
    assert found.get("fault") is None
    assert found["ready"] == "yes"
