"""Every planner's answer side by side, and the best plan of each other way to join the domains."""

from __future__ import annotations

from dataclasses import dataclass

from hippo.decide.decision import PlannerRow
from hippo.decide.wording import joining, percent, way_of
from hippo.report.story import PlanStory
from hippo.report.text import pipeline_lines, ranked, versus
from hippo.score.score import Score


@dataclass(frozen=True)
class PlannerEntry:
    """One planner. ``share`` is the length of its bar: its step time over the slowest one shown in full."""

    row: PlannerRow
    chosen: bool
    versus: str
    share: float
    clipped: bool  # slower than the scale: the bar is cut off and says so
    lines: tuple[str, ...]  # the plan, a line per pipeline


@dataclass(frozen=True)
class Alternative:
    """The best plan of another way to join domains, or of other domains joined in the same way."""

    joining: str
    domains: tuple[str, ...]
    gpus: int
    score: Score
    versus: str  # against the chosen plan: by how much its step is longer
    lines: tuple[str, ...]
    searched: bool  # with the effort of the chosen plan; else found on the way


MOST_TIMES_BEST = 8.0
"""Planners slower than this many times the best would flatten all other bars; theirs are cut off."""


def entries(story: PlanStory) -> tuple[PlannerEntry, ...]:
    """Quickest first; planners without a plan last."""
    rows = ranked(story.rows)
    times = [row.score.step_time_s for row in rows if row.score is not None]
    if not times:
        return ()
    limit = min(max(times), min(times) * MOST_TIMES_BEST)
    return tuple(_entry(row, story, times[0], limit) for row in rows)


def _entry(row: PlannerRow, story: PlanStory, best: float, limit: float) -> PlannerEntry:
    lines = () if row.plan is None else pipeline_lines(row.plan)
    if row.score is None:
        return PlannerEntry(row, False, "", 0.0, False, lines)
    time = row.score.step_time_s
    return PlannerEntry(
        row, row.planner == story.planner, versus(time, best), min(time / limit, 1.0), time > limit, lines
    )


def alternatives(story: PlanStory) -> tuple[Alternative, ...]:
    """The runners-up, best first; times against the chosen plan."""
    time = story.score.step_time_s
    return tuple(
        Alternative(
            joining(plan),
            plan.domains,
            plan.gpus,
            score,
            _longer(score.step_time_s, time),
            pipeline_lines(plan),
            way_of(plan) in story.searched,
        )
        for plan, score in story.runners_up
    )


def _longer(value: float, chosen: float) -> str:
    """``+23 %``, ``x 3.4``, or a minus where it is quicker (the objective is not time alone)."""
    return versus(value, chosen) if value > chosen * (1 + 5e-4) else f"{percent(value / chosen - 1)}"
