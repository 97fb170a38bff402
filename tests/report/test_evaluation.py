"""The page, the pictures and the charts of an evaluation: all parts, honest words, nothing from outside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from hippo.network.evaluate.evidence import evidence, figures_asked
from hippo.network.methods.settings import searched
from hippo.report.evaluation_html import evaluation_page
from hippo.report.evaluation_page import page, spread, table
from hippo.report.evaluation_pictures import COLOURS, pictures
from hippo.report.evaluation_terminal import suite_view

from ..network.evidence_rows import rows

ABOUT = {
    "seeds": 2,
    "first_seed": 0,
    "families": ["ou3"],
    "methods": ["hi_ppo"],
    "forecast": "kalman",
    "preference": [1.0, 0.0, 0.0],
    "ours": "hi_ppo",
    "held": 1,
    "ablated": 1,
    "timed": 1,
    "large": 1,
    "movement": 2,
    "swings": 1,
    "load": 1,
    "options": " --seeds 1",
    "settings": searched(),
    "terms": {"runtime": "hippo", "allow_local_sgd": False, "compression_worth": None},
    "fronts": 1,
    "cpu_s": 7.0,
    "wall_s": 5.0,
    "tasks": 7,
    "processes": 2,
}


@pytest.fixture(scope="module")
def document() -> dict:
    found = evidence(rows(), ablations=["no_verification"])
    return {"suite": ABOUT, "figures": figures_asked(found), **found}


def test_the_page_has_every_part(document: dict) -> None:
    drawn = pictures(document)
    text = page(document, document["figures"], ABOUT, pictures=drawn)
    assert "Not played" not in text
    for name in drawn:
        assert f"(img/{name})" in text
    assert "| work done, share of hindsight | >= 97 % |" in text
    assert "**no**" in text
    assert "no difference from `receding_horizon`" in text
    assert all(line.count("|") == 5 for line in text.splitlines() if line.startswith("| share of"))


def test_the_page_says_when_the_claim_is_wrong(document: dict) -> None:
    worse = {"mean": -0.02, "low": -0.03, "high": -0.01, "count": 9}
    told = document["paired"]["receding_horizon"] | {"worth_capturing": worse}
    changed = document | {"paired": {"receding_horizon": told}}
    assert "**Hi-PPO does less work than `receding_horizon`**" in page(changed, changed["figures"], ABOUT)


def test_a_part_that_was_not_played_says_so() -> None:
    found = evidence([row for row in rows() if row["part"] == "main"])
    text = page(found, figures_asked(found), ABOUT, pictures=pictures(found))
    assert text.count("Not played") >= 4


def test_pictures_are_whole_and_small(document: dict) -> None:
    drawn = pictures(document)
    assert set(drawn) == {f"evaluation-{part}.svg" for part in ("families", "movement", "front")}
    for picture in drawn.values():
        assert len(picture) < 50_000
        ElementTree.fromstring(picture)
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_the_page_of_the_suite_is_whole(document: dict) -> None:
    html = evaluation_page(document)
    assert not re.search(r'<(script|link|img|a)[^>]+(src|href)="http', html)
    assert html.count('class="chart"') == 4  # families, movement, domains, front
    assert html.count("<section") == html.count("</section>") == 13
    text = page(document, document["figures"], ABOUT)
    tables = sum(bool(re.match(r"\| ?---", line)) for line in text.splitlines())
    assert html.count('<table class="told">') == tables
    assert "`" not in html.split("<body>")[1]
    assert 'href="#method-receding_horizon"' in html
    assert 'id="method-receding_horizon"' in html
    for colour in COLOURS:  # pictures take the colours of the page
        assert colour not in html.split("</style>")[1]


def test_names_on_the_page_are_text(document: dict) -> None:
    bad = "<b>ou3</b>"
    html = evaluation_page(document | {"families": {bad: next(iter(document["families"].values()))}})
    assert bad not in html
    assert "&lt;b&gt;" in html


def test_the_terminal_shows_figures_and_methods(document: dict) -> None:
    from rich.console import Console

    console = Console(width=150, record=True, file=__import__("io").StringIO())
    console.print(suite_view(document))
    text = console.export_text()
    assert "hi_ppo" in text
    assert ">= 97 %" in text
    assert all(f"{k} domains" in text for k in document["large"])


def test_numbers_as_people_read_them() -> None:
    told = {"mean": 0.9876, "low": 0.98, "high": 0.995, "count": 3}
    assert spread(told) == "98.76 % (98.00 to 99.50)"
    assert spread(told, short=True, digits=1) == "98.8 ±0.8"
    assert table(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_one_world_has_no_interval():
    one = {"mean": 0.9, "low": 0.9, "high": 0.9, "count": 1}
    assert spread(one) == "90.00 % (one world)"
    assert spread(one, short=True) == "90.00"
    assert spread({**one, "low": 0.8, "high": 1.0, "count": 2}, short=True) == "90.00 ±10.00"
