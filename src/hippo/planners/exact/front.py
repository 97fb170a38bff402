"""Plans that none beats in step time, utilisation and egress together, over the shapes of the exact search.

A *shape* is a layout on a way to join domains with so many stages in each (``uniform``). Over all its cuts the
work of its GPUs and the bytes it sends are the same: its quickest plan is also its busiest, so one plan stands for the
shape, and ``busy = work / step time``. Shapes come in the order of their lower bounds on the step time. One that could
not beat a plan already found, even at its bound, by more than ``MARGIN`` in anything is left out unplayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hippo.planners.base import Progress, Stop
from hippo.planners.cuts import deal_waves
from hippo.planners.effort import JUDGE_S, Effort
from hippo.planners.exact.candidates import Tried
from hippo.planners.exact.layouts import DomainLayout
from hippo.planners.exact.space import Field
from hippo.planners.exact.uniform import PlanShape, refine, shapes, warm_ups
from hippo.planners.exact.uniform import candidate as candidate_of
from hippo.planners.exact.ways import DomainWay
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MARGIN = 0.005  # a plan this close to another in everything (a share of its time and egress, of 1 for busy) is left out


@dataclass
class FoundPlans:
    """Scored plans, as columns: what later shapes are measured against."""

    plans: list[Judged] = field(default_factory=list)
    figures: Floats = field(default_factory=lambda: np.empty((0, 3)))  # (P, 3): seconds, USD, busy share

    def add(self, plan: Judged) -> None:
        """One more plan."""
        self.plans.append(plan)
        score = plan.score
        row = [score.step_time_s, score.egress_usd_per_step, score.utilization]
        self.figures = np.vstack([self.figures, row])

    def ceilings(self, work_s: Floats, egress_usd: Floats, *, since: int = 0) -> Floats:
        """(S,) step time from which on plans of so much work per GPU and so much egress are beaten; inf: never.

        A plan that takes T is busy ``work / T`` of it: it is beaten by one that is as quick, as busy and as cheap.
        ``since``: by those alone that were found after so many others.
        """
        least = np.full(len(work_s), np.inf)
        for seconds, usd, busy in self.figures[since:]:
            beaten = np.maximum(seconds / (1 + MARGIN), work_s / (busy + MARGIN))
            least = np.minimum(least, np.where(egress_usd * (1 + MARGIN) >= usd * (1 - 1e-9), beaten, np.inf))
        return least


def front_candidates(
    problem: Problem, known: list[Judged], stop: Stop, progress: Progress | None = None
) -> tuple[list[Judged], bool]:
    """Plans among which every shape has one within ``MARGIN``, and whether all shapes were settled within ``stop``.

    ``known``: plans found by others, which shapes have to beat.
    """
    found = FoundPlans()
    for plan in known:
        found.add(plan)
    searched = Field.of(problem, Tried(problem, Effort.of(stop)), split=problem.rules.gradients_first)
    closed = True
    kinds = range(len(searched.tables.examples))
    for kind in kinds:
        closed = _search(searched, kind, found, progress) and closed
    return found.plans, closed


def _search(searched: Field, kind: int, found: FoundPlans, progress: Progress | None) -> bool:
    """Adds the plans of one kind of domains; False: the effort was spent before."""
    ways = [real for way in searched.ideal_ways(kind) for real in searched.real_ways(kind, way)]
    bounds, keys = shapes(searched, kind, ways)
    work_s, egress_usd = _work_s(searched, kind, ways, keys), _egress_usd(searched, ways)[keys[:, 1]]
    ceilings, at, known = found.ceilings(work_s, egress_usd), np.arange(len(bounds)), len(found.plans)
    refined: dict[int, tuple[PlanShape, Ints]] = {}
    while len(at):
        at = at[bounds[at] < ceilings[at]]
        if not len(at):
            return True
        if searched.tried.over:
            return False
        first, at = int(at[0]), at[1:]
        if first not in refined:
            layout, way, stages = keys[first].tolist()
            shape = _shape(searched, searched.layouts[kind][layout], ways[way], stages)
            if shape is None:
                continue
            bounds[first], cuts = refine(searched, shape, float(ceilings[first]))
            if np.isfinite(bounds[first]):  # waits until no rougher bound is lower
                refined[first] = shape, cuts
                at = np.insert(at, np.searchsorted(bounds[at], bounds[first]), first)
            continue
        if progress is not None:
            progress("looking for plans that none beats", 1.0 - len(at) / len(bounds))
        for plan in _plans(searched, *refined.pop(first)):
            found.add(plan)
        if len(found.plans) > known:
            ceilings[at] = np.minimum(ceilings[at], found.ceilings(work_s[at], egress_usd[at], since=known))
            known = len(found.plans)
    return True


def _shape(searched: Field, layout: DomainLayout, way: DomainWay, stages: int) -> PlanShape | None:
    """The shape with its waves dealt; None where the batch cannot be dealt."""
    batch, equal = searched.problem.workload.global_batch, searched.rules.equal_shares
    waves = deal_waves(batch, layout.mode.micro_batch, [layout.dp] * way.groups, differ=not equal)
    return None if waves is None else PlanShape(layout, way, stages, waves)


def _plans(searched: Field, shape: PlanShape, cuts: Ints) -> Iterator[Judged]:
    """The quickest plan of one shape with these cuts, where it can run at all."""
    candidates = [
        candidate_of(searched, shape, cuts.tolist(), warm_up)
        for warm_up in dict.fromkeys(warm_ups(searched, shape, cuts))
    ]
    played = [(searched.tried.play(candidate), index) for index, candidate in enumerate(candidates)]
    value, best = min(played, default=(np.inf, -1))
    if np.isfinite(value):
        searched.tried.effort.spend(JUDGE_S)
        yield judge(searched.problem, candidates[best].plan(searched.problem))


def _work_s(searched: Field, kind: int, ways: list[DomainWay], keys: Ints) -> Floats:
    """(S,) seconds that a GPU works per step, on average: all waves through all layers, over the stages in a row."""
    rows, batch = searched.layout_rows(kind), searched.problem.workload.global_batch
    sizes = np.array([way.size for way in ways])
    return rows.total[keys[:, 0]] * (batch // rows.wave[keys[:, 0]]) / (sizes[keys[:, 1]] * keys[:, 2])


def _egress_usd(searched: Field, ways: list[DomainWay]) -> Floats:
    """(W,) least egress per step of each way: activations and gradients over the borders of its cheapest group."""
    cluster = searched.problem.cluster
    price, at = np.full((len(cluster.domains),) * 2, np.inf), cluster.domain_index
    for link in cluster.links:
        price[at[link.source], at[link.destination]] = link.price_usd_per_gb * 1e-9
    price = np.minimum(price, np.min(price[:, :, None] + price[None, :, :], axis=1))  # or through a third domain
    sent, found = searched.problem.workload.global_batch * searched.wave_bytes, []
    for way in ways:
        pairs = [list(zip(path, path[1:], strict=False)) for path in way.domains]
        found.append(sent * min(sum(price[a, b] + price[b, a] for a, b in group) for group in pairs))
    return np.array(found)
