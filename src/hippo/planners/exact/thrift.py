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
from hippo.planners.exact.space import WAYS_PATIENCE, Field, searched
from hippo.planners.exact.uniform import Near, best_first, play
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge

EQUAL = 0.005
"""Step times this close are equal: the cheaper plan is the better one."""
SHARE = 0.2  # of the limit, beside that of the search
PATIENCE = 8  # shapes of one way to join in a row that are not about as quick


def cheapest(problem: Problem, stop: Stop) -> Judged | None:
    """The cheapest plan within ``EQUAL`` of the quickest, after ``Exact`` has searched this problem, with whichever
    degrees of context and expert parallelism; None: it has not, or found none, or none about as quick as what was known
    (``Stop.below``)."""
    fields, effort = searched(problem), Effort(SHARE * stop.time_limit_s)
    limit = (1.0 + EQUAL) * min((field.tried.value for field in fields), default=0.0)
    best: Judged | None = None
    for field in fields:
        if field.tried.winner is not None and field.tried.least <= limit:
            found = _cheapest_of(field, effort, limit, best).under(problem)
            best = found if best is None or found.score.usd_per_step < best.score.usd_per_step else best
    return best


def _cheapest_of(field: Field, effort: Effort, limit: float, known: Judged | None) -> Judged:
    """Of one search; where another's is known, only cheaper ones are played."""
    tried = field.tried
    tried.effort, tried.share = effort, 1.0
    best, failed = _cheapest(tried, limit), 0
    for bound, kind, way in promising(field):
        if bound >= limit or failed >= WAYS_PATIENCE or tried.over:
            break
        start, failures = best, 0
        usd = min(each.score.usd_per_step for each in (best, known or best))
        near = Near(limit / tried.value, usd)
        for least, shape, cuts in best_first(field, kind, field.real_ways(kind, way), near=near):
            if failures >= PATIENCE or tried.over:
                break
            if shape.usd(field).of(least) < min(usd, best.score.usd_per_step):
                about = play(field, shape, cuts, least) <= limit
                best, failures = (_cheapest(tried, limit), 0) if about else (best, failures + 1)
        failed = 0 if best is not start else failed + 1
    return best


def _cheapest(tried: Tried, limit: float) -> Judged:
    """Of what was played. Plans over the same GPUs and domains that agree alike have one price a second."""
    quickest: dict[object, tuple[float, Candidate]] = {}
    for candidate, value in tried.known.items():
        if value <= limit:
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
