"""The plans that no other beats in step time, utilisation and egress cost together.

Planners are asked for the quickest plan first. What they find, with the best of every way to join domains, is then
measured against every shape of the exact search (``planners/exact/front.py``): the best plan of each shape that could
beat them joins them. What another plan beats in all three is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hippo.decide.choose import Order, Panel, Search, choose, sound
from hippo.decide.decision import Baseline
from hippo.decide.wording import count, described, percent, seconds, usd
from hippo.plan.plan import Plan
from hippo.planners.base import Planner, Progress, Stop
from hippo.planners.effort import LIMITED
from hippo.problem.objective import for_time
from hippo.problem.problem import Problem
from hippo.records import Record, html_table
from hippo.score.judge import Judged
from hippo.score.score import Score

Floats = NDArray[np.float64]
ASKING_SHARE = 0.5  # of the limit; the rest is for the shapes that nobody proposed


class ScoredPlan(NamedTuple):
    """A plan and its figures."""

    plan: Plan
    score: Score


@dataclass(frozen=True)
class Front:
    """Plans that none beats in everything, the quickest first.

    ``hypervolume`` is the share of the box between nothing (no time, no egress, all domains in use always busy) and the
    baseline plan that these plans beat, 0 to 1; without a baseline, of the box up to the worst of them. ``closed``: the
    search came to its end: no plan of its space beats them in anything by more than ``planners.exact.front.MARGIN``.
    ``cut_short``: a sentence where its limit ended it before.
    """

    problem: Problem
    points: tuple[ScoredPlan, ...]
    hypervolume: float
    baseline: Baseline | None = None
    closed: bool = False
    cut_short: str = ""

    def records(self) -> list[Record]:
        """A row per plan with its figures, quickest first: what ``pandas.DataFrame`` takes."""
        return [{"plan": described(plan), "gpus": plan.gpus, **score.to_dict()} for plan, score in self.points]

    def __repr__(self) -> str:
        name, hypervolume = self.problem.model.name, self.hypervolume
        return f"Front({count(len(self.points), 'plan')} of {name}, {hypervolume=:.4g}, closed={self.closed})"

    def _repr_html_(self) -> str:
        shown = ("plan", "gpus", "step_time_s", "utilization", "egress_usd_per_step", "usd_per_step", "mfu")
        rows = [{name: each[name] for name in shown} for each in self.records()]
        return html_table(rows, title=f"{count(len(rows), 'plan')} that none beats in everything")

    def summary(self) -> str:
        """A line per plan."""
        head = f"{count(len(self.points), 'plan')} that none beats in time, utilisation and egress together:"
        return "\n".join([head, *(_line(plan, score) for plan, score in self.points)])


def _line(plan: Plan, score: Score) -> str:
    figures = f"{seconds(score.step_time_s)}, busy {percent(score.utilization)}, {usd(score.usd_per_step)} a step"
    return f"{figures} ({usd(score.egress_usd_per_step)} egress): {described(plan)}"


def pareto_front(
    problem: Problem,
    planners: Sequence[Planner],
    stop: Stop,
    *,
    search: Search | None = None,
    baseline: Sequence[Planner] = (),
    order: Order | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Front:
    """The front of all plans that the planners and the search find; without a ``search``, of the planners' alone."""
    timed = replace(problem, objective=for_time(problem.objective))
    asking = replace(stop, time_limit_s=stop.time_limit_s * (1.0 if search is None else ASKING_SHARE))
    panel = Panel(tuple(planners), tuple(baseline), order=order)
    decision = choose(timed, panel, asking, everyone=True, seed=seed, progress=progress)
    proposed = [row.best for row in decision.rows if row.best is not None]
    plans: dict[Plan, Judged] = {}
    for found in (*proposed, *decision.runners_up):
        plans.setdefault(found.plan, found)
    known, closed, cut_short = list(plans.values()), False, ""
    if search is not None:
        asked_s = sum(row.work_s for row in decision.rows)
        left = replace(stop, time_limit_s=max(0.0, stop.time_limit_s - asked_s))
        known, closed = search(timed, known, left, progress)
        cut_short = "" if closed else LIMITED
    base = None if decision.baseline is None else decision.baseline.score
    judged = (found.under(problem, baseline=base) for found in sound(problem, known))
    scored = [(found.plan, found.score) for found in judged]
    return replace(front_of(problem, scored, decision.baseline), closed=closed, cut_short=cut_short)


def front_of(problem: Problem, scored: Sequence[tuple[Plan, Score]], baseline: Baseline | None) -> Front:
    """The plans among ``scored`` that none beats, quickest first (ties: less egress, then busier), and their volume."""
    if not scored:
        return Front(problem, (), 0.0, baseline)
    ordered = sorted(scored, key=lambda item: tuple(_figures([item[1]])[0]))
    values = _figures([score for _, score in ordered])
    kept = np.flatnonzero(non_dominated(values))
    scale = _box(values[kept], baseline)
    volume = hypervolume(values[kept] / scale, np.ones(3))
    return Front(problem, tuple(ScoredPlan(*ordered[index]) for index in kept), volume, baseline)


def _figures(scores: Sequence[Score]) -> Floats:
    """What is minimised, (P, 3): step time, egress, idle share."""
    return np.array([[s.step_time_s, s.egress_usd_per_step, 1 - s.utilization] for s in scores])


def _box(values: Floats, baseline: Baseline | None) -> Floats:
    """The corner of the box, (3,): the baseline's time, its egress (its whole price where it has none), always idle."""
    worst = values.max(axis=0)
    if baseline is None:
        return np.array([worst[0] or 1.0, worst[1] or 1.0, 1.0])
    score = baseline.score
    return np.array([score.step_time_s, score.egress_usd_per_step or score.usd_per_step, 1.0])


def non_dominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Mask (P,) of the points that no other point beats.

    A point is dominated when another is nowhere worse and somewhere better. Of equal points the first is kept.

    Raises
    ------
    ValueError
        Points are not a (P, D) array of finite numbers.
    """
    values = _checked(points)
    keep = np.zeros(len(values), dtype=bool)
    # In lexicographic order (ties: as given) a point can only be dominated by one that comes before it.
    order = np.lexsort((np.arange(len(values)), *values.T[::-1]))
    front = np.empty((0, values.shape[1]))
    for index in order:
        if not np.any(np.all(front <= values[index], axis=1)):
            keep[index] = True
            front = np.vstack([front, values[index]])
    return keep


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """Volume of the space that the points dominate, up to the reference point (exact).

    Sweeps one objective and measures the slices recursively ("Hypervolume by slicing objectives", While et al. 2006):
    O(P^2 log P) for three objectives. Points not better than the reference in every objective add nothing.
    """
    values = _checked(points)
    limit = np.asarray(reference, dtype=float)
    if limit.shape != (values.shape[1],):
        raise ValueError(f"the reference point needs {values.shape[1]} numbers, got {limit.shape}")
    return _volume(values[np.all(values < limit, axis=1)], limit)


def _volume(points: NDArray[np.float64], limit: NDArray[np.float64]) -> float:
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(limit[0] - points[:, 0].min())
    ordered = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        # Left to right in the second objective, a point adds the strip that its first objective newly covers.
        best = np.minimum.accumulate(ordered[:, 0])
        heights = np.append(ordered[1:, 1], limit[1]) - ordered[:, 1]
        return float(np.sum((limit[0] - best) * heights))
    depths = np.append(ordered[1:, -1], limit[-1]) - ordered[:, -1]
    slices = (_volume(ordered[: index + 1, :-1], limit[:-1]) for index in range(len(ordered)))
    return float(sum(depth * area for depth, area in zip(depths, slices, strict=True) if depth > 0))


def _checked(points: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(points, dtype=float)
    if values.ndim != 2 or not np.all(np.isfinite(values)):
        raise ValueError(f"points must be a finite (points, objectives) array, got shape {values.shape}")
    return values
