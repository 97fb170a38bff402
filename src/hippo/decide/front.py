"""The plans that no other beats in step time, utilisation and egress cost together.

Planners are asked for the quickest plan first. What they find, with the best of every way to join domains, is then
measured against every shape of the exact search (``planners/exact/front.py``): the best plan of each shape that could
beat them joins them. What another plan beats in all three is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from hippo.decide.choose import Panel, choose
from hippo.decide.decision import Baseline
from hippo.decide.measure import Search, flaw
from hippo.decide.wording import count, described, number, percent, seconds
from hippo.plan.plan import Plan
from hippo.planners.base import Planner, Progress, Stop
from hippo.problem.objective import for_time
from hippo.problem.problem import Problem
from hippo.records import Record, html_table
from hippo.score.evaluate import evaluate
from hippo.score.pareto import hypervolume, non_dominated
from hippo.score.score import Score

Floats = NDArray[np.float64]
ASKING_SHARE = 0.5  # of the time limit; the rest is for the shapes that nobody proposed


@dataclass(frozen=True)
class Front:
    """Plans that none beats in everything, the quickest first.

    ``hypervolume`` is the share of the box between nothing (no time, no egress, all domains in use always busy) and the
    baseline plan that these plans beat, 0 to 1; without a baseline, of the box up to the worst of them. ``closed``: the
    search came to its end, so that no plan of its space beats them in anything by more than ``planners.front.MARGIN``.
    """

    problem: Problem
    points: tuple[tuple[Plan, Score], ...]
    hypervolume: float
    baseline: Baseline | None = None
    closed: bool = False

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
    figures = f"{seconds(score.step_time_s)}, busy {percent(score.utilization)}"
    return f"{figures}, {number(score.egress_usd_per_step)} USD egress a step: {described(plan)}"


def pareto_front(
    problem: Problem,
    planners: Sequence[Planner],
    stop: Stop,
    *,
    search: Search | None = None,
    baseline: Sequence[Planner] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Front:
    """The front of all plans that the planners and the search find; without a ``search``, of the planners' alone."""
    ends_s = monotonic() + stop.time_limit_s
    timed = replace(problem, objective=for_time(problem.objective))
    asking = replace(stop, time_limit_s=stop.time_limit_s * (1.0 if search is None else ASKING_SHARE))
    panel = Panel(tuple(planners), tuple(baseline))
    decision = choose(timed, panel, asking, everyone=True, seed=seed, progress=progress)
    plans = dict.fromkeys(row.plan for row in decision.rows if row.plan is not None)
    plans |= dict.fromkeys(plan for plan, _ in decision.runners_up)
    known, closed = [(plan, evaluate(timed, plan)) for plan in plans], False
    if search is not None:
        known, closed = search(timed, known, replace(stop, time_limit_s=max(0.0, ends_s - monotonic())))
    base = None if decision.baseline is None else decision.baseline.score
    scored = [(plan, evaluate(problem, plan, baseline=base)) for plan, _ in known if flaw(problem, plan) is None]
    return replace(front_of(problem, scored, decision.baseline), closed=closed)


def front_of(problem: Problem, scored: Sequence[tuple[Plan, Score]], baseline: Baseline | None) -> Front:
    """The plans among ``scored`` that none beats, quickest first (ties: less egress, then busier), and their volume."""
    if not scored:
        return Front(problem, (), 0.0, baseline)
    ordered = sorted(scored, key=lambda item: tuple(_figures([item[1]])[0]))
    values = _figures([score for _, score in ordered])
    kept = np.flatnonzero(non_dominated(values))
    scale = _box(values[kept], baseline)
    volume = hypervolume(values[kept] / scale, np.ones(3))
    return Front(problem, tuple(ordered[index] for index in kept), volume, baseline)


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
