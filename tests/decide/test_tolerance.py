"""One tolerance, of the quickest that anybody knows, and bounds that hold or are said not to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest
from tests.planners.tiny import domain, random_problem
from tests.planners.tiny import problem as tiny

from hippo.decide.best_order import with_best_order
from hippo.decide.choose import Panel, choose
from hippo.planners.base import Progress, Proposal, Status, Stop
from hippo.planners.baselines.crosspipe import CrossPipe
from hippo.planners.baselines.even import Even
from hippo.planners.baselines.sailor import Sailor
from hippo.planners.baselines.single_domain import SingleDomain
from hippo.planners.exact.search import Exact
from hippo.planners.exact.thrift import EQUAL, cheapest
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge

STOP = Stop(30.0)
CLOSE = 1e-9


@dataclass(frozen=True)
class Offers:
    """Proposes a plan that is said to take so long."""

    name: str
    plan: Judged

    def propose(self, problem: Problem, stop: Stop, *, seed: int = 0, progress: Progress | None = None) -> Proposal:
        """What it was made with."""
        return Proposal(self.name, Status.FEASIBLE, self.plan)


@pytest.mark.parametrize("seed", range(50))
def test_tolerances_do_not_add(seed: int) -> None:
    """Planners with plans a little apart in time and price, the exact search with a cheaper one beside its own: what is
    chosen is the cheapest within the tolerance of the quickest of all, whoever has it."""
    random, asked = Random(seed), tiny((domain("a"),))
    plan = SingleDomain().propose(asked, STOP).plan
    assert plan is not None

    def offer() -> Judged:
        """The plan, with figures of its own."""
        found = judge(asked, plan)
        figures = {"step_time_s": 1 + random.uniform(0, 3 * EQUAL), "usd_per_step": random.uniform(1, 2)}
        return replace(found, score=replace(found.score, **figures))

    offers = [offer() for _ in range(random.randint(1, 4))]
    cheap = replace(offer(), plan=replace(plan, micro_batch=plan.micro_batch * 2))  # another plan than the search's own
    cheap = replace(cheap, checked=(None,))
    who = [Offers("exact", offers[0]), *(Offers(f"other {at}", each) for at, each in enumerate(offers[1:]))]
    found = choose(asked, Panel(tuple(who), thrift=lambda problem, stop: cheap), STOP)
    assert found.score is not None
    known = [each.score for each in (*offers, cheap)]
    quickest = min(score.step_time_s for score in known)
    assert found.score.step_time_s <= (1 + EQUAL) * quickest
    near = [score for score in known if score.step_time_s <= (1 + EQUAL) * quickest]
    assert found.score.usd_per_step == min(score.usd_per_step for score in near)


@pytest.mark.parametrize("runtime", ["hippo", "torch"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_chosen_is_about_as_quick_as_anything_found_and_its_bound_holds(seed: int, runtime: str) -> None:
    asked = replace(random_problem(seed), runtime=runtime)
    panel = Panel((Exact(), SingleDomain(), Even(), Sailor(), CrossPipe()), thrift=cheapest, order=with_best_order)
    found = choose(asked, panel, STOP, everyone=True)
    alone = choose(asked, replace(panel, planners=(Exact(),), thrift=None), STOP)
    known = [row.score for row in (*found.rows, *alone.rows) if row.score is not None]
    if found.score is None:
        assert known == []
        return
    quickest = min(score.step_time_s for score in known)
    assert found.score.step_time_s <= (1 + EQUAL) * quickest * (1 + CLOSE)
    near = [row.score for row in found.rows if row.score and row.score.step_time_s <= (1 + EQUAL) * quickest]
    assert found.score.usd_per_step == min(score.usd_per_step for score in near)
    if found.gap is None:
        assert any("does not hold for this kind of plan" in note for row in found.rows for note in row.notes)
    else:
        assert found.lower_bound_s is not None
        assert 0 <= found.gap == pytest.approx(max(0.0, 1 - found.lower_bound_s / found.score.step_time_s), abs=1e-6)
    searched = found.rows[0]
    assert searched.lower_bound_s is not None, "an order of its own must not beat the bound of the search that made it"
