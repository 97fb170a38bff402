"""What the terminal shows of schedules: figures and timeline of one, a row for each of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hippo.decide.wording import count, number
from hippo.dispatch.guard import POLICY, why_base
from hippo.errors import InfeasibleError
from hippo.report.fitted import FittedTable, Trimmed, column
from hippo.report.gantt import gantt_view
from hippo.report.terminal import reasons_view
from hippo.schedule.problem import ScheduleProblem
from hippo.schedule.replay import live
from hippo.schedule.sizes import Sized
from hippo.schedule.solve import Answer

NOTHING = "-"


def answer_view(answer: Answer, extras: Mapping[str, Any]) -> RenderableType:
    """Figures, timeline, why, and what options add (``extras``, as in the document)."""
    parts: list[RenderableType] = [figures_view(answer, extras), Text(), gantt_view(answer.replay)]
    if answer.why:
        parts.append(reasons_view([answer.why]))
    if "sizes" in extras:
        parts.append(_rows_view("micro-batch", "micro_batch_size", extras["sizes"]))
    if "compare" in extras:
        parts.append(_rows_view("method", "method", extras["compare"]))
    elif answer.tried:
        parts.append(_tried_view(answer))
    return Group(*parts)


def figures_view(answer: Answer, extras: Mapping[str, Any]) -> RenderableType:
    """One line per figure: name, value, remark."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    for name, value, remark in (*_figures(answer), *_extra_figures(extras)):
        grid.add_row(Text(name), Text(value), Text(remark))
    return Trimmed(Group(Text(_question(answer.problem), style="bold"), Text(), grid))


def _question(problem: ScheduleProblem) -> str:
    laid_out = "" if problem.placement == "plain" else f", {problem.placement} with {problem.chunks} chunks per rank"
    batches = f"{problem.micro_batches:,} micro-batch{'es' if problem.micro_batches > 1 else ''}"
    return f"{count(problem.ranks, 'rank')}, {batches}{laid_out}"


def _figures(answer: Answer) -> list[tuple[str, str, str]]:
    """Name, value and remark of what every answer has."""
    found_by = answer.schedule.name + (" as a hint" if answer.hint and "hint" not in answer.schedule.name else "")
    proved = "proved optimal" if answer.gap < 1e-6 else f"{answer.gap:.2%} above the bound"
    return [
        ("makespan", _time(answer.makespan), f"{found_by}: {proved}"),
        ("lower bound", _time(answer.lower_bound), "no schedule of this placement is shorter"),
        ("bubble rate", _rate(answer.replay.bubble_rate), "of the longest stage, from its first F to its last W"),
        ("bubble, full", _rate(answer.replay.bubble_full), "of all ranks, from the start to the very end"),
        ("peak live", number(float(live(answer.problem, answer.schedule).max())), f"micro-batches{_limit(answer)}"),
    ]


def _limit(answer: Answer) -> str:
    least = min(answer.problem.limit)
    return f", memory limit {number(least)}" if least < inf else ", no memory limit"


def _extra_figures(extras: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Lines that options add."""
    found = []
    if "micro_batch_size" in extras:
        found.append(("micro-batch", str(extras["micro_batch_size"]), "samples each: the size with the least makespan"))
    if "fluctuation" in extras:
        noise = extras["fluctuation"]
        for name, label in (("fixed", "fixed order"), ("hint", "as a hint"), ("learned", "by a policy")):
            seen = noise[name]
            if seen is not None:
                plays = seen.get("samples", noise["samples"])
                remark = f"mean of {plays:,} plays at +-{noise['level']:.0%}, 95 % below {_time(seen['p95'])}"
                remark += _saves(seen["saves"]) if "saves" in seen else ""
                if seen.get("followed", POLICY) != POLICY:
                    label, remark = "by its base", f"{remark}; {why_base(seen['followed'])}"
                found.append((label, _time(seen["mean"]), remark))
    if "csv" in extras:
        written = extras["csv"]
        found.append(("in torch", _time(written["makespan"]), f"{written['fused']} backwards fused: {written['file']}"))
    return found


def _saves(saves: Mapping[str, Mapping[str, float]]) -> str:
    """What a policy saves of the other ways, play by play."""
    told = [
        f"{round(100 * saves[name]['share'], 1) + 0.0:.1f} ±{100 * saves[name]['error']:.1f} % of {label}"
        for name, label in (("fixed", "the fixed order"), ("hint", "the hint"))
    ]
    return f"; on the same plays it saves {' and '.join(told)}"


def _tried_view(answer: Answer) -> RenderableType:
    """Every candidate, best first, the refused ones last."""
    order = sorted(answer.tried, key=lambda row: (isinstance(row[1], str), row[1] if isinstance(row[1], float) else 0))
    values = [(name, result if isinstance(result, float) else None, result) for name, result in order]
    longer = [NOTHING if span is None else f"{span / answer.makespan - 1:.1%}" for _, span, _ in values]
    return FittedTable(
        (
            column("tried", (name for name, _, _ in values), right=False),
            column("makespan", (NOTHING if span is None else _time(span) for _, span, _ in values)),
            column("longer", longer, rank=1),
            column("", (why if isinstance(why, str) else "" for _, _, why in values), rank=2, right=False, wraps=True),
        )
    )


def _rows_view(header: str, key: str, rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Figures side by side, one row per method or size."""
    spans = [row["makespan"] for row in rows]
    best = min((span for span in spans if span is not None), default=None)

    def cells(name: str, form: str) -> list[str]:
        return [NOTHING if row["makespan"] is None else format(row[name], form) for row in rows]

    return FittedTable(
        (
            column(header, (str(row[key]) for row in rows), right=False),
            column("makespan", (NOTHING if span is None else _time(span) for span in spans)),
            column("gap", cells("gap", ".1%"), rank=1),
            column("bubble", cells("bubble_rate", ".4f"), rank=2),
            column("full", cells("bubble_full", ".4f"), rank=4),
            column("live", cells("peak_live", ".3g"), rank=3),
            column("placement", cells("placement", ""), rank=5, right=False),
            column("", (row.get("infeasible", "") for row in rows), rank=6, right=False, wraps=True),
        ),
        highlight=None if best is None else spans.index(best),
    )


def answers_view(answers: Sequence[tuple[Sized, Answer | InfeasibleError]]) -> RenderableType:
    """A row for each problem of a file, and below them the gap of all."""
    found = [answer for _, answer in answers if isinstance(answer, Answer)]
    gaps = [answer.gap for answer in found]
    closing = f"gap to the bound: mean {sum(gaps) / len(gaps):.2%}, largest {max(gaps):.2%}" if gaps else ""
    problems = [sized.problem for sized, _ in answers]

    def cells(form: Any) -> list[str]:
        return [form(answer) if isinstance(answer, Answer) else NOTHING for _, answer in answers]

    table = FittedTable(
        (
            column(
                "id", (str(index if s.ident is None else s.ident) for index, (s, _) in enumerate(answers)), right=False
            ),
            column("p", (str(problem.ranks) for problem in problems), rank=6),
            column("m", (str(problem.micro_batches) for problem in problems), rank=5),
            column("makespan", cells(lambda answer: _time(answer.makespan))),
            column("bound", cells(lambda answer: _time(answer.lower_bound)), rank=4),
            column("gap", cells(lambda answer: f"{answer.gap:.2%}")),
            column("bubble", cells(lambda answer: _rate(answer.replay.bubble_rate)), rank=2),
            column("full", cells(lambda answer: _rate(answer.replay.bubble_full)), rank=8),
            column("live", cells(lambda answer: number(float(live(answer.problem, answer.schedule).max()))), rank=3),
            column("found by", cells(lambda answer: answer.schedule.name), rank=1, right=False),
            column("s", cells(lambda answer: f"{answer.seconds:.2f}"), rank=7),
        )
    )
    return Group(table, Text(closing, style="dim"))


def _rate(value: float) -> str:
    """Four digits, as published tables have."""
    return f"{max(0.0, value):.4f}"


def _time(value: float) -> str:
    """Five digits: schedules differ in the third or fourth."""
    return number(value, 5)
