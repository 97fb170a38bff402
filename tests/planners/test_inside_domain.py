"""The search inside a domain against every layout worked out one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from hippo.planners.inside_domain import DomainSearch, Inside, missing_bytes, step_seconds
from hippo.planners.recipe import Recipe, micro_batches, recomputations, shardings, tensor_widths
from hippo.problem.objective import objective_from_text
from hippo.simulate.costs import cost_model

from .worlds import cluster, domain, gpt, problem

WHERE = domain("a", 2, 2)


def every_layout(asked) -> list[Inside]:
    costs, batch = cost_model(asked), asked.workload.global_batch
    found = []
    for tp in tensor_widths(costs, WHERE):
        for size in micro_batches(costs, tp, most=batch):
            for recompute in recomputations(costs):
                for pp in range(1, min(4 // tp, 3) + 1):
                    for sharding in shardings(asked, ("none", "optimizer", "gradients", "full"), pipeline=pp > 1):
                        if pp > 1 and sharding == "full":
                            continue
                        for dp in range(1, 4 // tp // pp + 1):
                            if batch % (size * dp):
                                continue
                            for inner in combinations(range(1, asked.model.num_layers), pp - 1):
                                cuts = (0, *inner, asked.model.num_layers)
                                recipe = Recipe(size, recompute, sharding)
                                inside = Inside("a", tp, dp, cuts, recipe, batch // (size * dp), 0.0)
                                if missing_bytes(costs, inside) <= 0:
                                    found.append(replace(inside, seconds=step_seconds(costs, inside)))
    return found


@pytest.mark.parametrize("memory_gb", [80.0, 3.2, 2.8])
def test_no_layout_is_faster_by_the_closed_form(memory_gb: float) -> None:
    asked = problem(cluster(WHERE, memory_gb=memory_gb), gpt(3, 1024, vocab=32768), batch=8)
    layouts = every_layout(asked)
    (first, *_) = DomainSearch(cost_model(asked), WHERE, 8).best(5)
    # Cuts are chosen for the slowest stage alone, so what is done once per step may differ by a little.
    assert first.seconds <= min(one.seconds for one in layouts) * 1.01
    assert any(one.cuts == first.cuts and one.recipe == first.recipe and one.tp == first.tp for one in layouts)


def test_layouts_come_out_fastest_first_and_all_fit() -> None:
    asked = problem(cluster(WHERE, memory_gb=3.2), gpt(3, 1024, vocab=32768), batch=8)
    costs, rejected = cost_model(asked), list[float]()
    found = list(DomainSearch(costs, WHERE, 8).layouts(rejected.append))
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert all(missing_bytes(costs, one) <= 0 for one in found)
    assert rejected
    assert min(rejected) > 0


def test_narrower_layouts_are_looked_at_where_money_counts() -> None:
    asked = problem(cluster(WHERE), batch=8)
    for objective, expected in (("time", {4}), ("cost", {1, 2, 4})):
        search = DomainSearch(
            cost_model(replace(asked, objective=objective_from_text(objective))), WHERE, 8, pps=(1,), tps=(1,)
        )
        assert {one.dp for one in search.layouts() if one.recipe.micro_batch == 1} == expected


def test_even_cuts_are_kept_even() -> None:
    asked = problem(cluster(WHERE), gpt(4, vocab=65536), batch=8)
    found = DomainSearch(cost_model(asked), WHERE, 8, even=True, pps=(2,)).best(3)
    assert {one.cuts for one in found} == {(0, 3, 6)}
    balanced = DomainSearch(cost_model(asked), WHERE, 8, pps=(2,)).best(3)
    assert {one.cuts for one in balanced} != {(0, 3, 6)}  # the head is worth several blocks
