"""What came of a grid of pipelines (``dispatch.noise.fluctuation_grid``) for people: a table, charts, a page.

The two examples on fluctuation show what they measured with this. Times are in the unit of the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol, TypeVar

import numpy as np
from markupsafe import Markup

from hippo.dispatch.noise.fluctuation_grid import PANELS, UNIFORM, Case
from hippo.dispatch.noise.timed_play import TimedPlay, pauses
from hippo.report.charts import Axis, ChartSize, Curve, TimeBar, bar_chart, legend, line_chart
from hippo.report.fitted import FittedTable, column
from hippo.report.frame import frame, template
from hippo.schedule.problem import ScheduleProblem

PIPELINE = 3
"""Cells that name a pipeline, first in each row of a table: layout, memory, delay."""

PANEL = ChartSize(width=250.0, height=190.0, left=52.0, names=0.0)

OPERATIONS = (("k0", "F"), ("k1", "B"), ("k2", "W"))
PAUSES = {False: ("starved", "starved"), True: ("waits", "waits by choice")}
"""Class of the style sheet and name: of each kind of operation, and of a pause by whether the rank chose it."""


class OfCase(Protocol):
    """Something that was measured of a case."""

    @property
    def case(self) -> Case:
        """Of which."""


Outcome = TypeVar("Outcome", bound=OfCase)


# -------------------------------------------------------------------------------------------------------------- tables
CASE_HEAD = ("links", "memory", "delay", "noise", "floor")


def case_cells(case: Case, floor: float) -> list[str]:
    """First in a row: the case, and what no order could be below."""
    return [case.layout, f"{case.memory} p", f"{case.delay:g}", f"{case.level:.0%}", f"{floor:.1f}"]


def terminal_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], kept: Sequence[str]) -> FittedTable:
    """For the terminal: the columns ``kept`` stay at any width, of the others as many as there is room for."""
    cells = zip(*rows, strict=True)
    columns = (
        column(name, texts, rank=0 if name in kept else index, right=index > 1)
        for index, (name, texts) in enumerate(zip(head, cells, strict=True), 1)
    )
    return FittedTable(tuple(columns), title=title)


def page_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, marked: bool = False) -> Markup:
    """For a page, a rule between pipelines. ``marked``: the last cell is the class that colours it, too."""
    body: list[str] = []
    last: Sequence[str] = ()
    for cells in rows:
        new = ' class="new"' if last and last != cells[:PIPELINE] else ""
        last = cells[:PIPELINE]
        texts = [escape(cell) for cell in cells]
        shown = [f'<td class="n">{text}</td>' for text in texts[1:]]
        if marked:
            shown[-1] = f'<td class="n {texts[-1]}">{texts[-1]}</td>'
        body.append(f'<tr{new}><th scope="row">{texts[0]}</th>{"".join(shown)}</tr>')
    first, *others = (escape(each) for each in head)
    heads = f'<th scope="col">{first}</th>' + "".join(f'<th scope="col" class="n">{each}</th>' for each in others)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return Markup(f'<div class="card scroll">{table}</div>')


# -------------------------------------------------------------------------------------------------------------- charts
def panels(outcomes: Sequence[Outcome], lines: Callable[[Sequence[Outcome]], list[Curve]], y: Axis) -> Markup:
    """A small chart for each pipeline over the fluctuation (%), a row for each layout and memory, one legend above.

    ``lines`` draws the outcomes of one pipeline.
    """
    x = Axis("fluctuation", "{:.0f} %".format, marks=tuple(sorted({100 * each.case.level for each in outcomes})))
    known: list[Curve] = []
    parts = []
    for layout, memory in PANELS:
        here = [each for each in outcomes if (each.case.layout, each.case.memory) == (layout, memory)]
        charts = []
        for delay in sorted({each.case.delay for each in here}):
            drawn = lines([each for each in here if each.case.delay == delay])
            known += drawn
            chart = line_chart(f"{layout}, {memory} p, delay {delay:g}", drawn, x, y, PANEL)
            charts.append(f"<figure><figcaption>delay {delay:g}</figcaption>{chart}</figure>")
        if charts:
            links = "All links alike" if layout == UNIFORM else "One slow link in the middle"
            title = f"{links}, memory for {'p' if memory == 1 else f'{memory} p'} micro-batches"
            parts.append(f'<h3>{title}</h3><div class="panels">{"".join(charts)}</div>')
    return Markup(f'<div class="card">{legend(known)}{"".join(parts)}</div>')


def plays_chart(problem: ScheduleProblem, plays: Sequence[TimedPlay], titles: Sequence[str], *, unit: str) -> Markup:
    """Plays one above the other: operations by kind, pauses by reason, over one axis that ends with the longest."""
    ranks, end = [f"rank {rank}" for rank in range(problem.ranks)], max(play.makespan for play in plays)
    colours = [(f"var(--{look})", name) for look, name in OPERATIONS]
    colours += [("var(--idle)", PAUSES[False][1]), ("var(--bad)", PAUSES[True][1])]
    items = (f'<li><span class="swatch" style="background:{colour}"></span>{name}</li>' for colour, name in colours)
    parts = [f'<ul class="legend">{"".join(items)}</ul>']
    for play, title in zip(plays, titles, strict=True):
        bars = []
        for kind, (look, letter) in enumerate(OPERATIONS):
            for (rank, batch), start in np.ndenumerate(play.start[kind]):
                stop = float(play.end[kind, rank, batch])
                bars.append(TimeBar(rank, float(start), stop, look, f"{letter}{batch}: {start:.2f} to {stop:.2f}"))
        for each in pauses(problem, play):
            look, name = PAUSES[each.by_choice]
            bars.append(TimeBar(each.rank, each.begin, each.end, look, f"{name}: {each.begin:.2f} to {each.end:.2f}"))
        chart = bar_chart(title, ranks, bars, Axis(f"time, in {unit}"), end=end)
        parts.append(f'<h3>{escape(title)}</h3><div class="scroll">{chart}</div>')
    return Markup(f'<div class="card">{"".join(parts)}</div>')


def habits(problem: ScheduleProblem, play: TimedPlay) -> dict[str, float]:
    """What two ranks or more do in a play: times, or counts."""
    idle = list(pauses(problem, play))
    live = [float((play.end[2, rank] - play.start[0, rank]).sum() / play.makespan) for rank in range(problem.ranks)]

    def lost(*, by_choice: bool) -> float:
        return sum(each.end - each.begin for each in idle if each.by_choice is by_choice)

    return {
        "makespan": play.makespan,
        "ranks starve, in all": lost(by_choice=False),
        "ranks wait by choice, in all": lost(by_choice=True),
        "pauses by choice": sum(each.by_choice for each in idle),
        "W begins after its B, mean": float((play.start[2] - play.end[1]).mean()),
        "B begins after its gradient came, mean": float((play.start[1] - play.arrived[1]).mean()),
        "F begins after its input came, ranks 1 on, mean": float((play.start[0, 1:] - play.arrived[0, 1:]).mean()),
        "micro-batches live, mean of all ranks": float(np.mean(live)),
    }


# ---------------------------------------------------------------------------------------------------------------- page
@dataclass(frozen=True)
class PagePart:
    """One part of a page: its anchor, its name above and in the header, what it shows, and that."""

    anchor: str
    title: str
    short: str
    lead: str
    content: Markup


def page(title: str, question: str, said: Sequence[str], sections: Sequence[PagePart]) -> str:
    """One file that needs nothing from outside; ``said`` answers in sentences, the most important first."""
    content = {"title": title, "question": question, "said": said, "sections": sections}
    return template("fluctuation.html.j2").render(**frame(), **content)
