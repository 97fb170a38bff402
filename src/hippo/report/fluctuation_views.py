"""What came of a grid of pipelines (``simulate.fluctuation_grid``) for people: a table, charts, a page in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Protocol, TypeVar

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich.table import Table

from hippo.dispatch.noise.fluctuation_grid import PANELS, UNIFORM, Case

INK = "#17191e"
GROUP = 3  # cells that name a pipeline, first in each row of a table: layout, memory, delay


class OfCase(Protocol):
    """Something that was measured of a case."""

    @property
    def case(self) -> Case:
        """Of which."""


Outcome = TypeVar("Outcome", bound=OfCase)

Place = tuple[int, int]
"""Row and column of a panel, from 1."""


# --------------------------------------------------------------------------------------------------------------- tables
def case_cells(case: Case, floor: float) -> list[str]:
    """First in a row: the case, and what no order could be below."""
    return [case.layout, f"{case.memory} p", f"{case.delay:g}", f"{case.level:.0%}", f"{floor:.1f}"]


CASE_HEAD = ("links", "memory", "delay", "fluctuation", "floor")


def terminal_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, whole: int) -> Table:
    """For the terminal, a rule between pipelines; the first ``whole`` columns are never cut."""
    shown = Table(title=title, title_justify="left")
    for index, name in enumerate(head):
        shown.add_column(name, justify="left" if index == 0 else "right", no_wrap=index < whole)
    last: Sequence[str] = ()
    for row in rows:
        if last and last != row[:GROUP]:
            shown.add_section()
        shown.add_row(*row)
        last = row[:GROUP]
    return shown


def page_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, name: str = "all", marked: bool = False) -> str:
    """For the page. ``all``: a rule between pipelines. ``marked``: the last cell is the word that colours it, too."""
    body: list[str] = []
    last: Sequence[str] = ()
    for cells in rows:
        new = ' class="new"' if name == "all" and last != cells[:GROUP] else ""
        mark = f' class="{escape(cells[-1])}"' if marked else ""
        shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells[:-1])
        body.append(f"<tr{new}>{shown}<td{mark}>{escape(cells[-1])}</td></tr>")
        last = cells[:GROUP]
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    return f'<table class="{name}"><thead><tr>{heads}</tr></thead><tbody>{"".join(body)}</tbody></table>'


# --------------------------------------------------------------------------------------------------------------- charts
def panels(outcomes: Sequence[Outcome]) -> tuple[go.Figure, list[tuple[Place, list[Outcome]]]]:
    """An empty panel for each pipeline, and the outcomes that belong there."""
    delays = sorted({each.case.delay for each in outcomes})
    levels = sorted({each.case.level for each in outcomes})
    titles = [
        f"{layout}, {memory} p, delay {delay:g}" if layout == UNIFORM or delay else ""
        for layout, memory in PANELS
        for delay in delays
    ]
    space = {"horizontal_spacing": 0.05, "vertical_spacing": 0.06}
    figure = make_subplots(len(PANELS), len(delays), subplot_titles=titles, **space)
    found = []
    for row, panel in enumerate(PANELS, 1):
        for column, delay in enumerate(delays, 1):
            here = [
                each for each in outcomes if (each.case.layout, each.case.memory, each.case.delay) == (*panel, delay)
            ]
            if here:
                found.append(((row, column), here))
            else:
                figure.update_xaxes(visible=False, row=row, col=column)
                figure.update_yaxes(visible=False, row=row, col=column)
    figure.update_layout(
        template="plotly_white",
        height=920,
        margin={"l": 50, "r": 10, "t": 40, "b": 90},
        font={"size": 12, "color": INK},
        legend={"orientation": "h", "y": -0.07, "x": 0},
    )
    figure.update_xaxes(tickvals=[100 * level for level in levels], ticktext=[f"{level:.0%}" for level in levels])
    figure.update_annotations(font={"size": 13})
    for column in range(1, len(delays) + 1):
        figure.update_xaxes(title="fluctuation", row=len(PANELS), col=column)
    return figure, found


def add_line(
    figure: go.Figure, place: Place, points: Sequence[tuple[float, float]], *look: str, unit: str = ""
) -> None:
    """One line of a panel, of points (fluctuation in %, value); ``look``: label, colour, dash. A label is in the legend
    once."""
    if not points:
        return
    label, colour, dash = look
    known = {each.name for each in figure.data}
    trace = go.Scatter(
        x=[each[0] for each in points],
        y=[each[1] for each in points],
        name=label,
        legendgroup=label,
        showlegend=label not in known,
        mode="lines+markers",
        line={"color": colour, "dash": dash, "width": 2},
        marker={"size": 5},
        cliponaxis=False,
        hovertemplate="%{y:.2f}" + unit,
    )
    figure.add_trace(trace, row=place[0], col=place[1])


# ----------------------------------------------------------------------------------------------------------------- page
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 0 auto; max-width: 1240px; padding: 32px 28px 60px; background: #fff; color: #17191e;
  font: 15px/1.55 ui-sans-serif, system-ui, "Segoe UI", sans-serif; font-variant-numeric: tabular-nums; }}
h1 {{ font-size: 32px; letter-spacing: -.02em; line-height: 1.15; margin: 0 0 10px; }}
h2 {{ font-size: 20px; margin: 36px 0 4px; }}
p {{ max-width: 100ch; margin: 6px 0; }}
.dim {{ color: #5c626d; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 13px; margin-top: 10px; }}
table.all {{ width: 100%; }}
table.few th {{ max-width: 20ch; }}
th, td {{ text-align: right; padding: 2px 8px; white-space: nowrap; }}
th {{ font-weight: 600; padding: 4px 8px; border-bottom: 2px solid #17191e; white-space: normal;
  vertical-align: bottom; }}
th:first-child, td:first-child {{ text-align: left; }}
tr.new td {{ border-top: 1px solid #dfe0e3; }}
td.learned {{ color: #0a7a58; font-weight: 600; }} td.hint, td.fixed {{ color: #b3261e; font-weight: 600; }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


def page(title: str, body: str) -> str:
    """One file that needs nothing from outside."""
    return _PAGE.format(title=escape(title), body=body)


def drawings(figures: Iterable[go.Figure]) -> list[str]:
    """Charts as pieces of a page; the first carries the drawing library with it."""
    config = {"displayModeBar": False, "responsive": True}
    return [
        each.to_html(full_html=False, include_plotlyjs=index == 0, config=config) for index, each in enumerate(figures)
    ]
