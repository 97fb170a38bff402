"""Charts of a replay as SVG inside the page: lines over linear or logarithmic axes, coloured by the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
from numpy.typing import NDArray

from hippo.decide.wording import number
from hippo.report.charts import ticks
from hippo.report.story import DOMAIN_COLOURS

Floats = NDArray[np.float64]

WIDTH, LEFT, RIGHT, TOP, FOOT = 1000, 62, 14, 12, 40
MOST_POINTS = 400
SPANS = (
    *((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h")),
    *((86400.0, "1 d"), (864000.0, "10 d"), (8640000.0, "100 d")),
)
"""Marks of a logarithmic axis of time."""

STEPS = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200),
    *(86400, 172800, 432000, 864000, 1728000, 4320000, 8640000),
)
"""Distances between the marks of a linear axis of time, s."""


@dataclass(frozen=True, eq=False)
class ChartLine:
    """A named line; ``x`` and ``y`` (m,). With ``base`` (m,) the area between is filled."""

    name: str
    x: Floats
    y: Floats
    colour: int = 0
    strong: bool = False
    muted: bool = False
    dash: str = ""  # as of SVG's stroke-dasharray; empty: solid
    base: Floats | None = None
    css: str = ""  # a colour in place of that of ``colour``


@dataclass(frozen=True)
class Axes:
    """Height of a chart, what its y says, and whether x is logarithmic.

    ``most``: upper end of y, None: the largest. ``until``: where x ends, None: with the last point.
    """

    height: int
    label: str
    log: bool = False
    percent: bool = False
    most: float | None = None
    until: float | None = None


def chart(lines: Sequence[ChartLine], axes: Axes, *, title: str) -> str:
    """Lines and areas over time (s) as one SVG; nothing to draw gives an empty text."""
    drawn = [_up_to(line, axes.until) for line in lines if len(line.x)]
    if not drawn:
        return ""
    low, high = _range(drawn, log=axes.log)
    top = axes.most if axes.most is not None else max(float(line.y.max()) for line in drawn) * 1.05 or 1.0
    bottom = axes.height - FOOT

    def across(x: Floats) -> Floats:
        share = (np.log(np.maximum(x, low) / low) / math.log(high / low)) if axes.log else (x - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(y: Floats) -> Floats:
        return bottom - y / top * (bottom - TOP)

    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {axes.height}" role="img" aria-label="{escape(title)}">']
    for value in ticks(0.0, top):
        place = float(up(np.array([value]))[0])
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
        words = f"{100 * value:.0f} %" if axes.percent else f"{value:,g}"
        parts.append(f'<text class="small" x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{words}</text>')
    for value, words in _marks(low, high, log=axes.log):
        place = float(across(np.array([value]))[0])
        parts.append(f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{bottom}"/>')
        anchor = "end" if place > WIDTH - 50 else "middle"
        parts.append(f'<text class="small" x="{place:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{words}</text>')
    parts.append(f'<text class="small" x="{LEFT}" y="{axes.height - 4}">{escape(axes.label)}</text>')
    for line in sorted(drawn, key=lambda each: each.strong):
        kept = _thinned(len(line.x))
        x, name = across(line.x[kept]), f"<title>{escape(line.name)}</title>"
        if line.base is None:
            parts.append(f'<polyline points="{_joined(x, up(line.y[kept]))}" {_stroke(line)}>{name}</polyline>')
        else:
            around = f"{_joined(x, up(line.y[kept]))} {_joined(x[::-1], up(line.base[kept][::-1]))}"
            parts.append(f'<polygon points="{around}" style="fill:{swatch(line)}" opacity=".85">{name}</polygon>')
    return "".join([*parts, "</svg>"])


def distribution(values: Floats) -> tuple[Floats, Floats]:
    """A distribution function as points: values in order, and the share that is no larger."""
    ordered = np.sort(values)
    return ordered, np.arange(1, len(ordered) + 1) / max(len(ordered), 1)


def swatch(line: ChartLine) -> str:
    """The colour of a line, as CSS."""
    if line.css:
        return line.css
    if line.strong or line.muted:
        return "var(--ink)" if line.strong else "var(--muted)"
    return f"var(--d{line.colour % DOMAIN_COLOURS})"


def sample(line: ChartLine) -> str:
    """A short piece of a line, for a legend."""
    return f'<svg class="sample" viewBox="0 0 30 8" aria-hidden="true"><path d="M1 4H29" {_stroke(line)}/></svg>'


def stacked(lines: Sequence[ChartLine]) -> list[ChartLine]:
    """The same lines (over one x) as areas upon each other, the first at the bottom."""
    base, found = np.zeros(len(lines[0].x) if lines else 0), []
    for line in lines:
        found.append(replace(line, y=base + line.y, base=base))
        base = base + line.y
    return found


def span(seconds: float) -> str:
    """A duration in the unit that reads best: ``42 s``, ``12.5 min``, ``3.2 h``, ``1.4 d``."""
    for least, unit in ((2 * 86400.0, "d"), (5400.0, "h"), (90.0, "min")):
        if abs(seconds) >= least:
            scale = {"d": 86400.0, "h": 3600.0, "min": 60.0}[unit]
            return f"{number(seconds / scale)} {unit}"
    return f"{number(seconds)} s"


# -------------------------------------------------------------------------------------------------------------- parts
def _stroke(line: ChartLine) -> str:
    width = 2.6 if line.strong else 1.4
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    return (
        f'fill="none" style="stroke:{swatch(line)}" stroke-width="{width}" stroke-linejoin="round"{dash}'
        f"{'' if line.strong or line.muted else ' opacity=' + chr(34) + '.85' + chr(34)}"
    )


def _up_to(line: ChartLine, until: float | None) -> ChartLine:
    """The part of a line that a chart shows; at least its first point."""
    if until is None:
        return line
    count = max(1, int(np.searchsorted(line.x, until, side="right")))
    base = None if line.base is None else line.base[:count]
    return replace(line, x=line.x[:count], y=line.y[:count], base=base)


def _joined(x: Floats, y: Floats) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _range(lines: Sequence[ChartLine], *, log: bool) -> tuple[float, float]:
    low, high = min(float(line.x.min()) for line in lines), max(float(line.x.max()) for line in lines)
    if not log:
        return low, high if high > low else low + 1.0
    low = max(low, 1.0)
    return low, max(high, 10.0 * low)


def _marks(low: float, high: float, *, log: bool) -> list[tuple[float, str]]:
    if log:
        return [(value, words) for value, words in SPANS if low <= value <= high]
    return time_marks(low, high)


def time_marks(low: float, high: float, most: int = 12) -> list[tuple[float, str]]:
    """Round times between two, about as many as asked at most, and their words."""
    step = next((each for each in STEPS if (high - low) / each <= most), STEPS[-1])
    first = math.ceil(low / step)
    return [(place * step, _clock(place * step, step)) for place in range(first, int(high / step) + 1)]


def _clock(seconds: float, step: int) -> str:
    for least, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if step >= least:
            return f"{seconds / least:g} {unit}"
    return f"{seconds:g} s"


def _thinned(points: int) -> NDArray[np.int64]:
    """Which points are drawn: first, last, and evenly between."""
    return np.unique(np.linspace(0, points - 1, min(points, MOST_POINTS)).astype(np.int64))
