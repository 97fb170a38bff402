"""A played schedule in the terminal: a row a rank, time from left to right, memory and busy share at the right end.

Letters and fills say what colours say, so that the picture can be read without colour and pasted into a mail. Where
operations are a cell or wider each is drawn (``F12---``: kind, micro-batch, fill up to its end); where they are
narrower, each column shows the kind that fills half of it or more. Chunks after the first have small letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, isfinite, log10

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from hippo.decide.wording import number
from hippo.report.fitted import Trimmed
from hippo.schedule.problem import RankLink, ScheduleProblem
from hippo.schedule.replay import Replay, live, peak_memory

LETTERS, FILLS = "FBW", "-=~"
IDLE, THIN, MIXED = ".", ":", "*"
"""Idle; and where operations are narrower than a column, less than half busy, and busy but with no kind half of it."""

AGREEING = "/"
"""After the last operation of a rank, until its gradients are agreed: on the network, the rank itself is idle."""

LEAST_COLUMNS = 20
"""Of time, however narrow the terminal is."""

SLOW = 2.0
"""A link is marked when it takes this many times as long as the quickest, and a tenth of a forward at least."""

STYLES = (
    Style(color="#ffffff", bgcolor="#2360c0"),
    Style(color="#17191e", bgcolor="#e8890c"),
    Style(color="#17191e", bgcolor="#33b079"),
)
"""F, B, W as on the page (``--k0`` to ``--k2`` of report.css): apart for every common kind of colour vision."""

FAINT, SLOW_STYLE = Style(dim=True), Style(color="red")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def gantt_view(replay: Replay, *, window: tuple[float, float] | None = None) -> RenderableType:
    """The timeline of a schedule, as wide as the terminal; ``window`` shows only from one time to another."""
    begin, end = window or (0.0, replay.makespan)
    return _Gantt(replay, max(0.0, begin), min(end, replay.makespan))


@dataclass(frozen=True, eq=False)
class _Gantt:
    replay: Replay
    begin: float
    end: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> Iterator[RenderableType]:
        """Axis, ranks with the slow links between them, legend."""
        problem, names, ends = self.replay.problem, self.names, self.right_ends
        label, margin = max(map(len, names)) + 1, max(map(len, ends)) + 1
        columns = max(LEAST_COLUMNS, width - label - margin)
        scale = _scale(self.replay, self.begin, self.end, columns)
        yield Text.assemble(" " * label, _axis(scale), (ends[0].rjust(margin), FAINT), no_wrap=True)
        slow = slow_links(problem)
        for rank, (name, end) in enumerate(zip(names, ends[1:], strict=True)):
            row = Text(name.ljust(label), no_wrap=True)
            row.append_text(_row(self.replay, rank, scale)).append(end.rjust(margin), FAINT)
            yield row
            if rank in slow:
                told = f"{'':{label}}~~~ link, {slow[rank]} ~~~"
                yield Text(told[:width], style=SLOW_STYLE, no_wrap=True)
        yield Trimmed(_legend(self.replay, scale))

    @property
    def names(self) -> list[str]:
        """Of the ranks."""
        return [f"rank {rank}" for rank in range(self.replay.problem.ranks)]

    @cached_property
    def right_ends(self) -> list[str]:
        """Header and, per rank, most live micro-batches, memory where that is another unit, and busy share."""
        problem, schedule = self.replay.problem, self.replay.schedule
        counts, need = live(problem, schedule), peak_memory(problem, schedule)
        limited = any(isfinite(each) for each in problem.limit)
        split = limited and bool(problem.memory)
        rows = [["live", *(["memory"] if split else []), "busy"]]
        for rank, (most, used, limit) in enumerate(zip(counts, need, problem.limit, strict=True)):
            of = f"/{limit:g}" if isfinite(limit) else ""
            memory = [f"{number(used / limit * 100)}%" if isfinite(limit) else ""] if split else []
            busy = problem.work[rank] / self.replay.makespan
            rows.append([f"{most:g}{'' if split else of}", *memory, f"{busy * 100:.0f}%"])
        widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
        return ["  ".join(cell.rjust(size) for cell, size in zip(row, widths, strict=True)) for row in rows]


# ------------------------------------------------------------------------------------------------------------- scale
@dataclass(frozen=True)
class _Scale:
    """Which time each column shows."""

    begin: float
    step: float  # of one column
    columns: int
    each: bool  # every operation is drawn, none is narrower than a column


def _scale(replay: Replay, begin: float, end: float, columns: int) -> _Scale:
    """Whole columns to the narrowest operation where it has three or more: equal operations look equal."""
    narrowest, step = float((replay.end - replay.start).min()), (end - begin) / columns
    cells = floor(narrowest / step + 1e-9)
    if cells < 3:
        return _Scale(begin, step, columns, cells >= 1)
    step = narrowest / cells
    return _Scale(begin, step, min(columns, ceil((end - begin) / step - 1e-9)), True)


def _axis(scale: _Scale) -> Text:
    """Times over the columns they begin at, at 1, 2 or 5 times a power of ten."""
    least = 8 * scale.step
    power = 10.0 ** floor(log10(least))
    apart = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= least * (1 - 1e-9))
    cells = [" "] * scale.columns
    for tick in range(ceil(scale.begin / apart - 1e-9), int((scale.begin + scale.columns * scale.step) / apart) + 1):
        told, at = f"{round(tick * apart, 9):g}", round((tick * apart - scale.begin) / scale.step)
        if at + len(told) <= scale.columns:
            cells[at : at + len(told)] = told
    return Text("".join(cells), style=FAINT)


# -------------------------------------------------------------------------------------------------------------- rows
def _row(replay: Replay, rank: int, scale: _Scale) -> Text:
    """The cells of one rank."""
    own = slice(*replay.schedule.order_start[rank : rank + 2].tolist())
    start, end = ((times[own] - scale.begin) / scale.step for times in (replay.start, replay.end))
    inside = (end > 0) & (start < scale.columns)
    draw = _one_by_one if scale.each else _by_column
    text = draw(replay.schedule.order[own][inside], start[inside], end[inside], scale.columns)
    agreed = end[-1] + replay.problem.tables.reduction[rank] / scale.step
    first, last = (min(max(0, round(float(each))), scale.columns) for each in (end[-1], agreed))
    return text if last <= first else text[:first].append(AGREEING * (last - first), FAINT).append_text(text[last:])


def _one_by_one(rows: Ints, start: Floats, end: Floats, columns: int) -> Text:
    """Every operation, times in columns: letter, number where it fits, fill."""
    text, at = Text(), 0
    for (kind, chunk, micro_batch), began, ended in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        first, last = max(at, round(began)), min(columns, round(ended))
        if last <= first:
            continue
        text.append(IDLE * (first - at), FAINT)
        name = f"{_letter(kind, chunk)}{micro_batch}"
        told = name if len(name) <= last - first else name[0]
        text.append(told.ljust(last - first, FILLS[kind]), STYLES[kind])
        at = last
    return text.append(IDLE * (columns - at), FAINT)


def _by_column(rows: Ints, start: Floats, end: Floats, columns: int) -> Text:
    """Every column: the kind that fills half of it or more in the letter of its fullest chunk."""
    chunks = int(rows[:, 1].max(initial=0)) + 1
    shares = np.zeros((3 * chunks, columns))
    for (kind, chunk, _), began, ended in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        cells = np.arange(max(0, int(began)), min(columns - 1, int(ended)) + 1)
        shares[kind * chunks + chunk, cells] += np.clip(np.minimum(ended, cells + 1) - np.maximum(began, cells), 0, 1)
    by_kind = shares.reshape(3, chunks, columns).sum(axis=1).round(6)
    text = Text()
    for column, kind in enumerate(np.argmax(by_kind, axis=0).tolist()):
        busy, own = float(by_kind[:, column].sum()), shares.reshape(3, chunks, columns)[kind, :, column]
        if busy < 0.5:
            text.append(THIN if busy >= 0.05 else IDLE, FAINT)
        elif by_kind[kind, column] < 0.5:
            text.append(MIXED)
        else:
            text.append(_letter(kind, int(np.argmax(own.round(6)))), STYLES[kind])
    return text


def _letter(kind: int, chunk: int) -> str:
    return LETTERS[kind] if chunk == 0 else LETTERS[kind].lower()


# ------------------------------------------------------------------------------------------------- links and legend
def slow_links(problem: ScheduleProblem) -> dict[int, str]:
    """Rank above a slow link to what a message takes there: ``delay 5``, ``delay 5 down, 7 up``."""
    ways = list(zip(problem.down, problem.up, strict=True))
    took = [max(_took(down), _took(up)) for down, up in ways]
    least = min(took, default=0.0)
    mark = max(SLOW * least, 0.1 * sum(problem.forward) / problem.ranks)
    return {rank: told_links(*ways[rank]) for rank, each in enumerate(took) if each > mark}


def _took(link: RankLink) -> float:
    return link.latency + link.transfer


def told_links(down: RankLink, up: RankLink) -> str:
    """Both directions of a link: delay, and the time a message occupies it where that is not nothing."""
    ways = [f"{link.latency:g}{f' + {link.transfer:g} of sending' if link.transfer else ''}" for link in (down, up)]
    return f"delay {ways[0]}" if ways[0] == ways[1] else f"delay {ways[0]} down, {ways[1]} up"


def _legend(replay: Replay, scale: _Scale) -> Text:
    """What letters, fills and columns mean."""
    problem, schedule = replay.problem, replay.schedule
    backward = "backward with weight gradient" if schedule.fused else "backward"
    kinds = [("F", "forward"), ("B", backward)] + ([] if schedule.fused else [("W", "weight gradient")])
    text = Text()
    for index, (letter, name) in enumerate(kinds):
        text.append(f"{letter}0{FILLS[index]}" if scale.each else letter, STYLES[index]).append(f" {name}  ", FAINT)
    text.append(f"{IDLE} idle", FAINT)
    if any(problem.reduction):
        text.append(f"  {AGREEING} agreeing", FAINT)
    remarks = [f"small letters: chunk{'s 1 to ' + str(problem.chunks - 1) if problem.chunks > 2 else ' 1'}"]
    remarks = remarks if problem.chunks > 1 else []
    if not scale.each:
        remarks += [f"{THIN} less than half busy", f"{MIXED} several kinds", f"a column: {number(scale.step)}"]
    for remark in remarks:
        text.append(f"  {remark}", FAINT)
    return text
