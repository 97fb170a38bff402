from __future__ import annotations

import pytest

from hippo.plan.plan import Plan
from hippo.planners.base import Status
from hippo.planners.effort import Effort
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.planners.recipe import Recipe
from hippo.planners.shortlist import ShortList
from hippo.problem.objective import objective_from_text
from hippo.score.judge import evaluate

from .worlds import cluster, domain, gpt, problem

WHERE = cluster(domain("a", 1, 8))
PROBLEM = problem(WHERE)


def plan(dp: int, *, batch: int = 16, micro_batch: int = 1, recompute: str = "none") -> Plan:
    sketch = PipelineSketch((StageSketch("a", (0, 10), 1, dp),), batch // dp // micro_batch)
    return Recipe(micro_batch, recompute).plan(PROBLEM, place(WHERE, [sketch]))


def shortlist(*, spent_s: float = 0.0, memory_gb: float = 80.0, objective: str = "time") -> ShortList:
    asked = problem(cluster(domain("a", 1, 8), memory_gb=memory_gb), objective=objective_from_text(objective))
    return ShortList(asked, Effort(10.0, spent_s))


def test_the_fastest_plan_stays() -> None:
    short = shortlist()
    short.try_all([plan(2), plan(8), plan(4)])
    answer = short.proposal("me", notes=("A note.",), nothing="None.")
    assert answer.status is Status.FEASIBLE
    assert answer.plan == plan(8)
    assert answer.score == evaluate(short.problem, plan(8))
    assert answer.gap is None


def test_what_does_not_count_is_told_by_cause() -> None:
    short = shortlist(memory_gb=3.0)
    assert short.consider(plan(8, batch=8)) is None
    assert short.consider(plan(1, micro_batch=16)) is None
    assert set(short.rejected) == {"batch", "memory"}
    answer = short.proposal("me", notes=(), nothing="Nothing fits.")
    assert answer.status is Status.INFEASIBLE
    assert answer.notes[0].startswith("Nothing fits. The closest one lacks ")
    assert answer.rejected == {"batch": 1, "memory": 1}


def test_of_many_domains_that_no_ring_joins_the_plan_is_left_out_and_the_others_stay() -> None:
    """A star of fourteen: ``check`` looks for rings of twelve at most, so the player finds out."""
    names = [f"d{at:02d}" for at in range(14)]
    apart = {(one, two): 0.0 for one in names[1:] for two in names[1:] if one < two}
    where = cluster(*(domain(name, 1, 1) for name in names), others=apart)
    short = ShortList(problem(where, batch=28), Effort(10.0, 0.0))
    sketches = [PipelineSketch((StageSketch(name, (0, 10), 1, 1),), 2) for name in names]
    plans = [Recipe(1, "none").plan(short.problem, place(where, sketches[:many])) for many in (14, 1)]
    short.try_all([plans[0]])
    assert dict(short.rejected) == {"links": 1}
    assert short.best is None


def test_the_limit_ends_the_search_once_a_plan_was_scored_and_that_is_told() -> None:
    late = shortlist(spent_s=11.0)
    late.try_all([plan(8, batch=8), plan(2), plan(8)])
    assert late.best is not None
    assert late.best.plan == plan(2)
    assert late.proposal("me", notes=(), nothing="").cut_short.startswith("Cut short by its time limit")


def test_nothing_is_cut_short_where_nothing_was_left() -> None:
    late = shortlist(spent_s=11.0)
    late.try_all([plan(2)])
    assert late.proposal("me", notes=(), nothing="").cut_short == ""


def test_at_most_so_many_are_scored() -> None:
    short = shortlist()
    short.try_all([plan(8, batch=8), plan(2), plan(4), plan(8)], most=2)
    assert short.judged == 2


def test_what_the_objective_minimises() -> None:
    short = {text: shortlist(objective=text) for text in ("time", "cost", "1,0.5,0")}
    for each in short.values():
        each.consider(plan(8))
    score, other = evaluate(PROBLEM, plan(8)), evaluate(PROBLEM, plan(2))
    assert short["time"].value(other) == other.step_time_s
    assert short["cost"].value(other) == other.usd_per_step
    weighted = other.step_time_s / score.step_time_s - 0.5 * other.utilization
    assert short["1,0.5,0"].value(other) == pytest.approx(weighted)


def test_a_model_of_another_size_breaks_the_layers_rule() -> None:
    short = ShortList(problem(WHERE, gpt(4)), Effort())
    assert short.consider(plan(8)) is None
    assert list(short.rejected) == ["layers"]
