from __future__ import annotations

import numpy as np
import pytest

from hippo.planners.recipe import (
    Recipe,
    compute_seconds,
    largest_width,
    micro_batches,
    powers_of_two,
    recomputations,
    shardings,
    tensor_widths,
)
from hippo.problem.model import gpt_model
from hippo.simulate.costs import cost_model

from .worlds import cluster, domain, problem

WHERE = cluster(domain("a", 2, 8))
PROBLEM = problem(WHERE)


def test_powers_of_two() -> None:
    assert powers_of_two(9) == (1, 2, 4, 8)
    assert powers_of_two(0) == ()


def test_the_largest_width_deals_the_batch_evenly() -> None:
    assert largest_width(24, 2, 8) == 6
    assert largest_width(24, 5, 8) == 0
    assert largest_width(4, 1, 8) == 4


def test_tensor_widths_split_heads_and_stay_inside_a_node() -> None:
    costs = cost_model(PROBLEM)
    assert tensor_widths(costs, domain("a", 2, 8)) == (1, 2, 4, 8)
    assert tensor_widths(costs, domain("a", 2, 4)) == (1, 2, 4)
    odd = gpt_model("odd", layers=2, hidden=768, heads=6, vocab=4096, seq=512)
    assert tensor_widths(cost_model(problem(WHERE, odd)), domain("a", 2, 8)) == (1, 2)


def test_micro_batches_are_powers_of_two_up_to_32() -> None:
    costs = cost_model(PROBLEM)
    assert micro_batches(costs, 1, most=12) == (1, 2, 4, 8)
    assert micro_batches(costs, 1, most=1000)[-1] == 32


def test_recomputation_modes_each_free_more_than_the_one_before() -> None:
    costs = cost_model(PROBLEM)
    modes = recomputations(costs)
    kept = [
        costs.memory("a", 1, 2, Recipe(1, mode).layout(PROBLEM, tp=1, dp=1), live=1.0).activation_bytes
        for mode in modes
    ]
    assert modes[0] == "none"
    assert modes[-1] == "full"
    assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize(
    ("runtime", "pipeline", "expected"),
    [
        ("any", False, ("none", "optimizer", "gradients", "full")),
        ("any", True, ("none", "optimizer", "full")),
        ("hippo", True, ("none",)),
        ("hippo:live", False, ("none",)),
        ("megatron", True, ("none", "optimizer")),
        ("torch", True, ("none", "gradients", "full")),
        ("deepspeed", True, ("none", "optimizer")),
    ],
)
def test_shardings_that_a_runtime_has(runtime: str, pipeline: bool, expected: tuple[str, ...]) -> None:
    wanted = ("none", "optimizer", "gradients", "full")
    assert shardings(problem(WHERE, runtime=runtime), wanted, pipeline=pipeline) == expected


def test_sharded_state_leaves_the_seconds_of_a_micro_batch_as_they_are() -> None:
    costs = cost_model(PROBLEM)
    plain = compute_seconds(costs, "a", Recipe(2), tp=2, dp=1)
    direct = costs.layer_seconds("a", Recipe(2, sharding="optimizer").layout(PROBLEM, tp=2, dp=4)).sum(axis=1)
    assert np.array_equal(plain, compute_seconds(costs, "a", Recipe(2, sharding="optimizer"), tp=2, dp=4))
    assert np.array_equal(plain, direct)
    gathered = compute_seconds(costs, "a", Recipe(2, sharding="full"), tp=2, dp=8)
    assert gathered.sum() > plain.sum()
