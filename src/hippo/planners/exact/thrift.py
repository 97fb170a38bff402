"""The cheapest of the plans that are about as quick as the best one: fewer GPUs, or less egress.

A shape costs at least its rent for the time of its bound, and the egress that its way to join domains cannot do without
(``uniform.Near``). Those that could be cheaper than what is known and come within ``EQUAL`` of the quickest plan are
played, best bound first, from what the exact search has left.
"""

from __future__ import annotations

from hippo.cost.money import rent_usd_per_s
from hippo.planners.base import Stop
from hippo.planners.effort import JUDGE_S, Effort, play_s
from hippo.planners.exact.candidates import Candidate, Tried
from hippo.planners.exact.search import promising
from hippo.planners.exact.space import remembered
from hippo.planners.exact.uniform import Near, best_first, play
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge

EQUAL = 0.005
"""Step times this close are equal: the cheaper plan is the better one."""
SHARE = 0.2  # of the limit, beside that of the search
PATIENCE = 8  # shapes of one way to join in a row that are not about as quick


def cheapest(problem: Problem, stop: Stop) -> Judged | None:
    """The cheapest plan within ``EQUAL`` of the quickest, after ``Exact`` has searched this very problem; None: it has
    not, or found none, or none about as quick as what was known (``Stop.below``)."""
    field = remembered(problem)
    if field is None or field.tried.least > (1.0 + EQUAL) * field.tried.value or field.tried.winner is None:
        return None
    tried = field.tried
    tried.effort, tried.share = Effort(SHARE * stop.time_limit_s), 1.0
    best = _cheapest(tried)
    for bound, kind, way in promising(field):
        if bound >= (1.0 + EQUAL) * tried.value or tried.over:
            break
        failures = 0
        for least, shape, cuts in best_first(
            field, kind, field.real_ways(kind, way), near=Near(1.0 + EQUAL, best.score.usd_per_step)
        ):
            if failures >= PATIENCE or tried.over:
                break
            if shape.usd(field).of(least) < best.score.usd_per_step:
                near = play(field, shape, cuts, least) <= (1.0 + EQUAL) * tried.value
                best, failures = (_cheapest(tried), 0) if near else (best, failures + 1)
    return best


def _cheapest(tried: Tried) -> Judged:
    """Of what was played. Plans over the same GPUs and domains that agree alike have one price a second."""
    quickest: dict[object, tuple[float, Candidate]] = {}
    for candidate, value in tried.known.items():
        if value <= (1.0 + EQUAL) * tried.value:
            lines = candidate.pipelines
            where = tuple(tuple(dict.fromkeys(stage.domain for stage in line.stages)) for line in lines)
            key = where, candidate.gpus, candidate.sharding, candidate.sync, candidate.relays
            if key not in quickest or value < quickest[key][0]:
                quickest[key] = value, candidate
    best: Judged | None = None
    for value, candidate in sorted(quickest.values(), key=lambda each: (each[1].gpus, each[0])):
        gpus = candidate.gpus * tried.problem.context_parallel
        rent_usd = rent_usd_per_s(tried.problem.cluster.gpu, gpus) * value
        if best is not None and rent_usd >= best.score.usd_per_step:
            break
        tried.effort.spend(JUDGE_S + play_s(candidate))
        found = judge(tried.problem, candidate.plan(tried.problem))
        best = found if best is None or found.score.usd_per_step < best.score.usd_per_step else best
    assert best is not None, "the winner is among them"
    return best
