"""The page of a replay: what it says, that it needs nothing outside itself, and what a browser draws."""

from __future__ import annotations

import base64
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from tests.chromium import CHROMIUM, opened
from tests.report.watched import ALONE, EPOCHS, LEVER, make_story

from hippo.network.why.story import Story
from hippo.report.watch_html import packed, plan_names, watch_html
from hippo.report.watch_terminal import clock, decision_view, story_view

EVIL = ('<script>document.documentElement.dataset.fault="xss"', "'\"><img src=x onerror=alert(1)>")


@pytest.fixture(scope="module")
def story() -> Story:
    return make_story()


def test_it_says_what_was_decided(story: Story) -> None:
    page = watch_html(story)
    for told in story.decisions:
        if told.changes:
            assert f'id="decision-{story.decisions.index(told)}"' in page
    assert "net.csv" in page
    assert "Work done" in page


def test_it_needs_nothing_outside_itself(story: Story) -> None:
    page = watch_html(story)
    assert not re.findall(r'(?:src|href)="(?!#)[^"]', page)
    assert "default-src 'none'" in unescape(page)


def test_names_of_plans(story: Story) -> None:
    """A letter a placement, a number for its levers."""
    names = plan_names(story)
    assert [names[index] for index in (0, ALONE, LEVER)] == ["A", "B", "A2"]


def test_what_is_drawn(story: Story) -> None:
    drawn = packed(story, plan_names(story))
    heat = np.frombuffer(base64.b64decode(str(drawn["heat"])), dtype=np.uint8).reshape(2, EPOCHS)
    assert heat[:, 0].tolist() == [100, 100]
    assert heat[:, 4].tolist() == [10, 10]
    assert drawn["stale"] == [[0, 5, 6]]
    assert [stretch[2] for stretch in drawn["running"]] == [0, 1, 0, 2]  # type: ignore[attr-defined]
    halted = {epoch for first, stop in drawn["halts"] for epoch in range(first, stop)}  # type: ignore[attr-defined]
    assert halted == set(np.flatnonzero(story.mine.downtime_s > 0).tolist())


def test_an_outage_is_not_a_weak_link(story: Story) -> None:
    """Level 0 is for outages alone, however little a link carries."""
    low = make_story()
    low.bandwidth_bytes_per_s[4] = 1.0
    low.bandwidth_bytes_per_s[5] = 0.0
    heat = np.frombuffer(base64.b64decode(str(packed(low, plan_names(low))["heat"])), dtype=np.uint8)
    assert heat.reshape(2, EPOCHS)[0, 4:6].tolist() == [1, 0]


def test_names_are_escaped() -> None:
    page = watch_html(make_story(EVIL, model="</script><b>toy</b>"))
    assert "<img" not in page
    assert "<script>document" not in page
    assert "</script><b>" not in page
    assert "<b>toy" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
@pytest.mark.parametrize("names", [pytest.param(("a", "b"), marks=pytest.mark.slow), EVIL])
def test_a_browser_draws_it(names: tuple[str, str], tmp_path: Path) -> None:
    story = make_story(names)
    page = tmp_path / "watch.html"
    page.write_text(watch_html(story), encoding="utf-8")
    dom = opened(page, "--dump-dom", "--window-size=1280,900")
    root, picture = re.search(r"<html[^>]*>", dom), re.search(r'<div class="card tl"[^>]*>', dom)
    assert root
    assert picture
    found = dict(re.findall(r'data-([a-z]+)="([^"]*)"', root[0] + picture[0]))
    assert found.get("fault") is None
    assert found["ready"] == "yes"
    assert int(found["marks"]) == len(story.decisions)


def test_the_terminal_reads_nothing_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    console = Console(width=100)
    story = make_story(("[red]a", "b"))
    for told in story.decisions:
        console.print(decision_view(told))
    console.print(story_view(story))
    assert "[red]a [0-12) -> b [12-24)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("time_s", "said"), [(0, "0:00"), (61 * 60, "1:01"), (90_061, "1 d 1:01")])
def test_clock(time_s: float, said: str) -> None:
    assert clock(time_s) == said
