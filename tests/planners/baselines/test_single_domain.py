from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.planners.baselines.even import Even
from hippo.planners.baselines.single_domain import SingleDomain, unlike_domains, variants
from hippo.planners.inside_domain import Inside
from hippo.planners.recipe import Recipe
from hippo.problem.objective import objective_from_text

from ..worlds import STOP, assert_sound, cluster, domain, gpt, problem

WHERE = cluster(domain("a", 1, 4), domain("b", 2, 4), domain("c", 1, 4))


def test_alike_domains_are_searched_once() -> None:
    assert [one.name for one in unlike_domains(WHERE)] == ["a", "b"]


def test_the_larger_domain_wins_and_the_others_idle() -> None:
    asked = problem(WHERE, batch=64)
    answer = SingleDomain().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.plan is not None
    assert answer.plan.domains == ("b",)
    assert answer.plan.gpus == 8


@pytest.mark.parametrize("memory_gb", [80.0, 6.0, 4.0])
@pytest.mark.parametrize("runtime", ["any", "megatron", "torch", "deepspeed"])
def test_a_search_finds_no_worse_than_rules_of_thumb(memory_gb: float, runtime: str) -> None:
    asked = problem(cluster(domain("a", 2, 4), memory_gb=memory_gb), gpt(8, 2048), batch=64, runtime=runtime)
    full, thumb = SingleDomain().propose(asked, STOP), Even().propose(asked, STOP)
    assert_sound(asked, full)
    assert thumb.score is None or (full.score is not None and full.score.step_time_s <= thumb.score.step_time_s)


def test_chunks_are_tried_where_waves_and_layers_divide() -> None:
    asked = problem(WHERE, gpt(6))
    inside = Inside("b", 1, 2, (0, 4, 8), Recipe(2), 4, 0.0)
    found = [(plan.schedule.name, plan.interleave) for plan in variants(asked, inside)]
    assert found == [("1f1b", 1), ("interleaved", 2), ("interleaved", 4)]
    assert len(list(variants(asked, replace(inside, waves=3)))) == 1
    assert len(list(variants(asked, replace(inside, cuts=(0, 3, 8))))) == 1


def test_cost_takes_fewer_gpus_than_time() -> None:
    where = cluster(domain("a", 8, 1))
    quick = SingleDomain().propose(problem(where, batch=64), STOP)
    cheap = SingleDomain().propose(problem(where, batch=64, objective=objective_from_text("cost")), STOP)
    assert quick.plan is not None
    assert cheap.plan is not None
    assert quick.score is not None
    assert cheap.score is not None
    assert cheap.plan.gpus < quick.plan.gpus
    assert cheap.score.usd_per_step < quick.score.usd_per_step


def test_too_little_memory_says_how_much() -> None:
    asked = problem(cluster(domain("a", 1, 1), memory_gb=2.0), gpt(8, 2048))
    answer = SingleDomain().propose(asked, STOP)
    assert_sound(asked, answer)
    assert answer.notes[0].startswith("small does not fit into any single domain. The closest one lacks ")
