"""The search as a whole: what it answers, what it keeps to, and what its gap means."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from tests.planners.tiny import both, domain, model, problem

from hippo.plan.check import check
from hippo.plan.plan import Plan, ScheduleChoice
from hippo.planners.base import Proposal, Status, Stop
from hippo.planners.brute.brute import Brute
from hippo.planners.exact.bounds import PRECISION
from hippo.planners.exact.search import GAVE_UP, SETTLED, Exact
from hippo.planners.placement import PipelineSketch, StageSketch, place
from hippo.problem.cluster import Link
from hippo.problem.load import load_problem
from hippo.problem.model import gpt_model
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.score.judge import evaluate, fits

STOP = Stop(300.0)
FAST, SLOW = 5e10, 1e7


def two(bandwidth_bytes_per_s: float = FAST, **rest: object) -> Problem:
    """Two domains of two GPUs."""
    links = both("a", "b", bandwidth_bytes_per_s)
    given = {"of": model(3, hidden=2048), "batch": 8, **rest}
    return problem((domain("a", 1, 2), domain("b", 1, 2)), links, **given)  # type: ignore[arg-type]


def found(asked: Problem) -> Proposal:
    return Exact().propose(asked, STOP)


def test_an_answer_is_sound_and_its_gap_is_what_lies_between() -> None:
    for bandwidth in (FAST, 1e9, SLOW):
        asked = two(bandwidth)
        answer = found(asked)
        assert answer.plan is not None
        assert answer.score is not None
        assert answer.gap is not None
        assert answer.lower_bound_s is not None
        assert check(asked, answer.plan) == ()
        assert fits(asked, answer.plan)
        step_s = answer.score.step_time_s
        assert answer.gap == pytest.approx(1 - answer.lower_bound_s / step_s, abs=1e-12)
        assert 0 <= answer.gap < 1
        assert (answer.status is Status.OPTIMAL) == (answer.gap == 0)


def test_that_patience_ended_a_search_is_said_where_its_gap_is_open() -> None:
    asked = load_problem(model="llama-3-8b", cluster="three-aws-regions", global_batch=128, runtime="hippo")
    answer, cut = found(asked), Exact().propose(asked, Stop(0.5))
    assert answer.gap is not None
    assert answer.gap > SETTLED
    assert not answer.cut_short
    assert answer.notes.count(GAVE_UP) == 1
    assert cut.cut_short  # which says why, so that one reason is told
    assert GAVE_UP not in cut.notes
    assert GAVE_UP not in found(two()).notes  # its gap is 0


def test_one_gpu_is_settled() -> None:
    answer = found(problem((domain("a"),), of=model(3, hidden=2048)))
    assert answer.gap is not None
    assert answer.gap <= PRECISION


def test_a_slow_link_is_not_crossed_and_a_fast_one_is() -> None:
    near, far = found(two(FAST)), found(two(SLOW))
    assert near.plan is not None
    assert far.plan is not None
    assert len(near.plan.domains) == 2
    assert len(far.plan.domains) == 1
    assert far.gap is not None
    assert far.gap <= PRECISION  # the bounds know what the link costs


def test_more_than_thirty_two_domains_are_used_and_bounded() -> None:
    names = [f"d{at}" for at in range(36)]
    links = [link for one, two in combinations(names, 2) for link in both(one, two, FAST, 1e-5)]
    asked = problem(tuple(map(domain, names)), tuple(links), of=model(2), batch=36 * 64, runtime="ideal")
    answer = Exact().propose(asked, Stop(20.0))
    assert answer.plan is not None
    assert answer.score is not None
    assert answer.lower_bound_s is not None
    assert len(answer.plan.domains) == 36
    assert 0.9 * answer.score.step_time_s < answer.lower_bound_s <= answer.score.step_time_s


def test_too_little_memory_is_an_answer_with_causes() -> None:
    answer = found(two(memory_bytes=1.6e9))
    assert answer.status is Status.INFEASIBLE
    assert answer.plan is None
    assert answer.rejected


@pytest.mark.parametrize("runtime", ["any", "megatron", "torch", "deepspeed"])
def test_rules_of_the_runtime_are_kept(runtime: str) -> None:
    asked = two(2e9, runtime=runtime, memory_bytes=14e9)
    answer = found(asked)
    assert answer.plan is not None
    assert check(asked, answer.plan) == ()
    for other in answer.runners_up:
        assert check(asked, other.plan) == ()


def test_equal_questions_get_equal_answers() -> None:
    one, other = found(two(1e9)), found(two(1e9))
    assert (one.gap, one.lower_bound_s) == (other.gap, other.lower_bound_s)
    plans = [[(each.plan, each.score) for each in (answer.best, *answer.runners_up)] for answer in (one, other)]
    assert plans[0] == plans[1]


def test_money_may_choose_otherwise_than_time() -> None:
    asked = two(FAST)
    quick, cheap = found(asked), found(replace(asked, objective=Objective("cost", 0.0, 0.0, 1.0)))
    assert quick.score is not None
    assert cheap.score is not None
    assert cheap.score.usd_per_step < quick.score.usd_per_step
    assert cheap.score.step_time_s > quick.score.step_time_s
    assert cheap.lower_bound_s is None  # the bound is one of money


def test_uniform_cuts_where_asked() -> None:
    asked = two(FAST, of=model(4, hidden=4096), memory_bytes=14e9, uniform_cuts=True)
    answer = found(asked)
    assert answer.plan is not None
    assert check(asked, answer.plan) == ()
    free = found(replace(asked, uniform_cuts=False))
    assert free.score is not None
    assert answer.score is not None
    assert free.score.step_time_s <= answer.score.step_time_s


def test_local_sgd_only_where_allowed() -> None:
    asked = two(2e8)
    barred, allowed = found(asked), found(replace(asked, allow_local_sgd=True))
    assert barred.plan is not None
    assert barred.plan.sync.method == "allreduce"
    assert all(other.plan.sync.method == "allreduce" for other in barred.runners_up)
    assert allowed.plan is not None
    assert allowed.plan.sync.method == "local_sgd"
    assert allowed.notes  # its published penalty
    assert allowed.score is not None
    assert barred.score is not None
    assert allowed.score.step_time_s < barred.score.step_time_s


def test_balance_is_kept() -> None:
    asked = two(FAST, objective=Objective(balance_delta=0.2))
    answer = found(asked)
    assert answer.plan is None or answer.score is not None
    free = found(two(FAST))
    assert free.score is not None
    assert answer.score is None or answer.score.step_time_s >= free.score.step_time_s * (1 - 1e-9)


def test_a_slow_pair_is_relayed() -> None:
    """a and b are joined badly straight, and well through c."""
    links = (*both("a", "b", 1e8), *both("a", "c", FAST), *both("b", "c", FAST))
    asked = problem(
        (domain("a"), domain("b"), domain("c")), links, of=model(4, hidden=4096), batch=8, memory_bytes=16e9
    )
    answer = found(asked)
    assert answer.score is not None
    slow = tuple(link if {link.source, link.destination} == {"a", "b"} else _slowed(link) for link in links)
    worse = found(replace(asked, cluster=replace(asked.cluster, links=slow)))
    assert worse.score is not None
    assert answer.score.step_time_s < worse.score.step_time_s


def _slowed(link: Link) -> Link:
    return replace(link, bandwidth_bytes_per_s=1e8)


def test_progress_is_told() -> None:
    told: list[tuple[str, float]] = []
    Exact().propose(two(), STOP, progress=lambda phase, share: told.append((phase, share)))
    assert told
    assert [share for _, share in told] == sorted(share for _, share in told)


def test_parameters_are_sharded_in_one_domain_where_the_runtime_has_no_hybrid():
    """DeepSpeed's ZeRO-3 hides its gathers: nothing else is as quick, and brute force agrees."""
    of = gpt_model("small", layers=2, hidden=2048, heads=1, vocab=2048, seq=1024, ffn=8192, gated=True)
    asked = problem((domain("a", 1, 4),), of=of, batch=4, runtime="deepspeed")
    every, found = Brute().propose(asked, STOP), Exact().propose(asked, STOP)
    assert found.plan is not None
    assert found.score is not None
    assert every.score is not None
    assert found.plan.sharding == "full"
    assert found.score.step_time_s == pytest.approx(every.score.step_time_s, rel=1e-9)
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= every.score.step_time_s * (1 + 1e-9)


def test_one_lane_alone_is_not_sharded_over_lanes_of_another_stage():
    """Of two unlike stages each shards over its own lanes: fully sharded they are as quick as within each domain."""
    asked = two(runtime="ideal")
    stages = StageSketch("a", (0, 2), 1, 2), StageSketch("b", (2, asked.model.num_layers), 2, 1)
    lines = place(asked.cluster, (PipelineSketch(stages, 4),), cp=1)
    plan = Plan(lines, 1, sharding="full", schedule=ScheduleChoice("1f1b"))
    assert check(asked, plan) == ()
    hybrid = replace(plan, sharding="hybrid")
    assert evaluate(asked, plan).step_time_s == evaluate(asked, hybrid).step_time_s
