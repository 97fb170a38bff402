"""Tables, panels and the page of a grid of pipelines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import StringIO

from rich.console import Console

from hippo.dispatch.noise.fluctuation_grid import Case, cases
from hippo.report.fluctuation_views import add_line, case_cells, drawings, page, page_table, panels, terminal_table

ROWS = [
    ["uniform", "1 p", "0", "0%", "even"],
    ["uniform", "1 p", "0", "30%", "hint"],
    ["uniform", "1 p", "1", "0%", "<b>"],
]


@dataclass(frozen=True)
class Outcome:
    case: Case


def test_cells_of_a_case() -> None:
    assert case_cells(Case("mid-link", 2, 5.0, 0.3), 104.96) == ["mid-link", "2 p", "5", "30%", "105.0"]


def test_the_terminal_has_a_rule_between_pipelines() -> None:
    shown = StringIO()
    Console(file=shown, width=80).print(terminal_table("Title", "abcde", ROWS, whole=4))
    lines = shown.getvalue().splitlines()
    assert [line.count("─") > 20 for line in lines if "│" in line or "├" in line].count(True) == 1
    assert all(cell in shown.getvalue() for row in ROWS for cell in row)


def test_the_table_of_a_page() -> None:
    shown = page_table("abcde", iter(ROWS), marked=True)
    assert shown.count('<tr class="new">') == 2
    assert '<td class="hint">hint</td>' in shown
    assert "<b>" not in shown
    plain = page_table("abcde", ROWS, name="few")
    assert 'class="new"' not in plain
    assert 'class="hint"' not in plain
    assert plain.startswith('<table class="few">')


def test_a_panel_for_each_pipeline() -> None:
    """Row by layout and memory, column by delay; mid-link without delay is none."""
    outcomes = [Outcome(case) for case in cases((0.0, 5.0), (0.0, 0.3))]
    figure, found = panels(outcomes)
    assert [place for place, _ in found] == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 2)]
    assert all([each.case.level for each in here] == [0.0, 0.3] for _, here in found)
    assert [each for _, here in found for each in here] == outcomes
    hidden = [name for name in figure.layout if name.startswith("xaxis") and figure.layout[name].visible is False]
    assert len(hidden) == 2
    assert figure.layout.xaxis.ticktext == ("0%", "30%")


def test_a_line_is_in_the_legend_once() -> None:
    figure, found = panels([Outcome(case) for case in cases((1.0,), (0.0, 0.3))])
    for place, _ in found:
        add_line(figure, place, [(0.0, 1.0), (30.0, 2.0)], "mine", "#000", "dot", unit=" %")
        add_line(figure, place, [], "nothing", "#000", "dot")
    assert [each.showlegend for each in figure.data] == [True, False, False, False]
    assert {each.name for each in figure.data} == {"mine"}
    assert (figure.data[0].x, figure.data[0].y, figure.data[0].line.dash) == ((0.0, 30.0), (1.0, 2.0), "dot")


def test_a_page_holds_the_drawing_library_once() -> None:
    figure, _ = panels([Outcome(case) for case in cases((1.0,), (0.0,))])
    first, second = drawings([figure, figure])
    assert "plotly.js v" in first
    assert "plotly.js v" not in second
    whole = page("A <title>", first + second)
    assert "<title>A &lt;title&gt;</title>" in whole
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", whole)
