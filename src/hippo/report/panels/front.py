"""The Pareto front as points: step time to the right, egress upwards, utilisation as the shade of the dot."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10

from hippo.plan.plan import Plan
from hippo.report.story import Story
from hippo.report.text import pipeline_lines
from hippo.score.score import Score

WIDTH, HEIGHT = 640.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 24.0, 24.0, 44.0


@dataclass(frozen=True)
class Dot:
    """One plan of the front."""

    plan: Plan
    score: Score
    x: float
    y: float
    shade: float  # 0 least, 1 most utilised of the front
    chosen: bool

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

    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    least_busy: float
    most_busy: float
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    floor: float = HEIGHT - BOTTOM


def front_chart(story: Story) -> FrontChart | None:
    """The front, quickest first; None when there is none."""
    points = sorted(story.front, key=lambda point: point[1].step_time_s)
    if not points:
        return None
    times = [score.step_time_s for _, score in points]
    egress = [score.egress_usd_per_step for _, score in points]
    busy = [score.utilization for _, score in points]
    x_range, y_range = _range(times), _range(egress)
    spread = max(busy) - min(busy)
    dots = tuple(
        Dot(
            plan,
            score,
            _x(score.step_time_s, x_range),
            _y(score.egress_usd_per_step, y_range),
            (score.utilization - min(busy)) / spread if spread > 0 else 1.0,
            plan == story.plan,
        )
        for plan, score in points
    )
    x_ticks = tuple(Tick(_x(value, x_range), value) for value in ticks(*x_range))
    y_ticks = tuple(Tick(_y(value, y_range), value) for value in ticks(*y_range))
    return FrontChart(dots, x_ticks, y_ticks, min(busy), max(busy))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) inside [low, high], about ``count`` of them."""
    raw = (high - low) / count
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first = -floor(-low / step + 1e-9)
    return [index * step for index in range(first, floor(high / step + 1e-9) + 1)]


def _range(values: list[float]) -> tuple[float, float]:
    """From the least to the most with a margin; never empty."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin


def _x(value: float, bounds: tuple[float, float]) -> float:
    return LEFT + (value - bounds[0]) / (bounds[1] - bounds[0]) * (WIDTH - LEFT - RIGHT)


def _y(value: float, bounds: tuple[float, float]) -> float:
    return HEIGHT - BOTTOM - (value - bounds[0]) / (bounds[1] - bounds[0]) * (HEIGHT - TOP - BOTTOM)
