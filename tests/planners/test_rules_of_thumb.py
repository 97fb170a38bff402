"""The three takeaways of Narayanan et al., SC'21, on one domain of two nodes of four GPUs."""

from __future__ import annotations

import pytest

from hippo.planners.recipe import Recipe
from hippo.planners.rules_of_thumb import megatron_layouts, model_parallel_sizes, smallest_size, uniform_layout
from hippo.simulate.costs import cost_model

from .worlds import cluster, domain, gpt, problem


def groups(tp: int) -> int:
    return 2 * (4 // tp)


def costs(memory_gb: float = 80.0, **given: object):
    return cost_model(problem(cluster(domain("a", 2, 4), memory_gb=memory_gb), gpt(8, 2048), **given))


def test_tensor_parallelism_fills_the_node_before_stages_are_added() -> None:
    assert list(model_parallel_sizes(costs(), groups)) == [(1, 1), (2, 1), (4, 1), (4, 2)]


@pytest.mark.parametrize(
    ("memory_gb", "expected"),
    [(80.0, (1, 1)), (7.0, (2, 1)), (4.0, (4, 1)), (2.5, (4, 2)), (1.0, None)],
)
def test_the_smallest_size_that_fits_is_taken(memory_gb: float, expected: tuple[int, int] | None) -> None:
    missing: list[float] = []
    assert smallest_size(costs(memory_gb), groups, Recipe(1), missing.append) == expected
    assert all(one > 0 for one in missing)
    assert len(missing) == {(1, 1): 0, (2, 1): 1, (4, 1): 2, (4, 2): 3, None: 4}[expected]


def test_data_parallelism_takes_the_rest_and_the_blocks_are_dealt_evenly() -> None:
    inside = uniform_layout(costs(), groups, (2, 2), Recipe(2))
    assert inside is not None
    assert (inside.tp, inside.dp, inside.pp, inside.waves) == (2, 2, 2, 4)
    assert inside.cuts == (0, 5, 10)


def test_the_micro_batch_is_swept_and_lanes_become_fewer_when_it_is_large() -> None:
    plain = [one for one in megatron_layouts(costs(), groups, lambda missing: None) if one.recipe.sharding == "none"]
    tried = {(one.recipe.micro_batch, one.dp, one.waves) for one in plain if one.recipe.recompute == "none"}
    assert tried == {(1, 8, 2), (2, 8, 1), (4, 4, 1), (8, 2, 1), (16, 1, 1)}


def test_stages_come_in_multiples_where_every_domain_wants_as_many() -> None:
    assert {one.pp for one in megatron_layouts(costs(), groups, lambda missing: None, multiple=2)} == {2}
