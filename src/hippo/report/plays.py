"""Plays of one pipeline (``simulate.timed_play``) for people: what ranks do in them, and a picture one above the other.

Times are in the unit of the problem.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from hippo.dispatch.noise.timed_play import Pause, TimedPlay, pauses
from hippo.schedule.problem import ScheduleProblem

INK = "#17191e"
KINDS = (("F", "#3b76c4"), ("B", "#e0a030"), ("W", "#58a86c"))
PAUSES = {False: ("starved", "#e8eaed"), True: ("waits by choice", "#d23f31")}

Spans = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]
"""Begin, end and rank of each bar."""


def habits(problem: ScheduleProblem, play: TimedPlay) -> dict[str, float]:
    """What two ranks or more do in a play: times, or counts."""
    idle = list(pauses(problem, play))
    live = [_live(play, rank) for rank in range(problem.ranks)]
    return {
        "makespan": play.makespan,
        "ranks starve, in all": _sum(idle, by_choice=False),
        "ranks wait by choice, in all": _sum(idle, by_choice=True),
        "pauses by choice": sum(each.by_choice for each in idle),
        "W begins after its B, mean": float((play.start[2] - play.end[1]).mean()),
        "B begins after its gradient came, mean": float((play.start[1] - play.arrived[1]).mean()),
        "F begins after its input came, ranks 1 on, mean": float((play.start[0, 1:] - play.arrived[0, 1:]).mean()),
        "micro-batches live, mean of all ranks": float(np.mean(live)),
    }


def _sum(idle: Sequence[Pause], *, by_choice: bool) -> float:
    return sum(each.end - each.begin for each in idle if each.by_choice is by_choice)


def _live(play: TimedPlay, rank: int) -> float:
    """Micro-batches between the start of their F and the end of their W, mean over the play."""
    return float((play.end[2, rank] - play.start[0, rank]).sum() / play.makespan)


def plays_figure(
    problem: ScheduleProblem, plays: Sequence[TimedPlay], titles: Sequence[str], *, unit: str
) -> go.Figure:
    """Operations by kind, pauses by reason; a dotted line is the slowest link, where one is slow."""
    figure = make_subplots(len(plays), 1, shared_xaxes=True, vertical_spacing=0.09, subplot_titles=titles)
    for row, play in enumerate(plays, 1):
        _draw(figure, row, problem, play)
    slowest = max((link.latency for link in problem.down), default=0.0)
    for rank, link in enumerate(problem.down):
        if link.latency == slowest > 0.5 and any(other.latency < slowest for other in problem.down):
            figure.add_hline(rank + 0.5, line={"color": INK, "width": 1.2, "dash": "dot"})
    longest = max(play.makespan for play in plays)
    figure.update_xaxes(range=[0, 1.005 * longest], zeroline=False)
    figure.update_xaxes(title=f"time, in {unit}", row=len(plays), col=1)
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        bargap=0.12,
        height=120 + 26 * len(plays) * problem.ranks,
        margin={"l": 60, "r": 10, "t": 40, "b": 90},
        font={"size": 12, "color": INK},
        legend={"orientation": "h", "y": -0.12, "x": 0, "traceorder": "normal"},
    )
    figure.update_annotations(font={"size": 13}, x=0, xanchor="left")
    return figure


def _draw(figure: go.Figure, row: int, problem: ScheduleProblem, play: TimedPlay) -> None:
    """One play."""
    rank, batch = (each.ravel() for each in np.indices(play.start.shape[1:]))
    for kind, (letter, colour) in enumerate(KINDS):
        spans = play.start[kind].ravel(), play.end[kind].ravel(), rank
        _bars(figure, row, spans, [f"{letter}{each}" for each in batch], (letter, colour))
    found = list(pauses(problem, play))
    for by_choice, look in PAUSES.items():
        mine = [each for each in found if each.by_choice is by_choice]
        begin, end, where = (np.array([getattr(each, key) for each in mine]) for key in ("begin", "end", "rank"))
        _bars(figure, row, (begin, end, where), [look[0]] * len(mine), look)
    figure.update_yaxes(
        tickvals=list(range(problem.ranks)),
        ticktext=[f"rank {each}" for each in range(problem.ranks)],
        autorange="reversed",
        showgrid=False,
        zeroline=False,
        row=row,
        col=1,
    )


def _bars(figure: go.Figure, row: int, spans: Spans, names: Sequence[str], look: tuple[str, str]) -> None:
    """Bars on their rank; a name appears in the legend once."""
    start, end, rank = spans
    label, colour = look
    trace = go.Bar(
        x=end - start,
        base=start,
        y=rank,
        orientation="h",
        name=label,
        legendgroup=label,
        showlegend=row == 1,
        marker={"color": colour, "line": {"width": 0.4, "color": "#fff"}},
        customdata=list(zip(names, end, strict=True)),
        hovertemplate="%{customdata[0]}: %{base:.2f} to %{customdata[1]:.2f}<extra></extra>",
    )
    figure.add_trace(trace, row=row, col=1)
