"""Degrees of context and expert parallelism: those that are tried, the best with a bound for all, and that brute force
agrees."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
from tests.planners.worlds import cluster, domain, gpt, problem

from hippo.errors import InfeasibleError, InputError
from hippo.plan.check import check
from hippo.planners.answers import answer_of, context_degrees, expert_degrees, pairs, whole_degrees
from hippo.planners.base import Planner, Proposal, Status, Stop
from hippo.planners.brute.brute import Brute
from hippo.planners.brute.space import Space
from hippo.planners.by_hand import Degrees, one_layout, site
from hippo.planners.exact.search import Exact
from hippo.planners.recipe import recompute_choices
from hippo.problem.catalogue.models import model
from hippo.problem.model import Experts, gpt_model
from hippo.problem.problem import Problem
from hippo.problem.routing import Routing
from hippo.problem.runtimes import MODULES, RECOMPUTE
from hippo.problem.workload import Workload
from hippo.registry import PLANNERS, planner
from hippo.score.judge import evaluate, fits, judge

LONG = Stop(600.0)
ONE_SITE = cluster(domain("a", 1, 4))
TWO_SITES = cluster(domain("a", 1, 2), domain("b", 1, 2), gbps=200.0, latency_s=1e-5)


def mixture(where: object = ONE_SITE, *, experts: int = 8, **given: object) -> Problem:
    """Two blocks of experts that are large for the tokens they get."""
    sizes = Experts(experts, 1, 4096)
    small = gpt_model("moe", layers=2, hidden=1024, heads=8, vocab=2048, seq=512, gated=True, ffn=4096, experts=sizes)
    return problem(where, small, batch=8, **{"runtime": "megatron", **given})  # type: ignore[arg-type]


def seconds(found: Proposal) -> float:
    assert found.score is not None
    return found.score.step_time_s


@pytest.mark.parametrize("where", [ONE_SITE, pytest.param(TWO_SITES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("experts", [4, 8])
def test_exact_finds_what_brute_finds_and_without_experts_apart_it_is_worse(where: object, experts: int):
    asked = mixture(where, experts=experts)
    every, found = answer_of(Brute(), asked, LONG), answer_of(Exact(), asked, LONG)
    assert every.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    assert found.plan is not None
    assert found.plan.expert_parallel > 1
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= seconds(every) * (1 + 1e-9)
    together = Brute().propose(asked, LONG)  # the degree of the problem alone, 1
    assert together.plan is not None
    assert together.plan.expert_parallel == 1
    if experts == 8:
        assert seconds(together) > 1.05 * seconds(every)


def test_counts_of_uneven_routing_change_the_best_degree_and_brute_agrees():
    """Two full experts stand on one rank of four: two ranks share them out less badly."""
    sizes = Experts(8, 1, 4096)
    small = gpt_model("moe", layers=2, hidden=1024, heads=8, vocab=2048, seq=2048, gated=True, ffn=4096, experts=sizes)
    even = problem(ONE_SITE, small, batch=8, runtime="megatron", seq=2048)
    asked = replace(even, workload=replace(even.workload, routing=Routing(counts=(7, 7, 1, 1, 1, 1, 1, 1))))
    every, found = answer_of(Brute(), asked, LONG), answer_of(Exact(), asked, LONG)
    blind = answer_of(Exact(), even, LONG)
    assert every.gap == found.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    assert found.plan is not None
    assert blind.plan is not None
    assert (found.plan.expert_parallel, blind.plan.expert_parallel) == (2, 4)
    assert evaluate(asked, blind.plan).step_time_s > 1.05 * seconds(found)


def test_a_domain_too_small_for_a_degree_leaves_the_others_an_answer_with_a_bound():
    """Four lanes with experts apart have no room in b: nothing stands there, and nothing there is waited for."""
    asked = mixture(cluster(domain("a", 1, 4), domain("b", 1, 2), gbps=1.0, latency_s=1e-3), runtime="ideal")
    apart = replace(asked, expert_parallel=4)
    every, found = Brute().propose(apart, LONG), Exact().propose(apart, LONG)
    assert every.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    assert found.lower_bound_s is not None
    assert 0.0 < found.lower_bound_s <= seconds(every) * (1 + 1e-9)


def test_the_answer_says_what_each_degree_takes():
    (experts,) = answer_of(Exact(), mixture(), LONG).degrees
    assert (experts.kind, experts.degree, [degree for degree, _ in experts.slower]) == ("expert", 4, [1, 2])
    assert all(share is not None and share > 0.02 for _, share in experts.slower)
    (context,) = answer_of(Exact(), long_sequences(), LONG).degrees
    assert (context.kind, context.degree, [degree for degree, _ in context.slower]) == ("context", 8, [1, 2, 4])


def test_which_degrees_are_tried():
    assert expert_degrees(problem(ONE_SITE, gpt())) == (1,)
    assert expert_degrees(mixture(experts=6)) == (1, 2)  # 3 lanes do not share 8 sequences
    assert expert_degrees(mixture()) == (1, 2, 4)
    assert expert_degrees(mixture(runtime="hippo")) == (1,)


class Scripted:
    """Answers what it is told for each degree."""

    name = "scripted"

    def __init__(self, told: dict[int, Proposal]) -> None:
        self.told, self.limits = told, list[float]()

    def propose(self, problem: Problem, stop: Stop, **_: object) -> Proposal:
        self.limits.append(stop.time_limit_s)
        found = self.told.get(problem.expert_parallel)
        if found is None:
            raise InfeasibleError(("Nothing fits.",))
        return found


def test_the_least_bound_holds_for_all_degrees():
    asked = mixture(runtime="torch")
    plans = {each: Exact().propose(replace(asked, expert_parallel=each), LONG) for each in (1, 2)}
    gaps = {1: 0.2, 2: 0.0}
    told = {each: replace(found, gap=gaps[each], work_s=3.0) for each, found in plans.items()}
    planner = Scripted(told)
    found = answer_of(planner, asked, Stop(9.0))  # type: ignore[arg-type]
    assert planner.limits == [3.0, 4.5, 6.0]  # of degrees 4, 2 and 1: the first needs nothing of its share
    assert found.plan == plans[2].plan
    least = min(seconds(plans[1]) * 0.8, seconds(plans[2]))
    assert found.gap == pytest.approx(1.0 - least / seconds(plans[2]))
    assert found.status is Status.FEASIBLE
    unproven: Planner = Scripted(told | {1: replace(told[1], gap=None, lower_bound_s=None)})  # type: ignore[assignment]
    assert answer_of(unproven, asked, Stop(9.0)).gap is None
    nothing: Planner = Scripted({})  # type: ignore[assignment]
    assert answer_of(nothing, asked, Stop(9.0)).status is Status.INFEASIBLE


def long_sequences(where: object = None, *, seq: int = 131_072, gpus: int = 8, name: str = "llama-3.2-1b") -> Problem:
    """One sequence a step, too long for a GPU."""
    place = site("H100", gpus) if where is None else where
    return Problem(model(name), place, Workload(global_batch=1, seq=seq), runtime="megatron")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seq", "gpus", "worse"), [(65_536, 4, 1.03), pytest.param(131_072, 8, 1.05, marks=pytest.mark.slow)]
)
def test_exact_finds_what_brute_finds_and_without_split_sequences_it_is_worse(seq: int, gpus: int, worse: float):
    """Llama 3.2 1B on one sequence and as many H100."""
    asked = long_sequences(seq=seq, gpus=gpus)
    every, found = answer_of(Brute(), asked, LONG), answer_of(Exact(), asked, LONG)
    assert found.plan is not None
    assert found.plan.context_parallel == gpus
    assert every.gap == found.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    whole = Brute().propose(asked, LONG)  # the degree of the problem alone, 1
    assert whole.plan is not None
    assert whole.plan.context_parallel == 1
    assert seconds(whole) > worse * seconds(every)


@pytest.mark.parametrize(("runtime", "where"), [("megatron", ONE_SITE), ("megatron", TWO_SITES), ("torch", ONE_SITE)])
def test_exact_finds_what_brute_finds_of_both_degrees_together(runtime: str, where: object):
    sizes = Experts(4, 1, 2048)
    small = gpt_model("moe", layers=2, hidden=512, heads=4, vocab=2048, seq=16_384, gated=True, ffn=2048, experts=sizes)
    asked = problem(where, small, batch=2, runtime=runtime, seq=16_384)  # type: ignore[arg-type]
    assert {(1, 1, None), (1, 2, None), (2, 1, None), (2, 2, None)} <= set(pairs(asked))
    every, found = answer_of(Brute(), asked, LONG), answer_of(Exact(), asked, LONG)
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= seconds(every) * (1 + 1e-9)


def test_which_degrees_of_context_are_tried():
    assert context_degrees(long_sequences()) == (1, 2, 4, 8)  # one domain has no more GPUs
    assert context_degrees(long_sequences(gpus=64)) == (1, 2, 4, 8, 16, 32)  # a rank keeps 4,096 tokens
    assert context_degrees(long_sequences(seq=8192 + 2)) == (1,)  # two pieces for each of two ranks
    assert context_degrees(long_sequences(seq=4096)) == (1,)
    assert context_degrees(replace(long_sequences(), runtime="deepspeed")) == (1,)
    assert context_degrees(replace(long_sequences(), model=model("qwen3-next-80b-a3b"))) == (1,)
    assert expert_degrees(mixture(experts=8), 4) == (1, 2, 4)


def test_no_layout_with_split_sequences_lies_below_the_bound():
    """Every Megatron layout of Llama 3 8B on sequences of 65,536 tokens and 32 H100 with equal stages."""
    asked = Problem(model("llama-3-8b"), site("H100", 32), Workload(global_batch=16, seq=65_536), runtime="megatron")
    found, tried = answer_of(Exact(), asked, Stop(60.0)), 0
    assert found.lower_bound_s is not None
    assert found.plan is not None
    for tp, cp, pp, size, again in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4), (1, 2), RECOMPUTE):
        try:
            dp = 32 // (tp * cp * pp)
            degrees = Degrees(tp, dp, pp, cp, micro_batch=size, recompute=again, sharding="optimizer")
            plan = one_layout(asked, degrees)
        except InputError:
            continue
        if check(asked, plan) or not fits(asked, plan):
            continue
        tried += 1
        assert evaluate(asked, plan).step_time_s >= found.lower_bound_s * (1 - 1e-9)
    assert tried > 60


@pytest.mark.parametrize("name", sorted(set(PLANNERS) - {"brute", "diloco"}))
def test_plans_of_every_planner_may_split_sequences(name: str):
    """With the degree of the problem each lane is so many tensor-parallel groups."""
    where = cluster(domain("a", 2, 4), domain("b", 2, 4), gbps=50.0)
    asked = replace(problem(where, gpt(), batch=16, runtime="torch", seq=1024), context_parallel=2)
    found = planner(name).propose(asked, Stop(60.0))
    assert found.plan is not None
    assert found.plan.context_parallel == 2
    assert check(asked, found.plan) == ()
    assert fits(asked, found.plan)


def test_no_legal_layout_lies_below_the_bound():
    """Every Megatron layout of Mixtral on 64 H100 with equal stages, experts apart or not."""
    asked = Problem(model("mixtral-8x7b"), site("H100", 64), Workload(global_batch=256), runtime="megatron")
    found, tried = answer_of(Exact(), asked, Stop(60.0)), 0
    assert found.lower_bound_s is not None
    for tp, pp, ep, etp, size, again in product(
        (1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8), (None, 1), (1, 2), (*RECOMPUTE, "moe_act", "layernorm+moe")
    ):
        degrees = Degrees(tp, 64 // tp // pp, pp, 1, ep, etp, size, recompute=again, sharding="optimizer")
        try:
            plan = one_layout(asked, degrees)
        except InputError:
            continue
        if check(asked, plan) or not fits(asked, plan):
            continue
        tried += 1
        assert evaluate(asked, plan).step_time_s >= found.lower_bound_s * (1 - 1e-9)
    assert tried > 60


def whole_experts(experts: Experts) -> Problem:
    """One sequence for four GPUs: no lanes to share out experts, but the ranks of a tensor-parallel group."""
    small = gpt_model(
        "moe", layers=2, hidden=1024, heads=8, vocab=2048, seq=2048, gated=True, ffn=4096, experts=experts
    )
    return problem(ONE_SITE, small, batch=1, seq=2048, runtime="megatron")


@pytest.mark.parametrize("experts", [Experts(8, 1, 4096), Experts(16, 4, 512)])
def test_experts_that_are_whole_beside_tensor_parallelism_are_best_and_cut_they_are_worse(experts: Experts):
    asked = whole_experts(experts)
    every, found = answer_of(Brute(), asked, LONG), answer_of(Exact(), asked, LONG)
    assert found.plan is not None
    assert (found.plan.expert_parallel, found.plan.expert_tensor_parallel) == (4, 1)
    assert every.gap == found.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    cut = [Brute().propose(replace(asked, expert_parallel=ep), LONG) for ep in expert_degrees(asked)]
    assert min(map(seconds, cut)) > 1.05 * seconds(every)


def test_experts_that_all_ranks_hold_whole_are_best_and_cut_they_are_worse():
    """Small ones, all of them for every token, on slow links: nothing is exchanged, and one sum less is made."""
    where = cluster(replace(domain("a", 1, 4), intra_node_bytes_per_s=30e9))
    small = gpt_model(
        "moe", layers=1, hidden=2048, heads=8, vocab=2048, seq=7168, gated=True, ffn=4096, experts=Experts(4, 4, 256)
    )
    asked = problem(where, small, batch=1, seq=7168, runtime="megatron")
    every, found = answer_of(Brute(), asked, LONG), answer_of(Exact(), asked, LONG)
    assert found.plan is not None
    assert (found.plan.expert_parallel, found.plan.expert_tensor_parallel) == (1, 1)
    assert found.plan.pipelines[0].stages[0].tp == 4
    assert every.gap == found.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    cut = [Brute().propose(replace(asked, expert_parallel=ep), LONG) for ep in expert_degrees(asked)]
    assert min(map(seconds, cut)) > 1.05 * seconds(every)


def test_whole_experts_are_spread_over_whatever_width_divides_a_node():
    """Six GPUs of a node share six experts, which no power of two of them does."""
    small = gpt_model(
        "moe", layers=2, hidden=1536, heads=12, vocab=2304, seq=2304, gated=True, ffn=4608, experts=Experts(6, 1, 4608)
    )
    asked = problem(cluster(domain("a", 1, 6)), small, batch=1, seq=2304, runtime="megatron")
    found, by_hand = answer_of(Exact(), asked, LONG), one_layout(asked, Degrees(tp=6, ep=6, etp=1))
    assert check(asked, by_hand) == ()
    assert found.plan is not None
    assert (found.plan.expert_parallel, found.plan.expert_tensor_parallel) == (6, 1)
    assert seconds(found) == pytest.approx(evaluate(asked, by_hand).step_time_s, rel=1e-9)
    assert whole_degrees(asked) == (1, 2, 3, 6)


class TwoWide:
    """Answers with two lanes of two tensor-parallel ranks, where experts are spread over two of something."""

    name = "two wide"

    def propose(self, problem: Problem, stop: Stop, **_: object) -> Proposal:
        if problem.expert_parallel != 2:
            raise InfeasibleError(("Nothing fits.",))
        plan = one_layout(problem, Degrees(tp=2, dp=2, ep=2, etp=problem.expert_tensor_parallel))
        return Proposal(self.name, Status.FEASIBLE, judge(problem, plan))


def test_what_whole_experts_take_is_told_beside_cut_ones():
    planner: Planner = TwoWide()  # type: ignore[assignment]
    found = answer_of(planner, mixture(), LONG)
    assert found.plan is not None
    (told,) = [each for each in found.degrees if each.kind == "expert tensor"]
    ((other, slower),) = told.slower
    assert {told.degree, other} == {1, 2}
    assert told.degree == (found.plan.expert_tensor_parallel or 2)
    assert slower is not None
    assert slower > 0.0


def test_which_degrees_of_whole_experts_are_tried():
    assert whole_degrees(whole_experts(Experts(8, 1, 4096))) == (1, 2, 4)
    assert whole_degrees(mixture(runtime="torch")) == ()
    assert whole_degrees(problem(ONE_SITE, gpt())) == ()
    assert pairs(replace(whole_experts(Experts(8, 1, 4096)), runtime="torch")) == ((1, 1, None),)


def test_the_judge_needs_no_degree_of_the_problem():
    """A plan says its own degree: judged under either problem it takes as long."""
    asked = mixture()
    found = answer_of(Exact(), asked, LONG)
    assert found.plan is not None
    assert judge(asked, found.plan).step_time_s == seconds(found)
    assert judge(replace(asked, expert_parallel=2), found.plan).step_time_s == seconds(found)


def crowded(runtime: str, experts: Experts | None = None) -> Problem:
    """Four blocks on two sequences of 16,384 tokens, and two GPUs that cannot hold all that they leave."""
    small = gpt_model(
        "small", layers=4, hidden=512, heads=8, vocab=2048, seq=16_384, gated=True, ffn=2048, experts=experts
    )
    where = cluster(domain("a", 1, 2), memory_gb=2.0)
    return problem(where, small, batch=2, seq=16_384, runtime=runtime)


@pytest.mark.parametrize(
    ("experts", "list_"), [(None, "layernorm+mlp"), (Experts(4, 2, 1024), "layernorm+moe")], ids=["dense", "mixture"]
)
def test_a_list_of_modules_computed_again_is_best_and_without_it_it_is_worse(experts: Experts | None, list_: str):
    asked = crowded("megatron", experts)
    every, found = Brute().propose(asked, LONG), Exact().propose(asked, LONG)
    assert found.plan is not None
    assert found.plan.recompute == list_
    assert every.gap == 0.0
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= seconds(every) * (1 + 1e-9)
    assert seconds(Brute(space=Space(recompute=RECOMPUTE)).propose(asked, LONG)) > 1.05 * seconds(every)


def tight(blocks: int, gpus: int, memory_gb: float, batch: int) -> Problem:
    """Blocks with little in their networks, so that lists of modules free little, on sequences of 16,384 tokens."""
    small = gpt_model("small", layers=blocks, hidden=512, heads=8, vocab=2048, seq=16_384, gated=False, ffn=512)
    where = cluster(domain("a", 1, gpus), memory_gb=memory_gb)
    return problem(where, small, batch=batch, seq=16_384, runtime="megatron")


@pytest.mark.parametrize(
    ("asked", "again"), [(tight(8, 1, 2.5, 2), "full:5"), (tight(6, 2, 1.6, 2), "full:5")], ids=["one", "two"]
)
def test_some_blocks_computed_again_whole_are_best(asked: Problem, again: str):
    every, found = Brute().propose(asked, LONG), Exact().propose(asked, LONG)
    assert found.plan is not None
    assert found.plan.recompute == again
    assert seconds(found) == pytest.approx(seconds(every), rel=1e-9)
    assert found.lower_bound_s is not None
    assert found.lower_bound_s <= seconds(every) * (1 + 1e-9)


def test_without_a_number_of_blocks_the_best_is_worse_and_no_other_number_is_better():
    asked = tight(8, 1, 2.5, 2)
    lists, best = recompute_choices(asked), seconds(Exact().propose(asked, LONG))
    assert seconds(Brute(space=Space(recompute=lists)).propose(asked, LONG)) > 1.05 * best
    every = *lists, *(f"full:{number}" for number in range(1, 9))
    assert seconds(Brute(space=Space(recompute=every)).propose(asked, LONG)) == pytest.approx(best, rel=1e-12)


def test_no_other_list_of_modules_is_better_than_those_that_are_looked_at():
    asked = crowded("megatron", Experts(4, 2, 1024))
    named = [each for each in MODULES if each not in ("core_attn", "mla_up_proj", "mlp")]  # nothing of this model
    every = ["+".join(some) for size in range(1, len(named) + 1) for some in combinations(named, size)]
    of_all = Brute(space=Space(recompute=(*RECOMPUTE, *every))).propose(asked, LONG)
    assert seconds(Exact().propose(asked, LONG)) == pytest.approx(seconds(of_all), rel=1e-9)


def test_which_recomputations_are_looked_at():
    mixed = Problem(model("deepseek-v3"), site("H100", 8), Workload(global_batch=8), runtime="megatron")
    assert recompute_choices(mixed) == (
        *("none", "selective", "layernorm+moe_act", "mla_up_proj", "layernorm+mlp+moe"),
        *("layernorm+mla_up_proj+mlp+moe", "full"),
    )
    assert recompute_choices(crowded("megatron")) == ("none", "selective", "layernorm+mlp", "full")
    assert recompute_choices(crowded("hippo")) == ("none", "full")
    assert recompute_choices(crowded("deepspeed")) == ("none", "full")
    old = replace(mixed.workload, software=replace(mixed.workload.software, attention="unfused"))
    assert set(recompute_choices(replace(mixed, workload=old))[2:-1]) == {
        *("core_attn+layernorm+moe_act", "core_attn+mla_up_proj", "core_attn+layernorm+mla_up_proj+moe_act"),
        *("core_attn+layernorm+mlp+moe", "core_attn+layernorm+mla_up_proj+mlp+moe"),
    }
