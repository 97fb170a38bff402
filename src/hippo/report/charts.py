"""Charts as SVG inside a page: lines over axes with round marks, bars of ranks over time, and texts that find room.

Colours are CSS of the style sheet; sizes are SVG user units. Texts are placed greedily: in order of importance each
takes the first of its candidate places that is free. Widths of letters are those of the pages' fonts at their widest,
so a box may be too large, never too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from markupsafe import Markup
from rich.cells import cell_len

Point = tuple[float, float]
Place = tuple[float, float, str]
"""x, baseline, and which part of the text stands at x: ``start``, ``middle``, ``end``."""

BOLD, SMALL = 8.3, 6.9
"""Width of a letter: names (13 px bold), remarks (11.5 px)."""


@dataclass(frozen=True)
class Box:
    """A rectangle; ``right`` and ``bottom`` lie outside."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, point: Point) -> bool:
        """Whether the point lies inside."""
        return self.left <= point[0] < self.right and self.top <= point[1] < self.bottom


def text_box(text: str, x: float, baseline: float, *, letter: float, anchor: str = "middle") -> Box:
    """The box of one line of text whose letters are ``letter`` wide (Chinese ones twice that) and 14 high."""
    width = cell_len(text) * letter
    left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
    return Box(left, baseline - 11, left + width, baseline + 3)


def around(boxes: Sequence[Box], margin: float) -> Box:
    """The least box that holds all of ``boxes``, and ``margin`` about it."""
    return Box(
        min(box.left for box in boxes) - margin,
        min(box.top for box in boxes) - margin,
        max(box.right for box in boxes) + margin,
        max(box.bottom for box in boxes) + margin,
    )


class Labels:
    """What is taken already. ``points`` (lines, sampled) may not be covered either."""

    def __init__(self, taken: Iterable[Box], points: Iterable[Point] = ()) -> None:
        self.boxes = list(taken)
        self._points = tuple(points)

    def place(self, text: str, candidates: Iterable[Place]) -> Place | None:
        """The first candidate where the text has room, taken from now on; None: nowhere."""
        for x, baseline, anchor in candidates:
            box = text_box(text, x, baseline, letter=SMALL, anchor=anchor)
            if self._free(box):
                self.boxes.append(box)
                return x, baseline, anchor
        return None

    def _free(self, box: Box) -> bool:
        return not any(box.overlaps(other) for other in self.boxes) and not any(map(box.holds, self._points))


# ---------------------------------------------------------------------------------------------------------------- axes
def round_step(low: float, high: float, count: int = 5) -> float:
    """The distance of about ``count`` round marks inside [low, high]: 1, 2, 2.5 or 5 times a power of ten."""
    raw = ((high - low) or 1.0) / count
    power = 10.0 ** floor(log10(raw))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values inside [low, high], about ``count`` of them."""
    step = round_step(low, high, count)
    first = ceil(low / step - 1e-9)
    return [index * step for index in range(first, floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Axis:
    """What an axis says (with its unit), how its marks are written, and which they are if not round ones."""

    label: str
    words: Callable[[float], str] = "{:,.10g}".format
    zero: bool = False  # begins at zero: for quantities that are compared as ratios
    whole: bool = False  # marks are whole numbers
    marks: tuple[float, ...] = ()


# --------------------------------------------------------------------------------------------------------------- lines
@dataclass(frozen=True)
class Curve:
    """A named line through ``points``; ``colour`` is CSS."""

    name: str
    points: Sequence[Point]
    colour: str
    dashed: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Mark:
    """A place on the x axis where something happened: a line with a short name at its top and words that say what."""

    at: float
    name: str
    says: str


@dataclass(frozen=True)
class ChartSize:
    """The size of a chart; ``names`` is the room at the right for the names of lines, 0: a legend stands elsewhere."""

    width: float = 920.0
    height: float = 260.0
    left: float = 64.0
    names: float = 110.0


def line_chart(
    title: str,
    lines: Sequence[Curve],
    x: Axis,
    y: Axis,
    size: ChartSize = ChartSize(),
    marks: Sequence[Mark] = (),
) -> Markup:
    """Lines with dots; x ends where the data end, y at round marks, every line is named beside its end. Marks outside
    of the data are left out; of those whose names would cover each other the later ones stand a line lower."""
    every = [point for line in lines for point in line.points]
    x0, x1 = min(point[0] for point in every), max(point[0] for point in every)
    levels = _levels(min(point[1] for point in every), max(point[1] for point in every), zero=y.zero)
    low, high = levels[0], levels[-1]
    right, top, bottom = size.width - max(size.names, 14.0), 22.0, size.height - 40.0

    def across(value: float) -> float:
        return size.left + (value - x0) / ((x1 - x0) or 1.0) * (right - size.left)

    def up(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - top)

    parts = [_opening(title, size.width, size.height)]
    for value in levels:
        parts.append(_rule(size.left, right, up(value), up(value)))
        parts.append(_text(size.left - 8, up(value) + 4, y.words(value), "end"))
    for value in x.marks or (ticks(x0, x1, 8) if x1 > x0 else [x0]):
        if x.whole and value != round(value):
            continue
        parts.append(_text(across(value), bottom + 17, x.words(value)))
    parts.append(_text(size.left - 8, 11, y.label, "start" if size.left < 60 else "middle"))
    parts.append(_text(right, size.height - 6, x.label, "end"))
    parts += _marks([(across(mark.at), mark) for mark in marks if x0 <= mark.at <= x1], top, bottom)
    for line in lines:
        if not line.points:
            continue
        look = f'style="stroke:{line.colour}" stroke-width="{3 if line.strong else 1.8}"'
        look += ' stroke-dasharray="6 4"' if line.dashed else ""
        joined = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in line.points)
        parts.append(f'<polyline points="{joined}" fill="none" {look}/>')
        if len(line.points) <= MOST_DOTS:
            parts += [
                f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="3" style="fill:{line.colour}" '
                f'data-tip="{escape(f"{line.name}: {y.words(b)} at {x.words(a)}")}"/>'
                for a, b in line.points
            ]
    if size.names:
        for at, line in _ends(lines, up):
            parts.append(
                f'<text x="{right + 8:.1f}" y="{at + 4:.1f}" style="fill:{line.colour}">{escape(line.name)}</text>'
            )
    return Markup("".join([*parts, "</svg>"]))


def _marks(placed: Sequence[tuple[float, Mark]], top: float, bottom: float) -> list[str]:
    """Lines of marks, at their x."""
    labels, parts = Labels(()), []
    for at, mark in placed:
        tip = f'data-tip="{escape(mark.says)}"'
        rows = ((at, top - 4 + 13 * row, "middle") for row in range(4))
        _, baseline, _ = labels.place(mark.name, rows) or (at, top - 4.0, "middle")
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" style="stroke:var(--muted)" '
            f'stroke-dasharray="2 3" {tip}/>'
            f'<text class="small" x="{at:.1f}" y="{baseline:.1f}" text-anchor="middle" {tip}>{escape(mark.name)}</text>'
        )
    return parts


MOST_DOTS = 60
"""Lines of more points are drawn without dots."""


def _levels(low: float, high: float, *, zero: bool) -> list[float]:
    """Round values, the first at or below ``low``, the last at or above ``high``; two at least."""
    low = min(low, 0.0) if zero else low
    if high <= low:
        low, high = (low, low + 1.0) if low == 0 else (low - 0.1 * abs(low), low + 0.1 * abs(low))
    step = round_step(low, high)
    return [index * step for index in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)]


def _ends(lines: Sequence[Curve], up: Callable[[float], float]) -> list[tuple[float, Curve]]:
    """Where the names of lines stand: at their ends, moved down where they would cover the one above."""
    placed: list[tuple[float, Curve]] = []
    drawn = [line for line in lines if line.points]
    for line in sorted(drawn, key=lambda line: up(line.points[-1][1])):
        at = up(line.points[-1][1])
        placed.append((max(at, placed[-1][0] + 15) if placed else at, line))
    return placed


def legend(lines: Iterable[Curve]) -> Markup:
    """The names of lines that several charts share, each once."""
    shown = {line.name: line for line in lines}.values()
    items = "".join(
        f'<li><i class="sample" style="border-top:{4 if line.strong else 2}px {"dashed" if line.dashed else "solid"} '
        f'{line.colour}"></i>{escape(line.name)}</li>'
        for line in shown
    )
    return Markup(f'<ul class="legend">{items}</ul>')


# ---------------------------------------------------------------------------------------------------------------- bars
@dataclass(frozen=True)
class TimeBar:
    """What a row does for a while; ``look`` is a class of the style sheet."""

    row: int
    start: float
    end: float
    look: str
    told: str


def bar_chart(
    title: str, rows: Sequence[str], bars: Iterable[TimeBar], time: Axis, *, end: float, height: float = 22.0
) -> Markup:
    """Bars of each row over time; the axis ends at ``end``, where the longest of the charts that share it ends."""
    width, height, foot = 920.0, 22.0, 36.0
    left = min(160.0, 12.0 + max(map(cell_len, rows)) * SMALL)
    bottom, scale = height * len(rows), (width - left - 12.0) / (end or 1.0)
    parts = [_opening(title, width, bottom + foot)]
    for value in ticks(0.0, end or 1.0, 8):
        parts.append(_rule(left + value * scale, left + value * scale, 0.0, bottom + 4))
        parts.append(_text(left + value * scale, bottom + 17, time.words(value)))
    parts.append(_text(width - 12, bottom + 32, time.label, "end"))
    for index, name in enumerate(rows):
        parts.append(_text(0, height * index + height / 2 + 4, name if len(name) <= 22 else f"{name[:21]}…", "start"))
    parts += [
        f'<rect class="{bar.look}" x="{left + bar.start * scale:.2f}" y="{height * bar.row + 1.5:.1f}" '
        f'width="{max(0.3, (bar.end - bar.start) * scale):.2f}" height="{height - 3:.1f}" '
        f'data-tip="{escape(bar.told)}"/>'
        for bar in bars
    ]
    return Markup("".join([*parts, "</svg>"]))


def _opening(title: str, width: float, height: float) -> str:
    return f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'


def _rule(x0: float, x1: float, y0: float, y1: float) -> str:
    return f'<line class="axis" x1="{x0:.1f}" x2="{x1:.1f}" y1="{y0:.1f}" y2="{y1:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
