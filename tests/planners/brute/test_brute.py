"""Brute force on worlds whose optimum is known beforehand, and against itself without any short cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.planners.tiny import both, domain, model, problem

from hippo.errors import InputError
from hippo.plan.plan import Plan
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.brute import brute
from hippo.planners.brute.brute import Brute
from hippo.planners.brute.space import Common, Sketches, Space, count_sets
from hippo.problem.load import load_problem
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.score.judge import fits, imbalance
from hippo.score.score import Score

TWO = (domain("a", 1, 2), domain("b", 1, 2))
SINGLES = tuple(domain(name) for name in "abc")
FAST, SLOW = both("a", "b", 1e11, 1e-5), both("a", "b", 1e7, 0.05)
STATE_WHOLE = Space(sharding=("none",))
LONG = Stop(600.0)


def answer(asked: Problem, space: Space = STATE_WHOLE) -> Proposal:
    found = Brute(space=space).propose(asked, LONG)
    assert found.status is not Status.FEASIBLE, "time ran out"
    return found


def best(asked: Problem, space: Space = STATE_WHOLE) -> Plan:
    found = answer(asked, space)
    assert found.gap == 0.0
    assert found.plan is not None
    return found.plan


def score(asked: Problem, space: Space = STATE_WHOLE) -> Score:
    found = answer(asked, space)
    assert found.score is not None
    return found.score


def seconds(asked: Problem, space: Space = STATE_WHOLE) -> float:
    return score(asked, space).step_time_s


def test_over_a_slow_link_one_domain_alone_wins():
    plan = best(problem(TWO, SLOW))
    assert plan.domains == ("a",)
    assert seconds(problem(TWO, SLOW)) == seconds(problem(TWO[:1]))


def test_over_a_fast_link_both_domains_pay():
    plan = best(problem(TWO, FAST, batch=3))
    assert set(plan.domains) == {"a", "b"}
    assert seconds(problem(TWO, FAST, batch=3)) < seconds(problem(TWO[:1], batch=3))


def test_without_a_link_nothing_crosses():
    assert seconds(problem(TWO)) == seconds(problem(TWO[:1]))


@pytest.mark.parametrize(("direct", "pays"), [(1e10, True), pytest.param(1e11, False, marks=pytest.mark.slow)])
def test_a_relay_pays_where_the_straight_link_is_ten_times_slower(direct: float, pays: bool):
    """Three replicas agree on a ring, which needs a -> b or b -> a whichever way it turns."""
    links = both("a", "b", direct, 1e-4) + both("a", "c", 1e11, 1e-4) + both("c", "b", 1e11, 1e-4)
    asked, plain = problem(SINGLES, links, of=model(1), batch=3), Space(("none",), ("none",), run_ahead=False)
    plan = best(asked, plain)
    assert len(plan.pipelines) == 3
    assert [{relay.source, relay.destination, relay.via} for relay in plan.relays] == [{"a", "b", "c"}] * pays
    assert (seconds(asked, plain) < seconds(asked, replace(plain, relays=False))) == pays


def test_a_full_memory_forces_recomputation():
    """One GPU, one sequence: only recomputation is left to save memory. The memory of the GPU is in the figures."""
    roomy = problem(SINGLES[:1], batch=1)
    plan = best(roomy)
    assert plan.recompute == "none"
    lacks = [memory_bytes for memory_bytes in range(0, 20_000_000_000, 10_000_000) if not holds(plan, memory_bytes)]
    assert holds(replace(plan, recompute="full"), lacks[-1])
    assert best(problem(SINGLES[:1], batch=1, memory_bytes=lacks[-1])).recompute != "none"


def holds(plan: Plan, memory_bytes: float) -> bool:
    return fits(problem(SINGLES[:1], batch=1, memory_bytes=memory_bytes), plan)


def test_a_small_memory_forces_more_stages():
    """One attention head: no tensor parallelism. Two GPUs as replicas win unless neither holds the model."""
    wide = model(2)
    block = wide.layers[1]
    assert block.attention is not None
    block = replace(block, attention=replace(block.attention, heads=1, kv_heads=1))
    small = replace(wide, layers=(wide.layers[0], block, block, wide.layers[-1]))
    whole = best(problem(TWO[:1], of=small))
    assert {len(pipeline.stages) for pipeline in whole.pipelines} == {1}
    alone = [gb for gb in range(1, 20) if answer(problem(SINGLES[:1], of=small, memory_bytes=gb * 1e9)).plan]
    cut = best(problem(TWO[:1], of=small, memory_bytes=(alone[0] - 1) * 1e9))
    assert [len(pipeline.stages) for pipeline in cut.pipelines] == [2]


def test_too_little_memory_is_an_answer():
    found = answer(problem(SINGLES[:2], FAST, memory_bytes=1e9))
    assert found.status is Status.INFEASIBLE
    assert found.plan is None
    assert found.rejected["memory"] > 0
    assert found.notes == ("Every plan was tried; none fits.",)


def test_local_sgd_competes_only_where_it_is_allowed():
    asked = problem(TWO, both("a", "b", 1e9, 0.02))
    allowed = best(replace(asked, allow_local_sgd=True))
    assert best(asked).sync.method == "allreduce"
    assert allowed.sync.method == "local_sgd"
    assert set(allowed.domains) == {"a", "b"}


def test_cost_counts_rent_and_egress():
    cheap = answer(problem(TWO, FAST, batch=2, objective=Objective("cost", 0.0, 0.0, 1.0)))
    quick = score(problem(TWO, FAST, batch=2))
    assert cheap.score is not None
    assert cheap.score.usd_per_step < quick.usd_per_step
    assert cheap.score.step_time_s > quick.step_time_s
    assert cheap.gap == 0.0
    assert cheap.lower_bound_s is None


def test_weights_are_measured_against_the_usual_plan():
    """Nothing but egress counts, and a plan without any is there."""
    asked = problem(SINGLES[:2], FAST, objective=Objective("weighted", 0.0, 0.0, 1.0))
    assert score(asked).egress_usd_per_step == 0.0


def test_domains_in_balance_where_that_is_asked():
    uneven = problem(SINGLES[:2], both("a", "b", 1e9, 1e-4), of=model(3), batch=8)
    asked = replace(uneven, objective=Objective(balance_delta=0.02))
    assert imbalance(asked, best(uneven)) > 0.02 >= imbalance(asked, best(asked))


@pytest.mark.parametrize(
    "asked",
    [
        problem((TWO[0], SINGLES[1]), both("a", "b", 1e9), batch=2),
        problem(SINGLES, both("a", "b", 1e9) + both("b", "c", 5e9), of=model(1, tied=True), batch=2),
        problem(TWO[:1], of=model(3), batch=2, objective=Objective("cost", 0.0, 0.0, 1.0)),
        problem(SINGLES[:2], both("a", "b", 1e10), runtime="megatron"),
        pytest.param(
            problem(SINGLES[:2], both("a", "b", 1e10), of=model(3), uniform_cuts=True), marks=pytest.mark.slow
        ),
    ],
    ids=["two domains", "a chain of links", "cost", "megatron", "uniform cuts"],
)
def test_leaving_out_by_bounds_loses_nothing(asked: Problem, monkeypatch: pytest.MonkeyPatch):
    plain = Space(("none",), ("none",), most_chunks=2)
    spaces = (Space(), plain) if asked.objective.name == "time" else (Space(),)
    quick = [score(asked, space) for space in spaces]
    monkeypatch.setattr(brute._BruteSearch, "_cut_off", lambda *_: False)
    whole = [score(asked, space) for space in spaces]
    value = "usd_per_step" if asked.objective.name == "cost" else "step_time_s"
    assert [getattr(each, value) for each in quick] == [getattr(each, value) for each in whole]


def test_interleaved_chunks_pay_where_they_are_asked_for():
    """Two stages and four micro-batches: the bubble is a fifth of the step, and two chunks halve it."""
    asked = problem(SINGLES[:2], FAST, of=model(6), batch=4, runtime="megatron")
    chunked = best(asked, replace(STATE_WHOLE, recompute=("none",), most_chunks=2))
    assert (chunked.interleave, chunked.schedule.name) == (2, "interleaved")
    assert seconds(asked, replace(STATE_WHOLE, most_chunks=2)) < seconds(asked, replace(STATE_WHOLE, most_chunks=1))


def test_every_set_of_pipelines_is_there_once():
    """Two GPUs in two domains, three layers, L micro-batches: two domains alone, two cuts in two orders, and L - 1
    ways to deal the micro-batches to two replicas."""
    asked = problem(SINGLES[:2], FAST, of=model(1))
    for size, lanes in ((1, 4), (2, 2), (4, 1)):
        found = list(Sketches(asked, Common(size, "none", "none")))
        assert len(found) == len(set(found)) == 2 + 4 + (lanes - 1)
    assert count_sets(asked) == 3 * 6 + 2 * (3 + 1 + 0)  # the count tells the replicas apart


def test_large_problems_are_refused_at_once():
    with pytest.raises(InputError, match="too many plans.*plan with 'exact'"):
        Brute().propose(load_problem(model="llama-3-70b", cluster="four-hubs"), LONG)


def test_a_limit_that_is_reached_is_said():
    found = Brute().propose(problem(TWO, FAST), Stop(0.0))
    assert found.status in (Status.FEASIBLE, Status.INFEASIBLE)
    assert found.notes == ("Its limit was reached before every plan was tried.",)
    assert found.cut_short
