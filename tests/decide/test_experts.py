"""What experts over domains would send: by hand, by listing every choice of experts, and where nothing is said."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from tests.planners.worlds import cluster, domain, gpt, problem

from hippo.decide.experts import crossing_bytes, experts_inside, reached
from hippo.planners.answers import answer_of
from hippo.planners.base import Stop
from hippo.planners.exact.search import Exact
from hippo.problem.cluster import Cluster
from hippo.problem.model import Experts, gpt_model
from hippo.problem.problem import Problem
from hippo.score.judge import Judged, judge

BOTH = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=10.0, latency_s=1e-3)


def mixture(where: Cluster = BOTH) -> Problem:
    """Two blocks of eight experts, one a token."""
    sizes = Experts(8, 1, 4096)
    small = gpt_model("moe", layers=2, hidden=1024, heads=8, vocab=2048, seq=512, gated=True, ffn=4096, experts=sizes)
    return problem(where, small, batch=16, runtime="megatron")


def answered(asked: Problem) -> Judged:
    found = answer_of(Exact(), asked, Stop(60.0)).best
    assert isinstance(found, Judged)
    return found


@pytest.mark.parametrize(("count", "per_token", "domains"), [(8, 2, 2), (9, 3, 3), (6, 1, 3), (8, 4, 4), (8, 8, 2)])
def test_how_often_a_token_reaches_a_domain_is_what_every_choice_of_experts_says(count, per_token, domains):
    choices = list(combinations(range(count), per_token))
    there = sum(any(expert < count // domains for expert in chosen) for chosen in choices)
    assert reached(Experts(count, per_token, 64), domains) == pytest.approx(there / len(choices))


def test_bytes_by_hand():
    """16 x 512 tokens, 2 layers, half of them go over, 1,024 x 2 bytes each, twice in each direction."""
    game = answered(mixture())
    sent = crossing_bytes(game, ("a", "b"))
    assert sum(sent.values()) == 16 * 512 * 2 * 0.5 * 2048 * 4
    assert len(set(sent.values())) == 1
    (reason,) = experts_inside(game)
    rate = game.problem.cluster.links[0].rate_bytes_per_s(1)
    assert reason.link_bytes == 16 * 512 * 2 * 0.5 * 2048 * 2
    assert reason.link_s == pytest.approx((reason.link_bytes + game.timeline.link_bytes.max()) / rate)
    assert reason.expert_parallel == game.plan.expert_parallel > 1
    assert 0.0 < reason.inside_s < reason.step_time_s


def test_weights_gathered_on_the_way_hide_no_exchange():
    game = answered(mixture())
    (reason,) = experts_inside(game)
    whole = replace(game.problem, runtime="ideal")
    (sharded,) = experts_inside(judge(whole, replace(game.plan, sharding="hybrid")))
    assert sharded.inside_s == pytest.approx(reason.inside_s)


def test_quicker_links_would_carry_it():
    slow, quick = (
        experts_inside(answered(mixture(cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=gbps))))[0]
        for gbps in (1.0, 1e5)
    )
    assert slow.link_s > slow.step_time_s
    assert quick.link_s < quick.step_time_s


def test_nothing_is_said_of_dense_models_and_of_domains_that_no_link_joins():
    assert experts_inside(answered(problem(BOTH, gpt(), runtime="megatron"))) == ()
    assert experts_inside(answered(mixture(cluster(domain("a", 1, 4))))) == ()
    apart = cluster(domain("a", 1, 4), domain("b", 1, 4), gbps=0.0)
    assert experts_inside(answered(mixture(apart))) == ()
