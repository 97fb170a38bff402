from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.cost.cost_model import CostModel
from hippo.planners.memory import MemoryEstimate, memory_estimate
from hippo.planners.recipe import STATE_SHARDINGS, Recipe
from hippo.problem.runtimes import RUNTIMES
from hippo.simulate.costs import cost_model

from .worlds import cluster, domain, gpt, problem

PROBLEM = problem(cluster(domain("a", 2, 8)), gpt(6))


@pytest.mark.parametrize("sharding", STATE_SHARDINGS)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("tp", "dp", "micro_batch"), [(1, 4, 1), (4, 2, 4)])
def test_rooms_say_what_the_cost_floor_says(sharding: str, recompute: str, tp: int, dp: int, micro_batch: int) -> None:
    costs, recipe = cost_model(PROBLEM), Recipe(micro_batch, recompute, sharding)
    for span in ((0, 8), (0, 3), (3, 5), (5, 8)):
        layout = recipe.layout(PROBLEM, tp=tp, dp=dp, stages=1 if span == (0, 8) else 3)
        expected = costs.memory("a", *span, layout, live=2.0).peak_bytes
        assert memory_estimate(costs).peak_bytes(recipe, tp, dp, span, 2.0) == pytest.approx(expected, rel=1e-12)


def test_a_model_that_fits_one_stage_has_no_copy_of_what_is_tied() -> None:
    """Nobody knows the number of stages: 80 GB hold the model, 1 GB do not, and then the head has its matrix."""
    where = cluster(domain("a", 2, 8), memory_gb=1.0)
    for asked, copy in ((PROBLEM, 0), (problem(where, gpt(6)), 4096 * 1024 * 16)):
        known = memory_estimate(cost_model(asked))
        alone, found = (known.kept(1, 1, "none", piped=piped) for piped in (False, None))
        assert found[-1] - alone[-1] == pytest.approx(copy)


def test_what_is_missing_is_the_fullest_stages() -> None:
    costs, recipe = cost_model(PROBLEM), Recipe(2)
    peaks = [
        MemoryEstimate(costs).peak_bytes(recipe, 1, 1, span, live)
        for span, live in (((0, 3), 3), ((3, 5), 2), ((5, 8), 1))
    ]
    assert MemoryEstimate(costs).missing_bytes(recipe, 1, 1, (0, 3, 5, 8), 9) == pytest.approx(max(peaks) - 80e9)


def test_planners_share_the_rooms_of_a_cost_model() -> None:
    costs = cost_model(PROBLEM)
    assert memory_estimate(costs) is memory_estimate(costs)


@pytest.mark.parametrize("last", RUNTIMES)
def test_a_runtime_asked_after_the_others_keeps_its_own_memory(last: str) -> None:
    """Problems that cost the same share what is known of them; those of runtimes that differ in it do not."""
    for name in (*(each for each in RUNTIMES if each != last), last):
        asked = replace(PROBLEM, runtime=name)
        found = memory_estimate(cost_model(asked)).left(4, Recipe(2))
    assert list(found) == list(MemoryEstimate(CostModel(asked)).left(4, Recipe(2)))
