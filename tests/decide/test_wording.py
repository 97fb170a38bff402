from __future__ import annotations

from dataclasses import replace

import pytest
from tests.planners.worlds import cluster, domain, problem

from hippo.decide.wording import count, described, gb, gbps, joining, number, percent, seconds, unknown_plans
from hippo.plan.plan import Pipeline, Plan, Relay, Stage, Sync


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (31234, "31,200"),
        (7.416, "7.42"),
        (0.0013149, "0.00131"),
        (0, "0"),
        (999.6, "1,000"),
        (0.99999, "1.00"),
        (float("inf"), "unlimited"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_units():
    assert seconds(12.345) == "12.3 s"
    assert seconds(0.0451) == "45.1 ms"
    assert seconds(17e-6) == "17.0 us"
    assert gbps(1.25e9 / 2) == "5.00 Gbit/s"
    assert gb(80e9) == "80.0 GB"
    assert percent(0.031) == "3.1 %"
    assert percent(0.305) == "30 %"
    assert count(1, "GPU") == "1 GPU"
    assert count(1024, "GPU") == "1,024 GPUs"


def _stage(domain, tp=1, dp=1):
    return Stage(domain, (0, 1), tp, dp, ())


def _plan(*pipelines):
    return Plan(tuple(Pipeline(tuple(_stage(name) for name in names), 4) for names in pipelines), micro_batch=2)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (_plan("aa"), "one domain"),
        (_plan("aa", "aa"), "one domain"),
        (_plan("ab"), "pipeline across domains"),
        (_plan("ab", "ab"), "pipeline across domains"),
        (_plan("aa", "b"), "data parallel across domains"),
        (_plan("ab", "cd"), "data parallel between groups, pipeline inside each"),
        (replace(_plan("aa", "b"), sync=Sync("local_sgd", 500)), "local SGD across domains"),
    ],
)
def test_how_domains_are_joined(plan, words):
    assert joining(plan) == words


def test_a_plan_in_one_phrase():
    plan = replace(_plan("aab"), sharding="optimizer", relays=(Relay("a", "b", "c"),))
    assert described(plan) == (
        "pipeline across domains, a -> b: 3 stages, tp 1, dp 1, micro-batch 2, 1f1b, recompute none, "
        "sharding optimizer, a -> b through c"
    )


@pytest.mark.parametrize(
    ("sizes", "runtime", "said"),
    [
        ((4, 4), "deepspeed", " It knows no groups of unequal size."),
        ((4, 4), "megatron", " It knows no groups of unequal size."),
        ((4,), "deepspeed", ""),
        ((3,), "torch", " It knows no tensor parallelism that does not divide a node."),
        ((4,), "ideal", " It knows no unlike stages in a domain."),
    ],
)
def test_what_the_exact_search_leaves_out_is_told_where_a_plan_may_have_it(
    sizes: tuple[int, ...], runtime: str, said: str
):
    where = cluster(*(domain(name, 1, gpus) for name, gpus in zip("abc", sizes, strict=False)))
    assert unknown_plans(problem(where, runtime=runtime), "exact") == said
