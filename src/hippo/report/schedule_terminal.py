"""What the terminal shows of schedules: the figures of one, a row for each of several."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hippo.decide.wording import number
from hippo.errors import InfeasibleError
from hippo.pipeline.replay import live
from hippo.pipeline.solve import Answer
from hippo.report.fitted import FittedTable, column
from hippo.report.gantt import gantt_view
from hippo.report.trimmed import Trimmed


def answer_view(answer: Answer) -> RenderableType:
    """Figures, timeline, and what else was tried."""
    return Group(figures_view(answer), Text(), gantt_view(answer.replay))


def figures_view(answer: Answer) -> RenderableType:
    """One line per figure: name, value, remark."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    for name, value, remark in _figures(answer):
        grid.add_row(Text(name), Text(value), Text(remark))
    return Trimmed(grid)


def _figures(answer: Answer) -> list[tuple[str, str, str]]:
    return [
        ("makespan", number(answer.makespan), answer.why),
        ("lower bound", number(answer.lower_bound), f"gap {answer.gap:.2%}"),
        ("bubble", f"{answer.replay.bubble_rate:.4f}", "of the longest stage"),
        ("bubble, full", f"{answer.replay.bubble_full:.4f}", "of all ranks until the end"),
        ("peak live", number(float(live(answer.problem, answer.schedule).max())), "micro-batches"),
    ]


def answers_view(answers: Sequence[Answer | InfeasibleError]) -> RenderableType:
    """A row for each problem."""
    return FittedTable((column("makespan", (_makespan(answer) for answer in answers)),))


def _makespan(answer: Answer | InfeasibleError) -> str:
    return "infeasible" if isinstance(answer, InfeasibleError) else number(answer.makespan)
