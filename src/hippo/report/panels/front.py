"""The Pareto front as points: step time to the right, egress upwards, utilisation as the shade of the dot.

Plans that were looked at and are beaten stand beside it, hollow, as far as the scale of the front shows them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hippo.decide.wording import count, joining
from hippo.plan.plan import Plan
from hippo.report.charts import SMALL, Box, Labels, Place, Point, ticks
from hippo.report.story import PlanStory, Scored
from hippo.report.text import pipeline_lines
from hippo.score.score import Score

WIDTH, HEIGHT = 800.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 24.0, 24.0, 44.0
RADIUS = 7.0
FURTHEST = 4.0
"""Beaten plans slower than this many times the quickest are left out: they would flatten the front."""


@dataclass(frozen=True)
class Dot:
    """One plan, of the front or beaten by it."""

    plan: Plan
    score: Score
    x: float
    y: float
    shade: float  # 0 least, 1 most utilised of those drawn
    chosen: bool
    on_front: bool
    label: str  # who found it, else how it joins domains; empty where there is no room
    label_x: float = 0.0
    label_y: float = 0.0
    anchor: str = "middle"

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan, a line per pipeline."""
        return pipeline_lines(self.plan)


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where, and the value there."""

    at: float
    value: float


@dataclass(frozen=True)
class FrontChart:
    """What the template draws."""

    dots: tuple[Dot, ...]  # the front, quickest first
    beaten: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    least_busy: float
    most_busy: float
    not_drawn: str  # how many plans are too slow for the drawing; empty: none
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    floor: float = HEIGHT - BOTTOM


def front_chart(story: PlanStory) -> FrontChart | None:
    """The front, quickest first, and what it beats; None when there is none."""
    if not story.front:
        return None
    front = tuple(sorted(story.front, key=lambda point: point[1].step_time_s))
    longest = FURTHEST * front[0][1].step_time_s
    beaten = tuple(point for point in story.beaten if point[1].step_time_s <= longest)
    scores = [score for _, score in (*front, *beaten)]
    busy = [score.utilization for score in scores]
    x_range = _range([score.step_time_s for score in scores])
    y_range = _range([score.egress_usd_per_step for score in scores])
    dots = _dots(story, front, beaten, (x_range, y_range), (min(busy), max(busy)))
    return FrontChart(
        dots[: len(front)],
        dots[len(front) :],
        tuple(Tick(_x(value, x_range), value) for value in ticks(*x_range, count=8)),
        tuple(Tick(_y(value, y_range), value) for value in ticks(*y_range)),
        min(busy),
        max(busy),
        _not_drawn(len(story.beaten) - len(beaten)),
    )


def _not_drawn(plans: int) -> str:
    if not plans:
        return ""
    verb = "takes" if plans == 1 else "take"
    return f" {count(plans, 'plan')} that {verb} more than {FURTHEST:g} times as long as the quickest: not drawn."


def _dots(
    story: PlanStory, front: Scored, beaten: Scored, ranges: tuple[Point, Point], busy: tuple[float, float]
) -> tuple[Dot, ...]:
    """Dots with the labels that find room, those of the front first."""
    points = (*front, *beaten)
    places = [(_x(s.step_time_s, ranges[0]), _y(s.egress_usd_per_step, ranges[1])) for _, s in points]
    axis = Box(0.0, HEIGHT - BOTTOM + 8, WIDTH, HEIGHT)  # whose marks no label may cover
    frame = Labels([axis, *(Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places)])
    dots, names = [], _finders(story)
    for index, ((plan, score), (x, y)) in enumerate(zip(points, places, strict=True)):
        shade = (score.utilization - busy[0]) / (busy[1] - busy[0]) if busy[1] > busy[0] else 1.0
        text = names.get(plan) or joining(plan).replace("across domains", f"across {len(plan.domains)} domains")
        place = frame.place(text, _beside(text, x, y))
        label = (text, *place) if place else ("", x, y, "middle")
        dots.append(Dot(plan, score, x, y, shade, plan == story.plan, index < len(front), *label))
    return tuple(dots)


def _finders(story: PlanStory) -> dict[Plan, str]:
    """The planners that found each plan, as far as they are known."""
    names: dict[Plan, str] = {}
    for row in story.rows:
        if row.plan is not None:
            names[row.plan] = f"{names[row.plan]}, {row.planner}" if row.plan in names else row.planner
    return names


def _beside(text: str, x: float, y: float) -> list[Place]:
    """Right, left, above and below a dot, and aslant to the right, as far as the text stays on the drawing."""
    width, off, above, below = len(text) * SMALL, RADIUS + 5, y - RADIUS - 7, y + RADIUS + 15
    places: list[tuple[float, Place]] = [
        (x + off, (x + off, y + 4, "start")),
        (x - off - width, (x - off, y + 4, "end")),
        (x - width / 2, (x, above, "middle")),
        (x - width / 2, (x, below, "middle")),
        (x - RADIUS, (x - RADIUS, below, "start")),
        (x - RADIUS, (x - RADIUS, above, "start")),
    ]
    return [place for left, place in places if left >= LEFT and left + width <= WIDTH]


def _range(values: list[float]) -> tuple[float, float]:
    """From the least to the most with a margin; never empty."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin


def _x(value: float, bounds: tuple[float, float]) -> float:
    return LEFT + (value - bounds[0]) / (bounds[1] - bounds[0]) * (WIDTH - LEFT - RIGHT)


def _y(value: float, bounds: tuple[float, float]) -> float:
    return HEIGHT - BOTTOM - (value - bounds[0]) / (bounds[1] - bounds[0]) * (HEIGHT - TOP - BOTTOM)
