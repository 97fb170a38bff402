"""The report opens in a real browser: marks are drawn, no script fails, nothing outside is asked, nothing injected.

Needs a Chromium (``tests/chromium.py``); without one these tests are skipped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chromium import CHROMIUM, opened

from hippo.report.html import report
from hippo.report.story import PlanStory

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")


def drawn(story: PlanStory, folder: Path) -> dict[str, str]:
    """Attributes that the scripts left on the root element and on the timeline."""
    page = folder / "report.html"
    page.write_text(report(story), encoding="utf-8")
    dom = opened(page, "--dump-dom", "--window-size=1280,900")
    root, timeline = re.search(r"<html[^>]*>", dom), re.search(r'<div class="card tl"[^>]*>', dom)
    assert root
    assert timeline
    return dict(re.findall(r'data-([a-z]+)="([^"]*)"', root[0] + timeline[0]))


def test_the_small_report_draws_every_mark(small_story: PlanStory, tmp_path: Path) -> None:
    found = drawn(small_story, tmp_path)
    assert found.get("fault") is None
    assert found["ready"] == "yes"
    assert int(found["marks"]) == 12 + 4  # operations and messages


def test_a_large_schedule_draws_every_mark(wide_story: PlanStory, tmp_path: Path) -> None:
    found = drawn(wide_story, tmp_path)
    assert found.get("fault") is None
    assert int(found["marks"]) == 64 * 513 + 3 * 256


def test_evil_names_run_nothing(story_of_domains: Callable[..., PlanStory], tmp_path: Path) -> None:
    evil = (
        '<script>document.documentElement.dataset.fault="xss"</script>',
        '"><img src=x onerror=alert(1)>',
        "'};alert(1)//",
    )
    found = drawn(story_of_domains(evil, model="</script><script>alert(1)</script>"), tmp_path)
    assert found.get("fault") is None
    assert found["ready"] == "yes"


ACTS = """
<script>document.addEventListener("DOMContentLoaded", () => {
  const root = document.querySelector(".tl"), canvas = root.querySelector("canvas"), told = [];
  const tell = act => { act(); told.push(root.dataset.marks); };
  const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const click = name => root.querySelector(`[data-do=${name}]`).click();
  tell(() => click("start")); tell(() => click("all")); tell(() => press("+")); tell(() => press("0"));
  tell(() => click("end")); tell(() => press("Home"));
  tell(() => document.getElementById("theme").click());
  document.documentElement.dataset.told = told.join(" ");
});</script></head>"""


def test_buttons_and_keys_move_the_view(small_story: PlanStory, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report(small_story))
    page.write_text(free.replace("</head>", ACTS), encoding="utf-8")
    dom = opened(page, "--dump-dom", "--window-size=1280,900")
    told = re.search(r'data-told="([^"]*)"', dom)
    assert told
    start, whole, closer, again, end, home, dark = map(int, told[1].split())
    assert (whole, again) == (16, 16)
    assert start == home == dark  # the first half of the step, whatever the colours
    assert 0 < closer < whole
    assert start + end >= whole  # two halves, what lies across the middle in both
    assert start < whole


def test_a_picture_of_it_can_be_taken(small_story: PlanStory, tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(report(small_story), encoding="utf-8")
    opened(page, f"--screenshot={picture}", "--window-size=800,1200")
    content = picture.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (800, 1200)
    assert len(content) > 30_000  # an empty page is far smaller
